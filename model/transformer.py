"""The whole model: embeddings, encoder, decoder and the projection to the vocabulary.

Letters: B batch, R decoder rows, S source positions, T target positions, M model width, V target vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention import CrossAttention, SelfAttention
from model.config import Precision, TransformerConfig
from model.decoder import Decoder
from model.encoder import Encoder
from model.graphs import Capture, GraphState, GraphTranslator
from model.kv_cache import DecoderState, SelfAttentionCache
from model.layers import Embedding, FeedForward
from model.linear import Int8Unavailable, Linear, has_int8_kernels
from model.native.batch import NativeBatch, NativeBook
from model.native.translate import CACHE_DTYPE, NativeState, NativeTranslator
from model.pages import POSITIONS
from model.search import Logits, LogitsSummary, Reads

DecodingState = DecoderState | NativeState | GraphState
"""What decoding a running batch remembers: either has `num_rows`, `select`, `reorder` and `join`."""

_ROW_BLOCK = 16
_KEY_BLOCK = 16
"""Of `Transformer.make_batch_invariant`: as many float32 numbers as the widest processors add at once."""


@dataclass(frozen=True)
class Attentions:
    """Every attention weight of one teacher-forced pass; each tensor is [layer, batch, head, query, key].

    Attributes:
        encoder: (L_enc, B, H, S, S).
        decoder: (L_dec, B, H, T, T); nothing above the diagonal.
        cross: (L_dec, B, H, T, S).
    """

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


class Transformer(nn.Module):
    """Encoder and decoder of "Attention Is All You Need", with the variations of ``TransformerConfig``.

    Call :meth:`forward` to train, :meth:`prefill` and :meth:`decode_step` to translate,
    :meth:`attentions` to look inside.
    """

    def __init__(self, config: TransformerConfig, seed: int | None = None) -> None:
        """Build the model with fresh weights.

        Args:
            config: The shape.
            seed: Makes the weights repeatable; None draws from torch's global generator.
        """
        super().__init__()
        self.config = config
        self._key_block = 1
        self._native: NativeTranslator | None = None
        self._graphs: GraphTranslator | None = None
        self.source_embedding = Embedding(config, config.source_vocab_size)
        shared = self.source_embedding.weight if config.share_embeddings else None
        self.target_embedding = Embedding(config, config.target_vocab_size, shared)
        if config.positions == "learned" and config.share_embeddings:
            self.target_embedding.positions = self.source_embedding.positions
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = Linear(config.d_model, config.target_vocab_size, bias=config.output_bias)
        if config.tie_output:
            self.output.weight = self.target_embedding.weight
        if not self.source_embedding.weight.is_meta:  # a loader builds there, and brings its own weights
            self._initialise(seed)

    def _initialise(self, seed: int | None) -> None:
        """Glorot-uniform matrices, N(0, 1/M) embeddings, zero biases.

        The paper does not say how it initialised; this is tensor2tensor's recipe. With the embedding
        scale of sqrt(M) an embedded token starts with unit variance, like the sinusoids beside it.
        """
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        seen: set[int] = set()
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if id(weight) in seen:
                    continue
                seen.add(id(weight))
                if "norm" in name:
                    continue  # LayerNorm starts as the identity
                if weight.dim() == 1:
                    weight.zero_()
                elif "embedding" in name or name.startswith("output"):
                    weight.normal_(0.0, self.config.d_model**-0.5, generator=generator)
                else:
                    self._glorot(name, weight, generator)

    def _glorot(self, name: str, weight: Tensor, generator: torch.Generator | None) -> None:
        """Bound by one projection's fan-in and fan-out, also where several share a matrix."""
        fan_out, fan_in = weight.shape
        if name.endswith("qkv.weight"):
            fan_out //= 3
        elif name.endswith("kv.weight"):
            fan_out //= 2
        bound = math.sqrt(6.0 / (fan_in + fan_out))
        weight.uniform_(-bound, bound, generator=generator)

    def set_precision(self, precision: Precision) -> None:
        """Choose the number format of the matrices, and with it, but for int8, of everything that is computed.

        Args:
            precision: "auto" is int8 on a processor for which torch has the kernels, else float32; on a GPU it is
                bfloat16, or float16 where the GPU is too old for that.

        Raises:
            Int8Unavailable: When int8 was asked for and torch has no kernel for this processor or device.
        """
        precision = choose_precision(precision, self.device)
        if precision != "int8":
            self.to(getattr(torch, precision))
        elif self.device.type != "cpu":
            raise Int8Unavailable(
                f"int8 is computed by a processor, not by {self.device}; there it is bfloat16 or float16"
            )
        else:
            self.quantize()

    def quantize(self) -> None:
        """Hold every matrix but the embeddings in int8 from now on, for a CPU; there is no way back.

        Embeddings stay as they are: one row of them is read a token, which no format makes faster.

        Raises:
            Int8Unavailable: When torch has no int8 kernel for this processor.
        """
        for module in self.modules():
            if isinstance(module, Linear) and not module.is_quantized:
                module.quantize()
        self._native = NativeTranslator(self) if NativeTranslator.fits(self) else None
        for module in self.modules():
            if isinstance(module, SelfAttention | CrossAttention):
                module.keeps_half = self._native is not None

    def make_batch_invariant(self) -> None:
        """Compute from now on so that no bit of a sequence depends on those that are translated beside it.

        Sources are encoded one by one; products take rows in blocks of one size, and attention reads keys in multiples
        of 16. What that costs, and that it holds, was measured: docs/experiments.md. Training, :meth:`decode` and
        :meth:`forward` gain nothing from it: their attention still sees the padding of a batch.

        Raises:
            BatchVariance: When the products of this machine cannot be made so.
        """
        for module in self.modules():
            if isinstance(module, Linear | FeedForward):
                module.use_row_blocks(_ROW_BLOCK)
        self._key_block = _KEY_BLOCK

    def use_graphs(self, *, max_rows: int, max_positions: int, cache_bytes: int, capture: Capture | None) -> None:
        """Decode from now on in steps of a few fixed shapes, which can be captured: see `graphs.py`.

        The weights may not move or change their format any more. Not for int8.

        Args:
            max_rows: Most rows of a step.
            max_positions: Longest source or target.
            cache_bytes: For the keys and values of all rows; set apart now.
            capture: How a step is recorded; None runs each as it is.
        """
        self._graphs = GraphTranslator(
            self, max_rows=max_rows, max_positions=max_positions, cache_bytes=cache_bytes, capture=capture
        )

    @torch.no_grad()
    def capture_steps(self) -> None:
        """Capture the steps that sentences need, where :meth:`use_graphs` was called; other shapes when they come."""
        if self._graphs is not None:
            self._graphs.warm_up()

    def decoder_tables(self, count: int) -> tuple[Tensor, ...]:
        """What a decode step reads besides weights and caches: tables of at least ``count`` positions."""
        embedded = self.target_embedding.position_rows(count)
        return (*([] if embedded is None else [embedded]), *self.decoder.tables(count))

    @property
    def is_quantized(self) -> bool:
        """Whether :meth:`quantize` was called."""
        return self.output.is_quantized

    @property
    def precision(self) -> str:
        """Number format of the matrices: "int8", or the name of a float type."""
        if self.is_quantized:
            return "int8"
        return str(self.output.effective_weight().dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.target_embedding.weight.device

    @property
    def is_native(self) -> bool:
        """Whether our compiled kernels translate."""
        return self._native is not None

    @property
    def cache_page_tokens(self) -> int:
        """Positions in a page of the caches that :meth:`prefill` starts; 0 when they are padded rectangles."""
        return 0 if self._native is None and self._graphs is None else POSITIONS

    def native_book(self) -> NativeBook | None:
        """Pages for the batches of :meth:`native_batch`; None where our compiled kernels do not translate."""
        return None if self._native is None else NativeBook(self._native.page_bytes)

    def native_batch(self, book: NativeBook, forbidden_ids: Sequence[int]) -> NativeBatch:
        """An empty batch whose search is done by our kernels, too.

        Args:
            book: Of this model; batches of one thread share it.
            forbidden_ids: Tokens never written.
        """
        assert self._native is not None, "the kernels do not run this model"
        return NativeBatch(self._native, book, forbidden_ids)

    @property
    def cache_number_bytes(self) -> int:
        """Bytes of one number of the keys and values of these caches."""
        return self.target_embedding.weight.element_size() if self._native is None else CACHE_DTYPE.itemsize

    def num_parameters(self) -> int:
        """Trained numbers, shared ones counted once."""
        return sum(weight.numel() for weight in self.parameters())

    def encode(self, source_ids: Tensor, source_mask: Tensor | None) -> Tensor:
        """Read sources.

        Args:
            source_ids: (B, S), each row ended by ``eos_id`` and filled with ``pad_id``.
            source_mask: (B, S) boolean, True = a real token; None when nothing is padded.

        Returns:
            The memory (B, S, M). Rows of padding hold numbers that nothing reads.
        """
        memory, _ = self.encoder(self.source_embedding(source_ids), _key_mask(source_mask))
        result: Tensor = memory
        return result

    def logits(self, hidden: Tensor) -> Tensor:
        """Decoder output (..., M) -> (..., V)."""
        result: Tensor = self.output(hidden)
        return result

    def decode(self, target_ids: Tensor, memory: Tensor, source_mask: Tensor | None) -> Tensor:
        """Read whole targets beside their memory; position t sees targets 0..t.

        Args:
            target_ids: (B, T), starting with ``decoder_start_id``.
            memory: (B, S, M) from :meth:`encode`.
            source_mask: (B, S) as given to :meth:`encode`.

        Returns:
            (B, T, M), the input of :meth:`logits`.
        """
        hidden, _, _ = self.decoder(self.target_embedding(target_ids), memory, _key_mask(source_mask))
        result: Tensor = hidden
        return result

    def forward(self, source_ids: Tensor, source_mask: Tensor | None, target_ids: Tensor) -> Tensor:
        """Teacher forcing: the logits of every next token of known targets.

        Args:
            source_ids: (B, S), each row ended by ``eos_id`` and filled with ``pad_id``.
            source_mask: (B, S) boolean, True = a real token; None when nothing is padded.
            target_ids: (B, T), starting with ``decoder_start_id``. Padding at the end needs no mask: no
                real position can see it.

        Returns:
            (B, T, V); row t scores the token after ``target_ids[:, t]``.
        """
        memory = self.encode(source_ids, source_mask)
        return self.logits(self.decode(target_ids, memory, source_mask))

    def decode_guided(
        self, target_ids: Tensor, memory: Tensor, source_mask: Tensor | None, layer: int, head: int
    ) -> tuple[Tensor, Tensor]:
        """As :meth:`decode`, with the logarithms of one cross-attention head's weights, (B, T, S) float32."""
        return self.decoder.forward_guided(
            self.target_embedding(target_ids), memory, _key_mask(source_mask), layer, head
        )

    def prefill(self, sources: Sequence[Sequence[int]]) -> DecodingState:
        """Encode sources and prepare to decode them, one row each.

        Args:
            sources: Token ids, each ended by ``eos_id``.

        Returns:
            A state whose cross-attention caches are written and whose rows stand at position 0.
        """
        if self._native is not None:
            return self._native.prefill(sources)
        if self._graphs is not None:
            return self._graphs.prefill(sources)
        source_ids, source_mask = pad_sequences(sources, self.config.pad_id, self.device)
        if self._key_block > 1:
            return self._prefill_apart(source_ids, source_mask)
        return self._prefill(source_ids, source_mask)

    def _prefill_apart(self, source_ids: Tensor, source_mask: Tensor) -> DecoderState:
        """One source after the other, without padding; keys and values are padded to the key block afterwards."""
        states = [
            self._prefill(ids[mask][None], mask[mask][None]) for ids, mask in zip(source_ids, source_mask, strict=True)
        ]
        for state in states:
            state.widen_source()
        for state in states[1:]:
            states[0].join(state)
        return states[0]

    def _prefill(self, source_ids: Tensor, source_mask: Tensor) -> DecoderState:
        memory = self.encode(source_ids, source_mask)
        rows = source_ids.shape[0]
        cross_caches = self.decoder.cross_caches(memory)
        dtype = cross_caches[0].keys.dtype  # that of projected keys, which under autocast is not the memory's
        return DecoderState(
            self_caches=[
                SelfAttentionCache(rows, self.config.num_heads, self.config.head_width, memory.device, dtype)
                for _ in range(self.config.num_decoder_layers)
            ],
            cross_caches=cross_caches,
            source_mask=source_mask,
            positions=torch.zeros(rows, dtype=torch.int64, device=memory.device),
            max_position=0,
            key_block=self._key_block,
        )

    def decode_step(self, tokens: Tensor, state: DecodingState) -> Tensor:
        """Decode one position of every row.

        Args:
            tokens: (R,) the last token of each row, in the processor's memory; ``decoder_start_id`` at position 0.
            state: Advanced by one position.

        Returns:
            The logits of the next token, (R, V).
        """
        logits, _ = self.decode_step_summarized(tokens, state)
        assert isinstance(logits, Tensor)
        return logits

    def decode_step_summarized(
        self, tokens: Tensor, state: DecodingState, reads: Reads | None = None
    ) -> tuple[Logits, LogitsSummary | None]:
        """As :meth:`decode_step`, with a summary of the logits where the kernel gives one: search is faster with it.

        Args:
            tokens: As for :meth:`decode_step`.
            state: As for :meth:`decode_step`.
            reads: What the search is going to read; None = everything.
        """
        if isinstance(state, NativeState):
            assert self._native is not None
            return self._native.decode_step(tokens, state, reads or Reads())
        if isinstance(state, GraphState):
            assert self._graphs is not None
            return self._graphs.decode_step(tokens, state)
        tokens = tokens.to(self.device)
        hidden = self.target_embedding(tokens.unsqueeze(1), state.positions.unsqueeze(1), state.max_position)
        hidden = self.decoder.step(hidden, state)
        state.advance()
        return self.logits(hidden.squeeze(1)), None

    def attentions(
        self, source_ids: Tensor, source_mask: Tensor | None, target_ids: Tensor
    ) -> tuple[Tensor, Attentions]:
        """As :meth:`forward`, by the explicit path, with every attention weight.

        Returns:
            The logits (B, T, V) and the weights.
        """
        mask = _key_mask(source_mask)
        memory, encoder_maps = self.encoder(self.source_embedding(source_ids), mask, return_weights=True)
        hidden, self_maps, cross_maps = self.decoder(
            self.target_embedding(target_ids), memory, mask, return_weights=True
        )
        maps = Attentions(torch.stack(encoder_maps), torch.stack(self_maps), torch.stack(cross_maps))
        return self.logits(hidden), maps


def choose_precision(precision: Precision, device: torch.device) -> Precision:
    """What "auto" means on a device; all others mean themselves."""
    if precision != "auto":
        return precision
    if device.type == "cpu":
        return "int8" if has_int8_kernels() else "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"


def pad_sequences(
    sequences: Sequence[Sequence[int]], pad_id: int, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Put id lists into one rectangle.

    Returns:
        Ids (B, longest) filled with ``pad_id`` at the end, and the mask (B, longest), True = a real token.
    """
    lengths = torch.tensor([len(ids) for ids in sequences])
    width = max(map(len, sequences))
    padded = torch.tensor([[*ids, *[pad_id] * (width - len(ids))] for ids in sequences], dtype=torch.int64)
    mask = torch.arange(width) < lengths.unsqueeze(1)
    return padded.to(device), mask.to(device)


def _key_mask(mask: Tensor | None) -> Tensor | None:
    """(B, S) -> (B, 1, 1, S): the same keys for every head and query."""
    return None if mask is None else mask[:, None, None, :]
