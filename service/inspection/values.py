"""A station's dataclass as plain values for JSON; arrays become JSON at once, or are named and left out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from service.inspection.files import json_values

Arrays = Literal["small", "all", "none"]

SMALL_ARRAY = 65_536
"""Numbers of the largest array that JSON holds without being asked."""

_SKIPPED = ("checks",)


def plain_values(station: Any, arrays: Arrays, decimals: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a dataclass.

    Args:
        station: With numbers, words, arrays, and dataclasses of them.
        arrays: Which arrays are in it.
        decimals: That numbers in arrays are rounded to.

    Returns:
        The values, and of arrays left out the shape and type by their dotted names.
    """
    omitted: dict[str, Any] = {}
    return _plain_fields(station, "", arrays, decimals, omitted), omitted


def _plain_fields(
    value: Any, prefix: str, arrays: Arrays, decimals: int | None, omitted: dict[str, Any]
) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(value):
        if field.name in _SKIPPED:
            continue
        name = prefix + field.name
        item = getattr(value, field.name)
        if isinstance(item, np.ndarray) and (arrays == "none" or (arrays == "small" and item.size > SMALL_ARRAY)):
            omitted[name] = {"shape": list(item.shape), "dtype": str(item.dtype)}
        else:
            found[field.name] = _plain(item, name, arrays, decimals, omitted)
    return found


def _plain(value: Any, name: str, arrays: Arrays, decimals: int | None, omitted: dict[str, Any]) -> Any:
    if isinstance(value, np.ndarray):
        return json_values(value, decimals)
    if dataclasses.is_dataclass(value):
        return _plain_fields(value, name + ".", arrays, decimals, omitted)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{name}.{key}", arrays, decimals, omitted) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}.{index}", arrays, decimals, omitted) for index, item in enumerate(value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
