"""Numbers as bytes: JSON in small bites, safetensors, CSV, and numpy's own format."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors.numpy import save

from service.aside import breathe
from service.inspection.maps import ShownMap
from service.inspection.pairs import Pair, Side


def json_values(values: NDArray[Any], decimals: int | None) -> orjson.Fragment:
    """An array as nested JSON lists; what is not finite becomes null.

    Each matrix is written by itself: while one is written, no other thread of the process can run.
    """
    if decimals is not None and np.issubdtype(values.dtype, np.floating):
        values = values.astype(np.float64).round(decimals)
    return orjson.Fragment(_json(values))


def _json(values: NDArray[Any]) -> bytes:
    if values.ndim > 2:
        return b"[" + b",".join(_json(part) for part in values) + b"]"
    if values.dtype == np.bool_ or values.ndim == 0:
        return orjson.dumps(values.tolist())
    if not np.issubdtype(values.dtype, np.number):
        return orjson.dumps(values.tolist())
    breathe()
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def safetensors_bytes(tensors: Mapping[str, NDArray[Any]], json: bytes) -> bytes:
    """A safetensors file, with JSON beside the tensors under the metadata's key `json`."""
    return save(dict(tensors), metadata={"json": json.decode()})


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A file for `numpy.load`, uncompressed."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


CSV_COLUMNS = ("segment", "kind", "layer", "head", "query", "key", "query_token", "key_token", "value")


def csv_bytes(
    shown: Sequence[tuple[Pair, Sequence[ShownMap]]],
    layers: Mapping[str, Sequence[object]],
    heads: Sequence[object],
    decimals: int | None,
) -> bytes:
    """One line a cell; a cell that is not finite is empty.

    Args:
        shown: The maps of each segment.
        layers: For each kind the names of its layers.
        heads: The names of the heads.
        decimals: That values are rounded to.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(CSV_COLUMNS)
    for pair, maps in shown:
        source, target, inputs = pair.sides
        sides = {"source": source, "target": target, "input": inputs}
        for item in maps:
            rows = _labels(sides[item.query.side], item.query.words is not None, item.query.shown)
            columns = _labels(sides[item.key.side], item.key.words is not None, item.key.shown)
            values = item.values if decimals is None else item.values.astype(np.float64).round(decimals)
            for layer, of_layer in zip(layers[item.kind], values, strict=True):
                for head, matrix in zip(heads, of_layer, strict=True):
                    breathe()
                    for (query, row_label), row in zip(rows, matrix.tolist(), strict=True):
                        writer.writerows(
                            (pair.index, item.kind, layer, head, query, key, row_label, label, _cell(value))
                            for (key, label), value in zip(columns, row, strict=True)
                        )
    return buffer.getvalue().encode()


def _labels(side: Side, is_words: bool, shown: Sequence[int]) -> list[tuple[int, str]]:
    if is_words:
        return [
            (index, side.placed_words[index].text or side.text.pieces[side.words[index].pieces[0]]) for index in shown
        ]
    return [(index, side.text.pieces[index]) for index in shown]


def _cell(value: float) -> float | str:
    return value if np.isfinite(value) else ""
