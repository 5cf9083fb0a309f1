"""What routes need, as named types: a route's signature tells all it uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.api.auth import Gate
from service.api.dialects.state import DialectState
from service.engine.interface import Engine
from service.inspection.inspector import Inspector
from service.markup import MarkupTranslator
from service.observability.metrics import Metrics
from service.settings import Settings
from service.translator import Translator


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that `create_app` joined.

    Attributes:
        settings: As read at start.
        engine: May still be loading.
        translator: On top of it.
        documents: On top of that, for HTML and XML.
        inspector: Looks inside.
        metrics: Counted and scraped.
        version: Of the server.
        dialects: What the dialects remember.
        gate: Decides who may do what.
    """

    settings: Settings
    engine: Engine
    translator: Translator
    documents: MarkupTranslator
    inspector: Inspector
    metrics: Metrics
    version: str
    dialects: DialectState
    gate: Gate


async def _services(request: Request) -> Services:  # what is not a coroutine, FastAPI runs in a thread
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(_services)]
