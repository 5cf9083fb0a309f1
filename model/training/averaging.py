"""An exponential moving average of the weights: steadier than the last step's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Polyak averaging with exponential forgetting (Polyak and Juditsky 1992), started at the first update."""

    def __init__(self, model: nn.Module, decay: float, every: int) -> None:
        """Average the parameters of ``model``.

        Args:
            model: The trained model.
            decay: Per step.
            every: Steps between updates; the decay of an update is ``decay ** every``.
        """
        self._weights: list[Tensor] = list(model.parameters())
        self.averages: list[Tensor] = [weight.detach().clone() for weight in self._weights]
        self._decay = decay
        self._every = every

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after optimizer step ``step``."""
        if step % self._every:
            return
        # Early on the average forgets faster, or it would remember the random start for thousands of steps.
        decay = min(self._decay**self._every, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.averages, self._weights, 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block the model computes with the averages."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, average in zip(self._weights, self.averages, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
