"""Kinds of fields that bodies share where they look inside, and how each is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from model.selection import KINDS, Kind
from service.inspection.maps import Aggregate, Bounds, Dtype, Granularity, MapOptions, Measure, Over, Special

LARGEST = 10**9


def field_error(at: str, given: object, allowed: str) -> PydanticCustomError:
    """What a validator raises; `service.api.errors` turns it into a fault of the field."""
    return PydanticCustomError("field", "not allowed", {"at": at, "given": given, "allowed": allowed})


def is_int(value: object) -> bool:
    """Whether it is an integer, and not true or false."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_indices(value: object) -> object:
    """What `model.selection.select_indices` may be given; it looks at the rest."""
    allowed = 'an index, a range such as "0-2", a list of them, or "all"'
    if is_int(value) or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise field_error("", value, allowed)
    for index, item in enumerate(value):
        if not is_int(item) and not isinstance(item, str):
            raise field_error(f"[{index}]", item, 'an index, or a range such as "0-2"')
    return value


def _check_kinds(value: object) -> object:
    if not isinstance(value, list) or not value:
        raise field_error("", value, f"a list with at least one of {', '.join(KINDS)}")
    for index, item in enumerate(value):
        if item not in KINDS:
            raise field_error(f"[{index}]", item, f"one of {', '.join(KINDS)}")
    return value


def _check_slice(value: object) -> object:
    is_slice = isinstance(value, list) and len(value) == 2 and all(end is None or is_int(end) for end in value)
    if not is_slice:
        raise field_error("", value, "[start, stop] of integers or null, as a slice of Python")
    return tuple(value)  # type: ignore[arg-type]  # a list, as was just seen


def _check_integers(value: object) -> object:
    if not isinstance(value, list):
        raise field_error("", value, "a list of integers")
    for index, item in enumerate(value):
        if not is_int(item):
            raise field_error(f"[{index}]", item, "an integer")
    return value


def _check_segments(value: object) -> object:
    _check_integers(value)
    if not value:
        raise field_error("", value, "at least one index of a segment")
    return value


def number(lowest: float, highest: float, *, above: bool = False, integer: bool = False) -> BeforeValidator:
    """One message about type and range."""

    def check(value: object) -> object:
        is_number = is_int(value) or (isinstance(value, float) and not integer)
        if value is not None and not (
            is_number and (lowest < value if above else lowest <= value) and value <= highest  # type: ignore[operator]
        ):
            kind = "an integer" if integer else "a number"
            bounds = f"above {lowest:g} and at most {highest:g}" if above else f"from {lowest:g} to {highest:g}"
            raise field_error("", value, f"{kind} {bounds}")
        return value

    return BeforeValidator(check)


Indices = Annotated[int | str | list[int | str], BeforeValidator(_check_indices)]
KindList = Annotated[list[Kind], BeforeValidator(_check_kinds)]
Slice = Annotated[Bounds, BeforeValidator(lambda value: None if value is None else _check_slice(value))]
Ids = Annotated[list[int], BeforeValidator(_check_integers)]
Segments = Annotated[list[int], BeforeValidator(_check_segments)]
Index = Annotated[int, number(-LARGEST, LARGEST, integer=True)]
Decimals = Annotated[int | None, number(0, 9, integer=True)]


class Strict(BaseModel):
    """Nothing is converted, and nothing unknown is let through. An optional field that is null was left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_null(cls, given: object) -> object:
        if not isinstance(given, dict) or None not in given.values():
            return given
        optional = {field.alias or name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in given.items() if value is not None or name not in optional}


class MapFields(Strict):
    """Which attention maps, and how."""

    kinds: KindList = Field(default=list(KINDS), description="`encoder`, `decoder` (self-attention), `cross`.")
    layers: Indices = Field(
        default="all", description='Zero-based; an index, a range "0-2", a list, or "all". -1 is the last.'
    )
    heads: Indices = Field(default="all", description="As `layers`.")
    aggregate: Aggregate = Field(
        default="none", description="`mean` or `max` of what `aggregate_over` says, or attention `rollout`."
    )
    aggregate_over: Over = Field(default="heads", description="`heads`, `layers` or `both`.")
    measure: Measure = Field(
        default="weights", description="`weights`; `scores`, before the softmax; `value_norm`, of the weighted values."
    )
    granularity: Granularity = Field(
        default="token", description="`token`, or `word`: sum over keys, mean over queries."
    )
    special: Special = Field(
        default="keep", description="Start and end of sentence: `keep`, `hide`, or hide and `renormalise` the rest."
    )
    query: Slice = Field(default=None, description="[start, stop] of the rows shown.")
    key: Slice = Field(default=None, description="[start, stop] of the columns shown.")
    decimals: Decimals = Field(default=None, description="Round numbers in JSON and CSV to so many places, 0 to 9.")
    dtype: Dtype = Field(default="f32", description="`f32`, `f16`, or `u8`: 255 times the weight, rounded.")

    def options(self, segments: Sequence[int] | None) -> MapOptions:
        """The same for whoever captures."""
        return MapOptions(
            kinds=tuple(self.kinds),
            layers=self.layers,
            heads=self.heads,
            aggregate=self.aggregate,
            aggregate_over=self.aggregate_over,
            measure=self.measure,
            granularity=self.granularity,
            special=self.special,
            query=self.query,
            key=self.key,
            decimals=self.decimals,
            dtype=self.dtype,
            segments=None if segments is None else tuple(segments),
        )
