"""What training minimises."""

from __future__ import annotations

import torch
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
