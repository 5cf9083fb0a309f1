"""The one affine map of the model: every matrix product but the attention itself goes through it.

A :class:`Linear` holds its weight as trained, or, after :meth:`Linear.quantize`, in 8-bit integers for a CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.native.packing import PackedWeight

_TINY = 1e-30


class Int8Unavailable(RuntimeError):
    """This build of torch has no 8-bit kernels for this processor."""


class BatchVariance(RuntimeError):
    """This machine's matrix products cannot be made independent of the rows beside a row."""


class Linear(nn.Module):
    """y = x W^T + b.

    In int8 each row of the weight has a scale of its own, and each row of the input is divided by its
    own largest magnitude before it is rounded. torch's ready-made dynamic quantization takes one range for
    the whole input instead, so that a row's result changes with the rows beside it (by 3 to 90 % of a
    small row beside a large one); here a row's result is the same bits alone and in any batch.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool) -> None:
        """Allocate without drawing numbers: the model initialises all its weights in one place."""
        super().__init__()
        self.weight: nn.Parameter | None = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.packed: PackedWeight | None = None  # for our kernels, where they are compiled
        self._packed: Any = None  # else an opaque torch object, laid out for torch's kernel
        self._levels = 127
        self._row_block = 0

    @property
    def is_quantized(self) -> bool:
        """Whether the weight is held in int8."""
        return self.weight is None

    @property
    def input_levels(self) -> int:
        """Steps from 0 to a row's largest magnitude that inputs are rounded to; 0 = they are not rounded."""
        return self._levels if self.is_quantized else 0

    def effective_weight(self) -> Tensor:
        """The numbers that inputs are multiplied by, (out_features, in_features): in int8 the rounded ones, as floats.

        With :attr:`input_levels` and the bias they are all that is needed to repeat :meth:`forward` by hand.
        """
        if self.weight is not None:
            return self.weight
        if self.packed is not None:
            return self.packed.unpacked()
        rounded, _ = torch.ops.quantized.linear_unpack(self._packed)
        weight: Tensor = rounded.dequantize()
        return weight

    def quantize(self, reduce_range: bool | None = None) -> None:
        """Hold the weight in int8 from now on; there is no way back.

        Args:
            reduce_range: Round inputs to 7 bits instead of 8. Without VNNI instructions the kernel adds pairs of
                8-bit products in 16 bits, which saturates: there 8-bit inputs give wrong sums. None = as this
                processor needs.

        Raises:
            Int8Unavailable: When the kernel is missing.
        """
        assert self.weight is not None, "already quantized"
        if reduce_range is None and PackedWeight.fits(self.weight):
            self.packed = PackedWeight(self.weight.detach().float(), self.bias)
            self.weight = None
            return
        if reduce_range is None:
            reduce_range = not _has_vnni()
        weight = self.weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp_min(_TINY) / 127
        zero_points = torch.zeros(len(scales), dtype=torch.int64)
        try:
            with warnings.catch_warnings():
                # Quantized tensors will leave a later torch. The release is pinned, and no other kernel does this yet.
                warnings.filterwarnings("ignore", message="torch.quantize_per", category=UserWarning)
                rounded = torch.quantize_per_channel(weight, scales.double(), zero_points, 0, torch.qint8)
                self._packed = torch.ops.quantized.linear_prepack(rounded, None)
        except RuntimeError as error:
            raise Int8Unavailable(f"torch has no int8 kernel for this processor: {error}") from error
        self._levels = 63 if reduce_range else 127
        self.weight = None

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        if self.weight is not None:
            if self._row_block:
                return in_row_blocks(self._multiply, inputs, self._row_block)
            return functional.linear(inputs, self.weight, self.bias)
        if self.packed is not None:
            return self.packed.multiply(inputs)
        ranges = inputs.abs().amax(dim=-1, keepdim=True).clamp_min_(_TINY)
        product: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            inputs / ranges, 1.0 / self._levels, self._levels + 1, self._packed
        )
        return product.mul_(ranges) if self.bias is None else torch.addcmul(self.bias, product, ranges)

    def use_row_blocks(self, size: int) -> None:
        """In a float format, multiply ``size`` rows at a time from now on, never more or fewer.

        In which order a product sums depends on its shape, so that a row's last bits change with the number of rows.
        In products of one shape they do not, nor do they depend on the other rows or on the row's place: that is
        tried here, for no library promises it. In int8 nothing changes; there it holds already.

        Raises:
            BatchVariance: When a row of random numbers did not give the same bits everywhere in a block.
        """
        if self.weight is not None:
            check_row_blocks(self._multiply, size, self.weight)
            self._row_block = size

    def _multiply(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weight, self.bias)  # type: ignore[arg-type]  # only in a float format


def in_row_blocks(function: Callable[[Tensor], Tensor], inputs: Tensor, size: int) -> Tensor:
    """Apply ``function`` to ``size`` rows of (..., width) at a time; the last ones are filled up with zeros."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    padded = functional.pad(rows, (0, 0, 0, -len(rows) % size))
    results = torch.cat([function(block) for block in torch.split(padded, size)])
    return results[: len(rows)].view(*inputs.shape[:-1], -1)


def check_row_blocks(function: Callable[[Tensor], Tensor], size: int, weight: Tensor) -> None:
    """Try on random numbers that a row's bits depend neither on its place in a block nor on the other rows.

    Args:
        function: (size, width) -> (size, any).
        size: Rows of a block.
        weight: (any, width); the rows tried have its width, format and device.

    Raises:
        BatchVariance: They do.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(size, weight.shape[1], generator=generator).to(weight)
    expected = function(rows)
    for shift in range(1, size):
        moved = rows.roll(shift, 0)
        moved[:shift] *= 3  # these rows are others now; the rest must not notice
        if not torch.equal(function(moved)[shift:], expected[: size - shift]):
            raise BatchVariance(
                f"{size} rows with a weight of {tuple(weight.shape)} in {weight.dtype} on {weight.device}: a row has "
                "other bits in another place"
            )


def has_int8_kernels() -> bool:
    """Whether :meth:`Linear.quantize` works here: tried on a tiny weight, since torch has no other way to tell."""
    probe = Linear(8, 8, bias=False)
    nn.init.zeros_(probe.weight)  # type: ignore[arg-type]
    try:
        probe.quantize()
        probe(torch.zeros(1, 8))
    except RuntimeError:
        return False
    return True


def _has_vnni() -> bool:
    return bool(torch.cpu._is_vnni_supported())
