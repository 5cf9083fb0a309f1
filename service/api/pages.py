"""The pages for people, with everything they load: nothing comes from another server."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.responses import JsonResponse

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).resolve().parent.parent / "inspector"
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@router.get("/")
async def index(request: Request) -> Response:
    """A form that translates."""
    return _file("index.html", request)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API, readable and to be tried."""
    return _file("docs.html", request)


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The API for programs."""
    return JsonResponse(request.app.openapi())


@router.get("/assets/{name}")
async def asset(name: str, request: Request) -> Response:
    """Style sheets and scripts of the pages."""
    return _file(name, request)


def _file(name: str, request: Request) -> Response:
    # Looked up in the folder's list, so that a name can never lead out of it.
    path = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _MEDIA_TYPES}.get(name)
    if path is None:
        raise HTTPException(404, "there is no such file")
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_MEDIA_TYPES[path.suffix], headers=headers)
