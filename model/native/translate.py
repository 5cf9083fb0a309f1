"""Prefill and decode steps of a quantized model in one call of a compiled kernel each.

The same numbers as `Transformer.prefill` and `decode_step` on torch's kernels, but for rounding (tests hold the two
together). Sources are encoded one after the other, without padding; keys and values of a row lie in pages (`pages.py`)
that it takes as it grows, so that long and short rows together cost what they cost apart, and a row that leaves gives
its pages back at once.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.layers import Embedding, LayerNorm
from model.linear import Linear
from model.native.library import (
    ACTIVATIONS,
    COLUMNS,
    DecoderLayerStruct,
    EncoderLayerStruct,
    LinearStruct,
    ModelStruct,
    NormStruct,
    checked,
    kernels,
    threads,
)
from model.native.packing import PackedWeight
from model.pages import POSITIONS, PagedState, PagePool
from model.search import Logits, LogitsSummary, Reads

if TYPE_CHECKING:
    from model.config import TransformerConfig
    from model.decoder import DecoderLayer
    from model.encoder import EncoderLayer
    from model.native.batch import NativeBook
    from model.transformer import Transformer

CACHE_DTYPE = torch.float16
"""Of keys and values; `kernels.c` says it again."""

_PAGES_AT_ONCE = 32


class NativePages(PagePool):
    """Pages that hold 16 target positions in all layers, in slabs that are fetched as they are needed."""

    def __init__(self, numbers: int) -> None:
        """Pages of ``numbers`` numbers in 16 bits."""
        super().__init__(num_reserved=1)
        self._numbers = numbers
        self.page_bytes = CACHE_DTYPE.itemsize * numbers
        self._slabs: list[Tensor] = []
        self.addresses = np.zeros(1, dtype=np.uint64)
        """Where each page lies in memory."""

    def more(self) -> int:
        """Fetch another slab."""
        # Zeros: a row reads whole blocks, and what lies behind its last position must be a finite number.
        slab = torch.zeros(_PAGES_AT_ONCE, self._numbers, dtype=CACHE_DTYPE)
        self._slabs.append(slab)
        starts = slab.data_ptr() + np.arange(_PAGES_AT_ONCE, dtype=np.uint64) * np.uint64(self.page_bytes)
        self.addresses = np.concatenate([self.addresses, starts])
        return len(self.addresses)

    def copy(self, pages: Sequence[tuple[int, int]]) -> None:
        """Copy what pages hold: (from, to) pairs."""
        for source, to in pages:
            ctypes.memmove(int(self.addresses[to]), int(self.addresses[source]), self.page_bytes)


class NativeState(PagedState):
    """The rows of a running batch.

    Attributes:
        sources: (R,) uint64, where each row's keys and values of its source lie, for all decoder layers.
    """

    def __init__(self, pool: NativePages, memories: list[Tensor], lengths: Sequence[int]) -> None:
        """Rows at position 0; ``memories`` hold the keys and values of their sources."""
        super().__init__(pool, lengths)
        self._pages = pool
        self._memories = memories
        self.sources = np.array([memory.data_ptr() for memory in memories], dtype=np.uint64)

    def addresses(self) -> NDArray[np.uint64]:
        """(R, W), where each page of ``pages`` lies."""
        return self._pages.addresses[self.pages]

    def _select_sources(self, index: NDArray[np.intp]) -> None:
        self._memories = [self._memories[row] for row in index.tolist()]
        self.sources = self.sources[index]

    def _join_sources(self, other: PagedState) -> None:
        assert isinstance(other, NativeState)
        self._memories = self._memories + other._memories
        self.sources = np.concatenate([self.sources, other.sources])


class LazyLogits:
    """Logits that were not written down: those of rows that are asked for are computed again, which is rarely needed.

    Attributes:
        shape: (R, V).
        device: The processor.
    """

    def __init__(self, hidden: Tensor, output: PackedWeight) -> None:
        """What they are computed from: ``hidden`` (R, M) and the projection to the vocabulary."""
        self._hidden = hidden
        self._output = output
        self.shape = torch.Size((len(hidden), output.out_features))
        self.device = hidden.device

    def __getitem__(self, index: Tensor) -> Tensor:
        """The logits of some rows, the same bits as a step with logits gives."""
        return self._output.multiply(self._hidden[index])

    def float(self) -> Tensor:
        """The logits of all rows."""
        return self._output.multiply(self._hidden)


class KernelSummary(LogitsSummary):
    """What the kernel knows of each block of neighbouring tokens; searched by a kernel too."""

    def __init__(self, logits: Logits, maxima: Tensor, places: Tensor, sums: Tensor | None) -> None:
        """Remember.

        Args:
            logits: (R, V).
            maxima: (R, ceil(V / COLUMNS)) the largest logit of each block; NaN where one is NaN or +inf.
            places: Same shape, uint8: where in its block the first of these is.
            sums: Same shape, the sum of exp(logit - maximum of the block); None if they were not wanted.
        """
        self._logits = logits
        self.maxima = maxima
        self.places = places
        self.sums = sums

    def rows(self, index: Tensor) -> KernelSummary:
        """The summary of some rows."""
        sums = None if self.sums is None else self.sums[index]
        return KernelSummary(self._logits[index], self.maxima[index], self.places[index], sums)

    def log_probs(self, tokens: Tensor) -> Tensor:
        """(R,) the log-probability of one token a row."""
        values, ids = self.best_tokens()
        (others,) = (ids != tokens).nonzero(as_tuple=True)
        if len(others):
            values[others] = self._logits[others].gather(1, tokens[others][:, None]).squeeze(1)
        return values - self.log_sum_exp()

    def log_sum_exp(self) -> Tensor:
        """(R,) the logarithm of the softmax's denominator; NaN for a row without finite logits."""
        if self.sums is None:
            return self._logits.float().logsumexp(-1)
        largest = self.maxima.amax(-1, keepdim=True)
        return largest.squeeze(1) + (self.sums * (self.maxima - largest).exp()).sum(-1).log()

    def best_tokens(self) -> tuple[Tensor, Tensor]:
        """The best token of each row; a value is NaN where the row is not finite."""
        library = kernels()
        assert library is not None
        rows, vocabulary = self._logits.shape
        assert self.maxima.is_contiguous() and self.places.is_contiguous()
        values, ids = torch.empty(rows), torch.empty(rows, dtype=torch.int64)
        library.gs_top(
            rows, vocabulary, self.maxima.data_ptr(), self.places.data_ptr(), values.data_ptr(), ids.data_ptr()
        )
        return values, ids

    def candidates(self, k: int, banned: Sequence[AbstractSet[int]]) -> tuple[Tensor, Tensor] | None:
        """As for any summary."""
        if k >= self._logits.shape[1]:
            return None
        library = kernels()
        assert library is not None
        logits = self._logits.float()
        rows, vocabulary = logits.shape
        assert logits.is_contiguous() and self.maxima.is_contiguous()
        if all(some is banned[0] for some in banned):  # nearly always
            tokens = np.array([*banned[0]] * rows, dtype=np.int32)
            starts = np.arange(rows + 1, dtype=np.int32) * len(banned[0])
        else:
            tokens = np.array([token for some in banned for token in some], dtype=np.int32)
            starts = np.array([0, *itertools.accumulate(map(len, banned))], dtype=np.int32)
        values, ids = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
        sums, log_sums = self.sums, torch.empty(rows)
        library.gs_best(
            rows, vocabulary, logits.data_ptr(), self.maxima.data_ptr(), None if sums is None else sums.data_ptr(), k,
            tokens.ctypes.data, starts.ctypes.data, values.data_ptr(), ids.data_ptr(),
            None if sums is None else log_sums.data_ptr(),
        )  # fmt: skip
        if bool(np.any(values.numpy()[:, -1] == -np.inf)):
            return None
        if sums is None:
            log_sums = logits.logsumexp(-1)
        return values - log_sums.unsqueeze(1), ids


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
        assert model.output.packed is not None
        self._output = model.output.packed
        self._block = 2 * POSITIONS * config.d_model
        self._pool = NativePages(config.num_decoder_layers * self._block)

    @staticmethod
    def fits(model: Transformer) -> bool:
        """Whether the kernels can run ``model``: compiled, in int8, and nothing that they do not know."""
        packed = all(module.packed is not None for module in model.modules() if isinstance(module, Linear))
        plain = all(
            embedding.weight.dtype == torch.float32 and embedding.weight.is_contiguous()
            for embedding in (model.source_embedding, model.target_embedding)
        )
        return kernels() is not None and packed and plain and model.config.positions != "rotary"

    @property
    def config(self) -> TransformerConfig:
        """The model's shape."""
        return self._model.config

    @property
    def page_bytes(self) -> int:
        """Size of a page: 16 target positions in all layers."""
        return self._pool.page_bytes

    def prefill(self, sources: Sequence[Sequence[int]]) -> NativeState:
        """Encode sources and write their keys and values; one row each, at position 0."""
        return NativeState(self._pool, self.encode(sources), list(map(len, sources)))

    def encode(self, sources: Sequence[Sequence[int]]) -> list[Tensor]:
        """Encode sources: the keys and values of each, for all decoder layers."""
        library = kernels()
        assert library is not None
        ids = np.array([token for source in sources for token in source], dtype=np.int32)
        starts = np.cumsum([0, *map(len, sources)], dtype=np.int32)
        # Zeros, for the reason of the pages'.
        memories = [
            torch.zeros(self._struct.decoder_layers * -(-len(source) // POSITIONS) * self._block, dtype=CACHE_DTYPE)
            for source in sources
        ]
        addresses = np.array([memory.data_ptr() for memory in memories], dtype=np.uint64)
        table = _positions(self._model.source_embedding, max(map(len, sources)))
        checked(
            library.gs_encode(
                ctypes.byref(self._struct), threads(), ids.ctypes.data, table, len(sources),
                starts.ctypes.data, addresses.ctypes.data,
            )
        )  # fmt: skip
        return memories

    def decode_step(
        self,
        tokens: Tensor,
        state: NativeState,
        reads: Reads = Reads(),  # noqa: B008  # a tuple
    ) -> tuple[Logits, KernelSummary]:
        """Decode one position of every row: the next token's logits (R, V), and what is known of their blocks.

        Args:
            tokens: (R,) the rows' inputs.
            state: The rows.
            reads: What is going to be read. Logits that are not are computed when they are asked for all the same: to
                write down those of a large vocabulary takes a fifth of the time of the product.
        """
        library = kernels()
        assert library is not None
        state.prepare_step()
        pages = state.addresses()
        rows = state.num_rows
        ids = tokens.to(torch.int32)
        hidden = torch.empty(rows, self._struct.width)
        logits: Logits = LazyLogits(hidden, self._output)
        if reads.logits:
            logits = torch.empty(rows, self._struct.vocabulary)
        maxima = torch.empty(rows, -(-self._struct.vocabulary // COLUMNS))
        places = torch.empty(maxima.shape, dtype=torch.uint8)
        sums = torch.empty_like(maxima) if reads.sums else None
        table = _positions(self._model.target_embedding, int(state.positions.max(initial=0)) + 1)
        checked(
            library.gs_decode(
                ctypes.byref(self._struct), threads(), rows, ids.data_ptr(), state.positions.ctypes.data,
                table, pages.ctypes.data, pages.shape[1], state.sources.ctypes.data,
                state.source_lengths.ctypes.data, hidden.data_ptr(),
                logits.data_ptr() if isinstance(logits, Tensor) else None, maxima.data_ptr(),
                None if sums is None else sums.data_ptr(), places.data_ptr(),
            )
        )  # fmt: skip
        state.advance()
        return logits, KernelSummary(logits, maxima, places, sums)

    def advance(
        self,
        book: NativeBook,
        sequences: ctypes.Array[ctypes.c_void_p],
        furthest: int,
        max_steps: int,
        max_seconds: float,
        is_wanted: ctypes.c_int32,
        num_rows: ctypes.c_int64,
    ) -> int:
        """Decode the sequences of a `NativeBatch`, which says what the rest is; how many steps were done.

        Args:
            book: Where their pages come from.
            sequences: Their addresses.
            furthest: Positions that none of them goes beyond.
            max_steps: See `NativeBatch.advance`, for what follows, too.
            max_seconds: No step begins after so long.
            is_wanted: No step begins while this is not 0.
            num_rows: Gets the number of rows.
        """
        library = kernels()
        assert library is not None
        done = library.gs_advance(
            ctypes.byref(self._struct), threads(), book.address, sequences, len(sequences),
            _positions(self._model.target_embedding, furthest), self._struct.vocabulary, self._struct.width, max_steps,
            max_seconds, ctypes.byref(is_wanted), ctypes.byref(num_rows),
        )  # fmt: skip
        checked(min(done, 0))
        return int(done)


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
