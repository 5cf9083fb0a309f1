"""Weights in 8 bits, in the order in which the kernels read them."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.nn import functional

from model.native.library import COLUMNS, LinearStruct, checked, kernels, threads

_TINY = 1e-30
_LEVELS = 127
_ROWS_AT_ONCE = 64 * COLUMNS


class PackedWeight:
    """A weight (N, K) as ``[N / 32][K / 4][32][4]`` bytes, each rounded to 127 steps of its row's largest magnitude.

    The bytes are the rounded weights, + 128 where the processor multiplies unsigned by signed bytes.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Round and pack.

        Args:
            weight: (N, K) float, K a multiple of 4.
            bias: (N,) or None; kept, not copied.
        """
        library = kernels()
        assert library is not None
        self._shift: int = library.gs_weight_shift()
        self.out_features, self.in_features = weight.shape
        scales = torch.empty(self.out_features)
        self._bytes = torch.empty(
            -(-self.out_features // COLUMNS), self.in_features // 4, COLUMNS, 4, dtype=torch.uint8
        )
        # Some rows at a time: a vocabulary's projection would need several times its own size on the way.
        for first in range(0, self.out_features, _ROWS_AT_ONCE):
            rows = weight[first : first + _ROWS_AT_ONCE]
            steps = rows.abs().amax(dim=1).clamp_min(_TINY) / _LEVELS
            whole = (rows / steps.unsqueeze(1)).round().clamp(-_LEVELS, _LEVELS)
            padded = functional.pad(whole, (0, 0, 0, -len(rows) % COLUMNS)).to(torch.int16).add_(self._shift)
            blocks = padded.to(torch.uint8).view(-1, COLUMNS, self.in_features // 4, 4)
            scales[first : first + len(rows)] = steps
            self._bytes[first // COLUMNS : first // COLUMNS + len(blocks)] = blocks.transpose(1, 2)
        self._steps = scales
        self._scales = (scales / _LEVELS).contiguous()
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self.struct = LinearStruct(
            self._bytes.data_ptr(),
            self._scales.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            self.out_features,
            self.in_features,
        )

    @staticmethod
    def fits(weight: Tensor) -> bool:
        """Whether the kernels are there and can multiply by such a weight."""
        return kernels() is not None and weight.device.type == "cpu" and weight.shape[1] % 4 == 0

    def multiply(self, inputs: Tensor) -> Tensor:
        """(..., K) float32 -> (..., N), bias added; each row of the input is rounded by its own largest magnitude."""
        library = kernels()
        assert library is not None
        rows = inputs.reshape(-1, self.in_features).float().contiguous()
        product = torch.empty(len(rows), self.out_features)
        checked(
            library.gs_multiply(ctypes.byref(self.struct), threads(), len(rows), rows.data_ptr(), product.data_ptr())
        )
        return product.view(*inputs.shape[:-1], self.out_features)

    def unpacked(self) -> Tensor:
        """The rounded weight as floats, (N, K)."""
        whole = self._bytes.transpose(1, 2).reshape(-1, self.in_features)[: self.out_features]
        signed = whole.to(torch.int16) - self._shift if self._shift else whole.view(torch.int8)
        return signed.float() * self._steps.unsqueeze(1)
