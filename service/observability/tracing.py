"""OpenTelemetry spans of requests, joined to the caller's trace (W3C Trace Context). Needs the extra `tracing`.

    POST /v1/translate                      the request; its parent is the caller's span, if `traceparent` names one
      tokenize                              text -> segments -> ids
      translate                             a submission to the engine; more for parts of a long list, and for retries
        queue | encode | decode             by the engine's own clock, over all its sequences
      detokenize                            ids -> text, what was kept put back, checks

Nothing of a user's text is in them. Where spans go is said by OpenTelemetry's own variables (`OTEL_...`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.engine.forwarding import ForwardingEngine
from service.engine.interface import Engine
from service.engine.request import EngineEvent, EngineRequest, RequestDoneEvent, RequestResult
from service.observability.facts import RequestFacts
from service.spans import span_opener

UNTRACED_PATHS = frozenset(("/healthz", "/readyz", "/startupz", "/metrics"))
"""Asked every few seconds, by machines."""

_SHUTDOWN_SECONDS = 3.0
"""How long the last spans may take to be sent; a collector that is away must not hold up the end of the process."""

_PROTOCOLS = ("http/protobuf",)


class TracingError(ValueError):
    """OpenTelemetry's variables ask for what there is not."""


class Tracing:
    """Makes spans, and sends them.

    Args:
        version: Of this program.
        exporter: Where to; by default what the variables say.

    Raises:
        TracingError: The variables ask for what there is not.
    """

    def __init__(self, version: str, exporter: SpanExporter | None = None) -> None:
        # Variables win: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`.
        resource = Resource({"service.name": "gossamer", "service.version": version}).merge(
            Resource.create() if _names_service() else _without_name(Resource.create())
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = exporter or _exporter()
        if exporter is not None:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("gossamer", version)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(
        self, method: str, path: str, headers: Mapping[str, str], facts: RequestFacts
    ) -> Iterator[TracedRequest]:
        """The span of a request; its trace's id goes into the facts, so that logs and exemplars have it."""
        if path in UNTRACED_PATHS:
            yield TracedRequest(trace.INVALID_SPAN, method)
            return
        parent = self._propagator.extract(
            {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        )
        token = span_opener.set(self._tracer.start_as_current_span)
        try:
            with self._tracer.start_as_current_span(
                method, parent, SpanKind.SERVER, {"http.request.method": method}, end_on_exit=True
            ) as current:
                if current.is_recording():
                    facts.trace_id = trace.format_trace_id(current.get_span_context().trace_id)
                yield TracedRequest(current, method)
        finally:
            span_opener.reset(token)

    def follow(self, engine: Engine) -> Engine:
        """An engine whose submissions become spans."""
        return _TracedEngine(engine, self._tracer)

    def close(self) -> None:
        """Sends what is left; blocks for some seconds at most."""
        sending = threading.Thread(target=self._provider.shutdown, name="gossamer-tracing-end", daemon=True)
        sending.start()
        sending.join(_SHUTDOWN_SECONDS)


class TracedRequest:
    """The span of one request, to be told how it ended."""

    def __init__(self, current: trace.Span, method: str) -> None:
        self._span = current
        self._method = method

    def tell(self, route: str, status: int | None, facts: RequestFacts) -> None:
        """Called once, when the answer has been sent."""
        if not self._span.is_recording():
            return
        self._span.update_name(f"{self._method} {route}")
        attributes = {
            "http.route": route,
            "http.response.status_code": status,
            "gossamer.request_id": facts.request_id,
            "gossamer.model": facts.model,
            "gossamer.source_tokens": facts.source_tokens or None,
            "gossamer.target_tokens": facts.target_tokens or None,
            "error.type": facts.reason,
        }
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        if status is None or status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))


class _TracedEngine(ForwardingEngine):
    """An `Engine` in front of another: each submission is a span, with parts by the engine's timings."""

    def __init__(self, engine: Engine, tracer: trace.Tracer) -> None:
        super().__init__(engine)
        self._tracer = tracer

    async def submit(self, request: EngineRequest) -> RequestResult:
        """As `Engine.submit`."""
        current = self._start(request)
        try:
            result = await self._engine.submit(request)
            self._parts(current, result)
            return result
        except Exception as error:
            current.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            current.end()

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `Engine.stream`."""
        current = self._start(request)
        try:
            async with aclosing(self._engine.stream(request)) as events:
                async for event in events:
                    if isinstance(event, RequestDoneEvent):
                        self._parts(current, event.result)
                    yield event
        except Exception as error:
            current.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            current.end()

    def _start(self, request: EngineRequest) -> trace.Span:
        attributes: dict[str, str | int] = {
            "gossamer.model": request.model,
            "gossamer.sequences": len(request.sequences),
            "gossamer.source_tokens": request.num_source_tokens,
        }
        return self._tracer.start_span("translate", attributes=attributes)

    def _parts(self, current: trace.Span, result: RequestResult) -> None:
        """Queue, encode and decode, where they were: the engine has told how long each took, and it ended just now."""
        if not current.is_recording():
            return
        timings = [sequence.timings for sequence in result.sequences]
        taken_up = [timing.queue_seconds for timing in timings]
        encoded = [timing.queue_seconds + timing.encode_seconds for timing in timings]
        ended = [timing.queue_seconds + timing.encode_seconds + timing.decode_seconds for timing in timings]
        begin = time.time_ns() - round(max(ended) * 1e9)
        around = trace.set_span_in_context(current)
        for name, start, end in (
            ("queue", 0.0, min(taken_up)),
            ("encode", min(taken_up), max(encoded)),
            ("decode", min(encoded), max(ended)),
        ):
            part = self._tracer.start_span(name, around, start_time=begin + round(start * 1e9))
            if name == "decode":
                part.set_attribute("gossamer.target_tokens", result.num_target_tokens)
                first = min(timing.first_token_seconds for timing in timings)
                part.add_event("first token", timestamp=begin + round(first * 1e9))
            part.end(begin + round(end * 1e9))


def _exporter() -> SpanExporter | None:
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() or "otlp"
    if wanted == "none":
        return None
    if wanted == "console":
        return ConsoleSpanExporter()
    if wanted != "otlp":
        raise TracingError(f"OTEL_TRACES_EXPORTER is {wanted!r}; allowed is otlp, console or none")
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(variable, _PROTOCOLS[0])
        if protocol not in _PROTOCOLS:
            raise TracingError(f"{variable} is {protocol!r}; allowed is {', '.join(_PROTOCOLS)}")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _names_service() -> bool:
    return "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")


def _without_name(resource: Resource) -> Resource:
    """Without the name that the library makes up where nobody gave one."""
    return Resource({name: value for name, value in resource.attributes.items() if name != "service.name"})
