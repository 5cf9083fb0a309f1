"""What training minimises."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_ROWS = 64
"""Of logits at a time on a processor: 2 MB of float32 for 8,000 words."""


def label_smoothed_loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Tensor:
    """Cross-entropy against (1 - e) * one-hot + e / V (Szegedy et al. 2016, section 7; Vaswani et al., 5.4).

    Args:
        logits: (N, V), any float type; summed in float32.
        targets: (N,); ``pad_id`` counts nothing.
        pad_id: The id to leave out.
        smoothing: e, in [0, 1).

    Returns:
        The loss summed over all counted targets, a scalar, in nats.
    """
    return functional.cross_entropy(
        logits.float(), targets, ignore_index=pad_id, label_smoothing=smoothing, reduction="sum"
    )


def projected_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, pad_id: int, smoothing: float
) -> Tensor:
    """:func:`label_smoothed_loss` of ``hidden @ weight.T + bias``, without the logits of all rows in float32.

    Some rows at a time: their logits, the softmax, the loss and its gradient, while all of that lies in the near cache.
    Of every row only the gradient is kept, in the format of ``hidden``. A third of a training step's time goes into
    logits that are written to memory and read again for each of these.

    Args:
        hidden: (N, M), in the format that products are computed in.
        weight: (V, M), in any float format.
        bias: (V,), or None.
        targets: (N,); ``pad_id`` counts nothing.
        pad_id: The id to leave out.
        smoothing: e, in [0, 1).

    Returns:
        The loss summed over all counted targets, a float32 scalar, in nats.
    """
    result: Tensor = _ProjectedLoss.apply(hidden, weight, bias, targets, pad_id, smoothing)  # type: ignore[no-untyped-call]
    return result


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, pad_id: int, smoothing: float
    ) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            columns = weight.to(hidden.dtype)
            counted = targets != pad_id
            gradients = hidden.new_empty(len(hidden), len(weight))  # of the loss by the logits
            bias_gradient = torch.zeros(len(weight), device=hidden.device)
            loss = torch.zeros((), device=hidden.device)
            rows = _ROWS if hidden.device.type == "cpu" else len(hidden)
            block = torch.empty(rows, len(weight), device=hidden.device)
            for part in (slice(start, start + rows) for start in range(0, len(hidden), rows)):
                logits = block[: len(targets[part])]
                logits.copy_(torch.mm(hidden[part], columns.t(), out=gradients[part]))
                if bias is not None:
                    logits += bias
                target, counts = targets[part, None], counted[part, None]
                expected = (1 - smoothing) * logits.gather(1, target) + smoothing * logits.mean(1, keepdim=True)
                largest = logits.amax(1, keepdim=True)
                total = logits.sub_(largest).exp_().sum(1, keepdim=True)
                loss += ((total.log() + largest - expected) * counts).sum()
                # The softmax, less what is expected: (1 - e) at the target and e / V everywhere.
                logits.mul_(counts / total).sub_(counts * (smoothing / len(weight)))
                logits.scatter_add_(1, target, counts * (smoothing - 1.0))
                if bias is not None:
                    bias_gradient += logits.sum(0)
                gradients[part] = logits
            ctx.has_bias = bias is not None
            ctx.weight_dtype = weight.dtype
            ctx.save_for_backward(gradients @ columns, gradients.t() @ hidden, bias_gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        by_hidden, by_weight, by_bias = ctx.saved_tensors
        return (
            by_hidden * gradient.to(by_hidden.dtype),
            by_weight.to(ctx.weight_dtype).mul_(gradient),
            by_bias * gradient if ctx.has_bias else None,
            None,
            None,
            None,
        )


def guided_alignment_loss(log_weights: Tensor, alignment: Tensor) -> Tensor:
    """Cross-entropy of one head's attention against word alignments (Chen et al. 2016; Garg et al. 2019, eq. 4).

    Summed over rows and not averaged over a sentence: a weight then means the same beside a loss summed over tokens.

    Args:
        log_weights: (B, T, S) float32, logarithms of attention weights; -inf where a source is padded.
        alignment: (B, T, S); rows that sum to 0 count nothing.

    Returns:
        A scalar, in nats.
    """
    return -(alignment * torch.where(alignment > 0, log_weights, 0.0)).sum()
