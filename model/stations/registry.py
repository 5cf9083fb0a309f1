"""All 15 stations by name, with one set of options for all of them.

tracer = Tracer(model, source_ids, target_ids)
station = take("softmax", tracer, Options(kind="cross", layer=-1, head=2, position=4, temperature=0.5))
station.checks, station.arrays()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from model.config import Activation
from model.search import Constraints
from model.selection import Kind, SelectionError
from model.stations import attention, block, inputs, output
from model.stations.base import Station
from model.stations.block import Sublayer
from model.trace import Side, Tracer
from model.words import TokenText


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the stations may be asked; each takes what concerns it. Indices are zero-based, negative ones allowed.

    Attributes:
        kind: Of attention. Stations about one side (2, 3, 8, 9, 10) take the encoder for ``encoder``, else the decoder;
            11 and 12 have a kind of their own.
        layer: In that stack.
        head: Which.
        position: Token, query, step or row.
        compared_position: Station 2's second token.
        count: How many positions station 3 shows; None is all of the sentence.
        sublayer: Station 9's.
        k: How many nearest, top or best ones are named.
        source_text: The source's tokens, for station 2's checks.
        target_text: Of the decoder's side; the start token is not in it.
        decoded: What the ids of that side decode to, for station 2's check.
        temperature: Station 6, what-if.
        d_k: Station 6, what-if.
        alpha: Station 9, what-if.
        activation: Station 10, what-if.
        swapped_source_ids: Station 12, what-if.
        sampling_temperature: Station 13.
        top_k: Station 13.
        top_p: Station 13.
        constraints: Station 13: what the search could not choose.
        length_penalty: Station 13.
        hypothesis_score: Station 13, checked when given.
        hypothesis_log_prob: Station 14, checked when given.
        label_smoothing: Station 14.
    """

    kind: Kind = "encoder"
    layer: int = 0
    head: int = 0
    position: int = 0
    compared_position: int = -1
    count: int | None = None
    sublayer: Sublayer = "attention"
    k: int = 8
    source_text: TokenText | None = None
    target_text: TokenText | None = None
    decoded: str | None = None
    temperature: float = 1.0
    d_k: int | None = None
    alpha: float = 1.0
    activation: Activation | None = None
    swapped_source_ids: tuple[int, ...] | None = None
    sampling_temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    constraints: Constraints | None = None
    length_penalty: float = 1.0
    hypothesis_score: float | None = None
    hypothesis_log_prob: float | None = None
    label_smoothing: float = 0.0

    @property
    def side(self) -> Side:
        """The stack that ``kind`` belongs to."""
        return "encoder" if self.kind == "encoder" else "decoder"

    @property
    def text(self) -> TokenText | None:
        """The tokens of that side."""
        return self.source_text if self.side == "encoder" else self.target_text


def _tokens(tracer: Tracer, o: Options) -> Station:
    return inputs.tokens(tracer, o.side, o.position, o.compared_position, o.k, o.text, o.decoded)


def _decoding(tracer: Tracer, o: Options) -> Station:
    return output.decoding(
        tracer,
        o.position,
        o.k,
        temperature=o.sampling_temperature,
        top_k=o.top_k,
        top_p=o.top_p,
        constraints=o.constraints,
        length_penalty=o.length_penalty,
        hypothesis_score=o.hypothesis_score,
    )


STATIONS: Mapping[str, Callable[[Tracer, Options], Station]] = MappingProxyType(
    {
        "route": lambda tracer, _: inputs.route(tracer),
        "tokens": _tokens,
        "positions": lambda tracer, o: inputs.positions(tracer, o.side, o.count),
        "projections": lambda tracer, o: attention.projections(tracer, o.kind, o.layer, o.head),
        "attention": lambda tracer, o: attention.attention(tracer, o.kind, o.layer, o.head, o.k),
        "softmax": lambda tracer, o: attention.softmax(
            tracer, o.kind, o.layer, o.head, o.position, o.temperature, o.d_k
        ),
        "heads": lambda tracer, o: attention.heads(tracer, o.kind, o.layer),
        "block": lambda tracer, o: block.block(tracer, o.side, o.layer),
        "residual": lambda tracer, o: block.residual(tracer, o.side, o.layer, o.sublayer, o.alpha),
        "ffn": lambda tracer, o: block.ffn(tracer, o.side, o.layer, o.position, o.activation, o.k),
        "mask": lambda tracer, o: attention.causal(tracer, o.layer, o.head, o.position),
        "cross": lambda tracer, o: attention.cross(tracer, o.layer, o.head, o.swapped_source_ids),
        "decoding": _decoding,
        "loss": lambda tracer, o: output.loss(tracer, o.label_smoothing, o.hypothesis_log_prob),
        "cost": lambda tracer, _: output.cost(tracer),
    }
)
"""The 15 stations in the order of the route."""


def take(name: str, tracer: Tracer, options: Options | None = None) -> Station:
    """Compute one station, with its checks.

    Args:
        name: One of :data:`STATIONS`.
        tracer: The pair.
        options: None takes the defaults.

    Raises:
        SelectionError: When there is no such station, layer, head or position.
    """
    if name not in STATIONS:
        raise SelectionError(f"station {name!r} does not exist; there are {', '.join(STATIONS)}")
    return STATIONS[name](tracer, options or Options())
