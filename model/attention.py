"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, sections 3.2.1 and 3.2.2).

Letters in shape notes: B batch, H heads, Q queries, K keys, D head width, M = H * D the model width.
Masks are boolean and True means *may attend*, everywhere in this project.

There are two paths to the same numbers. The fused path calls torch's kernel, which never writes the
weights to memory. The explicit path follows the paper's formula line by line and returns the weights;
inspection uses it, and tests hold the two together. Weights are returned, never stored on a module:
two requests share a module.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.linear import Linear

_HALF_MAX = torch.finfo(torch.float16).max


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
    """Attention without its weights, by torch's fused kernel.

    Args:
        queries: (B, H, Q, D).
        keys: (B, H, K, D).
        values: (B, H, K, D).
        mask: Boolean, broadcastable to (B, H, Q, K), True = may attend; None = all may.
            Every query must be allowed at least one key.
        causal: Let query i attend to keys 0..i only; needs Q = K and ``mask`` None.

    Returns:
        (B, H, Q, D).
    """
    if queries.dtype == torch.bfloat16 and queries.device.type == "cpu":
        # The CPU kernel is 1.5 to 4 times slower in bfloat16 than in float32 at sentence lengths.
        with torch.autocast("cpu", enabled=False):
            mixed = functional.scaled_dot_product_attention(
                queries.float(), keys.float(), values.float(), attn_mask=mask, is_causal=causal
            )
        return mixed.to(queries.dtype)
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=causal)


def explicit_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V, equation 1 of the paper, with the softmax returned.

    Args:
        queries: (B, H, Q, D).
        keys: (B, H, K, D).
        values: (B, H, K, D).
        mask: As in :func:`fused_attention`.
        causal: As in :func:`fused_attention`.

    Returns:
        The mixed values (B, H, Q, D) and the weights (B, H, Q, K). A forbidden key has weight exactly 0.
    """
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])  # (B, H, Q, K)
    if causal:
        mask = causal_mask(queries.shape[-2], queries.device)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ values, weights


def head_log_weights(queries: Tensor, keys: Tensor, mask: Tensor | None, head: int) -> Tensor:
    """The logarithms of one head's weights, beside the fused path, which does not know them.

    Args:
        queries: (B, H, Q, D).
        keys: (B, H, K, D).
        mask: As in :func:`fused_attention`, broadcastable to (B, 1, Q, K).
        head: Which.

    Returns:
        (B, Q, K) float32; -inf for a forbidden key.
    """
    with torch.autocast(queries.device.type, enabled=False):
        scores = queries[:, head].float() @ keys[:, head].float().transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, 0], float("-inf"))
    return scores.log_softmax(dim=-1)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(length, length) boolean, True on and below the diagonal: a position sees itself and its past."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def split_heads(flat: Tensor, num_heads: int) -> Tensor:
    """(B, Q, H * D) -> (B, H, Q, D)."""
    batch, length, width = flat.shape
    return flat.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def _split(flat: Tensor, count: int, num_heads: int) -> tuple[Tensor, ...]:
    """(B, Q, count * M) -> ``count`` tensors (B, H, Q, D).

    `unbind` and not `chunk`: its gradient is written once; each chunk's is filled up with zeros, and all are added.
    """
    batch, length, width = flat.shape
    head_width = width // (count * num_heads)
    return flat.view(batch, length, count, num_heads, head_width).permute(2, 0, 3, 1, 4).unbind(0)


def merge_heads(split: Tensor) -> Tensor:
    """(B, H, Q, D) -> (B, Q, H * D): the heads' outputs side by side."""
    batch, num_heads, length, width = split.shape
    return split.transpose(1, 2).reshape(batch, length, num_heads * width)


def _through_half(numbers: Tensor) -> Tensor:
    """To float16 and back; what is beyond its range becomes its largest number."""
    return numbers.clamp(-_HALF_MAX, _HALF_MAX).half().float()


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself.

    W_Q, W_K and W_V stand above one another in one matrix (``qkv``, rows 0..M, M..2M, 2M..3M): one
    product instead of three, which matters for the small products of a decode step.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool) -> None:
        """Build the projections; ``num_heads`` divides ``d_model``."""
        super().__init__()
        self.num_heads = num_heads
        self.keeps_half = False
        """Whether keys and values are rounded to float16, as the compiled kernels keep them."""
        self.qkv = Linear(d_model, 3 * d_model, bias)
        self.out = Linear(d_model, d_model, bias)

    def project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, M) -> queries, keys and values, each (B, H, T, D)."""
        queries, keys, values = _split(self.qkv(hidden), 3, self.num_heads)
        if self.keeps_half:
            keys, values = _through_half(keys), _through_half(values)
        return queries, keys, values

    def combine(self, mixed: Tensor) -> Tensor:
        """The heads' results (B, H, T, D), side by side and through W_O: (B, T, M)."""
        result: Tensor = self.out(merge_heads(mixed))
        return result


class CrossAttention(nn.Module):
    """Multi-head attention of the target over the encoder's output ("encoder-decoder attention").

    W_K and W_V stand above one another in ``kv``: they are applied once a sequence, W_Q at every step.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool) -> None:
        """Build the projections; ``num_heads`` divides ``d_model``."""
        super().__init__()
        self.num_heads = num_heads
        self.keeps_half = False
        """As `SelfAttention.keeps_half`."""
        self.query = Linear(d_model, d_model, bias)
        self.kv = Linear(d_model, 2 * d_model, bias)
        self.out = Linear(d_model, d_model, bias)

    def project_query(self, hidden: Tensor) -> Tensor:
        """(B, T, M) -> (B, H, T, D)."""
        return split_heads(self.query(hidden), self.num_heads)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output (B, S, M) -> keys and values, each (B, H, S, D)."""
        keys, values = _split(self.kv(memory), 2, self.num_heads)
        if self.keeps_half:
            keys, values = _through_half(keys), _through_half(values)
        return keys, values

    def combine(self, mixed: Tensor) -> Tensor:
        """The heads' results (B, H, T, D), side by side and through W_O: (B, T, M)."""
        result: Tensor = self.out(merge_heads(mixed))
        return result
