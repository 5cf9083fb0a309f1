"""Dropout (Srivastava et al. 2014), with random numbers that cost little on a processor."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_POOL = 1 << 22
_POOL_SEED = 1


def dropout(numbers: Tensor, rate: float, training: bool) -> Tensor:
    """``numbers`` with a share of ``rate`` set to 0 and the rest divided by 1 - ``rate``; as they are if not training.

    torch draws the random numbers of a processor one by one, which is 8 % of a training step. Here a tensor's mask is a
    piece of one long row of random bits, drawn once; where it begins is drawn from torch's generator. A graphics
    processor draws many at once, and has torch's own.

    Args:
        numbers: Any shape and float format.
        rate: In [0, 1).
        training: Whether anything is to be dropped.
    """
    if not training or rate == 0:
        return numbers
    if numbers.device.type != "cpu" or numbers.numel() > _POOL // 2:
        return functional.dropout(numbers, rate)
    result: Tensor = _PooledDropout.apply(numbers, rate)  # type: ignore[no-untyped-call]
    return result


class _PooledDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, numbers: Tensor, rate: float) -> Tensor:
        ctx.rate = rate
        ctx.start = int(torch.randint(_POOL - numbers.numel() + 1, ()))
        return numbers * _factors(ctx, numbers)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * _factors(ctx, gradient), None


def _factors(ctx: Any, like: Tensor) -> Tensor:
    return _pool(ctx.rate, like.dtype)[ctx.start : ctx.start + like.numel()].view(like.shape)


@cache
def _pool(rate: float, dtype: torch.dtype) -> Tensor:
    """0 or 1 / (1 - rate), 2^22 times."""
    kept = torch.rand(_POOL, generator=torch.Generator().manual_seed(_POOL_SEED)) >= rate
    return (kept / (1 - rate)).to(dtype)
