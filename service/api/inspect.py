"""Looking inside: `/v1/model`, `/v1/attention`, `/v1/alignment`, `/v1/trace`, `/v1/score`, `/v1/next`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Body, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from model.decoding import DecodingOptions
from service.api import inspect_answers as answers
from service.api import inspect_examples as examples
from service.api import inspect_schemas as schemas
from service.api.deps import Services, ServicesDep
from service.api.docs import problems
from service.api.errors import InspectionTooLarge, InvalidField, NotAcceptable, NotReady, TextTooLarge
from service.api.requests import JsonRoute, while_connected
from service.api.responses import JsonResponse
from service.api.timeouts import timeout_seconds
from service.engine.interface import ModelInfo
from service.inspection.errors import InvalidInspection, TooLarge
from service.inspection.inspector import StationWish
from service.inspection.maps import MEDIA_TYPES, Format
from service.inspection.pairs import Ask, Found
from service.inspection.pictures import Look
from service.search_options import search_options

router = APIRouter(route_class=JsonRoute, tags=["inspection"])

T = TypeVar("T")

NPZ = "application/x-npz"
OCTETS = "application/octet-stream"

_FORMATS: Mapping[str, Format] = {MEDIA_TYPES[name]: name for name in ("json", "safetensors", "csv", "svg", "png")} | {
    OCTETS: "safetensors"
}
_PICTURE_POLICY = "default-src 'none'; img-src data:; frame-ancestors 'none'"
"""Maps inside an SVG are pictures inside a picture."""

_FAILURES = problems(400, 404, 406, 413, 415, 422, 429, 502, 503, 504)


# --- the model --------------------------------------------------------------------------------------------------------


@router.get(
    "/v1/model",
    summary="Describe the model",
    responses={200: examples.MODEL_ANSWER, **problems(404, 422, 503)},
)
async def get_model(
    services: ServicesDep,
    name: Annotated[str | None, Query(description="Name of the model; needed only if there are several.")] = None,
) -> Response:
    """Its shape, its special ids, its alignment recipe, and the limits for looking inside."""
    return _model(services, services.translator.find_model(model=name))


@router.get(
    "/v1/models/{name}",
    summary="Describe a model by its name",
    responses={200: examples.MODEL_ANSWER, **problems(404, 422, 503)},
)
async def get_model_by_name(name: str, services: ServicesDep) -> Response:
    """As `/v1/model`."""
    models = services.engine.models()
    if not models:
        raise NotReady(services.engine.not_ready_reason or "no model is loaded")
    found = next((info for info in models if info.name == name), None)
    if found is None:
        raise HTTPException(404, f"there is no model of this name; there is {', '.join(info.name for info in models)}")
    return _model(services, found)


def _model(services: Services, info: ModelInfo) -> Response:
    facts = services.inspector.facts(info)
    return JsonResponse(answers.model_answer(info, facts, services.settings, schemas.STATIONS))


# --- attention --------------------------------------------------------------------------------------------------------


@router.post(
    "/v1/attention",
    summary="Attention maps",
    responses={200: examples.ATTENTION_ANSWER, 304: {"description": "As you have it."}, **_FAILURES},
)
async def attention(
    body: Annotated[schemas.AttentionRequest, Body(openapi_examples=examples.ATTENTION)],
    request: Request,
    services: ServicesDep,
    estimate: Annotated[bool, Query(description="Only say how large the answer would be.")] = False,
) -> Response:
    """The attention maps of a text and its translation, or of a target of your own.

    One teacher-forced pass through the weights that serve. `Accept` chooses JSON, safetensors
    (`application/vnd.safetensors`), CSV, SVG or PNG; pictures show one kind of one segment.
    """
    ask = await _ask(body, request, services)
    options = body.options(body.segments)
    if estimate:
        found = await while_connected(request, services.inspector.estimate(ask, options))
        return JsonResponse(answers.estimate(found, ask.model.revision))
    format_ = _negotiate(request, _FORMATS)
    if format_ in ("svg", "png"):
        picture = schemas.HeatmapRequest(
            **{name: getattr(body, name) for name in body.model_fields_set if name != "segments"},
            segment=body.segments[0] if body.segments else 0,
        )
        return await _heatmap(picture, format_, request, services)

    async def work() -> bytes:
        found = await _found(ask, services, is_all=body.segments is None)
        return await services.inspector.maps(
            found, options, format_, lambda done: answers.attention(found, body, done, format_)
        )

    return await _answered(request, body, _tag(request, body, ask, services, format_), work, MEDIA_TYPES[format_])


@router.post(
    "/v1/attention/heatmap.svg",
    summary="Attention maps as SVG",
    response_class=Response,
    responses={200: {"content": {"image/svg+xml": {}}}, **_FAILURES},
)
async def heatmap_svg(
    body: Annotated[schemas.HeatmapRequest, Body(openapi_examples=examples.HEATMAP)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """One map with its tokens, or an atlas of all layers and heads that were chosen."""
    return await _heatmap(body, "svg", request, services)


@router.post(
    "/v1/attention/heatmap.png",
    summary="Attention maps as PNG",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}, **_FAILURES},
)
async def heatmap_png(
    body: Annotated[schemas.HeatmapRequest, Body(openapi_examples=examples.HEATMAP)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """The same without letters."""
    return await _heatmap(body, "png", request, services)


async def _heatmap(body: schemas.HeatmapRequest, format_: Format, request: Request, services: Services) -> Response:
    if len(body.kinds) != 1:
        raise InvalidField("kinds", body.kinds, "one kind in a picture: encoder, decoder or cross")
    ask = await _ask(body, request, services)
    look = Look(body.cmap, body.theme, body.scale, body.cell)

    async def work() -> bytes:
        found = await _found(ask, services, is_all=False)
        pair = found.pair(body.segment)
        return await services.inspector.maps(
            found, body.options([pair.index]), format_, lambda done: answers.picture(found, body, done, look, format_)
        )

    tag = _tag(request, body, ask, services, format_)
    headers = {"Content-Security-Policy": _PICTURE_POLICY}
    return await _answered(request, body, tag, work, MEDIA_TYPES[format_], headers)


# --- alignment --------------------------------------------------------------------------------------------------------


@router.post(
    "/v1/alignment",
    summary="Which words come from which",
    responses={200: examples.ALIGNMENT_ANSWER, 304: {"description": "As you have it."}, **_FAILURES},
)
async def alignment(
    body: Annotated[schemas.AlignmentRequest, Body(openapi_examples=examples.ALIGNMENT)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """Word pairs by cross-attention, with scores, places, and the words that have no partner."""
    ask = await _ask(body, request, services)
    recipe = _recipe(body, ask, services)

    async def work() -> bytes:
        found = await _found(ask, services, is_all=body.segments is None)
        return await services.inspector.align(
            found, body.segments, recipe, lambda done: answers.alignment(found, done, recipe)
        )

    return await _answered(request, body, _tag(request, body, ask, services, "json"), work)


def _recipe(body: schemas.AlignmentRequest, ask: Ask, services: Services) -> dict[str, Any]:
    """The model's recipe with what the request changes."""
    facts = services.inspector.facts(ask.model)
    recipe = dict(facts.recipe)
    if body.layer is not None or body.heads is not None:
        options = schemas.AttentionRequest(
            text="",
            layers="all" if body.layer is None else body.layer,
            heads="all" if body.heads is None else body.heads,
        ).options(None)
        try:
            chosen = options.selection(facts.config)
        except InvalidInspection as error:
            raise error if error.field != "layers" else InvalidField("layer", error.given, error.allowed) from error
        recipe["heads"] = [(layer, head) for layer in chosen.layers["cross"] for head in chosen.heads]
    changes = {"method": body.method, "threshold": body.threshold}
    return recipe | {name: value for name, value in changes.items() if value is not None}


# --- stations ---------------------------------------------------------------------------------------------------------


@router.post(
    "/v1/trace",
    summary="Every number between text and translation",
    responses={200: examples.TRACE_ANSWER, 304: {"description": "As you have it."}, **_FAILURES},
)
async def trace(
    body: Annotated[schemas.TraceRequest, Body(openapi_examples=examples.TRACE)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """The 15 stations of the way through the model, each with the checks that prove its numbers.

    `Accept: application/x-npz` gives the numbers of one station as a file for numpy, for which `numpy.code` has the
    lines that compute the result again; `application/vnd.safetensors` gives the arrays of all.
    """
    ask = await _ask(body, request, services)
    offered = {"application/json": "json", NPZ: "npz", MEDIA_TYPES["safetensors"]: "safetensors", OCTETS: "safetensors"}
    format_ = _negotiate(request, offered)
    if format_ == "npz" and len(body.stations) != 1:
        raise InvalidField("stations", body.stations, "one station in a file for numpy")
    # What was measured is another time every time.
    is_timed = not {"route", "cost"}.isdisjoint(body.stations)
    tag = None if is_timed else _tag(request, body, ask, services, format_)
    wish = StationWish(
        stations=tuple(body.stations),
        segment=body.segment,
        kind=body.kind,
        layer=body.layer,
        head=body.head,
        position=body.position,
        options=body.station_options(),
        swapped_text=body.what_if.text,
        open_end=body.open_end,
    )

    async def work() -> bytes:
        found = await _found(ask, services, is_all=True)
        selected = services.inspector.selected(found, wish)
        tokenizer = services.inspector.tokenizer(ask.model)

        def render(results: Sequence[Any]) -> bytes:
            if format_ == "npz":
                return answers.trace_file(results)
            if format_ == "safetensors":
                return answers.trace_tensors(found, body, results, selected)
            return answers.trace(found, body, results, tokenizer, selected)

        return await services.inspector.stations(found, wish, render)

    media_type = {"json": "application/json", "npz": NPZ, "safetensors": MEDIA_TYPES["safetensors"]}[format_]
    headers = {"Content-Disposition": f'attachment; filename="{body.stations[0]}.npz"'} if format_ == "npz" else {}
    return await _answered(request, body, tag, work, media_type, headers)


# --- scores and candidates --------------------------------------------------------------------------------------------


@router.post(
    "/v1/score",
    summary="How probable a translation is",
    responses={200: examples.SCORE_ANSWER, 304: {"description": "As you have it."}, **_FAILURES},
)
async def score(
    body: Annotated[schemas.ScoreRequest, Body(openapi_examples=examples.SCORE)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """The probability of each token of a translation of your own, and of all of it."""
    if body.target_text is None and body.target_ids is None:
        raise InvalidField("target_text", None, "a translation, here or in target_ids")
    ask = await _ask(body, request, services)

    async def work() -> bytes:
        found = await _found(ask, services, is_all=False)
        result = await services.inspector.score(found, body.label_smoothing)
        return orjson.dumps(answers.score(found, result, body.label_smoothing))

    return await _answered(request, body, _tag(request, body, ask, services, "json"), work)


@router.post(
    "/v1/next",
    summary="What could come next",
    responses={200: examples.NEXT_ANSWER, 304: {"description": "As you have it."}, **_FAILURES},
)
async def next_token(
    body: Annotated[schemas.NextRequest, Body(openapi_examples=examples.NEXT)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """The most probable tokens after what has been written, before and after what a search does to them."""
    ask = await _ask(body, request, services)
    options = {
        "k": body.num_candidates,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
    }

    async def work() -> bytes:
        found, result, texts = await services.inspector.next(ask, options)
        tokenizer = services.inspector.tokenizer(ask.model)
        return orjson.dumps(answers.candidates(found, result, texts, tokenizer))

    return await _answered(request, body, _tag(request, body, ask, services, "json"), work)


# --- what they share --------------------------------------------------------------------------------------------------


async def _ask(body: schemas.TextRequest, request: Request, services: Services) -> Ask:
    """Checks what needs the settings, the models, or two fields at once."""
    started = time.monotonic()
    settings = services.settings
    num_bytes = len(body.text.encode())
    if num_bytes > settings.max_text_bytes:
        raise TextTooLarge(num_bytes, settings.max_text_bytes)
    seconds = timeout_seconds(settings, request.headers, body.deadline_seconds)
    given: dict[str, Any] = body.model_dump(
        include={"target_text", "target_ids", "prefix", "prefix_ids"}, exclude_none=True
    )
    if len(given) > 1:
        name = list(given)[-1]
        raise InvalidField(name, given[name], f"nothing beside {', '.join(list(given)[:-1])}")
    if services.translator.must_detect(body.source, model=body.model, target=body.target):
        (model, *_), _ = await services.translator.detect_models(
            [body.text], model=body.model, target=body.target, with_routes=False
        )
    else:
        model = services.translator.find_model(model=body.model, source=body.source, target=body.target)
    options, hypothesis = DecodingOptions(), 0
    if isinstance(body, schemas.PairRequest):
        forced = next((name for name in ("target_text", "target_ids") if name in given), None)
        if body.hypothesis and forced:
            raise InvalidField("hypothesis", body.hypothesis, f"0 with {forced}, for which nothing is searched")
        options, hypothesis = _search(body, model, services), body.hypothesis
    return Ask(
        text=body.text,
        model=model,
        options=options,
        deadline=started + seconds,
        hypothesis=hypothesis,
        target_text=given.get("target_text"),
        target_ids=_tuple(given.get("target_ids")),
        prefix=given.get("prefix"),
        prefix_ids=_tuple(given.get("prefix_ids")),
    )


def _tuple(ids: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)


def _search(body: schemas.PairRequest, model: ModelInfo, services: Services) -> DecodingOptions:
    """How to search, with as many hypotheses as the chosen one needs."""
    given = body.decoding.given
    if not body.hypothesis:
        return search_options(services.settings, (model,), given)
    beam_size = 1 if given.get("temperature") else given.get("beam_size")
    if beam_size is not None and body.hypothesis >= beam_size:
        raise InvalidField("hypothesis", body.hypothesis, f"an integer below the beam_size, which is {beam_size}")
    wanted = max(body.hypothesis + 1, given.get("num_hypotheses", 1))
    usual = search_options(services.settings, (model,), {**given, "num_hypotheses": 1}).beam_size
    beam_size = beam_size or min(max(usual, body.hypothesis + 1), services.settings.max_rows)
    return search_options(services.settings, (model,), {**given, "num_hypotheses": wanted, "beam_size": beam_size})


def _negotiate(request: Request, offered: Mapping[str, T]) -> T:
    """The format that `Accept` likes best; the first offered where it does not care.

    Raises:
        NotAcceptable: None of them.
    """
    header = request.headers.get("accept", "*/*") or "*/*"
    ranges: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(header.split(",")):
        name, *parameters = (item.strip().lower() for item in part.split(";"))
        quality = next((_quality(item[2:]) for item in parameters if item.startswith("q=")), 1.0)
        ranges.setdefault(name, (quality, -place))
    liked: dict[T, tuple[float, int]] = {}
    for media_type, format_ in offered.items():
        # The most exact range counts (RFC 9110, section 12.5.1).
        names = (media_type, media_type.partition("/")[0] + "/*", "*/*")
        quality, order = next((ranges[name] for name in names if name in ranges), (0.0, 0))
        if quality > 0:
            liked[format_] = max((quality, order), liked.get(format_, (0.0, 0)))
    if not liked:
        raise NotAcceptable(header, list(offered))
    return max(liked, key=lambda format_: liked[format_])  # of equals the first offered


def _quality(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _tag(request: Request, body: schemas.TextRequest, ask: Ask, services: Services, format_: str) -> str | None:
    """A name for the answer, made of all that decides it; None where tokens are drawn without a seed."""
    if ask.options.temperature > 0 and ask.options.seed is None and not ask.is_forced:
        return None
    facts = services.inspector.facts(ask.model)
    decides = [
        services.version,
        request.url.path,
        format_,
        ask.model.name,
        ask.model.revision,
        facts.precision,
        services.settings.default_beam_size,
        services.settings.max_segment_tokens,
        body.model_dump(mode="json", exclude={"deadline_seconds"}),
    ]
    return f'"{hashlib.sha256(orjson.dumps(decides, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]}"'


def _is_known(request: Request, tag: str | None) -> bool:
    given = request.headers.get("if-none-match", "")
    return tag is not None and tag in [part.strip().removeprefix("W/") for part in given.split(",")]


async def _found(ask: Ask, services: Services, *, is_all: bool) -> Found:
    """The text with its translation; where all of a text is looked at, one that is too long is not translated first."""
    if is_all and not ask.is_whole:
        services.inspector.check_length(ask)
    return await services.inspector.find(ask)


async def _answered(
    request: Request,
    body: schemas.TextRequest,
    tag: str | None,
    work: Callable[[], Awaitable[bytes]],
    media_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Nothing new for who has the answer; else what `work` makes, unless the client leaves.

    Raises:
        InspectionTooLarge: With a request of the same kind that fits.
    """
    general = {"Vary": "Accept"} | ({"ETag": tag} if tag else {})
    if _is_known(request, tag):
        return Response(status_code=304, headers=general)
    try:
        content = await while_connected(request, work())
    except TooLarge as error:
        raise InspectionTooLarge(error, body.model_dump(mode="json", exclude_unset=True)) from error
    return Response(content, media_type=media_type, headers={**general, **(headers or {})})
