"""What training minimises."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


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
