"""Models, probes and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from service.api import schemas
from service.api.deps import ServicesDep
from service.api.docs import problems
from service.api.errors import NotReady
from service.api.requests import JsonRoute
from service.api.responses import JsonResponse
from service.engine.interface import EngineState
from service.routing import routes

router = APIRouter(route_class=JsonRoute)

_NOT_STARTED = frozenset({EngineState.NEW, EngineState.STARTING})
_OK_EXAMPLE = {"application/json": {"example": {"status": "ok"}}}


@router.get(
    "/v1/models",
    tags=["translation"],
    summary="List the loaded models",
    response_model=schemas.Models,
    responses={
        200: {
            "content": {
                "application/json": {
                    "example": {
                        "models": [
                            {
                                "name": "en-fr",
                                "revision": "0123456789abcdef",
                                "source": "en",
                                "target": "fr",
                                "precision": "int8",
                                "max_source_tokens": 512,
                                "max_target_tokens": 512,
                            }
                        ]
                    }
                }
            }
        },
        **problems(503),
    },
)
async def list_models(services: ServicesDep) -> Response:
    """The models and their languages; 503 while they are loading."""
    models = services.engine.models()
    if not models:
        raise NotReady(services.engine.not_ready_reason or "no model is loaded")
    return JsonResponse(
        schemas.Models(
            models=[
                schemas.Model(
                    name=info.name,
                    revision=info.revision,
                    source=info.source_language,
                    target=info.target_language,
                    targets=list(dict.fromkeys((info.target_language, *info.target_languages)))
                    if info.target_languages
                    else None,
                    precision=info.precision,
                    max_source_tokens=info.max_source_tokens,
                    max_target_tokens=info.max_target_tokens,
                )
                for info in models
            ],
            routes=[
                schemas.RouteAnswer(
                    source=route.source_language,
                    target=route.target_language,
                    via=route.via,
                    models=[step.name for step in route.steps],
                )
                for route in routes(models)
            ]
            or None,
        )
    )


@router.get("/healthz", tags=["operations"], summary="Is the process alive?", responses={200: {"content": _OK_EXAMPLE}})
async def healthz() -> Response:
    """Answers as long as the process does, also while models are loading."""
    return JsonResponse({"status": "ok"})


@router.get(
    "/startupz",
    tags=["operations"],
    summary="Has the start finished?",
    responses={200: {"content": _OK_EXAMPLE}, **problems(503)},
)
async def startupz(services: ServicesDep) -> Response:
    """503 until the models are loaded and warm; from then on 200, whatever happens."""
    if services.engine.state in _NOT_STARTED:
        raise NotReady(services.engine.not_ready_reason or "the engine is starting")
    return JsonResponse({"status": "ok"})


@router.get(
    "/readyz",
    tags=["operations"],
    summary="Are requests taken now?",
    responses={200: {"content": _OK_EXAMPLE}, **problems(503)},
)
async def readyz(services: ServicesDep) -> Response:
    """200 after the warm-up and before the stop; otherwise 503 with the reason."""
    if not services.engine.is_ready:
        raise NotReady(services.engine.not_ready_reason or "the engine is not ready")
    return JsonResponse({"status": "ok"})


@router.get("/metrics", tags=["operations"], summary="Prometheus metrics", response_class=Response)
async def metrics(request: Request, services: ServicesDep) -> Response:
    """In the text format, or as OpenMetrics if that is asked for."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(services.metrics.registry), headers={"Content-Type": media_type})
