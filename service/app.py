"""Joins the parts of the server into one ASGI app; there is no logic here.

app = create_app(load_settings())
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import logging
import math
import platform
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from model.description import WEIGHTS_FILE, CheckpointError, Description, describe, open_tokenizer
from model.lexicon import Lexicon, open_lexicon
from model.tokenizer import TextTokenizer
from service import heap
from service.api import inspect, operations, pages, translate
from service.api.auth import Gate, Guard
from service.api.deps import Services
from service.api.dialects import deepl, deepl_glossaries, libretranslate
from service.api.dialects.answers import DialectErrors
from service.api.dialects.state import DialectState
from service.api.errors import STATUS_TABLE, answer_error
from service.api.limits import LimitedEngine, RateLimits
from service.api.middleware import REQUEST_ID_HEADER, BodyLimits, HeadAsGet, RequestContext, SecurityHeaders
from service.api.shedding import Shedding
from service.api.timeouts import TIMEOUT_HEADER
from service.engine.async_engine import AsyncEngine
from service.engine.core import StepMessage
from service.engine.errors import EngineDead, EngineStopping
from service.engine.inspection import Aligner, Inspection, Replayer
from service.engine.interface import Engine
from service.engine.step import ModelRunner
from service.engine.work import open_works
from service.inspection.inspector import Inspector
from service.keys import KeyFileError, KeyRing
from service.machine import read_machine
from service.markup import MarkupTranslator
from service.observability.engine import MeasuredEngine
from service.observability.logging import describe_exception
from service.observability.metrics import Metrics
from service.pipeline import Outcome as SegmentOutcome
from service.self_check import CheckedEngine
from service.settings import BUNDLED_MODELS, Settings, SettingsError
from service.text import detection
from service.translator import Translator

if TYPE_CHECKING:  # needs an extra
    from opentelemetry.sdk.trace.export import SpanExporter

    from service.observability.tracing import Tracing

logger = logging.getLogger(__name__)

_DESCRIPTION = """Translates text with an encoder-decoder Transformer that can be looked into.

Errors are [problem details](https://www.rfc-editor.org/rfc/rfc9457): one shape, with the field, what was given and
what is allowed. Every answer carries `X-Request-ID`."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A checkpoint, as far as it is known without its weights."""

    folder: Path
    description: Description
    tokenizer: TextTokenizer
    lexicon: Lexicon | None = None

    @property
    def weights_bytes(self) -> int:
        """Size of the weights' file; 0 if there is none."""
        path = self.folder / WEIGHTS_FILE
        return path.stat().st_size if path.exists() else 0


def create_app(
    settings: Settings,
    engine: Engine | None = None,
    tokenizers: Mapping[str, TextTokenizer] | None = None,
    *,
    replayer: Replayer | None = None,
    on_engine_dead: Callable[[EngineDead], None] | None = None,
    span_exporter: SpanExporter | None = None,
) -> FastAPI:
    """The app. Its lifespan starts and stops the engine.

    Args:
        settings: Read by `load_settings`, or made by a test.
        engine: By default one that loads the models of the settings when the app starts.
        tokenizers: Of the engine's models, by name; needed with `engine`.
        replayer: Looks inside the engine's models; needed with `engine`, if anybody shall.
        on_engine_dead: Called when the engine cannot be started, or fails for good; the owner of the process ends it.
        span_exporter: Where spans go, if there are any; by default where OpenTelemetry's variables say.

    Raises:
        SettingsError: If a model's folder cannot be used, or tracing.
    """
    version = _version("gossamer")
    metrics = Metrics({"version": version, "python": platform.python_version(), "torch": _version("torch")})
    own_engine = engine is None

    def is_decoding() -> bool:
        return engine is not None and engine.stats().running_sequences > 0

    inspection = Inspection(settings.max_waiting_inspections, is_decoding)
    lexicons: dict[str, Lexicon] = {}
    if engine is None:
        models = open_models(settings)
        tokenizers = {model.description.name: model.tokenizer for model in models}
        lexicons = _lexicons(models)
        engine = _make_engine(settings, models, inspection, metrics.count_step, warms_detection=True)
        if settings.self_check:
            engine = CheckedEngine(engine, _translator(engine, tokenizers, settings))
    elif replayer is not None:
        inspection.open(replayer)
    dialect_state = DialectState(settings)
    limits = RateLimits(settings.limits_storage.get_secret_value())
    gate = Gate(settings, limits, open_keys(settings))
    engine = MeasuredEngine(LimitedEngine(engine, limits), metrics)
    tracing = open_tracing(settings, version, span_exporter)
    if tracing is not None:
        engine = tracing.follow(engine)
    metrics.watch(engine)
    aligner = inspection if own_engine or replayer is not None else None
    translator = _translator(
        engine, tokenizers or {}, settings, metrics.count_outcomes, settings.max_wait_seconds, lexicons, aligner
    )
    documents = MarkupTranslator(translator, aligner)
    inspector = Inspector(
        engine,
        translator,
        inspection if settings.inspection else None,
        max_tokens=settings.max_inspection_tokens,
        max_bytes=settings.max_inspection_bytes,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        # In a task of its own, so that probes are answered while models are loading.
        life = asyncio.create_task(_live(engine, on_engine_dead, is_own=own_engine))
        collecting = asyncio.create_task(heap.collect_when_quiet(lambda: not open_works()))
        yield
        collecting.cancel()
        await dialect_state.close()
        await engine.stop(settings.stop_grace_seconds)
        await inspection.close()
        await life
        await limits.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="Gossamer",
        description=_DESCRIPTION,
        version=version,
        lifespan=lifespan,
        openapi_url=None,  # api/pages.py has it, and /docs
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = Services(
        settings, engine, translator, documents, inspector, metrics, version, dialect_state, gate
    )
    for part in (translate, inspect, operations, pages, libretranslate, deepl, deepl_glossaries):
        app.include_router(part.router)
    for error in (*STATUS_TABLE, RequestValidationError, HTTPException):
        app.add_exception_handler(error, answer_error)
    # The last one added is the outermost.
    app.add_middleware(
        Shedding, check_wait=translator.check_wait, paths=("/v1/translate", libretranslate.TRANSLATE, deepl.TRANSLATE)
    )
    app.add_middleware(
        BodyLimits,
        max_bytes=settings.max_body_bytes,
        max_seconds=settings.receive_timeout_seconds,
        longer=dict.fromkeys((libretranslate.FILES, deepl.FILES), settings.max_file_bytes + settings.max_body_bytes),
    )
    app.add_middleware(Guard, gate=gate, metrics_need_key=settings.metrics_need_key)
    app.add_middleware(SecurityHeaders)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", REQUEST_ID_HEADER, TIMEOUT_HEADER],
            expose_headers=[REQUEST_ID_HEADER, "Retry-After"],
            max_age=3600,
        )
    app.add_middleware(RequestContext, metrics=metrics, paths=functools.cache(lambda: _paths(app)), tracing=tracing)
    app.add_middleware(DialectErrors, dialects=(libretranslate.dialect, deepl.dialect))
    app.add_middleware(HeadAsGet)
    return app


@asynccontextmanager
async def local_translation(settings: Settings) -> AsyncIterator[tuple[Translator, MarkupTranslator]]:
    """What the server translates with, for a program that does not serve.

    Args:
        settings: As for `create_app`; what concerns HTTP does not count.

    Raises:
        SettingsError: If a model's folder cannot be used.
        EngineDead: If a model cannot be loaded.
    """
    models = open_models(settings)
    inspection = Inspection(settings.max_waiting_inspections)
    # Who has the engine for himself waits as long as it takes.
    patient = settings.model_copy(update={"max_wait_seconds": math.inf})
    engine = _make_engine(patient, models, inspection, lambda _: None)
    tokenizers = {model.description.name: model.tokenizer for model in models}
    translator = _translator(engine, tokenizers, settings, lexicons=_lexicons(models), aligner=inspection)
    await engine.start()
    try:
        yield translator, MarkupTranslator(translator, inspection)
    finally:
        await engine.stop(0.0)
        await inspection.close()


def open_models(settings: Settings) -> list[ModelFolder]:
    """Reads what describes each model, and its tokenizer; not the weights.

    Raises:
        SettingsError: Lists every folder that cannot be used.
    """
    faults, models = [], []
    for folder in settings.model_folders():
        try:
            description = describe(folder)
            tokenizer = open_tokenizer(folder, description)
            models.append(ModelFolder(folder, description, tokenizer, open_lexicon(folder)))
        except CheckpointError as error:
            faults.append(f"models: {error}")
    names = [model.description.name for model in models]
    faults += [f"models: more than one is called {name}" for name in sorted(set(names)) if names.count(name) > 1]
    if not settings.model_folders():
        faults.append(f"models: there is none in {BUNDLED_MODELS}; name a folder (--model, or GOSSAMER_MODELS)")
    if faults:
        raise SettingsError(faults)
    return models


def _paths(app: FastAPI) -> frozenset[str]:
    """Paths of all routes without a variable part."""
    found, routes = set(), list(app.routes)
    while routes:
        route = routes.pop()
        routes += getattr(getattr(route, "original_router", route), "routes", [])
        path = getattr(route, "path", "{")
        if "{" not in path:
            found.add(path)
    return frozenset(found)


def open_keys(settings: Settings) -> KeyRing | None:
    """The keys of the settings; None if none are needed.

    Raises:
        SettingsError: If the file cannot be used.
    """
    if settings.keys_file is None:
        return None
    try:
        return KeyRing(settings.keys_file)
    except KeyFileError as error:
        raise SettingsError([f"keys_file: {error}"]) from error


def open_tracing(settings: Settings, version: str, exporter: SpanExporter | None = None) -> Tracing | None:
    """Spans, if the settings ask for them.

    Raises:
        SettingsError: If the extra is not installed, or OpenTelemetry's variables cannot be followed.
    """
    if not settings.tracing:
        return None
    try:
        from service.observability.tracing import Tracing, TracingError
    except ModuleNotFoundError as error:
        fault = f"tracing: needs the package {error.name}, which is not installed: pip install 'gossamer[tracing]'"
        raise SettingsError([fault]) from error
    try:
        return Tracing(version, exporter)
    except TracingError as error:
        raise SettingsError([f"tracing: {error}"]) from error


def _make_engine(
    settings: Settings,
    models: Sequence[ModelFolder],
    inspection: Inspection,
    on_step: Callable[[StepMessage], None],
    *,
    warms_detection: bool = False,
) -> Engine:
    limits = settings.engine_limits()
    threads = settings.torch_threads or _threads_of_container()

    def make_runner() -> ModelRunner:
        # Here and not above: torch takes seconds to import, and this is the engine's own thread.
        from model.checkpoint import load_checkpoint
        from model.device import choose_device
        from service.engine.replayer import ModelReplayer
        from service.engine.runner import Runner

        device = choose_device(settings.device)
        # Whoever is ready can find out languages at once, too; beside the models that costs the start next to nothing.
        with heap.reading_a_model(), ThreadPoolExecutor(1, "detection") as beside:
            warmed = beside.submit(detection.warm_up if warms_detection else lambda: None)
            checkpoints = [
                load_checkpoint(model.folder, device, precision=settings.precision, tokenizer=model.tokenizer)
                for model in models
            ]
            warmed.result()
        runner = Runner(
            checkpoints,
            limits,
            threads,
            settings.precision,
            batch_invariant=settings.batch_invariant,
            cuda_graphs=settings.cuda_graphs,
        )
        inspection.open(ModelReplayer(checkpoints))
        return runner

    return AsyncEngine(make_runner, limits, on_step)


def _translator(
    engine: Engine,
    tokenizers: Mapping[str, TextTokenizer],
    settings: Settings,
    on_outcomes: Callable[[str, Sequence[SegmentOutcome]], None] | None = None,
    max_wait_seconds: float = math.inf,
    lexicons: Mapping[str, Lexicon] | None = None,
    aligner: Aligner | None = None,
) -> Translator:
    return Translator(
        engine,
        tokenizers,
        max_segment_tokens=settings.max_segment_tokens,
        max_wait_seconds=max_wait_seconds,
        on_outcomes=on_outcomes,
        lexicons=lexicons,
        aligner=aligner,
    )


def _lexicons(models: Iterable[ModelFolder]) -> dict[str, Lexicon]:
    return {model.description.name: model.lexicon for model in models if model.lexicon is not None}


def _threads_of_container() -> int | None:
    """Threads for a container with fewer cores than the machine, which torch does not notice; None elsewhere."""
    machine = read_machine()
    return max(1, int(machine.cores)) if machine.cores < machine.usable_cores else None


async def _live(engine: Engine, on_engine_dead: Callable[[EngineDead], None] | None, *, is_own: bool) -> None:
    """Starts the engine and waits for its end; `is_own`: this process is there for nothing else."""
    try:
        await engine.start()
        if is_own:
            heap.settle()
        names = ", ".join(f"{info.name} ({info.revision})" for info in engine.models())
        logger.info("ready, with %s", names)
        death = await engine.wait_closed()
    except EngineDead as error:
        death = error
    except EngineStopping:
        return
    except Exception as error:
        death = EngineDead(describe_exception(error))
    if death is not None:
        logger.error("%s", death)
        if on_engine_dead is not None:
            on_engine_dead(death)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from the source, without being installed
        return "unknown"
