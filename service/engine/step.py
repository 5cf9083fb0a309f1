"""What crosses between scheduler, core and runner: plain data, so that each can be tested without the others."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from model.decoding import DecodingOptions, Hypothesis
from service.engine.interface import ModelInfo


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A sequence that joins the batch.

    Attributes:
        sequence_id: Names it from now on, and is never used again.
        source_ids: The source, ended by eos.
        options: How to search.
        forced_prefix: Tokens that every hypothesis begins with.
        max_target_tokens: Longest target, eos included.
        with_log_probs: Whether a greedy hypothesis carries log-probabilities.
    """

    sequence_id: int
    source_ids: tuple[int, ...]
    options: DecodingOptions
    forced_prefix: tuple[int, ...]
    max_target_tokens: int
    with_log_probs: bool


@dataclass(frozen=True, slots=True)
class EncodeGroup:
    """Newcomers that are encoded in one go: of one model, and of like length.

    Attributes:
        model: Name of the model.
        newcomers: At least one.
    """

    model: str
    newcomers: tuple[Newcomer, ...]


@dataclass(frozen=True, slots=True)
class Stride:
    """How many decode steps may be done before anything else is: a runner may do fewer, and does one at least.

    Attributes:
        max_steps: Most steps. None follows one with which a sequence ended.
        max_seconds: None begins after so long.
        is_wanted: None begins while this is not 0; other threads set it.
        tells_tokens: Whether anybody wants to hear of tokens before their sequence ends.
    """

    max_steps: int = 1
    max_seconds: float = 0.0
    is_wanted: ctypes.c_int32 | None = None
    tells_tokens: bool = True


ONE_STEP = Stride()


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """What the runner does next: drop, encode and join, then one decode step for all rows, or more.

    Attributes:
        departed: Sequences to drop first. Some may have ended by themselves, or may never have been encoded.
        groups: Newcomers.
        stride: How many steps.
        is_encoder_full: Whether more were let in if the encoder could take more before the next step.
        some_wait: Whether more wait than this runner has place or time for.
    """

    departed: tuple[int, ...] = ()
    groups: tuple[EncodeGroup, ...] = ()
    stride: Stride = ONE_STEP
    is_encoder_full: bool = False
    some_wait: bool = False

    @property
    def num_encoded_tokens(self) -> tuple[int, int]:
        """Source tokens to encode, and the padding beside them: each group is as wide as its longest source."""
        num_tokens = num_positions = 0
        for group in self.groups:
            lengths = [len(newcomer.source_ids) for newcomer in group.newcomers]
            num_tokens += sum(lengths)
            num_positions += max(lengths) * len(lengths)
        return num_tokens, num_positions - num_tokens

    @property
    def num_row_tokens(self) -> int:
        """The source tokens, each times the rows that its sequence takes."""
        newcomers = (newcomer for group in self.groups for newcomer in group.newcomers)
        return sum(len(newcomer.source_ids) * newcomer.options.beam_size for newcomer in newcomers)


@dataclass(frozen=True, slots=True)
class SequenceUpdate:
    """What a step did for one sequence. Runner and caller forget a sequence that `is_final`.

    Attributes:
        sequence_id: Which one.
        new_token_ids: Tokens that are certain now; all updates joined are `tokens_without_eos`. None for a beam.
        hypotheses: When it has ended well: the best ones, best first.
        failure: When it has ended badly: why, in words.
    """

    sequence_id: int
    new_token_ids: tuple[int, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    failure: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the sequence has ended."""
        return bool(self.hypotheses) or self.failure is not None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the runner did.

    Attributes:
        updates: At most one a sequence; sequences of which there is nothing to tell are left out.
        encode_seconds: For each newcomer, the time from the start of the step until its encoding was done.
        num_rows: Rows that were decoded, in all steps.
        total_encode_seconds: Time in encoders.
        decode_seconds: Time in decode steps.
        num_steps: Steps that were done; of several models at once, the most.
        gpu_memory_used_bytes: Of the GPU that runs the models, by every process; 0 if there is none, or it was not
            looked at in this step.
        gpu_memory_total_bytes: Of the same GPU.
    """

    updates: tuple[SequenceUpdate, ...] = ()
    encode_seconds: Mapping[int, float] = field(default_factory=dict)
    num_rows: int = 0
    total_encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    num_steps: int = 1
    gpu_memory_used_bytes: int = 0
    gpu_memory_total_bytes: int = 0


class ModelRunner(Protocol):
    """Owns the models, or shares them with those beside it. Called in one thread only.

    Attributes:
        useful_rows: More rows in a step take as much longer as they are more, and are of no use; None if that is not
            known.

    Whatever `execute` raises is a fault of the engine; what concerns one sequence is told in its update.
    """

    useful_rows: int | None

    def models(self) -> tuple[ModelInfo, ...]:
        """The models it runs."""

    def warm_up(self) -> None:
        """Called once before the first `execute`: whatever is slow the first time is done now."""

    def execute(self, output: SchedulerOutput) -> StepResult:
        """Drops, encodes and joins what `output` says, then decodes all rows, as far as the stride goes."""

    def beside(self) -> Sequence[ModelRunner]:
        """Runners of the same models that may work at the same time, each in a thread of its own; called once."""
