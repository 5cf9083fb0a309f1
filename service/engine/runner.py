"""The models and their running batches: the only file of the server that knows torch.

Each model has one `DecodingState`, whose rows belong to its running sequences, one sequence after the other. A step
drops rows, joins newcomers and decodes one position of every row; then each search says which of its rows go on.

Where our kernels run a model, they also search, in batches of their own (`model/native/batch.py`); only what they do
not know, such as sampling, is searched in Python beside them.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from model.checkpoint import Checkpoint
from model.config import Precision, TransformerConfig
from model.decoding import DecodingOptions
from model.description import advised_decoding
from model.generation import forbidden_outputs
from model.graphs import Capture, CudaCapture
from model.native.batch import NativeBatch, NativeBook, Wanted
from model.native.library import set_threads, threads
from model.search import (
    GreedySearch,
    NonFiniteLogits,
    SamplingSearch,
    Search,
    SearchStep,
    advance_batch,
    reads_of,
    start_search,
)
from model.transformer import DecodingState
from service.engine.interface import ModelInfo
from service.engine.limits import EngineLimits
from service.engine.step import ONE_STEP, EncodeGroup, Newcomer, SchedulerOutput, SequenceUpdate, StepResult, Stride

NOT_FINITE = "the model gave no finite number for its next token"
LONG_SOURCE_TOKENS = 128
"""Longer sources take turns with shorter ones: their rows' steps cost several times as much."""
NO_HYPOTHESIS = "the search found no hypothesis"

_SMALL_WEIGHTS = 8 << 20
"""Of what a step reads: as many as the kernels' threads decode in parts of their own (`search.c`)."""
_MAX_RUNNERS = 4
_USEFUL_ROWS = 16
"""Of a small model, for one thread: a row costs as much beside 3 others as beside 63."""


@dataclass(slots=True)
class _Sequence:
    """A sequence whose rows are in the batch."""

    sequence_id: int
    search: Search
    num_told: int = 0
    """Tokens that updates have told."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A sequence and its rows in the state."""

    sequence: _Sequence
    rows: range


class _Batch:
    """One model, and the sequences it is decoding."""

    def __init__(self, checkpoint: Checkpoint, lock: threading.Lock) -> None:
        self.checkpoint = checkpoint
        self._lock = lock
        self._model = checkpoint.model.eval()
        self._config = checkpoint.config
        self.device = self._model.device
        self._forbidden_ids = forbidden_outputs(checkpoint.config, checkpoint.tokenizer)
        self._sequences: list[_Sequence] = []
        self._tokens: list[int] = []
        """The next input of each row."""
        self._state: DecodingState | None = None

    @property
    def num_rows(self) -> int:
        """Rows in the batch."""
        return len(self._tokens)

    def drop(self, sequence_ids: set[int]) -> None:
        """Takes sequences out of the batch; those that are not in it do not matter."""
        kept = [place for place in self._placed() if place.sequence.sequence_id not in sequence_ids]
        if len(kept) == len(self._sequences):
            return
        rows = [row for place in kept for row in place.rows]
        self._sequences = [place.sequence for place in kept]
        self._tokens = [self._tokens[row] for row in rows]
        with self._lock:
            self._select(rows)

    def join(self, newcomers: Sequence[Newcomer]) -> None:
        """Encodes newcomers together and appends a row for each."""
        with self._lock:
            state = self._model.prefill([newcomer.source_ids for newcomer in newcomers])
            if self._state is None:
                self._state = state
            else:
                self._state.join(state)  # type: ignore[arg-type]  # of the same kind, being of the same model
        for newcomer in newcomers:
            self._sequences.append(_Sequence(newcomer.sequence_id, self._start_search(newcomer)))
            self._tokens.append(self._config.decoder_start_id)

    def step(self, stride: Stride = ONE_STEP) -> tuple[int, int, list[SequenceUpdate]]:  # noqa: ARG002  # as below
        """Decodes one position of every row: steps, rows, and what came of it."""
        num_rows = self.num_rows
        if not num_rows:
            return 0, 0, []
        with self._lock:
            return 1, num_rows, self._step()

    def _step(self) -> list[SequenceUpdate]:
        assert self._state is not None
        reads = reads_of(sequence.search for sequence in self._sequences)
        logits, summary = self._model.decode_step_summarized(torch.tensor(self._tokens), self._state, reads)
        placed = self._placed()
        num_sequences = len(placed)
        updates: list[SequenceUpdate] = []
        steps: list[SearchStep] = []
        while placed:
            try:
                steps = advance_batch([place.sequence.search for place in placed], logits, summary)
                break
            except NonFiniteLogits as error:  # No search has moved: without those concerned the step is repeated.
                placed, failed, kept = _without(placed, set(error.rows))
                logits = logits[kept]
                summary = None if summary is None else summary.rows(kept)
                updates += failed
        for place, step in zip(placed, steps, strict=True):
            update = _update(place.sequence, step)
            if update is not None:
                updates.append(update)
        self._move_rows(placed, steps, is_anyone_gone=len(placed) < num_sequences)
        self._sequences = [place.sequence for place in placed if not place.sequence.search.finished]
        return updates

    def _placed(self) -> list[_Place]:
        places = []
        first_row = 0
        for sequence in self._sequences:
            rows = range(first_row, first_row + sequence.search.num_rows)
            places.append(_Place(sequence, rows))
            first_row = rows.stop
        return places

    def _start_search(self, newcomer: Newcomer) -> Search:
        return start_search(
            newcomer.options,
            eos_id=self._config.eos_id,
            max_tokens=newcomer.max_target_tokens,
            forbidden_ids=self._forbidden_ids,
            forced_prefix=newcomer.forced_prefix,
            with_log_probs=newcomer.with_log_probs,
        )

    def _move_rows(self, placed: Sequence[_Place], steps: Sequence[SearchStep], *, is_anyone_gone: bool) -> None:
        """Makes the rows of the state those that the searches go on with."""
        assert self._state is not None
        self._tokens = [token for step in steps for token in step.tokens]
        rows = [place.rows[parent] for place, step in zip(placed, steps, strict=True) for parent in step.parents]
        keeps_rows = all(len(step.parents) == len(place.rows) for place, step in zip(placed, steps, strict=True))
        if keeps_rows and not is_anyone_gone:
            self._state.reorder(rows)  # Every sequence keeps its rows, and with them its source.
        else:
            self._select(rows)

    def _select(self, rows: list[int]) -> None:
        assert self._state is not None
        if rows:
            self._state.select(rows)
        else:
            self._state = None  # An empty batch gives back all of its memory.


class _NativeBatch:
    """As `_Batch`, where the kernels search."""

    def __init__(self, checkpoint: Checkpoint, book: NativeBook) -> None:
        self._batch: NativeBatch = checkpoint.model.eval().native_batch(
            book, forbidden_outputs(checkpoint.config, checkpoint.tokenizer)
        )

    @property
    def num_rows(self) -> int:
        """Rows in the batch."""
        return self._batch.num_rows

    def drop(self, sequence_ids: set[int]) -> None:
        """Takes sequences out of the batch; those that are not in it do not matter."""
        self._batch.drop(sequence_ids)

    def join(self, newcomers: Sequence[Newcomer]) -> None:
        """Encodes newcomers together and appends a row for each."""
        self._batch.join(
            [
                Wanted(
                    newcomer.sequence_id,
                    newcomer.source_ids,
                    newcomer.options,
                    newcomer.max_target_tokens,
                    newcomer.forced_prefix,
                    newcomer.with_log_probs,
                )
                for newcomer in newcomers
            ]
        )

    def step(self, stride: Stride = ONE_STEP) -> tuple[int, int, list[SequenceUpdate]]:
        """Decodes every row, as far as the stride goes: steps, rows, and what came of it."""
        advance = self._batch.advance(stride.max_steps, stride.max_seconds, stride.is_wanted)
        updates = []
        if stride.tells_tokens:
            updates = [SequenceUpdate(sequence_id, tokens) for sequence_id, tokens in self._batch.new_tokens()]
        for ended in advance.ended:
            if ended.hypotheses:
                updates.append(SequenceUpdate(ended.key, ended.new_tokens, ended.hypotheses))
            else:
                updates.append(SequenceUpdate(ended.key, failure=NO_HYPOTHESIS if ended.is_finite else NOT_FINITE))
        return advance.num_steps, advance.num_rows, updates


class _Lane(NamedTuple):
    """Which batch a sequence is in."""

    model: str
    is_long: bool
    """Whether its source is."""
    is_native: bool
    """Whether the kernels search."""


class _Turns:
    """When long sources are encoded and their rows take a step, beside shorter ones.

    A row reads all keys and values of its source and its past in each step: at 400 tokens that costs many times what a
    step of a short row does, and to encode the source costs as much as forty. So that sentences do not wait for
    documents at each of their tokens, the two take turns by time: long ones have theirs, one encoding and one step,
    when the others have had as much time as theirs took last, or 64 steps. So nobody is slowed by more than half,
    and where short ones are many or long ones cheap, all step together.
    """

    MAX_SKIPPED = 64

    def __init__(self) -> None:
        self._long_seconds = 0.0
        self._short_seconds = 0.0
        self._num_skipped = 0

    def is_due(self, short_seconds: float) -> bool:
        """Whether long ones step now, after a step of short ones that took so long."""
        self._short_seconds += short_seconds
        self._num_skipped += 1
        return self._num_skipped > self.MAX_SKIPPED or self._short_seconds >= self._long_seconds

    def taken(self, long_seconds: float) -> None:
        """Long ones have taken a step, which took so long."""
        self._long_seconds = long_seconds
        self._short_seconds = 0.0
        self._num_skipped = 0


class _Company:
    """The runners that share models and a processor."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        """For all of them together."""
        self.searching = threading.Lock()
        """Held by whoever searches in Python, for these batches share one book of pages."""
        self._num_working = 0
        self._counting = threading.Lock()

    @contextmanager
    def working(self) -> Iterator[None]:
        """While a runner works: alone it has all threads, otherwise they share them."""
        with self._counting:
            self._num_working += 1
            set_threads(max(1, self.num_threads // self._num_working))
        try:
            yield
        finally:
            with self._counting:
                self._num_working -= 1


class Runner:
    """A `ModelRunner` over checkpoints in this process.

    Args:
        checkpoints: The models; their names differ.
        limits: The longest sources and targets.
        num_threads: Threads to compute with; None leaves it as it is.
        precision: Number format of the matrices, see `Transformer.set_precision`; changes the models in place. None
            leaves them as they are.
        batch_invariant: See `Transformer.make_batch_invariant`.
        cuda_graphs: On a GPU, and without `batch_invariant`, capture decode steps; see `model/graphs.py`. Each model
            then sets apart `limits.kv_cache_bytes` at once.
        capture: Records decode steps on any device, in place of CUDA graphs.

    Raises:
        ValueError: Two checkpoints have one name, or there is none.
        Int8Unavailable: int8 was asked for, and torch has no kernels for this processor or device.
        BatchVariance: `batch_invariant` was asked for, and this machine's products cannot be made so.
    """

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        limits: EngineLimits,
        num_threads: int | None = None,
        precision: Precision | None = None,
        *,
        batch_invariant: bool = False,
        cuda_graphs: bool = True,
        capture: Capture | None = None,
    ) -> None:
        names = [checkpoint.name for checkpoint in checkpoints]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"models need names of their own, and there must be one; given: {names}")
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        if precision is not None:
            for checkpoint in checkpoints:
                checkpoint.model.set_precision(precision)
        if batch_invariant:
            for checkpoint in checkpoints:
                checkpoint.model.make_batch_invariant()
        on_gpu = [checkpoint for checkpoint in checkpoints if checkpoint.model.device.type == "cuda"]
        if on_gpu and cuda_graphs and not batch_invariant:
            capture = capture or CudaCapture()
        if capture is not None:
            for checkpoint in checkpoints:
                checkpoint.model.use_graphs(
                    max_rows=limits.max_rows,
                    max_positions=max(limits.max_source_tokens, limits.max_target_tokens),
                    cache_bytes=limits.kv_cache_bytes,
                    capture=capture,
                )
        if all(checkpoint.model.is_native for checkpoint in checkpoints):
            # All that is heavy runs in our kernels. Torch's workers, which spin for a while after each small operation,
            # would only hold the cores that the kernels' workers need.
            set_threads(num_threads or threads())
            torch.set_num_threads(1)
        self._limits = limits
        self._checkpoints = {checkpoint.name: checkpoint for checkpoint in checkpoints}
        self._device = checkpoints[0].model.device
        self._company = _Company(threads())
        self._is_small = all(
            checkpoint.model.is_native and _step_weights(checkpoint.config) <= _SMALL_WEIGHTS
            for checkpoint in checkpoints
        )
        is_alone = self._company.num_threads > _MAX_RUNNERS
        rows = _USEFUL_ROWS * (self._company.num_threads if is_alone else 1)
        self.useful_rows = rows if self._is_small else None
        self._start_empty()

    def _start_empty(self) -> None:
        self._memory_read_at = -math.inf
        # A book has working memory for one call at a time.
        self._books = {name: checkpoint.model.native_book() for name, checkpoint in self._checkpoints.items()}
        self._lanes: dict[_Lane, _Batch | _NativeBatch] = {}
        self._turns = _Turns()
        self._put_off: list[EncodeGroup] = []
        """Long newcomers whose turn has not come."""

    def beside(self) -> list[Runner]:
        """Runners that share the models and the processor with this one; none where one alone is as fast.

        Threads within one step wait for one another at its end, and with a small model that is a step of a millisecond,
        after which Python has its turn: half of a core was idle or spinning then. Runners that decode for themselves,
        each in one thread, never wait. A large model's weights are read from memory in each step, better once for all;
        and of many runners Python's lock would be the bound.
        """
        num_threads = self._company.num_threads
        if not self._is_small or not 1 < num_threads <= _MAX_RUNNERS:
            return []
        for checkpoint in self._checkpoints.values():
            # The tables of positions grow, and a call of another runner may just be reading the old one.
            for embedding in (checkpoint.model.source_embedding, checkpoint.model.target_embedding):
                embedding.position_rows(max(self._limits.max_source_tokens, self._limits.max_target_tokens) + 1)
        others = [copy.copy(self) for _ in range(num_threads - 1)]
        for other in others:
            other._start_empty()
        return others

    def models(self) -> tuple[ModelInfo, ...]:
        """The models, in the order given."""
        return tuple(_model_info(checkpoint, self._limits) for checkpoint in self._checkpoints.values())

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Captures steps, and runs each model with one row and a few: first calls choose kernels and fetch memory.

        Raises:
            RuntimeError: A model gives NaN: no request would fare better.
        """
        for name, checkpoint in self._checkpoints.items():
            checkpoint.model.capture_steps()
            eos_id = checkpoint.config.eos_id
            # Sampling is searched by other means.
            for options in (DecodingOptions(), DecodingOptions(beam_size=4), DecodingOptions(temperature=1.0, seed=0)):
                newcomer = Newcomer(0, (eos_id,) * 8, options, (), max_target_tokens=4, with_log_probs=True)
                batch = self._join(name, False, [newcomer])[0]
                while batch.num_rows:
                    for update in batch.step()[2]:
                        if update.failure is not None:
                            raise RuntimeError(f"model {name!r} cannot be used: {update.failure}")

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> StepResult:
        """Drops, encodes and joins what `output` says, then decodes one position of every row of every model.

        Or more, as far as the stride goes, where only one batch has rows.

        But for long sources: beside shorter ones their encoding and their steps may be put off a little, see `_Turns`.
        """
        with self._company.working():
            return self._execute(output)

    def _execute(self, output: SchedulerOutput) -> StepResult:
        started_at = time.perf_counter()
        if output.departed:
            self._drop(set(output.departed))
        # A GPU's steps cost nearly the same for all rows, so that two would cost twice as much as one.
        has_turns = self._device.type == "cpu"
        long_groups = [group for group in output.groups if has_turns and _is_long(group)]
        self._put_off += long_groups
        short_groups = [group for group in output.groups if group not in long_groups]
        encode_seconds = self._encode(short_groups, False, started_at)
        encoded_at = time.perf_counter()
        num_steps, num_rows, updates = self._step(output.stride, is_long=False)
        stepped_at = time.perf_counter()
        decode_seconds = stepped_at - encoded_at if num_rows else 0.0
        total_encode_seconds = encoded_at - started_at if short_groups else 0.0
        if self._turns.is_due(stepped_at - started_at) or not num_rows:
            # One at a time also where nobody else is there: somebody may come meanwhile.
            chosen = self._put_off[:1]
            del self._put_off[:1]
            encode_seconds |= self._encode(chosen, True, started_at)
            long_encoded_at = time.perf_counter()
            num_long_steps, num_long_rows, long_updates = self._step(output.stride, is_long=True)
            ended_at = time.perf_counter()
            self._turns.taken(ended_at - stepped_at)
            num_rows += num_long_rows
            num_steps = max(num_steps, num_long_steps)
            updates += long_updates
            decode_seconds += ended_at - long_encoded_at if num_long_rows else 0.0
            total_encode_seconds += long_encoded_at - stepped_at if chosen else 0.0
        return StepResult(
            updates=tuple(updates),
            encode_seconds=encode_seconds,
            num_rows=num_rows,
            total_encode_seconds=total_encode_seconds,
            decode_seconds=decode_seconds,
            num_steps=max(1, num_steps),
            **self._gpu_memory(started_at),
        )

    def _drop(self, departed: set[int]) -> None:
        for batch in self._lanes.values():
            batch.drop(departed)
        staying = [
            EncodeGroup(group.model, tuple(each for each in group.newcomers if each.sequence_id not in departed))
            for group in self._put_off
        ]
        self._put_off = [group for group in staying if group.newcomers]

    def _step(self, stride: Stride, *, is_long: bool) -> tuple[int, int, list[SequenceUpdate]]:
        """Steps of all rows of short or of long sources: how many, of how many rows, and what came of it."""
        busy = [lane for lane, batch in self._lanes.items() if batch.num_rows]
        if len(busy) > 1 or self._put_off:
            stride = ONE_STEP
        done = [self._lanes[lane].step(stride) for lane in busy if lane.is_long == is_long]
        return (
            max((steps for steps, _, _ in done), default=0),
            sum(rows for _, rows, _ in done),
            [update for _, _, updates in done for update in updates],
        )

    def _gpu_memory(self, now: float) -> dict[str, int]:
        """The fields of a step about the GPU's memory, once a second: to ask takes as long as part of a step."""
        if self._device.type != "cuda" or now < self._memory_read_at + 1:
            return {}
        self._memory_read_at = now
        free, total = torch.cuda.mem_get_info(self._device)
        return {"gpu_memory_used_bytes": total - free, "gpu_memory_total_bytes": total}

    def _encode(self, groups: Sequence[EncodeGroup], is_long: bool, started_at: float) -> dict[int, float]:
        encode_seconds = {}
        for group in groups:
            self._join(group.model, is_long, group.newcomers)
            elapsed = time.perf_counter() - started_at
            encode_seconds.update({newcomer.sequence_id: elapsed for newcomer in group.newcomers})
        return encode_seconds

    def _join(self, model: str, is_long: bool, newcomers: Sequence[Newcomer]) -> list[_Batch | _NativeBatch]:
        """Encodes newcomers, and says which batches they are in."""
        checkpoint, book = self._checkpoints[model], self._books[model]
        by_lane: dict[_Lane, list[Newcomer]] = {}
        for newcomer in newcomers:
            is_native = book is not None and NativeBatch.can_search(
                newcomer.options, checkpoint.config.target_vocab_size
            )
            by_lane.setdefault(_Lane(model, is_long, is_native), []).append(newcomer)
        for lane, some in by_lane.items():
            if lane not in self._lanes:
                native = _NativeBatch(checkpoint, book) if lane.is_native and book is not None else None
                self._lanes[lane] = native or _Batch(checkpoint, self._company.searching)
            self._lanes[lane].join(some)
        return [self._lanes[lane] for lane in by_lane]


def _step_weights(config: TransformerConfig) -> int:
    """Weights that a decode step reads, as `gs_step_weights` counts them."""
    layer = 6 * config.d_model**2 + 2 * config.d_model * config.d_ff
    return config.num_decoder_layers * layer + config.target_vocab_size * config.d_model


def _is_long(group: EncodeGroup) -> bool:
    return max(len(newcomer.source_ids) for newcomer in group.newcomers) > LONG_SOURCE_TOKENS


def _without(placed: Sequence[_Place], bad_rows: set[int]) -> tuple[list[_Place], list[SequenceUpdate], Tensor]:
    """Takes out the sequences that own a bad row.

    Args:
        placed: The sequences whose rows the logits hold, one after the other.
        bad_rows: Rows of the logits.

    Returns:
        The other sequences, updates for those taken out, and the rows of the others (int64).
    """
    kept: list[_Place] = []
    kept_rows: list[int] = []
    failed: list[SequenceUpdate] = []
    first_row = 0
    for place in placed:
        rows = range(first_row, first_row + len(place.rows))
        first_row = rows.stop
        if bad_rows.isdisjoint(rows):
            kept.append(place)
            kept_rows += rows
        else:
            failed.append(SequenceUpdate(place.sequence.sequence_id, failure=NOT_FINITE))
    return kept, failed, torch.tensor(kept_rows, dtype=torch.int64)


def _update(sequence: _Sequence, step: SearchStep) -> SequenceUpdate | None:
    """What there is to tell of a sequence after its search has moved; None if nothing."""
    search = sequence.search
    # The tokens of a beam are not certain before its end, not even with a beam of one row.
    is_certain = isinstance(search, GreedySearch | SamplingSearch)
    if not search.finished:
        if not is_certain:
            return None
        sequence.num_told += len(step.tokens)
        return SequenceUpdate(sequence.sequence_id, tuple(step.tokens))
    hypotheses = tuple(search.hypotheses())
    if not hypotheses:
        return SequenceUpdate(sequence.sequence_id, failure=NO_HYPOTHESIS)
    new = hypotheses[0].tokens_without_eos[sequence.num_told :] if is_certain else ()
    return SequenceUpdate(sequence.sequence_id, new, hypotheses)


def _model_info(checkpoint: Checkpoint, limits: EngineLimits) -> ModelInfo:
    config = checkpoint.config
    max_positions = math.inf if config.max_positions is None else config.max_positions
    trained_window = checkpoint.max_source_tokens or math.inf
    return ModelInfo(
        name=checkpoint.name,
        source_language=checkpoint.source_language,
        target_language=checkpoint.target_language,
        revision=checkpoint.revision,
        precision=checkpoint.model.precision,
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        eos_id=config.eos_id,
        max_source_tokens=int(min(limits.max_source_tokens, max_positions, trained_window)),
        max_target_tokens=int(min(limits.max_target_tokens, max_positions)),
        # A source position takes as much as a target position: each layer keeps a key and a value of it.
        cache_bytes_per_token=2 * config.num_decoder_layers * config.d_model * checkpoint.model.cache_number_bytes,
        cache_page_tokens=checkpoint.model.cache_page_tokens,
        target_languages=getattr(checkpoint.tokenizer, "target_languages", ()),
        advised_decoding=advised_decoding(checkpoint.training),
    )
