"""What the endpoints that look inside take, as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from model.selection import Kind
from service.api.inspect_fields import (
    LARGEST,
    Decimals,
    Ids,
    Index,
    Indices,
    KindList,
    MapFields,
    Segments,
    Strict,
    field_error,
    is_int,
    number,
)
from service.api.schemas import Decoding
from service.inspection.colours import Cmap, Scale, Theme
from service.inspection.values import Arrays

STATIONS = (
    "route",
    "tokens",
    "positions",
    "projections",
    "attention",
    "softmax",
    "heads",
    "block",
    "residual",
    "ffn",
    "mask",
    "cross",
    "decoding",
    "loss",
    "cost",
)
"""The 15 stations, in order; a test compares them with `model.stations.registry`, which this module cannot import."""

MAX_CANDIDATES = 1_000
MAX_COUNT = 4_096

Sublayer = Literal["attention", "cross", "ffn"]
Activation = Literal["relu", "gelu", "swish"]
Method = Literal["argmax", "threshold", "intersection"]


def _check_stations(value: object) -> object:
    """Names and numbers, once each; `all` is all."""
    if value == "all":
        return list(STATIONS)
    if not isinstance(value, list) or not value:
        raise field_error("", value, f'"all", or a list with at least one of {", ".join(STATIONS)}')
    chosen: dict[str, None] = {}
    for index, item in enumerate(value):
        if is_int(item) and 1 <= item <= len(STATIONS):
            chosen[STATIONS[item - 1]] = None
        elif isinstance(item, str) and item in STATIONS:
            chosen[item] = None
        else:
            raise field_error(
                f"[{index}]", item, f"a number from 1 to {len(STATIONS)}, or one of {', '.join(STATIONS)}"
            )
    return list(chosen)


class TextRequest(Strict):
    """A text, and the model that reads it."""

    text: str = Field(description="The text whose reading is looked into.")
    source: str | None = Field(default=None, max_length=35, description="Language code of the text, as in translating.")
    target: str | None = Field(
        default=None, max_length=35, description="Language code of the translation; not the translation itself."
    )
    model: str | None = Field(
        default=None, max_length=200, description="Name of the model; needed only if several fit."
    )
    deadline_seconds: float | None = Field(default=None, description="Give up after this time, as in translating.")


class ForcedRequest(TextRequest):
    """A text with a target, or what the model writes."""

    target_text: str | None = Field(
        default=None,
        description="A translation of your own to be read instead. It and the text are one segment each, taken whole.",
    )
    target_ids: Ids | None = Field(
        default=None, description="The same as token ids, with the end of sentence at the end if it has one."
    )


class PairRequest(ForcedRequest):
    """A text and its translation: searched, begun by the caller, or given."""

    prefix: str | None = Field(
        default=None, description="What the translation must begin with. The text is one segment then."
    )
    prefix_ids: Ids | None = Field(default=None, description="The same as token ids.")
    decoding: Decoding = Field(default=Decoding(), description="How to search, as in translating.")
    hypothesis: Annotated[int, number(0, 15, integer=True)] = Field(
        default=0, description="Which hypothesis of the beam, 0 for the best."
    )


class MapsRequest(PairRequest, MapFields):
    """Which maps of a pair."""


class AttentionRequest(MapsRequest):
    """What `POST /v1/attention` takes."""

    segments: Segments | None = Field(default=None, description="Indices of the segments to capture; default all.")


class HeatmapRequest(MapsRequest):
    """What the heatmaps take."""

    kinds: KindList = Field(default=["cross"], description="One of `encoder`, `decoder`, `cross`.")
    segment: Annotated[int, number(0, LARGEST, integer=True)] = Field(default=0, description="Index of the segment.")
    cmap: Cmap = Field(default="cividis", description="Colours: `cividis`, `viridis` or `grey`.")
    theme: Theme = Field(default="light", description="`light` or `dark`; 0 is always the quiet end of the colours.")
    scale: Scale = Field(
        default="unit", description="`unit` as it is, `row` by each row's largest, `gamma` lifts small weights."
    )
    cell: Annotated[int | None, number(1, 64, integer=True)] = Field(
        default=None, description="Pixels of a cell's side, 1 to 64."
    )


class AlignmentRequest(PairRequest):
    """What `POST /v1/alignment` takes."""

    method: Method | None = Field(
        default=None, description="`argmax`, `threshold` or `intersection`; default the recipe's."
    )
    threshold: Annotated[float | None, number(0, 1)] = Field(default=None, description="Least score of a link.")
    layer: Index | None = Field(default=None, description="A layer of cross-attention instead of the recipe's heads.")
    heads: Indices | None = Field(default=None, description="Heads of that layer, or of every layer; default all.")
    segments: Segments | None = Field(default=None, description="Indices of the segments to align; default all.")


class WhatIf(Strict):
    """Questions that the model was not asked; the answers are marked."""

    temperature: Annotated[float | None, number(0, 1000, above=True)] = Field(
        default=None, description="Station 6: divides the scores."
    )
    d_k: Annotated[int | None, number(1, 10**6, integer=True)] = Field(
        default=None, description="Station 6: another width under the root."
    )
    alpha: Annotated[float | None, number(-100, 100)] = Field(
        default=None, description="Station 9: a factor on what the sublayer adds."
    )
    activation: Activation | None = Field(default=None, description="Station 10: `relu`, `gelu` or `swish`.")
    text: str | None = Field(default=None, description="Station 12: another source to read.")


class Sampling(Strict):
    """Station 13: what a search that draws would do."""

    temperature: Annotated[float | None, number(0, 100)] = Field(default=None, description="0 to 100; default 1.")
    top_k: Annotated[int | None, number(1, LARGEST, integer=True)] = Field(
        default=None, description="Draw from the k most probable tokens only."
    )
    top_p: Annotated[float | None, number(0, 1, above=True)] = Field(
        default=None, description="Draw from the most probable tokens that hold this mass."
    )


class TraceRequest(PairRequest):
    """What `POST /v1/trace` takes."""

    stations: Annotated[
        list[str],
        BeforeValidator(_check_stations),
        Field(description='Names or numbers of stations, or "all", the default.'),
    ] = list(STATIONS)
    segment: Annotated[int, number(0, LARGEST, integer=True)] = Field(default=0, description="Index of the segment.")
    kind: Kind = Field(
        default="encoder", description="Of attention. Stations about one side take the decoder for the other two."
    )
    layer: Index = Field(default=0, description="Zero-based; -1 is the last.")
    head: Index = Field(default=0, description="Likewise.")
    position: Index = Field(default=0, description="Token, query or step; likewise.")
    compared_position: Index = Field(default=-1, description="Station 2: the other token.")
    count: Annotated[int | None, number(1, MAX_COUNT, integer=True)] = Field(
        default=None, description="Station 3: how many positions are shown; default the sentence's."
    )
    sublayer: Sublayer = Field(default="attention", description="Station 9: `attention`, `cross` or `ffn`.")
    top_k: Annotated[int, number(1, MAX_CANDIDATES, integer=True)] = Field(
        default=8, description="How many nearest, strongest or most probable ones are named."
    )
    label_smoothing: Annotated[float, number(0, 0.999)] = Field(default=0.0, description="Station 14.")
    length_penalty: Annotated[float | None, number(-10, 10)] = Field(
        default=None, description="Station 13; default that of the search, else 1."
    )
    open_end: bool = Field(default=False, description="One decoder row more, which has read the last token.")
    arrays: Arrays = Field(
        default="small", description="Arrays in JSON: `small` ones (at most 65,536 numbers), `all` or `none`."
    )
    decimals: Decimals = Field(default=None, description="Round numbers of arrays in JSON to so many places, 0 to 9.")
    sampling: Sampling = Field(default=Sampling(), description="Station 13: how tokens would be drawn.")
    what_if: WhatIf = Field(default=WhatIf(), description="Questions that the model was not asked.")

    def station_options(self) -> dict[str, Any]:
        """Fields of `model.stations.registry.Options`, beside those that the pair decides."""
        given: dict[str, Any] = {
            "compared_position": self.compared_position,
            "count": self.count,
            "sublayer": self.sublayer,
            "k": self.top_k,
            "label_smoothing": self.label_smoothing,
            "temperature": self.what_if.temperature,
            "d_k": self.what_if.d_k,
            "alpha": self.what_if.alpha,
            "activation": self.what_if.activation,
            "sampling_temperature": self.sampling.temperature,
            "top_k": self.sampling.top_k,
            "top_p": self.sampling.top_p,
            "length_penalty": self.length_penalty,
        }
        return {name: value for name, value in given.items() if value is not None}


class ScoreRequest(ForcedRequest):
    """What `POST /v1/score` takes; a target is required."""

    label_smoothing: Annotated[float, number(0, 0.999)] = Field(
        default=0.0, description="e of the label-smoothed loss."
    )


class NextRequest(TextRequest):
    """What `POST /v1/next` takes."""

    prefix: str | None = Field(default=None, description="What has been written; default nothing.")
    prefix_ids: Ids | None = Field(default=None, description="The same as token ids.")
    num_candidates: Annotated[int, number(1, MAX_CANDIDATES, integer=True)] = Field(
        default=10, description=f"How many are named, 1 to {MAX_CANDIDATES}."
    )
    temperature: Annotated[float, number(0, 100)] = Field(
        default=1.0, description="Shapes `processed_probability` alone; 0 is greedy."
    )
    top_k: Annotated[int | None, number(1, LARGEST, integer=True)] = Field(default=None, description="Likewise.")
    top_p: Annotated[float | None, number(0, 1, above=True)] = Field(default=None, description="Likewise.")
