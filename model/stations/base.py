"""What all stations share: checks with their numbers, affine maps as plain arrays, and how arrays are handed out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from model.linear import Linear
from model.trace import Tracer, to_numpy

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Check:
    """One statement about the numbers beside it, measured when they were made.

    Attributes:
        name: Short and stable, for programs.
        says: The statement, for people.
        value: How far from the truth: 0 is perfect.
        tolerance: The most that passes.
        passed: Whether ``value`` is at most ``tolerance``; NaN never is.
    """

    name: str
    says: str
    value: float
    tolerance: float
    passed: bool


def check(name: str, says: str, value: float, tolerance: float) -> Check:
    """Compare a deviation with the most that is allowed."""
    return Check(name, says, float(value), float(tolerance), bool(value <= tolerance))


@dataclass(frozen=True, kw_only=True)
class Station:
    """The numbers of one station, and what was checked about them.

    Attributes:
        number: From 1 to 15, in the order of the route.
        name: For programs.
        checks: Computed with the numbers.
    """

    number: ClassVar[int]
    name: ClassVar[str]
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(item.passed for item in self.checks)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array of the station by name; of a part as ``part.name``, of a list of parts as ``parts.0.name``."""
        found: dict[str, NDArray[Any]] = {}
        _collect(self, "", found)
        return found


def _collect(value: object, prefix: str, found: dict[str, NDArray[Any]]) -> None:
    if isinstance(value, np.ndarray):
        found[prefix] = value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name), f"{prefix}.{field.name}" if prefix else field.name, found)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if dataclasses.is_dataclass(item):
                _collect(item, f"{prefix}.{index}", found)


@dataclass(frozen=True)
class Affine:
    """y = x W + b as arrays: a ``Linear``, or some of its columns.

    Attributes:
        weight: (in, out) float32; of an int8 model the rounded weights.
        bias: (out,) float32; zeros where there is none.
        input_levels: 0 in float. In int8: each row of x is divided by its largest magnitude and rounded to that many
            steps before the product, and multiplied by the magnitude after it.
    """

    weight: Floats
    bias: Floats
    input_levels: int

    @classmethod
    def of(cls, linear: Linear, start: int = 0, end: int | None = None) -> Affine:
        """The outputs ``start`` to ``end`` - 1 of a ``Linear``."""
        weight = to_numpy(linear.effective_weight()[start:end]).T
        bias = np.zeros(weight.shape[1], np.float32) if linear.bias is None else to_numpy(linear.bias[start:end])
        return cls(np.ascontiguousarray(weight), bias, linear.input_levels)

    def apply(self, x: Floats) -> Doubles:
        """By hand, in float64: (..., in) -> (..., out)."""
        inputs = x.astype(np.float64)
        if self.input_levels:
            ranges = np.maximum(np.abs(x).max(axis=-1, keepdims=True), np.float32(1e-30))
            rounded = np.round(x / ranges * np.float32(self.input_levels)) / self.input_levels
            inputs = rounded.astype(np.float64) * ranges
        result: Doubles = inputs @ self.weight.astype(np.float64) + self.bias
        return result


def difference(first: ArrayLike | Tensor, second: ArrayLike | Tensor) -> float:
    """The largest absolute difference; 0 for nothing, infinite for other shapes."""
    a, b = (_double(values) for values in (first, second))
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a - b).max()) if a.size else 0.0


def largest(values: ArrayLike | Tensor) -> float:
    """The largest magnitude, 0 for nothing."""
    array = _double(values)
    return float(np.abs(array).max()) if array.size else 0.0


def _double(values: ArrayLike | Tensor) -> Doubles:
    if isinstance(values, Tensor):
        return values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def exact(tracer: Tracer, tolerance: float, reference: ArrayLike | Tensor) -> float:
    """The tolerance for the same products summed in another order: grows with the numbers, and with the float type."""
    dtype = tracer.logits.dtype
    return tolerance * max(1.0, largest(reference)) * torch.finfo(dtype).eps / torch.finfo(torch.float32).eps


def by_another_path(tracer: Tracer, tolerance: float, reference: ArrayLike | Tensor) -> float:
    """The tolerance for whole layers computed in another way.

    In int8 a difference of one bit may round an activation to the next of its 127 steps, which later layers carry on:
    of 59 pairs with senseless targets most differed by nothing, the worst in a logit by 4 % of the largest one.
    """
    if tracer.model.output.is_quantized:
        return max(tolerance, 0.08 * largest(reference))
    return exact(tracer, tolerance, reference)


def first(values: Tensor) -> Floats:
    """The one sequence of a batch of 1, as an array."""
    return to_numpy(values[0])
