"""Looking inside: from a wish to maps, stations, alignments, scores and candidates.

    inspector = Inspector(engine, translator, inspection, max_tokens=2048, max_bytes=16 * 1024**2)
    found = await inspector.find(Ask("Good morning.", model))
    body = await inspector.maps(found, MapOptions(kinds=("cross",)), "json", render)

What renders an answer runs in the replaying thread, too: it may be large, and translations go first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from model.config import TransformerConfig
from model.decoding import DecodingOptions
from model.selection import Kind, depth
from model.tokenizer import TextTokenizer
from service.aside import aside
from service.engine.inspection import (
    AlignmentPair,
    CheckResult,
    Inspection,
    ModelFacts,
    NextResult,
    Replayer,
    ScoreResult,
    SegmentAlignment,
    StationRequest,
    StationResult,
)
from service.engine.interface import Engine, ModelInfo
from service.inspection.errors import InspectionDisabled, InvalidInspection, TooManyBytes, TooManyTokens
from service.inspection.maps import (
    Format,
    MapOptions,
    MapSizes,
    ShownMap,
    capture_request,
    captured,
    check_budget,
    show,
    sizes,
)
from service.inspection.pairs import Ask, Found, Pair, PairFinder
from service.translator import LONG_TEXT_CHARACTERS, TextTranslation, Translator

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CapturedPair:
    """The maps of one segment, as they are shown."""

    pair: Pair
    maps: tuple[ShownMap, ...]
    checks: tuple[CheckResult, ...]


@dataclass(frozen=True, slots=True)
class CapturedMaps:
    """The maps of a text.

    Attributes:
        layers: Of each kind, those that were looked at.
        heads: Those that were looked at.
        pairs: The captured segments, by their index.
        num_bytes: The numbers alone, in the type asked for.
    """

    layers: Mapping[str, tuple[int, ...]]
    heads: tuple[int, ...]
    pairs: Mapping[int, CapturedPair]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What maps would weigh.

    Attributes:
        exact: Whether the target is known.
        lengths: Of each segment: its index, source tokens, decoder rows.
        sizes: Of what would be shown.
        limit_bytes: The most there may be.
        limit_tokens: The most source and target tokens that are replayed at once.
    """

    exact: bool
    lengths: tuple[tuple[int, int, int], ...]
    sizes: MapSizes
    limit_bytes: int
    limit_tokens: int

    @property
    def num_tokens(self) -> int:
        """Source and target tokens of all segments."""
        return sum(num_source + num_rows for _, num_source, num_rows in self.lengths)


@dataclass(frozen=True, slots=True)
class StationWish:
    """Which stations of which segment; indices are zero-based, negative ones allowed.

    Attributes:
        stations: Names, in the order wanted.
        segment: Which.
        kind: Of attention.
        layer: Which.
        head: Which.
        position: Which.
        options: More fields of `model.stations.registry.Options`.
        swapped_text: Station 12, what-if: another source.
        open_end: One row more, after the last token.
    """

    stations: tuple[str, ...]
    segment: int
    kind: Kind
    layer: int
    head: int
    position: int
    options: Mapping[str, Any]
    swapped_text: str | None = None
    open_end: bool = False


class Inspector:
    """Looks inside the models of one engine.

    Args:
        engine: May be started later.
        translator: On top of it.
        inspection: Replays; None turns looking inside off.
        max_tokens: Source and target tokens replayed for one request.
        max_bytes: The largest answer, as far as its numbers go.
    """

    def __init__(
        self,
        engine: Engine,
        translator: Translator,
        inspection: Inspection | None,
        *,
        max_tokens: int,
        max_bytes: int,
    ) -> None:
        self._translator = translator
        self._inspection = inspection
        self._finder = None if inspection is None else PairFinder(engine, translator, inspection)
        self.max_tokens = max_tokens
        self.max_bytes = max_bytes

    @property
    def is_enabled(self) -> bool:
        """Whether looking inside is allowed here."""
        return self._inspection is not None

    def facts(self, model: ModelInfo) -> ModelFacts:
        """What there is to know of a model."""
        return self._enabled()[0].facts(model.name)

    def tokenizer(self, model: ModelInfo) -> TextTokenizer:
        """The tokenizer of a model."""
        return self._translator.tokenizer(model)

    async def find(self, ask: Ask) -> Found:
        """See `PairFinder.find`; what is surely too long is refused before it is translated."""
        _, finder = self._enabled()
        return await finder.find(ask)

    def check_length(self, ask: Ask) -> None:
        """Refuse a text whose source alone is too long, before it is translated.

        Raises:
            TooManyTokens: Says how many there are.
        """
        tokenizer = self._translator.tokenizer(ask.model)
        # A very long text is cut for counting: the tokenizer would do all of it in vain.
        text = ask.text[: 32 * self.max_tokens]
        num_tokens = len(tokenizer.encode(text, ask.model.source_language).ids)
        if num_tokens > self.max_tokens:
            raise TooManyTokens("the text has at least", num_tokens, self.max_tokens, None)

    async def maps(self, found: Found, options: MapOptions, format_: Format, render: Callable[[CapturedMaps], T]) -> T:
        """Captures maps, one replay for each segment, and renders them.

        Raises:
            InvalidInspection: An option that the model cannot follow.
            TooLarge: With the nearest request that fits.
        """
        inspection, _ = self._enabled()
        config = found.facts.config
        pairs = captured(found.pairs, options)
        counted = check_budget(pairs, options, config, format_, max_tokens=self.max_tokens, max_bytes=self.max_bytes)

        def work(replayer: Replayer) -> T:
            return render(_captured(replayer, found, pairs, options, False, counted.num_bytes[options.dtype])[0])

        return await inspection.run(work, found.ask.deadline)

    async def beside(
        self,
        parts: Sequence[tuple[Ask, TextTranslation]],
        options: MapOptions | None,
        with_alignment: bool,
        render: Callable[[Found, CapturedMaps | None, Mapping[int, SegmentAlignment]], T],
    ) -> list[T]:
        """Looks into texts that were translated already, each segment in one replay.

        Alignment alone is part of translating: it waits for nobody, and is not limited.

        Args:
            parts: Each text with what it became.
            options: Which maps; None for none.
            with_alignment: Whether words are aligned by the model's recipe.
            render: Called for each text.

        Raises:
            InspectionBusy: Too many look inside at once, and maps are wanted.
            TooLarge: Together they would be too large.
        """
        inspection, finder = self._enabled()
        founds = [finder.of_translation(ask, text) for ask, text in parts]
        if options is None:
            return [render(found, None, await self._aligned(inspection, found)) for found in founds]
        wanted = [captured(found.pairs, options) for found in founds]
        counted = [
            check_budget(
                pairs, options, found.facts.config, "json", max_tokens=self.max_tokens, max_bytes=self.max_bytes
            )
            for found, pairs in zip(founds, wanted, strict=True)
        ]
        self._check_tokens([pair for pairs in wanted for pair in pairs])
        needed = sum(each.of("json", options.dtype) for each in counted)
        if needed > self.max_bytes:
            raise TooManyBytes("the maps of all texts would have", needed, self.max_bytes, None)

        def work(replayer: Replayer) -> list[T]:
            return [
                render(
                    found, *_captured(replayer, found, pairs, options, with_alignment, each.num_bytes[options.dtype])
                )
                for found, pairs, each in zip(founds, wanted, counted, strict=True)
            ]

        return await inspection.run(work, parts[0][0].deadline)

    async def _aligned(self, inspection: Inspection, found: Found) -> dict[int, SegmentAlignment]:
        pairs = [pair for pair in found.pairs if pair.source is not None]
        wanted = [
            AlignmentPair(source.ids, source.text, target.ids, target.text)
            for source, target, _ in (pair.sides for pair in pairs)
        ]
        done = await inspection.align(found.ask.model.name, wanted, found.ask.deadline)
        return {pair.index: alignment for pair, alignment in zip(pairs, done, strict=True)}

    async def estimate(self, ask: Ask, options: MapOptions) -> Estimate:
        """What maps would weigh; nothing runs. Without a target as many rows as source tokens are assumed."""
        _, finder = self._enabled()
        config = self.facts(ask.model).config
        if ask.is_forced:
            found = await finder.find(ask)
        else:
            found = await aside(finder.guess, len(ask.text) / LONG_TEXT_CHARACTERS, ask)
        pairs = captured(found.pairs, options)
        lengths = tuple((pair.index, len(pair.sides[0].ids), len(pair.sides[1].ids)) for pair in pairs)
        return Estimate(ask.is_forced, lengths, sizes(pairs, options, config), self.max_bytes, self.max_tokens)

    async def align(
        self,
        found: Found,
        segments: Sequence[int] | None,
        recipe: Mapping[str, Any] | None,
        render: Callable[[Mapping[int, SegmentAlignment]], T],
    ) -> T:
        """Aligns the words of every segment, or of some."""
        inspection, _ = self._enabled()
        pairs = captured(found.pairs, MapOptions(segments=None if segments is None else tuple(segments)))
        self._check_tokens(pairs)

        def work(replayer: Replayer) -> T:
            wanted = [
                AlignmentPair(source.ids, source.text, target.ids, target.text)
                for source, target, _ in (pair.sides for pair in pairs)
            ]
            done = replayer.align(found.ask.model.name, wanted, recipe)
            return render({pair.index: alignment for pair, alignment in zip(pairs, done, strict=True)})

        return await inspection.run(work, found.ask.deadline)

    def selected(self, found: Found, wish: StationWish) -> dict[str, Any]:
        """Kind, layer, head and position of a wish, zero-based.

        Raises:
            InvalidInspection: There is no such segment, layer, head or position.
        """
        resolved = _resolved(wish, found.facts, found.pair(wish.segment))
        return {name: resolved[name] for name in ("kind", "layer", "head", "position")}

    async def stations(
        self,
        found: Found,
        wish: StationWish,
        render: Callable[[Sequence[StationResult]], T],
    ) -> T:
        """Opens stations of one segment.

        Raises:
            InvalidInspection: There is no such segment, layer, head or position.
        """
        inspection, _ = self._enabled()
        pair = found.pair(wish.segment)
        self._check_tokens([pair])
        request = self._station_request(found, pair, wish)

        def work(replayer: Replayer) -> T:
            results = replayer.stations(found.ask.model.name, request)
            num_bytes = sum(array.nbytes for result in results for array in result.arrays.values())
            if num_bytes > 8 * self.max_bytes:
                raise TooManyBytes("the stations have", num_bytes, 8 * self.max_bytes, None)
            return render(results)

        return await inspection.run(work, found.ask.deadline)

    async def score(self, found: Found, label_smoothing: float) -> ScoreResult:
        """How probable the caller's target is."""
        inspection, _ = self._enabled()
        source, target, _ = found.pair(0).sides
        self._check_tokens(found.pairs)
        model = found.ask.model.name
        return await inspection.run(
            lambda replayer: replayer.score(model, source.ids, target.ids, label_smoothing), found.ask.deadline
        )

    async def next(self, ask: Ask, options: Mapping[str, Any]) -> tuple[Found, NextResult, list[str]]:
        """What could come after a prefix.

        Returns:
            The text and the prefix as one segment, the candidates, and what prefix and candidate decode to.
        """
        inspection, finder = self._enabled()
        encoding, prefix_ids = finder.encode(ask), finder.prefix_ids(ask)
        if len(prefix_ids) >= ask.model.max_target_tokens:
            raise TooManyTokens("the prefix has", len(prefix_ids), ask.model.max_target_tokens - 1, None)
        found = finder.whole(ask, encoding, prefix_ids)
        self._check_tokens(found.pairs)
        model = ask.model.name
        result = await inspection.run(
            lambda replayer: replayer.next(model, encoding.ids, prefix_ids, options), ask.deadline
        )
        tokenizer = self._translator.tokenizer(ask.model)
        texts = [tokenizer.decode([*prefix_ids, candidate["token_id"]]) for candidate in result.candidates]
        return found, result, texts

    def _station_request(self, found: Found, pair: Pair, wish: StationWish) -> StationRequest:
        source, target, _ = pair.sides
        options = dict(wish.options) | _resolved(wish, found.facts, pair)
        options |= {"source_text": source.text, "target_text": target.text}
        tokenizer, config = self.tokenizer(found.ask.model), found.facts.config
        if wish.kind != "encoder":
            options["decoded"] = tokenizer.decode(target.ids)
        elif config.share_embeddings:  # a bare id belongs to the target's vocabulary
            options["decoded"] = tokenizer.decode(source.ids)
        search: DecodingOptions | None = None
        if pair.hypothesis is not None:
            search = found.ask.options
            options["hypothesis_log_prob"] = pair.hypothesis.log_prob
            options.setdefault("length_penalty", search.length_penalty)
            if options["length_penalty"] == search.length_penalty and search.repetition_penalty == 1.0:
                options["hypothesis_score"] = pair.hypothesis.score
        if wish.swapped_text is not None:
            ask = Ask(wish.swapped_text, found.ask.model)
            options["swapped_source_ids"] = self._enabled()[1].encode(ask).ids
        num_rows = len(target.ids) + wish.open_end
        stations = tuple((name, options | _of_the_decoder(name, options, config, num_rows)) for name in wish.stations)
        return StationRequest(source.ids, target.ids, stations, search, wish.open_end)

    def _check_tokens(self, pairs: Sequence[Pair]) -> None:
        num_tokens = sum(len(pair.sides[0].ids) + len(pair.sides[1].ids) for pair in pairs if pair.source is not None)
        if num_tokens > self.max_tokens:
            raise TooManyTokens("source and target together have", num_tokens, self.max_tokens, None)

    def _enabled(self) -> tuple[Inspection, PairFinder]:
        if self._inspection is None or self._finder is None:
            raise InspectionDisabled
        return self._inspection, self._finder


def _captured(
    replayer: Replayer,
    found: Found,
    pairs: Sequence[Pair],
    options: MapOptions,
    with_alignment: bool,
    num_bytes: int,
) -> tuple[CapturedMaps, dict[int, SegmentAlignment]]:
    """One replay for each segment; with its alignment from the same pass."""
    config = found.facts.config
    done: dict[int, CapturedPair] = {}
    alignments: dict[int, SegmentAlignment] = {}
    for pair in pairs:
        capture = replayer.capture(found.ask.model.name, capture_request(pair, options, config, with_alignment))
        maps, checks = show(pair, options, capture)
        done[pair.index] = CapturedPair(pair, tuple(maps), tuple(checks))
        if capture.alignment is not None:
            alignments[pair.index] = capture.alignment
    selection = options.selection(config)
    layers = {str(kind): chosen for kind, chosen in selection.layers.items()}
    return CapturedMaps(layers, selection.heads, done, num_bytes), alignments


def _resolved(wish: StationWish, facts: ModelFacts, pair: Pair) -> dict[str, Any]:
    """Kind, layer, head and positions, zero-based and there."""
    source, target, _ = pair.sides
    config, kind = facts.config, wish.kind
    num_positions = len(source.ids) if kind == "encoder" else len(target.ids) + wish.open_end
    options = {
        "kind": kind,
        "layer": _index("layer", wish.layer, depth(config, kind)),
        "head": _index("head", wish.head, config.num_heads),
        "position": _index("position", wish.position, num_positions),
    }
    if "compared_position" in wish.options:
        compared = wish.options["compared_position"]
        options["compared_position"] = _index("compared_position", compared, num_positions)
    if kind == "encoder" and wish.options.get("sublayer") == "cross":
        raise InvalidInspection("sublayer", "cross", "attention or ffn: an encoder layer has no cross-attention")
    count = wish.options.get("count")
    if count is not None and config.max_positions is not None and count > config.max_positions:
        raise InvalidInspection("count", count, f"at most {config.max_positions}, which the model has")
    return options


def _of_the_decoder(name: str, options: Mapping[str, Any], config: TransformerConfig, num_rows: int) -> dict[str, Any]:
    """Stations that are always about the decoder take the nearest there is, where another stack was asked for."""
    if options["kind"] != "encoder" or name not in ("mask", "cross", "decoding"):
        return {}
    return {
        "layer": min(options["layer"], config.num_decoder_layers - 1),
        "position": min(options["position"], num_rows - 1),
    }


def _index(field: str, index: int, count: int) -> int:
    if not -count <= index < count:
        raise InvalidInspection(field, index, f"an index from 0 to {count - 1}, or from -1 to {-count}")
    return index % count
