"""The one affine map of the model: every matrix product but the attention itself goes through it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Linear(nn.Module):
    """y = x W^T + b in the precision of its weight.

    A class of our own, and not ``torch.nn.Linear``, so that there is one place where a
    weight's number format is decided.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool) -> None:
        """Allocate without drawing numbers: the model initialises all its weights in one place."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return functional.linear(inputs, self.weight, self.bias)
