"""Where each dialect's clients put their key, and what it is good for: the one place that knows."""

from __future__ import annotations

from starlette.requests import Request

from service.api.auth import Gate, presented_key
from service.api.dialects.fields import Fields
from service.api.limits import current_admission

_DEEPL_SCHEME = "deepl-auth-key"


def libretranslate_key(fields: Fields) -> str | None:
    """LibreTranslate's: the field `api_key`; None where there is none."""
    return fields.text("api_key")


def deepl_key(request: Request, fields: Fields) -> str | None:
    """DeepL's: the header `Authorization: DeepL-Auth-Key KEY`, or as it once was the field `auth_key`."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == _DEEPL_SCHEME and key.strip():
        return key.strip()
    return fields.text("auth_key")


def key_owner() -> str | None:
    """Whose request this is, by the id of the key; None where none are needed. Known once it is admitted."""
    admission = current_admission.get()
    return admission.client.name if admission is not None and admission.client.kind == "key" else None


async def admit(request: Request, key: str | None) -> None:
    """Lets a request in that is about translating; a key in the headers that all routes know will do as well.

    Raises:
        Unauthenticated: A key is needed.
        Forbidden: The key is good for something else.
        RateLimited: The client has to wait.
    """
    gate: Gate = request.app.state.services.gate
    await gate.admit(
        "translate", key or presented_key(request.headers), request.client.host if request.client else None
    )
