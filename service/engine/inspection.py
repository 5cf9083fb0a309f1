"""Looking inside, as the rest of the server sees it: who replays, on which thread, and how many may wait.

A replay reads a chosen source and target once more through the weights that serve. It never runs in the engine's
thread but in one of its own, on one core, and in slices: one layer, one station, one matrix written out. Before the
first it waits, for a while, until no sequence is being decoded; after each it rests while there is one, several times
as long as the slice took. So translations go first, and a busy engine still gives a replay a share of one core. One
replay runs at a time; a few may wait, and more are refused at once.

Threads of a low priority would not do: one that holds Python's lock and is not given a core keeps the engine waiting.

Nothing here names torch: what does the work is a `Replayer`, made when the models are loaded.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.config import TransformerConfig
from model.decoding import DecodingOptions
from model.selection import Kind, Selection
from model.words import TokenText, Word
from service.aside import rest_by
from service.engine.errors import DeadlineExceeded, EngineStopping, InspectionBusy

T = TypeVar("T")
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

MAX_REST_SECONDS = 0.5
"""How long a replay waits at most for the engine to have nothing to do; a busy engine would keep it out for ever."""

REST_RATIO = 7.0
"""How much longer than a slice the rest after it is, while sequences are decoded: it takes an eighth of a core."""

_LOOK_SECONDS = 0.005
"""How often it looks."""

SPEED_MEMORY = 0.8
"""How much of the measured duration stays from one replay to the next."""


# --- what is asked, and what comes back -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What there is to know of a loaded model without running it.

    Attributes:
        config: Its shape.
        num_parameters: Numbers that were learned.
        unk_id: Of its tokenizer.
        bos_id: Of its tokenizer.
        forbidden_ids: What no search writes.
        precision: Number format of its matrices.
        recipe: How it aligns, as `model.alignment.AlignmentRecipe.to_dict` gives it.
        has_own_recipe: Whether the recipe was tuned for it.
    """

    config: TransformerConfig
    num_parameters: int
    unk_id: int
    bos_id: int
    forbidden_ids: tuple[int, ...]
    precision: str
    recipe: Mapping[str, Any]
    has_own_recipe: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A statement about numbers, measured when they were made: see `model.stations.base.Check`."""

    name: str
    says: str
    value: float
    tolerance: float
    passed: bool


@dataclass(frozen=True, slots=True)
class Capture:
    """The maps of one pair.

    Attributes:
        maps: [layer][head][query][key] of each kind that was asked for; -inf where a score is forbidden.
        checks: About the maps.
        alignment: By the model's recipe, from the same pass; None where it was not asked for.
    """

    maps: Mapping[Kind, Floats]
    checks: tuple[CheckResult, ...]
    alignment: SegmentAlignment | None = None


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """Which maps are wanted of a pair.

    Attributes:
        source_ids: Ended by eos.
        target_ids: Without the start token.
        selection: Kinds, layers and heads.
        measure: `weights`, `scores` or `value_norm`.
        rollout: Through all layers up to each selected one, instead of the maps themselves.
        log_probs: What the search said of each target token, to be compared; None where there was no search.
        texts: Of source and target, where an alignment is wanted, too.
    """

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    selection: Selection
    measure: str = "weights"
    rollout: bool = False
    log_probs: tuple[float, ...] | None = None
    texts: tuple[TokenText, TokenText] | None = None


@dataclass(frozen=True, slots=True)
class StationResult:
    """One of the 15 stations.

    Attributes:
        number: From 1 to 15.
        name: As `model.stations.registry.STATIONS` has it.
        station: Its dataclass, with numpy arrays.
        arrays: All of its numbers by name.
        checks: Computed with them.
        code: Plain numpy that computes `result` from the arrays in `file`.
        result: The name of the array that the code computes again.
        tolerance: How far the two may be apart.
    """

    number: int
    name: str
    station: Any
    arrays: Mapping[str, NDArray[Any]]
    checks: tuple[CheckResult, ...]
    code: str
    result: str
    tolerance: float


@dataclass(frozen=True, slots=True)
class StationRequest:
    """Which stations of a pair are wanted.

    Attributes:
        source_ids: Ended by eos.
        target_ids: Without the start token.
        stations: In the order wanted, each with its fields of `model.stations.registry.Options`.
        search: How the target was searched, for what that search could not choose; None where nothing was searched.
        open_end: One row more, after the last token.
    """

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    stations: tuple[tuple[str, Mapping[str, Any]], ...]
    search: DecodingOptions | None = None
    open_end: bool = False


@dataclass(frozen=True, slots=True)
class AlignmentPair:
    """A segment and its translation.

    Attributes:
        source_ids: Ended by eos.
        source: Their text: `model.words.source_text(encoding)`.
        target_ids: Without the start token: `Hypothesis.tokens`.
        target: Their text; None lets the tokenizer say it.
    """

    source_ids: tuple[int, ...]
    source: TokenText
    target_ids: tuple[int, ...]
    target: TokenText | None = None


@dataclass(frozen=True, slots=True)
class WordLink:
    """Two indices that belong together, and how surely: from 0 to 1."""

    source: int
    target: int
    score: float


@dataclass(frozen=True, slots=True)
class SegmentAlignment:
    """Which words, and which pieces, belong together.

    Attributes:
        source: As given.
        target: The text of the target ids and the place of each.
        source_words: Without special ones; their spans count in `source.text`, their pieces in the source ids.
        target_words: Likewise in `target.text`.
        links: Between indices of the two.
        unaligned_source: Indices of source words without a link.
        unaligned_target: Likewise.
        token_links: For each target piece that stands for text, the source piece it looks at most, special ones left
            out; indices of ids.
        recipe: What was followed.
    """

    source: TokenText
    target: TokenText
    source_words: tuple[Word, ...]
    target_words: tuple[Word, ...]
    links: tuple[WordLink, ...]
    unaligned_source: tuple[int, ...]
    unaligned_target: tuple[int, ...]
    token_links: tuple[WordLink, ...]
    recipe: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """How probable a target is: the fields of `model.scoring.Score`."""

    probabilities: Doubles
    nats: Doubles
    bits: Doubles
    ranks: NDArray[np.int64]
    smoothed_nats: Doubles
    total_nats: float
    total_bits: float
    perplexity: float
    total_smoothed_nats: float


@dataclass(frozen=True, slots=True)
class NextResult:
    """What could come after a prefix: the fields of `model.scoring.NextCandidates`; candidates by its fields' names."""

    candidates: tuple[Mapping[str, Any], ...]
    greedy_id: int
    probability_sum: float
    entropy_nats: float


class Replayer(Protocol):
    """Runs the models once more, in any thread. Its methods block, and call `breathe` between short slices of work."""

    def enter_thread(self) -> None:
        """Called once in each thread that replays, before anything else there."""

    def facts(self) -> Mapping[str, ModelFacts]:
        """Of every model, by name."""

    def capture(self, model: str, request: CaptureRequest) -> Capture:
        """Replays a pair and keeps maps."""

    def stations(self, model: str, request: StationRequest) -> list[StationResult]:
        """Replays a pair and opens stations.

        Raises:
            model.selection.TraceError: There is no such layer, head or position.
        """

    def align(
        self, model: str, pairs: Sequence[AlignmentPair], recipe: Mapping[str, Any] | None = None
    ) -> list[SegmentAlignment]:
        """Aligns pairs by the model's recipe, or by another one.

        Raises:
            ValueError: The recipe cannot be followed.
        """

    def score(
        self, model: str, source_ids: Sequence[int], target_ids: Sequence[int], label_smoothing: float
    ) -> ScoreResult:
        """Says how probable a target is."""

    def next(
        self, model: str, source_ids: Sequence[int], prefix_ids: Sequence[int], options: Mapping[str, Any]
    ) -> NextResult:
        """Says what could come after a prefix; options as `model.scoring.next_candidates` has them."""


class Aligner(Protocol):
    """Aligns what was translated."""

    async def align(
        self, model: str, pairs: Sequence[AlignmentPair], deadline: float | None = None
    ) -> list[SegmentAlignment]:
        """Which words of a translation come from which words of its source.

        Args:
            model: Name of the model that translated.
            pairs: Segments; read together.
            deadline: As in `EngineRequest`.

        Raises:
            EngineError: The engine is not there, or time was up.
        """


# --- the threads ------------------------------------------------------------------------------------------------------


class Inspection:
    """The replaying threads: one for people who look, one for translations that need their alignment.

    The first waits for gaps between translations, and has a short queue. The second is part of translating: it does not
    wait, is never too busy, and does not wait for people who look.

    Args:
        max_waiting: Replays that may wait; more are refused with `InspectionBusy`.
        is_decoding: Whether sequences are running now.
        clock: Monotonic seconds; what deadlines are compared with.
    """

    def __init__(
        self,
        max_waiting: int,
        is_decoding: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_waiting = max_waiting
        self._is_decoding = is_decoding
        self._clock = clock
        self._replayer: Replayer | None = None
        self._facts: Mapping[str, ModelFacts] = {}
        self._lookers = ThreadPoolExecutor(1, "gossamer-inspection", self._begin, (True,))
        self._aligners = ThreadPoolExecutor(1, "gossamer-alignment", self._begin, (False,))
        self._lock = threading.Lock()
        self._num_pending = 0
        self._recent_seconds = 0.0
        self._slice_started = -math.inf
        self._is_closed = False

    def open(self, replayer: Replayer) -> None:
        """Called once, in any thread, when the models are loaded."""
        self._facts = dict(replayer.facts())
        self._replayer = replayer

    def facts(self, model: str) -> ModelFacts:
        """What there is to know of a model.

        Raises:
            EngineStopping: It is not loaded yet.
        """
        found = self._facts.get(model)
        if found is None:
            raise EngineStopping("the engine is loading its models")
        return found

    async def run(self, work: Callable[[Replayer], T], deadline: float | None = None) -> T:
        """Does some work in the replaying thread, when it is free.

        If the caller is cancelled, work that has not begun is dropped; what has begun runs to its end, unheard.

        Raises:
            InspectionBusy: Too much waits already.
            DeadlineExceeded: Time was up.
            EngineStopping: The models are not loaded, or no longer there.
        """
        replayer = self._opened()
        with self._lock:
            if self._num_pending > self._max_waiting:
                raise InspectionBusy(self._num_pending, self._max_waiting, self._retry_after_seconds())
            self._num_pending += 1
        try:
            future = self._lookers.submit(self._measured, work, replayer)
        except RuntimeError as error:
            self._forget(None)
            raise EngineStopping from error
        future.add_done_callback(self._forget)
        return await self._result(future, deadline)

    async def align(
        self, model: str, pairs: Sequence[AlignmentPair], deadline: float | None = None
    ) -> list[SegmentAlignment]:
        """See `Aligner.align`; in a thread of its own."""
        replayer = self._opened()
        try:
            future = self._aligners.submit(replayer.align, model, pairs)
        except RuntimeError as error:
            raise EngineStopping from error
        return await self._result(future, deadline)

    async def close(self) -> None:
        """Takes no more work, and waits for what runs."""
        self._is_closed = True
        for pool in (self._lookers, self._aligners):
            await asyncio.to_thread(pool.shutdown, wait=True, cancel_futures=True)

    def _begin(self, rests: bool) -> None:
        """The first thing that a thread does."""
        assert self._replayer is not None
        if rests:
            rest_by(self._rest)
        self._replayer.enter_thread()

    def _rest(self) -> None:
        """After a slice; as what follows, called by the replaying thread alone."""
        self._wait_for_gap(REST_RATIO * (self._clock() - self._slice_started))

    def _wait_for_gap(self, seconds: float) -> None:
        """Until nothing is decoded, at most so long. The next slice starts then."""
        waits_until = self._clock() + min(seconds, MAX_REST_SECONDS)
        while self._is_decoding() and not self._is_closed:
            left = waits_until - self._clock()
            if left <= 0:
                break
            time.sleep(min(left, _LOOK_SECONDS))
        self._slice_started = self._clock()

    def _opened(self) -> Replayer:
        if self._is_closed:
            raise EngineStopping
        if self._replayer is None:
            raise EngineStopping("the engine is loading its models")
        return self._replayer

    async def _result(self, future: Future[T], deadline: float | None) -> T:
        seconds = None if deadline is None else max(0.0, deadline - self._clock())
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise DeadlineExceeded("") from error
        except asyncio.CancelledError:
            if self._is_closed and future.cancelled():
                raise EngineStopping from None
            raise

    def _measured(self, work: Callable[[Replayer], T], replayer: Replayer) -> T:
        started = self._clock()
        self._wait_for_gap(MAX_REST_SECONDS)
        try:
            return work(replayer)
        finally:
            with self._lock:
                self._recent_seconds = SPEED_MEMORY * self._recent_seconds + (1 - SPEED_MEMORY) * (
                    self._clock() - started
                )

    def _forget(self, _future: Future[Any] | None) -> None:
        with self._lock:
            self._num_pending -= 1

    def _retry_after_seconds(self) -> float:
        """When about half of what waits will be done, at the speed of late."""
        return float(max(1, math.ceil(self._recent_seconds * self._num_pending / 2)))
