"""The decoder stack (Vaswani et al. 2017, section 3.1), for whole targets and for one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from model.attention import CrossAttention, SelfAttention, explicit_attention, fused_attention, head_log_weights
from model.config import TransformerConfig
from model.kv_cache import CrossAttentionCache, CrossCache, SelfCache, StepState
from model.layers import FeedForward, LayerNorm, Residual, Rotary


@dataclass(frozen=True)
class StepContext:
    """What all layers of one decode step share.

    Attributes:
        positions: (R,) int64, the position each row decodes.
        max_position: The largest of them, or the last column that is read.
        self_mask: (R, 1, 1, max_position + 1), True = may attend; None when every row may see all.
        cross_mask: (R, 1, 1, S); None when no source is padded.
    """

    positions: Tensor
    max_position: int
    self_mask: Tensor | None
    cross_mask: Tensor | None


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward network, each inside a residual."""

    def __init__(self, config: TransformerConfig, rotary: Rotary | None) -> None:
        """Build one layer; ``rotary`` is shared by all layers of a model that has it."""
        super().__init__()
        self.attention = SelfAttention(config.d_model, config.num_heads, config.attention_bias)
        self.attention_residual = Residual(config)
        self.cross_attention = CrossAttention(config.d_model, config.num_heads, config.attention_bias)
        self.cross_residual = Residual(config)
        self.ffn = FeedForward(config)
        self.ffn_residual = Residual(config)
        self._rotary = rotary

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor,
        cross_mask: Tensor | None,
        return_weights: bool = False,
        guided_head: int | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Run the layer over whole targets, each position seeing itself and its past.

        Args:
            hidden: (B, T, M).
            memory: (B, S, M).
            cross_mask: Boolean (B, 1, 1, S), True = may attend; None = all may.
            return_weights: Take the explicit path and return its weights.
            guided_head: Compute this head's cross-attention weights a second time, beside the fused path.

        Returns:
            (B, T, M), the self-attention weights (B, H, T, T) and the cross-attention weights
            (B, H, T, S), or None twice. With ``guided_head`` the last are its logarithms (B, T, S).
        """
        self_weights: Tensor | None = None
        cross_weights: Tensor | None = None
        queries, keys, values = self.attention.project(self.attention_residual.before(hidden))
        if self._rotary is not None:
            last = hidden.shape[1] - 1
            queries, keys = self._rotary.rotate(queries, None, last), self._rotary.rotate(keys, None, last)
        if return_weights:
            mixed, self_weights = explicit_attention(queries, keys, values, None, causal=True)
        else:
            mixed = fused_attention(queries, keys, values, None, causal=True)
        hidden = self.attention_residual.after(hidden, self.attention.combine(mixed))

        queries = self.cross_attention.project_query(self.cross_residual.before(hidden))
        keys, values = self.cross_attention.project_memory(memory)
        if return_weights:
            mixed, cross_weights = explicit_attention(queries, keys, values, cross_mask)
        else:
            mixed = fused_attention(queries, keys, values, cross_mask)
        if guided_head is not None:
            cross_weights = head_log_weights(queries, keys, cross_mask, guided_head)
        hidden = self.cross_residual.after(hidden, self.cross_attention.combine(mixed))
        hidden = self.ffn_residual.after(hidden, self.ffn(self.ffn_residual.before(hidden)))
        return hidden, self_weights, cross_weights

    def step(self, hidden: Tensor, self_cache: SelfCache, cross_cache: CrossCache, context: StepContext) -> Tensor:
        """Run the layer over one position a row, reading the past from the caches.

        Args:
            hidden: (R, 1, M).
            self_cache: Written at each row's position, then read.
            cross_cache: Read only.
            context: Positions and masks of this step.

        Returns:
            (R, 1, M).
        """
        queries, keys, values = self.attention.project(self.attention_residual.before(hidden))
        if self._rotary is not None:
            at = context.positions.unsqueeze(1)
            queries = self._rotary.rotate(queries, at, context.max_position)
            keys = self._rotary.rotate(keys, at, context.max_position)
        keys, values = self_cache.write(keys, values, context.positions, context.max_position)
        mixed = fused_attention(queries, keys, values, context.self_mask)
        hidden = self.attention_residual.after(hidden, self.attention.combine(mixed))

        queries = self.cross_attention.project_query(self.cross_residual.before(hidden))
        mixed = fused_attention(queries, cross_cache.keys, cross_cache.values, context.cross_mask)
        hidden = self.cross_residual.after(hidden, self.cross_attention.combine(mixed))
        return self.ffn_residual.after(hidden, self.ffn(self.ffn_residual.before(hidden)))


class Decoder(nn.Module):
    """A stack of layers and, where the configuration says so, a last norm."""

    def __init__(self, config: TransformerConfig) -> None:
        """Build the stack."""
        super().__init__()
        self._rotary = Rotary(config.head_width) if config.positions == "rotary" else None
        self.layers = nn.ModuleList(DecoderLayer(config, self._rotary) for _ in range(config.num_decoder_layers))
        self.norm = LayerNorm(config.d_model, config.layer_norm_eps) if config.final_norm else None

    def forward(
        self, hidden: Tensor, memory: Tensor, cross_mask: Tensor | None, return_weights: bool = False
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Run all layers over whole targets.

        Args:
            hidden: Embedded targets (B, T, M).
            memory: (B, S, M).
            cross_mask: Boolean (B, 1, 1, S), True = may attend; None = all may.
            return_weights: Also return every layer's attention weights.

        Returns:
            (B, T, M), one self-attention map (B, H, T, T) and one cross-attention map (B, H, T, S) a
            layer (empty lists when not asked for).
        """
        self_maps: list[Tensor] = []
        cross_maps: list[Tensor] = []
        for layer in self.layers:
            hidden, self_weights, cross_weights = layer(hidden, memory, cross_mask, return_weights)
            if return_weights:
                self_maps.append(self_weights)
                cross_maps.append(cross_weights)
        return (hidden if self.norm is None else self.norm(hidden)), self_maps, cross_maps

    def forward_guided(
        self, hidden: Tensor, memory: Tensor, cross_mask: Tensor | None, layer: int, head: int
    ) -> tuple[Tensor, Tensor]:
        """As :meth:`forward`, with the logarithms of one head's cross-attention weights, (B, T, S) float32."""
        log_weights: Tensor | None = None
        for index, module in enumerate(self.layers):
            guided_head = head if index == layer else None
            hidden, _, found = module(hidden, memory, cross_mask, guided_head=guided_head)
            log_weights = found if index == layer else log_weights
        assert log_weights is not None
        return (hidden if self.norm is None else self.norm(hidden)), log_weights

    def cross_caches(self, memory: Tensor) -> list[CrossAttentionCache]:
        """Each layer's keys and values of the memory (B, S, M), computed once a sequence."""
        return [CrossAttentionCache(*layer.cross_attention.project_memory(memory)) for layer in self._typed_layers()]

    def step(self, hidden: Tensor, state: StepState) -> Tensor:
        """Run all layers over one position a row.

        Args:
            hidden: The embedded last tokens (R, 1, M).
            state: Its self-attention caches are written; the caller advances it.

        Returns:
            (R, 1, M).
        """
        columns = torch.arange(state.num_columns, device=hidden.device)
        context = StepContext(
            positions=state.positions,
            max_position=state.num_columns - 1,
            self_mask=(columns <= state.positions.unsqueeze(1))[:, None, None, :],
            cross_mask=state.source_mask[:, None, None, :],
        )
        for layer, self_cache, cross_cache in zip(
            self._typed_layers(), state.self_caches, state.cross_caches, strict=True
        ):
            hidden = layer.step(hidden, self_cache, cross_cache, context)
        return hidden if self.norm is None else self.norm(hidden)

    def tables(self, count: int) -> list[Tensor]:
        """Tables of at least ``count`` positions that a step reads, besides weights and embeddings."""
        weight = self._typed_layers()[0].attention.qkv.effective_weight()
        return [] if self._rotary is None else [self._rotary.table(count, weight.device, weight.dtype)]

    def _typed_layers(self) -> list[DecoderLayer]:
        """The layers, as what they are: torch's list hands out plain modules."""
        return [cast(DecoderLayer, layer) for layer in self.layers]
