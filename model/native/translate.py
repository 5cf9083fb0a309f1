"""Prefill and decode steps of a quantized model in one call of a compiled kernel each.

The same numbers as `Transformer.prefill` and `decode_step` on torch's kernels, but for rounding (tests hold the two
together). Sources are encoded one after the other, without padding; keys and values of a row lie in pages of 16
positions that it takes as it grows, so that long and short rows together cost what they cost apart, and a row that
leaves gives its pages back at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from model.layers import Embedding, LayerNorm
from model.linear import Linear
from model.native.library import (
    ACTIVATIONS,
    COLUMNS,
    POSITIONS,
    DecoderLayerStruct,
    EncoderLayerStruct,
    LinearStruct,
    ModelStruct,
    NormStruct,
    checked,
    kernels,
    threads,
)
from model.search import LogitsSummary

if TYPE_CHECKING:
    from model.decoder import DecoderLayer
    from model.encoder import EncoderLayer
    from model.transformer import Transformer

_PAGES_AT_ONCE = 32


class PagePool:
    """Pages of keys and values of 16 target positions in all layers, lent to rows and taken back.

    A page can belong to several rows: beams that share their past share its pages, and copy one only when they write
    to it.
    """

    def __init__(self, floats: int) -> None:
        """Pages of ``floats`` numbers; memory is fetched when the first is taken."""
        self._floats = floats
        self._slabs: list[Tensor] = []
        self._addresses: list[int] = []
        self._owners: list[int] = []
        self._free: list[int] = []

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return 4 * self._floats

    @property
    def num_used(self) -> int:
        """Pages lent at the moment."""
        return len(self._owners) - len(self._free)

    def take(self) -> int:
        """A page of its own, by number; what it holds is left from its last owner."""
        if not self._free:
            # Zeros: a row reads whole blocks, and what lies behind its last position must be a finite number.
            slab = torch.zeros(_PAGES_AT_ONCE, self._floats)
            first = len(self._owners)
            self._slabs.append(slab)
            self._addresses += [slab[index].data_ptr() for index in range(_PAGES_AT_ONCE)]
            self._owners += [0] * _PAGES_AT_ONCE
            self._free += range(first + _PAGES_AT_ONCE - 1, first - 1, -1)
        page = self._free.pop()
        self._owners[page] = 1
        return page

    def share(self, page: int) -> None:
        """One more owner."""
        self._owners[page] += 1

    def release(self, page: int) -> None:
        """One owner less; the last one's leaving frees it."""
        self._owners[page] -= 1
        if not self._owners[page]:
            self._free.append(page)

    def is_shared(self, page: int) -> bool:
        """Whether more than one row has it."""
        return self._owners[page] > 1

    def address(self, page: int) -> int:
        """Where it lies in memory."""
        return self._addresses[page]

    def copy(self, page: int) -> int:
        """A new page with the same numbers."""
        new = self.take()
        self._view(new).copy_(self._view(page))
        return new

    def _view(self, page: int) -> Tensor:
        return self._slabs[page // _PAGES_AT_ONCE][page % _PAGES_AT_ONCE]


@dataclass(slots=True)
class _Memory:
    """A source's keys and values in every decoder layer, read by all rows that translate it."""

    numbers: Tensor
    length: int


@dataclass(slots=True)
class _Row:
    memory: _Memory
    pages: list[int]
    position: int = 0


class PagedState:
    """The rows of a running batch; what `DecoderState` is for torch's kernels."""

    def __init__(self, pool: PagePool, rows: list[_Row]) -> None:
        """Rows that hold no pages yet."""
        self._pool = pool
        self._rows = rows
        self._arrange()

    @property
    def num_rows(self) -> int:
        """Rows in the batch."""
        return len(self._rows)

    @property
    def num_bytes(self) -> int:
        """Bytes of the keys and values that the rows hold: pages and sources, what is shared counted once."""
        pages = {page for row in self._rows for page in row.pages}
        sources = {id(row.memory): row.memory.numbers.nbytes for row in self._rows}
        return len(pages) * self._pool.page_bytes + sum(sources.values())

    def select(self, rows: list[int]) -> None:
        """Keep ``rows`` (any order, repeats allowed), in that order: all others leave the batch."""
        old = self._rows
        self._rows = [_Row(old[row].memory, list(old[row].pages), old[row].position) for row in rows]
        for row in self._rows:
            for page in row.pages:
                self._pool.share(page)
        for row in old:
            for page in row.pages:
                self._pool.release(page)
        self._arrange()

    def reorder(self, rows: list[int]) -> None:
        """Move beams among the rows of their own sequences: as many rows as there are."""
        if len(rows) != self.num_rows:
            raise ValueError(f"{len(rows)} rows given to reorder a state of {self.num_rows} rows")
        if rows != list(range(self.num_rows)):
            self.select(rows)

    def join(self, other: PagedState) -> None:
        """Append the rows of ``other``, which is used up by it."""
        self._rows += other._rows
        other._rows = []
        self._arrange()

    def __del__(self) -> None:
        """Give back all pages."""
        for row in self._rows:
            for page in row.pages:
                self._pool.release(page)

    def _arrange(self) -> None:
        """Write down what a step tells the kernel, where the rows have changed."""
        count = len(self._rows)
        width = max((len(row.pages) for row in self._rows), default=0) + 4
        self.pages = np.zeros((count, width), dtype=np.uint64)
        for index, row in enumerate(self._rows):
            self.pages[index, : len(row.pages)] = [self._pool.address(page) for page in row.pages]
        self.positions = np.array([row.position for row in self._rows], dtype=np.int32)
        self.cross = np.array([row.memory.numbers.data_ptr() for row in self._rows], dtype=np.uint64)
        self.cross_lengths = np.array([row.memory.length for row in self._rows], dtype=np.int32)

    def prepare_step(self) -> None:
        """Give every row a place of its own to write its next position to."""
        for index, row in enumerate(self._rows):
            if row.position % POSITIONS == 0:
                row.pages.append(self._pool.take())
            elif self._pool.is_shared(row.pages[-1]):
                shared = row.pages[-1]
                row.pages[-1] = self._pool.copy(shared)
                self._pool.release(shared)
            else:
                continue
            if len(row.pages) > self.pages.shape[1]:
                self.pages = np.pad(self.pages, ((0, 0), (0, self.pages.shape[1])))
            self.pages[index, len(row.pages) - 1] = self._pool.address(row.pages[-1])

    def advance(self) -> None:
        """Every row has decoded one position."""
        for row in self._rows:
            row.position += 1
        self.positions += 1


class KernelSummary(LogitsSummary):
    """A summary that is searched by a kernel too."""

    def rows(self, index: Tensor) -> KernelSummary:
        """The summary of some rows."""
        return KernelSummary(self.maxima[index], self.sums[index], self.block_size)

    def best_tokens(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """As the function `best_tokens`, but that -inf alone gives NaN."""
        values, ids, _ = self._best(logits, 1, [set()] * len(logits), with_sums=False)
        return values.squeeze(1), ids.squeeze(1)

    def candidates(self, logits: Tensor, k: int, banned: Sequence[set[int]]) -> tuple[Tensor, Tensor] | None:
        """As for any summary."""
        if k >= logits.shape[1]:
            return None
        values, ids, log_sums = self._best(logits, k, banned, with_sums=True)
        if bool((values[:, -1] == -torch.inf).any()):
            return None
        return values - log_sums.unsqueeze(1), ids

    def _best(
        self, logits: Tensor, k: int, banned: Sequence[set[int]], with_sums: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        library = kernels()
        assert library is not None
        rows, vocabulary = logits.shape
        assert logits.is_contiguous() and self.maxima.is_contiguous() and self.sums.is_contiguous()
        starts = np.cumsum([0, *map(len, banned)], dtype=np.int32)
        tokens = np.fromiter((token for some in banned for token in some), dtype=np.int32, count=int(starts[-1]))
        values, ids = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
        log_sums = torch.empty(rows if with_sums else 0)
        library.gs_best(
            rows, vocabulary, logits.data_ptr(), self.maxima.data_ptr(), self.sums.data_ptr(), k, tokens.ctypes.data,
            starts.ctypes.data, values.data_ptr(), ids.data_ptr(), log_sums.data_ptr() if with_sums else None,
        )  # fmt: skip
        return values, ids, log_sums


class NativeTranslator:
    """A quantized model's weights in the order in which the kernels read them."""

    def __init__(self, model: Transformer) -> None:
        """Describe ``model`` to the kernels; its weights are shared, not copied."""
        config = model.config
        self._model = model
        encoder = (EncoderLayerStruct * config.num_encoder_layers)(
            *(_encoder_layer(cast("EncoderLayer", layer)) for layer in model.encoder.layers)
        )
        decoder = (DecoderLayerStruct * config.num_decoder_layers)(
            *(_decoder_layer(cast("DecoderLayer", layer)) for layer in model.decoder.layers)
        )
        activation = config.activation
        if activation == "gelu" and config.gelu_approximation == "tanh":
            activation = "gelu_tanh"  # type: ignore[assignment]
        self._struct = ModelStruct(
            width=config.d_model, heads=config.num_heads, ffn_width=config.d_ff,
            encoder_layers=config.num_encoder_layers, decoder_layers=config.num_decoder_layers,
            vocabulary=config.target_vocab_size, pre_norm=config.norm == "pre", activation=ACTIVATIONS[activation],
            encoder=encoder, decoder=decoder, encoder_norm=_norm(model.encoder.norm),
            decoder_norm=_norm(model.decoder.norm), output=_linear(model.output),
            source_embedding=model.source_embedding.weight.data_ptr(),
            target_embedding=model.target_embedding.weight.data_ptr(), embedding_factor=config.embedding_factor,
        )  # fmt: skip
        self._block = 2 * POSITIONS * config.d_model
        self._pool = PagePool(config.num_decoder_layers * self._block)

    @staticmethod
    def fits(model: Transformer) -> bool:
        """Whether the kernels can run ``model``: compiled, in int8, and nothing that they do not know."""
        packed = all(module.packed is not None for module in model.modules() if isinstance(module, Linear))
        plain = all(
            embedding.weight.dtype == torch.float32 and embedding.weight.is_contiguous()
            for embedding in (model.source_embedding, model.target_embedding)
        )
        return kernels() is not None and packed and plain and model.config.positions != "rotary"

    def prefill(self, sources: list[list[int]]) -> PagedState:
        """Encode sources and write their keys and values; one row each, at position 0."""
        library = kernels()
        assert library is not None
        ids = np.array([token for source in sources for token in source], dtype=np.int32)
        starts = np.cumsum([0, *map(len, sources)], dtype=np.int32)
        memories = []
        for source in sources:
            # Zeros, for the reason of the pages'.
            blocks = -(-len(source) // POSITIONS)
            numbers = torch.zeros(self._struct.decoder_layers * blocks * self._block)
            memories.append(_Memory(numbers, len(source)))
        cross = np.array([memory.numbers.data_ptr() for memory in memories], dtype=np.uint64)
        table = _positions(self._model.source_embedding, max(map(len, sources)))
        checked(
            library.gs_encode(
                ctypes.byref(self._struct), threads(), ids.ctypes.data, table, len(sources),
                starts.ctypes.data, cross.ctypes.data,
            )
        )  # fmt: skip
        return PagedState(self._pool, [_Row(memory, []) for memory in memories])

    def decode_step(self, tokens: Tensor, state: PagedState) -> tuple[Tensor, LogitsSummary]:
        """Decode one position of every row: the next token's logits (R, V), and what is known of their blocks."""
        library = kernels()
        assert library is not None
        state.prepare_step()
        rows = state.num_rows
        ids = tokens.to(torch.int32)
        logits = torch.empty(rows, self._struct.vocabulary)
        maxima = torch.empty(rows, -(-self._struct.vocabulary // COLUMNS))
        sums = torch.empty_like(maxima)
        table = _positions(self._model.target_embedding, int(state.positions.max(initial=0)) + 1)
        checked(
            library.gs_decode(
                ctypes.byref(self._struct), threads(), rows, ids.data_ptr(), state.positions.ctypes.data,
                table, state.pages.ctypes.data, state.pages.shape[1], state.cross.ctypes.data,
                state.cross_lengths.ctypes.data, logits.data_ptr(), maxima.data_ptr(),
                sums.data_ptr(),
            )
        )  # fmt: skip
        state.advance()
        return logits, KernelSummary(maxima, sums, COLUMNS)


def _positions(embedding: Embedding, count: int) -> int | None:
    """Where the table of the first ``count`` positional encodings lies; None when the model has none."""
    table = embedding.position_rows(count)
    return None if table is None else table.data_ptr()


def _linear(linear: Linear) -> LinearStruct:
    assert linear.packed is not None
    return linear.packed.struct


def _norm(norm: LayerNorm | None) -> NormStruct:
    if norm is None:
        return NormStruct(None, None, 0.0, 0)
    return NormStruct(norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps, 0)


def _encoder_layer(layer: EncoderLayer) -> EncoderLayerStruct:
    return EncoderLayerStruct(
        qkv=_linear(layer.attention.qkv), out=_linear(layer.attention.out), inner=_linear(layer.ffn.inner),
        outer=_linear(layer.ffn.outer), attention_norm=_norm(layer.attention_residual.norm),
        ffn_norm=_norm(layer.ffn_residual.norm),
    )  # fmt: skip


def _decoder_layer(layer: DecoderLayer) -> DecoderLayerStruct:
    return DecoderLayerStruct(
        qkv=_linear(layer.attention.qkv), out=_linear(layer.attention.out), query=_linear(layer.cross_attention.query),
        kv=_linear(layer.cross_attention.kv), cross_out=_linear(layer.cross_attention.out),
        inner=_linear(layer.ffn.inner), outer=_linear(layer.ffn.outer),
        attention_norm=_norm(layer.attention_residual.norm), cross_norm=_norm(layer.cross_residual.norm),
        ffn_norm=_norm(layer.ffn_residual.norm),
    )  # fmt: skip
