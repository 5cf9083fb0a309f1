"""Attention maps as they were asked for: combined, by words, without special tokens, a slice of them, in some format.

Sizes are known before anything runs, so that what is too large is refused with a request that fits.

Letters: L layers, H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model.config import TransformerConfig
from model.maps import aggregate, merge_words
from model.selection import KINDS, Kind, Selection, SelectionError, depth, select_indices
from model.words import Word
from service.engine.inspection import Capture, CaptureRequest, CheckResult, Floats
from service.inspection.errors import InvalidInspection, Nearest, TooManyBytes, TooManyTokens
from service.inspection.pairs import Pair, Side

Aggregate = Literal["none", "mean", "max", "rollout"]
Over = Literal["heads", "layers", "both"]
Measure = Literal["weights", "scores", "value_norm"]
Granularity = Literal["token", "word"]
Special = Literal["keep", "hide", "renormalise"]
Dtype = Literal["f32", "f16", "u8"]
Format = Literal["json", "safetensors", "csv", "svg", "png"]
Indices = int | str | Sequence[int | str] | None
Bounds = tuple[int | None, int | None] | None

BYTES: Mapping[Dtype, int] = {"f32": 4, "f16": 2, "u8": 1}
MEDIA_TYPES: Mapping[Format, str] = {
    "json": "application/json",
    "safetensors": "application/vnd.safetensors",
    "csv": "text/csv",
    "svg": "image/svg+xml",
    "png": "image/png",
}

_AXES: Mapping[Kind, tuple[str, str]] = {
    "encoder": ("source", "source"),
    "decoder": ("target", "input"),
    "cross": ("target", "source"),
}
_LONGEST_NUMBER: Mapping[Dtype, int] = {"f32": 15, "f16": 13, "u8": 3}
"""Characters of a number in JSON, where nothing is rounded."""

_CSV_NAMES = 64
"""Bytes of a line of CSV beside its number, about."""


@dataclass(frozen=True, slots=True)
class MapOptions:
    """Which maps, and how.

    Attributes:
        kinds: Of attention.
        layers: As `model.selection.select_indices` reads them.
        heads: Likewise.
        aggregate: What is taken together, if anything.
        aggregate_over: Heads, layers or both; a rollout is always over heads.
        measure: What a cell holds.
        granularity: Pieces or words.
        special: What becomes of end and start of sentence.
        query: Which rows of the axis that is shown.
        key: Which columns.
        decimals: That JSON and CSV are rounded to.
        dtype: Of the numbers.
        segments: Which are captured; None is all.
    """

    kinds: tuple[Kind, ...] = KINDS
    layers: Indices = None
    heads: Indices = None
    aggregate: Aggregate = "none"
    aggregate_over: Over = "heads"
    measure: Measure = "weights"
    granularity: Granularity = "token"
    special: Special = "keep"
    query: Bounds = None
    key: Bounds = None
    decimals: int | None = None
    dtype: Dtype = "f32"
    segments: tuple[int, ...] | None = None

    def selection(self, config: TransformerConfig) -> Selection:
        """The layers and heads of this model.

        Raises:
            InvalidInspection: It does not have them, or the options exclude each other.
        """
        self._check_together()
        layers = {
            kind: _indices("layers", self.layers, depth(config, kind), f"{kind} layer")
            for kind in KINDS
            if kind in self.kinds
        }
        heads = _indices("heads", self.heads, config.num_heads, "head")
        if self.aggregate == "rollout" and len(heads) < config.num_heads:
            raise InvalidInspection("heads", self.heads, "all of them, for a rollout goes through every head")
        return Selection(layers, heads)

    def _check_together(self) -> None:
        if self.aggregate == "rollout" and self.measure != "weights":
            raise InvalidInspection("measure", self.measure, "weights, for a rollout multiplies weights")
        if self.measure == "scores" and self.granularity == "word":
            raise InvalidInspection("granularity", "word", "token: scores of pieces have no sum that means anything")
        if self.special == "renormalise" and self.measure == "scores":
            raise InvalidInspection("special", self.special, "keep or hide: scores may be negative")
        if self.dtype == "u8" and self.measure != "weights":
            raise InvalidInspection("dtype", self.dtype, "f32 or f16: only weights lie between 0 and 1")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a map as it is shown.

    Attributes:
        side: `source`, `target` or `input`.
        words: What pieces are merged into; None shows pieces.
        shown: Which of them, or of the pieces.
    """

    side: str
    words: tuple[Word, ...] | None
    shown: tuple[int, ...]

    @property
    def name(self) -> str:
        """The list in the answer that `shown` counts in."""
        return f"{self.side}_{'tokens' if self.words is None else 'words'}"


@dataclass(frozen=True, slots=True)
class ShownMap:
    """The maps of one kind.

    Attributes:
        kind: Of attention.
        query: Rows.
        key: Columns.
        values: (L, H, Q, K), in the type asked for.
    """

    kind: Kind
    query: Axis
    key: Axis
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class MapSizes:
    """What a choice of maps weighs before anything runs.

    Attributes:
        cells: Numbers of each kind.
        total_cells: Their sum.
        num_bytes: By dtype, the numbers alone; `json` and `csv` at most.
    """

    cells: Mapping[Kind, int]
    total_cells: int
    num_bytes: Mapping[str, int]

    def of(self, format_: Format, dtype: Dtype) -> int:
        """Bytes in a format; pictures count as the numbers they are made from."""
        return self.num_bytes[format_ if format_ in ("json", "csv") else dtype]


def captured(pairs: Sequence[Pair], options: MapOptions) -> list[Pair]:
    """The segments whose maps are wanted.

    Raises:
        InvalidInspection: One that does not exist.
    """
    if options.segments is None:
        return [pair for pair in pairs if pair.source is not None]
    for place, index in enumerate(options.segments):
        if not 0 <= index < len(pairs):
            allowed = f"an index from 0 to {len(pairs) - 1}" if pairs else "none: the text has no segments"
            raise InvalidInspection(f"segments[{place}]", index, allowed)
    return [pair for pair in pairs if pair.index in options.segments and pair.source is not None]


def sizes(pairs: Sequence[Pair], options: MapOptions, config: TransformerConfig) -> MapSizes:
    """Count the cells of what will be shown."""
    selection = options.selection(config)
    cells: dict[Kind, int] = dict.fromkeys(selection.layers, 0)
    for pair in pairs:
        for kind in cells:
            num_layers, num_heads = _stacked(options, selection, kind)
            query, key = axes(pair, kind, options)
            cells[kind] += num_layers * num_heads * len(query.shown) * len(key.shown)
    total = sum(cells.values())
    width = _LONGEST_NUMBER[options.dtype] if options.decimals is None else options.decimals + 8
    return MapSizes(
        cells,
        total,
        {
            **{name: total * size for name, size in BYTES.items()},
            "json": total * (width + 2),
            "csv": total * (width + _CSV_NAMES),
        },
    )


def _stacked(options: MapOptions, selection: Selection, kind: Kind) -> tuple[int, int]:
    num_layers, num_heads = len(selection.layers[kind]), len(selection.heads)
    if options.aggregate == "rollout":
        return num_layers, 1
    if options.aggregate != "none":
        num_layers = 1 if options.aggregate_over in ("layers", "both") else num_layers
        num_heads = 1 if options.aggregate_over in ("heads", "both") else num_heads
    return num_layers, num_heads


def check_budget(
    pairs: Sequence[Pair],
    options: MapOptions,
    config: TransformerConfig,
    format_: Format,
    *,
    max_tokens: int,
    max_bytes: int,
) -> MapSizes:
    """Refuse what is too large.

    Raises:
        TooManyTokens: With a request for fewer segments, if there are several.
        TooManyBytes: With the nearest request that fits.
    """
    num_tokens = sum(len(pair.sides[0].ids) + len(pair.sides[1].ids) for pair in pairs)
    if num_tokens > max_tokens:
        raise TooManyTokens(
            "source and target together have",
            num_tokens,
            max_tokens,
            _fewer_segments(pairs, options, config, format_, max_tokens, max_bytes),
        )
    counted = sizes(pairs, options, config)
    needed = counted.of(format_, options.dtype)
    if needed > max_bytes:
        raise TooManyBytes(
            f"the maps as {format_} would have", needed, max_bytes, _nearest(pairs, options, config, format_, max_bytes)
        )
    return counted


def _fewer_segments(
    pairs: Sequence[Pair],
    options: MapOptions,
    config: TransformerConfig,
    format_: Format,
    max_tokens: int,
    max_bytes: int,
) -> Nearest | None:
    kept: list[Pair] = []
    num_tokens = 0
    for pair in pairs:
        num_tokens += len(pair.sides[0].ids) + len(pair.sides[1].ids)
        if num_tokens > max_tokens or sizes([*kept, pair], options, config).of(format_, options.dtype) > max_bytes:
            break
        kept.append(pair)
    if not kept:
        return None
    indices = [pair.index for pair in kept]
    needed = sizes(kept, options, config).of(format_, options.dtype)
    return Nearest("the first segments alone", MEDIA_TYPES[format_], {"segments": indices}, needed)


def _nearest(
    pairs: Sequence[Pair], options: MapOptions, config: TransformerConfig, format_: Format, max_bytes: int
) -> Nearest | None:
    """The first of some steps, each of which leaves out more, that fits."""
    small: Format = "safetensors"
    last = {"layers": -1}
    steps: list[tuple[str, Format, dict[str, Any]]] = [
        ("the same maps as safetensors", small, {}),
        ("the same maps as safetensors of 16-bit floats", small, {"dtype": "f16"}),
        ("the last layer of each kind", format_, last),
        ("the last layer of each kind as safetensors", small, last),
        ("the mean of all heads in the last layer", format_, last | {"aggregate": "mean"}),
        ("the mean of all heads in the last layer as safetensors", small, last | {"aggregate": "mean"}),
        (
            "the mean of all heads in the last layer, cross-attention alone",
            format_,
            last | {"aggregate": "mean", "kinds": ["cross"]},
        ),
        (
            "the mean of all heads in the last layer, cross-attention of the first segment alone, as safetensors",
            small,
            last | {"aggregate": "mean", "kinds": ["cross"], "segments": [pairs[0].index]},
        ),
    ]
    for says, step_format, changes in steps:
        changed = replace(options, **{name: _frozen(value) for name, value in changes.items()})
        shown = pairs if changed.segments is None else [pair for pair in pairs if pair.index in changed.segments]
        try:
            needed = sizes(shown, changed, config).of(step_format, changed.dtype)
        except InvalidInspection:
            continue
        if needed <= max_bytes:
            return Nearest(says, MEDIA_TYPES[step_format], changes, needed)
    return None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# --- from what was captured to what is shown --------------------------------------------------------------------------


def axes(pair: Pair, kind: Kind, options: MapOptions) -> tuple[Axis, Axis]:
    """Rows and columns of a map."""
    source, target, inputs = pair.sides
    sides: dict[str, Side] = {"source": source, "target": target, "input": inputs}
    query, key = _AXES[kind]
    return _axis(query, sides[query], options, options.query), _axis(key, sides[key], options, options.key)


def _axis(name: str, side: Side, options: MapOptions, bounds: Bounds) -> Axis:
    words = side.words if options.granularity == "word" else None
    special = [word.is_special for word in words] if words is not None else list(side.text.is_special)
    shown = [index for index, is_special in enumerate(special) if options.special == "keep" or not is_special]
    return Axis(name, words, tuple(shown[slice(*bounds)] if bounds is not None else shown))


def capture_request(
    pair: Pair, options: MapOptions, config: TransformerConfig, with_alignment: bool = False
) -> CaptureRequest:
    """What to replay."""
    source, target, _ = pair.sides
    return CaptureRequest(
        source_ids=source.ids,
        target_ids=target.ids,
        selection=options.selection(config),
        measure=options.measure,
        rollout=options.aggregate == "rollout",
        log_probs=None if pair.hypothesis is None else pair.hypothesis.token_log_probs,
        texts=(source.text, target.text) if with_alignment else None,
    )


def show(pair: Pair, options: MapOptions, found: Capture) -> tuple[list[ShownMap], list[CheckResult]]:
    """What was captured, as it was asked for; with a check more where words were merged."""
    shown, deviations = [], []
    for kind, raw in found.maps.items():
        query, key = axes(pair, kind, options)
        maps = raw
        if options.aggregate in ("mean", "max"):
            maps = aggregate(maps, options.aggregate, options.aggregate_over)
        if query.words is not None and key.words is not None:
            merged = merge_words(maps, query.words, key.words)
            deviations.append(_row_change(maps, merged, query.words))
            maps = merged
        # Rows of special tokens may see special keys alone, and are 0 then.
        if options.special == "renormalise":
            maps = _renormalised(maps, _axis_of_all_keys(pair, kind, options))
        maps = np.ascontiguousarray(maps[:, :, list(query.shown)][:, :, :, list(key.shown)])
        shown.append(ShownMap(kind, query, key, _typed(maps, options.dtype)))
    checks = list(found.checks)
    if deviations:
        says = "Merging pieces into words keeps the sum of every row"
        checks.append(CheckResult("word_rows_kept", says, max(deviations), 1e-5, max(deviations) <= 1e-5))
    return shown, checks


def _axis_of_all_keys(pair: Pair, kind: Kind, options: MapOptions) -> tuple[int, ...]:
    """The keys that are not special, whatever slice is shown."""
    return axes(pair, kind, replace(options, query=None, key=None))[1].shown


def _renormalised(maps: Floats, keys: Sequence[int]) -> Floats:
    sums = maps[..., list(keys)].sum(axis=-1, keepdims=True)
    result: Floats = np.divide(maps, sums, out=np.zeros_like(maps), where=sums > 0)
    return result


def _row_change(before: Floats, after: Floats, words: Sequence[Word]) -> float:
    sums = before.sum(axis=-1, dtype=np.float64)
    expected = np.stack([sums[..., word.pieces].mean(axis=-1) for word in words], axis=-1)
    return float(np.abs(after.sum(axis=-1, dtype=np.float64) - expected).max())


def _typed(maps: Floats, dtype: Dtype) -> NDArray[Any]:
    if dtype == "u8":
        return np.rint(maps * 255).astype(np.uint8)
    return maps.astype(np.float16) if dtype == "f16" else maps


def _indices(field: str, wanted: Indices, count: int, name: str) -> tuple[int, ...]:
    try:
        return select_indices(wanted, count, name)
    except SelectionError as error:
        allowed = f"indices of {count} (0 to {count - 1}, or -1 to {-count}), ranges such as 0-{count - 1}, or all"
        raise InvalidInspection(field, wanted, f"{allowed}: {error}") from error
