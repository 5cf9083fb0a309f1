"""Who may do what: keys in headers, and the scope that each route needs.

The native API's routes are guarded by a middleware, so that a new one cannot be forgotten. The dialects' are not, since
their clients may send the key as a field of the body: they ask `Gate.admit` when they have read it.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service import keys
from service.api.errors import ApiError, Forbidden, Unauthenticated, problem_response
from service.api.limits import Admission, Client, RateLimits, address_name, current_admission
from service.engine.work import current_work
from service.keys import KeyRing
from service.observability.facts import request_facts
from service.settings import Settings

_TRANSLATE_PATHS = ("/v1/translate", "/v1/detect", "/v1/models", "/v1/languages")
"""What is needed to translate; all else under /v1 looks inside the model."""

_SCHEMES = ("bearer", "deepl-auth-key")


class Gate:
    """Decides about each request that asks for something.

    Args:
        settings: Say which limits clients have that bring none of their own.
        limits: Counts their requests.
        ring: The keys; None if none are needed.
    """

    def __init__(self, settings: Settings, limits: RateLimits, ring: KeyRing | None) -> None:
        self._settings = settings
        self._limits = limits
        self._ring = ring

    @property
    def needs_key(self) -> bool:
        """Whether requests need a key."""
        return self._ring is not None

    async def admit(self, scope: keys.Scope, presented: str | None, host: str | None) -> None:
        """Lets a request in, and notes whose it is; the rest of its task is counted on that client.

        Args:
            scope: What is asked for.
            presented: The key that was sent, if any.
            host: The client's address.

        Raises:
            Unauthenticated: A key is needed. It counts as a request of the address.
            Forbidden: The key is good for something else.
            RateLimited: The client has to wait.
        """
        settings = self._settings
        client = Client(
            "address",
            address_name(host),
            settings.address_requests_per_minute,
            settings.address_tokens_per_minute,
        )
        if self._ring is not None:
            key = self._ring.find(presented) if presented else None
            if key is None:
                await self._limits.take(client, "requests")
                raise Unauthenticated(is_missing=not presented)
            facts = request_facts.get()
            if facts is not None:
                facts.key = key.id
            client = Client(
                "key",
                key.id,
                key.requests_per_minute or settings.key_requests_per_minute,
                key.tokens_per_minute or settings.key_tokens_per_minute,
            )
            if not key.allows(scope):
                await self._limits.take(client, "requests")
                raise Forbidden(key.id, key.scopes, scope)
        await self._limits.take(client, "requests")
        current_admission.set(Admission(client))
        if client.tokens_per_minute is not None and (work := current_work.get()) is not None:
            work.must_be_whole = True


class Guard:
    """Plain ASGI middleware: admits requests to the native API, before their bodies are read."""

    def __init__(self, app: ASGIApp, gate: Gate, metrics_need_key: bool) -> None:
        self._app = app
        self._gate = gate
        self._metrics_need_key = metrics_need_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        needed = self._needed(scope["path"]) if scope["type"] == "http" else None
        if needed is not None:
            client = scope.get("client")
            try:
                await self._gate.admit(needed, presented_key(Headers(scope=scope)), client[0] if client else None)
            except ApiError as error:
                await problem_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _needed(self, path: str) -> keys.Scope | None:
        """The scope that a path needs; None for pages, probes, the dialects (see above), and what does not exist."""
        if path == "/metrics":
            return "admin" if self._metrics_need_key and self._gate.needs_key else None
        if not path.startswith("/v1/"):
            return None
        return "translate" if path.rstrip("/") in _TRANSLATE_PATHS else "inspect"


def presented_key(headers: Mapping[str, str]) -> str | None:
    """The key in the headers: `X-API-Key`, or `Authorization` with `Bearer` or DeepL's `DeepL-Auth-Key`."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() in _SCHEMES and key.strip():
        return key.strip()
    return headers.get("x-api-key", "").strip() or None
