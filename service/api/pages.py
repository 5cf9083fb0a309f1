"""The pages for people, with everything they load: nothing comes from another server.

The page at `/` needs JavaScript to look inside. Without it, its form is posted here and comes back filled in.
"""

from __future__ import annotations

import hashlib
import html
import time
from pathlib import Path
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.auth import presented_key
from service.api.deps import Services, ServicesDep
from service.api.errors import TextTooLarge, UnsupportedMediaType, problem_of, retry_headers
from service.api.middleware import CLIENT_CLOSED_REQUEST
from service.api.requests import ClientGone, while_connected
from service.api.responses import JsonResponse
from service.api.timeouts import timeout_seconds
from service.engine.errors import EngineStopping
from service.search_options import search_options
from service.translator import Job

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).resolve().parent.parent / "inspector"
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# No "unsafe-": scripts and styles come from files. Forms may be sent here alone: without scripts that translates.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@router.get("/")
async def index(request: Request) -> Response:
    """A form that translates."""
    return _file("index.html", request)


@router.post("/")
async def translated_index(request: Request, services: ServicesDep) -> Response:
    """The same page with the posted text and its translation, for browsers without JavaScript.

    They can send no key: where one is needed this page says so.
    """
    text = await _posted_text(request)
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
    try:
        host = request.client.host if request.client else None
        await services.gate.admit("translate", presented_key(request.headers), host)
        translation, status = await _translated(text, request, services), 200
        content = _filled(text, translation, None)
    except ClientGone:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except Exception as error:
        problem = problem_of(error)
        status = problem["status"]
        if status == 500:
            raise
        content = _filled(text, "", problem["detail"])
        headers |= retry_headers(error, status)
    return Response(content, status_code=status, media_type="text/html", headers=headers)


async def _posted_text(request: Request) -> str:
    media_type = request.headers.get("content-type", "none").split(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise UnsupportedMediaType(f"the content type is {media_type}; a form sends application/x-www-form-urlencoded")
    # Browsers send UTF-8, for the page is UTF-8; line breaks come as CRLF.
    fields = parse_qs((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
    return fields.get("text", [""])[0].replace("\r\n", "\n")


async def _translated(text: str, request: Request, services: Services) -> str:
    """With the first model that reads its language, or the first there is, as the page itself does."""
    settings = services.settings
    num_bytes = len(text.encode())
    if num_bytes > settings.max_text_bytes:
        raise TextTooLarge(num_bytes, settings.max_text_bytes)
    models = services.engine.models()
    if not models:
        raise EngineStopping(services.engine.not_ready_reason or "no model is loaded")
    (found,) = (
        await services.translator.detect([text]) if len({info.source_language for info in models}) > 1 else (None,)
    )
    model = next((info for info in models if found is not None and info.source_language == found.language), models[0])
    options = search_options(settings, (model,), {})
    job = Job((text,), model, options, time.monotonic() + timeout_seconds(settings, request.headers))
    translation = await while_connected(request, services.translator.translate(job))
    return translation.texts[0].text


def _filled(text: str, translation: str, problem: str | None) -> str:
    """The page with these in place of what stands in it."""
    page = (_FOLDER / "index.html").read_text(encoding="utf-8")
    # HTML drops a line break right behind <textarea>: one is put there, so that a text's own is kept.
    for start, content in (('<textarea id="text"', "\n" + text), ('<output id="output"', translation)):
        before, _, rest = page.partition(start)
        attributes, _, rest = rest.partition(">")
        end = f"</{start[1:].split()[0]}>"
        page = f"{before}{start}{attributes}>{html.escape(content)}{rest[rest.index(end) :]}"
    if problem is not None:
        page = page.replace(' role="alert" hidden></div>', f' role="alert"><p>{html.escape(problem)}</p></div>')
    return page


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
