"""Decode steps of a few fixed shapes at fixed addresses, so that a GPU is told each of them once: CUDA graphs.

A decode step is some two hundred short kernels; to launch them one by one takes longer than to run them. So rows are
padded to the next rung of a ladder of batch sizes, and positions to the next of widths; everything a step reads or
writes lies in buffers that never move; and what a step needs to know of its rows goes there in one copy, what came of
it comes back in another: the only time a step waits for the GPU. The step itself is the modules' own (`Decoder.step`),
over caches in pages (`pages.py`).

Nothing here is of CUDA but `CudaCapture`: elsewhere the same step runs as it is, and tests replay a recording of it.

Letters: R rows, W pages of a row in a step, P pages of the pool, L decoder layers, M model width, V vocabulary, K best
tokens that a step reports.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.pages import NO_PAGE, POSITIONS, PagedState, PagePool, Pages, stacked, widened
from model.search import TOP_K_BLOCK_SIZE, LogitsSummary, block_maxima, gather_blocks

if TYPE_CHECKING:
    from model.transformer import Transformer

logger = logging.getLogger(__name__)

MAX_GRAPHS = 64
"""Shapes that are captured; further ones run as they are. A graph holds some memory of the GPU."""

NUM_BEST = 64
"""K: twice the widest beam's rows of candidates, which is 32, so that banned tokens and ties leave enough."""

_BIN_PAGE = 1
"""Where rows that are only padding write; nobody reads it."""

_WARM_WIDTHS = (2, 4)
_HEAD = 4  # numbers of a row before its pages: token, position, slot to write to, length of its source

Step = Callable[[Tensor, Tensor, Tensor, Tensor], None]
Capture = Callable[[Step, tuple[Tensor, Tensor, Tensor, Tensor]], Callable[[], None]]
"""Runs a step on buffers and records it; what it returns runs it again on what the buffers hold by then."""


def rungs(most: int) -> list[int]:
    """Batch sizes up to ``most``, which is the last: 1, 2, 3, 4, 8, 16, 24, 32, 48, 64, 96, and so on."""
    sizes = [size for power in range(most.bit_length()) for size in (1 << power, 3 << power >> 1) if size < most]
    return [*sorted({size for size in sizes if size <= 4 or size % 8 == 0}), most]


class OutOfPages(RuntimeError):
    """More pages are wanted than were set apart; whoever admits sequences has counted wrong."""


class CudaCapture:
    """Records steps as CUDA graphs, which share their working memory: they run one after the other."""

    def __init__(self) -> None:
        """Make a stream to record in."""
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step, buffers: tuple[Tensor, Tensor, Tensor, Tensor]) -> Callable[[], None]:
        """Run ``step`` twice, so that libraries have chosen their kernels, and record it."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(2):
                step(*buffers)
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: a look inside the model may be using the GPU in another one.
        with torch.cuda.graph(graph, self._memory, self._stream, capture_error_mode="thread_local"):
            step(*buffers)
        return graph.replay


class GraphPages(PagePool):
    """Pages of keys and values of 16 positions in all layers, of sources and targets alike, at one address.

    Attributes:
        numbers: (L, 2, 16 P, M), keys and values. Page ``NO_PAGE`` holds zeros for ever: what a row may not look at
            must still be finite, for a weight of zero times NaN is NaN.
    """

    def __init__(self, num_layers: int, width: int, num_pages: int, device: torch.device, dtype: torch.dtype) -> None:
        """Set apart ``num_pages``, besides two of our own."""
        super().__init__(num_reserved=2)
        self._num_pages = num_pages + 2
        self.numbers = torch.zeros(num_layers, 2, self._num_pages * POSITIONS, width, device=device, dtype=dtype)
        self._by_page = self.numbers.view(num_layers, 2, self._num_pages, POSITIONS * width)

    def more(self) -> int:
        """All pages at the first call.

        Raises:
            OutOfPages: There are no more.
        """
        if self.num_total == self._num_pages:
            raise OutOfPages(f"all {self._num_pages - 2} pages of {POSITIONS} positions are taken")
        return self._num_pages

    def clear(self, pages: Sequence[int]) -> None:
        """Zeros: the last owner may have left NaN behind what a new one has written."""
        self._by_page.index_fill_(2, to_device(pages, self.numbers.device), 0)

    def copy(self, pages: Sequence[tuple[int, int]]) -> None:
        """Copy what pages hold: (from, to) pairs."""
        sources, targets = to_device(pages, self.numbers.device).unbind(1)
        self._by_page.index_copy_(2, targets, self._by_page.index_select(2, sources))

    def write(self, layer: int, pages: Tensor, keys: Tensor, values: Tensor) -> None:
        """Fill ``pages`` (n,) with keys and values of a layer, each (n, 16 M)."""
        self._by_page[layer, 0].index_copy_(0, pages, keys)
        self._by_page[layer, 1].index_copy_(0, pages, values)


class GraphState(PagedState):
    """The rows of a running batch.

    Attributes:
        source_pages: (R, any) int32, the pages of each row's source, then ``NO_PAGE``.
    """

    def __init__(self, pool: GraphPages, source_lengths: Sequence[int], source_pages: Pages) -> None:
        """Rows at position 0, whose pages of the source are theirs already."""
        super().__init__(pool, source_lengths)
        self.source_pages = source_pages

    def __del__(self) -> None:
        """Give back all pages."""
        super().__del__()
        self._pool.exchange(self.source_pages, self.source_pages[:0])

    def _select_sources(self, index: NDArray[np.intp]) -> None:
        selected = self.source_pages[index]
        self._pool.exchange(self.source_pages, selected)
        self.source_pages = selected

    def _join_sources(self, other: PagedState) -> None:
        assert isinstance(other, GraphState)
        self.source_pages = stacked(self.source_pages, other.source_pages)
        other.source_pages = other.source_pages[:0]


class BestSummary(LogitsSummary):
    """The K best tokens of each row, in the processor's memory."""

    def __init__(self, logits: Tensor, at: Tensor, values: Tensor, ids: Tensor, log_sums: Tensor) -> None:
        """Remember.

        Args:
            logits: (any, V), where they were computed: read only for what is not among the best.
            at: (R,) int64, which of ``logits`` is each row.
            values: (R, K) the best logits, best first. All logits above the last of them are there; of those that are
                equal to it some may be missing.
            ids: (R, K) int64, their tokens, of equals the lowest first.
            log_sums: (R,) logarithm of the sum of e^logit.
        """
        self._logits = logits
        self._at = at
        self._values = values
        self._ids = ids
        self._log_sums = log_sums

    def rows(self, index: Tensor) -> BestSummary:
        """The summary of some rows."""
        return BestSummary(self._logits, self._at[index], self._values[index], self._ids[index], self._log_sums[index])

    def best_tokens(self) -> tuple[Tensor, Tensor]:
        """The best token of each row."""
        return self._values[:, 0], self._ids[:, 0]

    def candidates(self, k: int, banned: Sequence[AbstractSet[int]]) -> tuple[Tensor, Tensor] | None:
        """As for any summary."""
        num_best = self._values.shape[1]
        if k > num_best:
            return None
        values, ids = self._values.numpy(), self._ids.numpy()
        if all(some is banned[0] for some in banned):
            is_banned = np.isin(ids, list(banned[0]))
        else:
            is_banned = np.stack([np.isin(row, list(some)) for row, some in zip(ids, banned, strict=True)])
        last = np.full(len(ids), -np.inf) if num_best == self._logits.shape[1] else values[:, -1]
        first = np.argsort(is_banned, axis=1, kind="stable")[:, :k]  # the permitted ones, in order
        found = np.take_along_axis(values, first, axis=1)
        if not ((found[:, -1] > last) & ~np.take_along_axis(is_banned, first[:, -1:], axis=1)[:, 0]).all():
            return None
        log_probs = torch.from_numpy(found) - self._log_sums.unsqueeze(1)
        return log_probs, torch.from_numpy(np.take_along_axis(ids, first, axis=1))

    def log_probs(self, tokens: Tensor) -> Tensor:
        """(R,) the log-probability of one token a row."""
        is_chosen = self._ids == tokens.unsqueeze(1)
        if bool(np.all(is_chosen.numpy().any(axis=1))):
            chosen = self._values[is_chosen]
        else:
            at, ids = self._at.to(self._logits.device), tokens.to(self._logits.device)
            chosen = self._logits[at, ids].cpu()
        return chosen - self._log_sums


@dataclass(frozen=True, slots=True)
class _PagedSelfCache:
    """One layer's keys and values of the targets, as `SelfAttentionCache` to a decoder layer."""

    numbers: Tensor  # (2, 16 P, M)
    slots: Tensor  # (R,) where each row writes
    pages: Tensor  # (R * W,)
    num_heads: int

    def write(self, keys: Tensor, values: Tensor, positions: Tensor, max_position: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002  # the pages say where
        """Store one position a row, (R, H, 1, D), and return all that the rows may look at, (R, H, 16 W, D)."""
        self.numbers[0].index_copy_(0, self.slots, keys.flatten(1))
        self.numbers[1].index_copy_(0, self.slots, values.flatten(1))
        rows = len(self.slots)
        return (
            _gathered(self.numbers[0], self.pages, rows, self.num_heads),
            _gathered(self.numbers[1], self.pages, rows, self.num_heads),
        )


@dataclass(frozen=True, slots=True)
class _PagedCrossCache:
    """One layer's keys and values of the sources, as `CrossAttentionCache` to a decoder layer."""

    numbers: Tensor
    pages: Tensor
    rows: int
    num_heads: int

    @property
    def keys(self) -> Tensor:
        """(R, H, 16 W, D)."""
        return _gathered(self.numbers[0], self.pages, self.rows, self.num_heads)

    @property
    def values(self) -> Tensor:
        """(R, H, 16 W, D)."""
        return _gathered(self.numbers[1], self.pages, self.rows, self.num_heads)


@dataclass(frozen=True, slots=True)
class _StepCaches:
    """A step's state, as `DecoderState` to the decoder."""

    self_caches: list[_PagedSelfCache]
    cross_caches: list[_PagedCrossCache]
    source_mask: Tensor
    positions: Tensor
    num_columns: int


class GraphTranslator:
    """Prefill and decode steps of a model whose steps are captured.

    Args:
        model: In the precision it keeps: its weights may not move any more.
        max_rows: Most rows of a step.
        max_positions: Longest source or target.
        cache_bytes: For the keys and values of all rows; set apart now.
        capture: How a step is recorded; None runs each as it is.
    """

    def __init__(
        self, model: Transformer, *, max_rows: int, max_positions: int, cache_bytes: int, capture: Capture | None
    ) -> None:
        config = model.config
        self._model = model
        self._capture = capture
        self._rungs = rungs(max_rows)
        most = config.max_positions or max_positions
        self._max_positions = min(max_positions, most)
        widths = [2]
        while widths[-1] * POSITIONS < max_positions:
            widths.append(2 * widths[-1])
        self._widths = widths
        weight = model.target_embedding.weight
        page_bytes = 2 * config.num_decoder_layers * POSITIONS * config.d_model * weight.element_size()
        self._pool = GraphPages(
            config.num_decoder_layers, config.d_model, cache_bytes // page_bytes, weight.device, weight.dtype
        )
        self._num_best = min(NUM_BEST, config.target_vocab_size)
        device, is_cuda = weight.device, weight.device.type == "cuda"
        self._inputs = torch.zeros(max_rows * (_HEAD + 2 * widths[-1]), device=device, dtype=torch.int32)
        self._host_inputs = torch.zeros(self._inputs.shape, dtype=torch.int32, pin_memory=is_cuda)
        self._found = torch.zeros(max_rows * (2 * self._num_best + 1), device=device, dtype=torch.int32)
        self._host_found = torch.zeros(self._found.shape, dtype=torch.int32, pin_memory=is_cuda)
        self._logits = torch.zeros(max_rows, config.target_vocab_size, device=device, dtype=torch.float32)
        self._buffers = self._inputs, self._pool.numbers, self._logits, self._found
        self._steps: dict[tuple[int, int], Callable[[], None]] = {}
        self._tables: list[tuple[Tensor, ...]] = []
        """Positional encodings that captured steps read: they may grow elsewhere, and would be freed here."""
        self.num_captured = 0

    def warm_up(self) -> None:
        """Capture the steps of sentences, for any number of rows; longer ones are captured when they first come."""
        for rows in self._rungs:
            for width in _WARM_WIDTHS:
                if width in self._widths:
                    self._send(rows, width, 0, np.zeros((0, _HEAD + 2 * width), dtype=np.int32))
                    self._run(rows, width)

    def prefill(self, sources: Sequence[Sequence[int]]) -> GraphState:
        """Encode sources and write their keys and values; one row each, at position 0."""
        from model.transformer import pad_sequences

        model, pool = self._model, self._pool
        ids, mask = pad_sequences(sources, model.config.pad_id)
        caches = model.decoder.cross_caches(model.encode(to_device(ids, model.device), to_device(mask, model.device)))
        counts = [-(-len(source) // POSITIONS) for source in sources]
        taken = pool.take(sum(counts))
        table = np.full((len(sources), max(counts)), NO_PAGE, dtype=np.int32)
        is_page = np.arange(max(counts)) < np.array(counts)[:, None]
        table[is_page] = taken
        state = GraphState(pool, list(map(len, sources)), table)
        chosen, pages = to_device(np.flatnonzero(is_page), model.device), to_device(taken, model.device)
        for layer, cache in enumerate(caches):
            pool.write(layer, pages, _paged(cache.keys)[chosen], _paged(cache.values)[chosen])
        return state

    def decode_step(self, tokens: Tensor, state: GraphState) -> tuple[Tensor, BestSummary]:
        """Decode one position of every row.

        Returns:
            The logits of the next token, (R, V) float32, until the next step overwrites them; and the best of them.

        Raises:
            ValueError: More rows than there is room for.
        """
        state.prepare_step()
        rows = state.num_rows
        if rows > self._rungs[-1]:
            raise ValueError(f"{rows} rows in a step; there is room for {self._rungs[-1]}")
        padded = next(size for size in self._rungs if size >= rows)
        longest = max(int(state.positions.max()) + 1, int(state.source_lengths.max()))
        width = next(width for width in self._widths if width * POSITIONS >= longest)
        given = np.empty((rows, _HEAD + 2 * width), dtype=np.int32)
        pages = state.pages[np.arange(rows), state.positions // POSITIONS]
        given[:, 0] = tokens.numpy()
        given[:, 1] = state.positions
        given[:, 2] = pages * POSITIONS + state.positions % POSITIONS
        given[:, 3] = state.source_lengths
        given[:, _HEAD : _HEAD + width] = _of_width(state.pages, width)
        given[:, _HEAD + width :] = _of_width(state.source_pages, width)
        self._send(padded, width, rows, given)
        self._run(padded, width)
        state.advance()
        return self._logits[:rows], self._receive(rows)

    def _send(self, padded: int, width: int, rows: int, given: NDArray[np.int32]) -> None:
        """Tell the next step of its rows, and fill it up with rows that read and harm nothing."""
        size = padded * (_HEAD + 2 * width)
        host = self._host_inputs.numpy()[:size].reshape(padded, -1)
        host[:rows] = given
        host[rows:] = NO_PAGE
        host[rows:, :_HEAD] = self._model.config.decoder_start_id, 0, _BIN_PAGE * POSITIONS, 1
        self._inputs[:size].copy_(self._host_inputs[:size], non_blocking=True)

    def _receive(self, rows: int) -> BestSummary:
        size = rows * (2 * self._num_best + 1)
        self._host_found[:size].copy_(self._found[:size], non_blocking=True)
        if self._found.is_cuda:
            torch.cuda.current_stream().synchronize()
        # Copied, for the next step overwrites it.
        found = self._host_found[:size].view(rows, -1).clone()
        values, ids = found[:, : self._num_best].view(torch.float32), found[:, self._num_best : -1].long()
        return BestSummary(self._logits, torch.arange(rows), values, ids, found[:, -1].view(torch.float32))

    def _run(self, rows: int, width: int) -> None:
        """Run a step; captured, if this shape was, or can be now."""
        step = self._steps.get((rows, width))
        if step is None:
            step = self._steps[rows, width] = self._captured(functools.partial(self._step, rows, width))
        step()

    def _captured(self, step: Step) -> Callable[[], None]:
        plain = functools.partial(step, *self._buffers)
        if self._capture is None or self.num_captured >= MAX_GRAPHS:
            return plain
        try:
            captured = self._capture(step, self._buffers)
        except RuntimeError:
            logger.warning("a decode step cannot be captured, and runs kernel by kernel", exc_info=True)
            return plain
        self.num_captured += 1
        self._tables.append(self._model.decoder_tables(self._max_positions))
        return captured

    def _step(self, rows: int, width: int, inputs: Tensor, numbers: Tensor, logits: Tensor, found: Tensor) -> None:
        """One step of ``rows`` rows over ``width`` pages of target and of source: no shape here depends on a number."""
        model = self._model
        columns = width * POSITIONS
        given = inputs[: rows * (_HEAD + 2 * width)].view(rows, -1).long()
        tokens, positions, slots, lengths = given[:, :_HEAD].unbind(1)
        pages, source_pages = given[:, _HEAD : _HEAD + width].flatten(), given[:, _HEAD + width :].flatten()
        heads = model.config.num_heads
        caches = _StepCaches(
            [_PagedSelfCache(layer, slots, pages, heads) for layer in numbers],
            [_PagedCrossCache(layer, source_pages, rows, heads) for layer in numbers],
            source_mask=torch.arange(columns, device=inputs.device) < lengths.unsqueeze(1),
            positions=positions,
            num_columns=columns,
        )
        last_position = min(columns, self._max_positions) - 1
        hidden = model.target_embedding(tokens.unsqueeze(1), positions.unsqueeze(1), last_position)
        logits[:rows] = model.logits(model.decoder.step(hidden, caches).squeeze(1))
        _report(logits[:rows], found[: rows * (2 * self._num_best + 1)].view(rows, -1), self._num_best)


def _report(logits: Tensor, found: Tensor, num_best: int) -> None:
    """Write the best logits, their tokens and the logarithm of the sum of all (R, 2 K + 1), all as 32 bits."""
    if (num_best + 1) * TOP_K_BLOCK_SIZE < logits.shape[1]:
        # What is not in the blocks with the best maxima is no better than the last of these.
        blocks = block_maxima(logits, TOP_K_BLOCK_SIZE).topk(num_best).indices
        values, ids = gather_blocks(logits, blocks, TOP_K_BLOCK_SIZE)
        values, places = values.topk(num_best)
        ids = ids.gather(1, places)
    else:
        values, ids = logits.topk(num_best)
    ids, order = ids.sort(dim=-1)
    values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    found[:, :num_best] = values.view(torch.int32)
    found[:, num_best:-1] = ids.gather(1, order)
    found[:, -1] = logits.logsumexp(-1).view(torch.int32)


def _gathered(numbers: Tensor, pages: Tensor, rows: int, num_heads: int) -> Tensor:
    """(16 P, M) and pages (R * W,) -> (R, H, 16 W, D)."""
    by_page = numbers.view(-1, POSITIONS * numbers.shape[1])
    return by_page.index_select(0, pages).view(rows, -1, num_heads, numbers.shape[1] // num_heads).transpose(1, 2)


def _paged(split: Tensor) -> Tensor:
    """(B, H, S, D) -> (B * pages, 16 M), the last page of each filled with zeros."""
    flat = split.transpose(1, 2).flatten(2)
    padded = torch.nn.functional.pad(flat, (0, 0, 0, -flat.shape[1] % POSITIONS))
    return padded.reshape(-1, POSITIONS * flat.shape[2])


def _of_width(pages: Pages, width: int) -> Pages:
    return pages[:, :width] if pages.shape[1] >= width else widened(pages, width)


def to_device(numbers: Tensor | Sequence[object] | NDArray[np.int64], device: torch.device) -> Tensor:
    """A tensor of what is given, without waiting for the device."""
    tensor = numbers if isinstance(numbers, Tensor) else torch.as_tensor(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
