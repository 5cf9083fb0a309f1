"""What goes into the engine and what comes out: plain values.

A *request* is what a client sent; a *sequence* is one source in it, decoded in one row, or one row a beam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from model.decoding import DecodingOptions, Hypothesis
from service.engine.errors import SequenceFailed

FinishReason = Literal["stop", "length", "failed"]


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """One source to be translated.

    Attributes:
        source_ids: The source, ended by the model's end-of-sentence id.
        options: How to search.
        forced_prefix: Tokens that every hypothesis begins with.
    """

    source_ids: tuple[int, ...]
    options: DecodingOptions = DecodingOptions()
    forced_prefix: tuple[int, ...] = ()

    @property
    def row_tokens(self) -> int:
        """Source tokens times the rows that decode them: a measure of the work, which a beam multiplies."""
        return len(self.source_ids) * self.options.beam_size


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """Sources that belong together: they are accepted, and come to their end, as one.

    Attributes:
        request_id: Unique among the requests that have not ended.
        model: Name of the model, one of `Engine.models`.
        sequences: At least one. They are started in this order.
        deadline: Reading of `time.monotonic` (seconds) after which the result is worth nothing; None for never.
        with_log_probs: Whether greedy hypotheses carry log-probabilities and a score; others always do.
        tells_tokens: Whether a stream tells of tokens before their sequence ends. Where nobody asks for that, many
            steps are done at a time, and of ends that are near to one another it is told together.
    """

    request_id: str
    model: str
    sequences: tuple[SequenceRequest, ...]
    deadline: float | None = None
    with_log_probs: bool = False
    tells_tokens: bool = True

    def __post_init__(self) -> None:
        """Checks that there is something to do.

        Raises:
            ValueError: There are no sequences.
        """
        if not self.sequences:
            raise ValueError(f"request {self.request_id!r} has no sequences")

    @property
    def num_source_tokens(self) -> int:
        """Over all sequences."""
        return sum(len(sequence.source_ids) for sequence in self.sequences)

    @property
    def row_tokens(self) -> int:
        """As of a sequence, over all."""
        return sum(sequence.row_tokens for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class SequenceTimings:
    """Where a sequence's time went; the first three add up to its whole stay.

    Attributes:
        queue_seconds: From submission until the encoder took it up.
        encode_seconds: In the encoder, with those encoded beside it.
        decode_seconds: From there to its end.
        first_token_seconds: From submission until its first token was decoded, certain or not.
    """

    queue_seconds: float
    encode_seconds: float
    decode_seconds: float
    first_token_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SequenceResult:
    """What became of one sequence.

    Attributes:
        hypotheses: The `num_hypotheses` best, best first; fewer where there are not as many, none if it failed.
        finish_reason: Of the best hypothesis; "failed" if the model gave nothing usable.
        timings: Where the time went.
        num_source_tokens: Of the source, end of sentence included.
        num_target_tokens: Of the best hypothesis, end of sentence included.
        failure: Why it failed, in words, else None.
    """

    hypotheses: tuple[Hypothesis, ...]
    finish_reason: FinishReason
    timings: SequenceTimings
    num_source_tokens: int
    num_target_tokens: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class RequestResult:
    """What became of a request that ran to its end.

    Attributes:
        request_id: Of the request.
        sequences: One for each sequence, in the order of the request.
    """

    request_id: str
    sequences: tuple[SequenceResult, ...]

    @property
    def num_source_tokens(self) -> int:
        """Over all sequences."""
        return sum(sequence.num_source_tokens for sequence in self.sequences)

    @property
    def num_target_tokens(self) -> int:
        """Over the best hypotheses of all sequences."""
        return sum(sequence.num_target_tokens for sequence in self.sequences)

    def raise_if_failed(self) -> None:
        """Raises `SequenceFailed` for the first sequence that failed, if any."""
        for index, sequence in enumerate(self.sequences):
            if sequence.failure is not None:
                raise SequenceFailed(index, sequence.failure)


@dataclass(frozen=True, slots=True)
class TokensEvent:
    """New tokens of a sequence that is greedy or sampled. They are final: later ones are only added.

    Attributes:
        sequence_index: Which sequence of the request.
        token_ids: The new ones. All events of a sequence joined are `tokens_without_eos` of its hypothesis.
    """

    sequence_index: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SequenceDoneEvent:
    """A sequence has ended; for a beam this is the first that is heard of it.

    Attributes:
        sequence_index: Which sequence of the request.
        result: What became of it.
    """

    sequence_index: int
    result: SequenceResult


@dataclass(frozen=True, slots=True)
class RequestDoneEvent:
    """The last event: every sequence has ended.

    Attributes:
        result: All of it.
    """

    result: RequestResult


EngineEvent = TokensEvent | SequenceDoneEvent | RequestDoneEvent
