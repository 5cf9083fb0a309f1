"""The encoder stack (Vaswani et al. 2017, section 3.1)."""

from __future__ import annotations

from torch import Tensor, nn

from model.attention import SelfAttention, explicit_attention, fused_attention
from model.config import TransformerConfig
from model.layers import FeedForward, LayerNorm, Residual, Rotary


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each inside a residual."""

    def __init__(self, config: TransformerConfig, rotary: Rotary | None) -> None:
        """Build one layer; ``rotary`` is shared by all layers of a model that has it."""
        super().__init__()
        self.attention = SelfAttention(config.d_model, config.num_heads, config.attention_bias)
        self.attention_residual = Residual(config)
        self.ffn = FeedForward(config)
        self.ffn_residual = Residual(config)
        self._rotary = rotary

    def forward(
        self, hidden: Tensor, mask: Tensor | None, return_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Run the layer.

        Args:
            hidden: (B, S, M).
            mask: Boolean (B, 1, 1, S), True = may attend; None = all may.
            return_weights: Take the explicit path and return its weights.

        Returns:
            (B, S, M), and the weights (B, H, S, S) or None.
        """
        queries, keys, values = self.attention.project(self.attention_residual.before(hidden))
        if self._rotary is not None:
            last = hidden.shape[1] - 1
            queries, keys = self._rotary.rotate(queries, None, last), self._rotary.rotate(keys, None, last)
        weights: Tensor | None = None
        if return_weights:
            mixed, weights = explicit_attention(queries, keys, values, mask)
        else:
            mixed = fused_attention(queries, keys, values, mask)
        hidden = self.attention_residual.after(hidden, self.attention.combine(mixed))
        hidden = self.ffn_residual.after(hidden, self.ffn(self.ffn_residual.before(hidden)))
        return hidden, weights


class Encoder(nn.Module):
    """A stack of layers and, where the configuration says so, a last norm."""

    def __init__(self, config: TransformerConfig) -> None:
        """Build the stack."""
        super().__init__()
        rotary = Rotary(config.head_width) if config.positions == "rotary" else None
        self.layers = nn.ModuleList(EncoderLayer(config, rotary) for _ in range(config.num_encoder_layers))
        self.norm = LayerNorm(config.d_model, config.layer_norm_eps) if config.final_norm else None

    def forward(self, hidden: Tensor, mask: Tensor | None, return_weights: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Embedded source -> memory.

        Args:
            hidden: (B, S, M).
            mask: Boolean (B, 1, 1, S), True = may attend; None = all may.
            return_weights: Also return every layer's attention weights.

        Returns:
            The memory (B, S, M), and one (B, H, S, S) a layer (an empty list when not asked for).
        """
        maps: list[Tensor] = []
        for layer in self.layers:
            hidden, weights = layer(hidden, mask, return_weights)
            if weights is not None:
                maps.append(weights)
        return (hidden if self.norm is None else self.norm(hidden)), maps
