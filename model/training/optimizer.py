"""AdamW for everything, or Muon for the matrices inside the stacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from model.training.settings import OptimizerSettings

_ADAM_BETA1 = 0.9


class Optimizers:
    """One or two torch optimizers, driven as one."""

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        """Sort the parameters: matrices get weight decay; Muon takes those inside encoder and decoder.

        Embeddings and the output projection stay with AdamW: Muon's orthogonal updates are meant for
        hidden layers (Jordan et al. 2024).
        """
        decayed, plain, hidden = [], [], []
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                plain.append(weight)
            elif settings.name == "muon" and name.startswith(("encoder.", "decoder.")):
                hidden.append(weight)
            else:
                decayed.append(weight)
        adamw = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": settings.weight_decay},
                {"params": plain, "weight_decay": 0.0},
            ],
            lr=settings.learning_rate,
            betas=(_ADAM_BETA1, settings.beta2),
            eps=1e-9,
            fused=True,
        )
        self._parts: list[tuple[torch.optim.Optimizer, float]] = [(adamw, settings.learning_rate)]
        if hidden:
            # match_rms_adamw (Liu et al. 2025) gives updates of AdamW's size, so that one scale of rates serves both.
            muon = torch.optim.Muon(
                hidden,
                lr=settings.muon_learning_rate,
                weight_decay=settings.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
            self._parts.append((muon, settings.muon_learning_rate))

    def step(self, factor: float) -> None:
        """Update the weights at ``factor`` times each peak rate, and clear the gradients."""
        for optimizer, peak in self._parts:
            for group in optimizer.param_groups:
                group["lr"] = peak * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """Everything that a resumed run needs."""
        return [optimizer.state_dict() for optimizer, _ in self._parts]

    def load_state_dict(self, states: list[Mapping[str, Any]]) -> None:
        """Take up what :meth:`state_dict` gave."""
        if len(states) != len(self._parts):
            raise ValueError(f"{len(states)} optimizer states saved, {len(self._parts)} optimizers configured")
        for (optimizer, _), state in zip(self._parts, states, strict=True):
            optimizer.load_state_dict(dict(state))
