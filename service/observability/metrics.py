"""The server's metrics, on a registry of their own; docs/metrics.md lists them.

Every label comes from a small closed set: routes are templates, models those of the settings, reasons the types of
problems. What is known of one request (its id, the caller's trace) goes into exemplars, which are no series.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.engine.core import StepMessage
from service.engine.interface import Engine
from service.engine.request import RequestResult, SequenceTimings
from service.observability.facts import RequestFacts
from service.observability.series import Counter, Histogram, Series
from service.pipeline import Outcome as SegmentOutcome

Outcome = Literal["ok", "client_error", "rejected", "deadline", "cancelled", "error"]
"""How a request ended: `rejected` is a 429 or 503, `deadline` a 504, `cancelled` a client that went away."""

LENGTH_CLASSES = ((0, "0"), (32, "1-32"), (128, "33-128"))
"""Most source tokens of a class, and its label; `LONGEST` is what is longer."""
LONGEST = "129+"

_REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.5)
_STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
_SHARE_BUCKETS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6)


class Metrics:
    """What is counted."""

    def __init__(self, build: Mapping[str, str], registry: CollectorRegistry | None = None) -> None:
        """Registers the metrics.

        Args:
            build: Labels of `gossamer_build_info`: the versions of what runs.
            registry: Where to; a new one by default.
        """
        self.registry = registry or CollectorRegistry()
        self._series = Series()
        self.requests = self._counter("requests", "Requests by route and outcome.", "route", "outcome")
        self.request_seconds = self._counter("request_seconds", "Time in requests, by route.", "route")
        self.model_requests = self._counter(
            "model_requests", "Requests that reached a model, by model and outcome.", "model", "outcome"
        )
        self.rejections = self._counter("rejections", "Requests refused or failed, by reason.", "reason")
        self.cancellations = self._counter("cancellations", "Translations given up because the client went away.")
        self.source_tokens = self._counter("source_tokens", "Source tokens of finished translations.", "model")
        self.target_tokens = self._counter("target_tokens", "Target tokens of finished translations.", "model")
        self.segments = self._counter("segments", "Segments that a model translated.", "model")
        self.retries = self._counter("retries", "Sequences tried again, because of what the model wrote.", "model")
        self.truncations = self._counter("truncations", "Segments whose translation met the limit of tokens.", "model")
        self.warnings = self._counter("warnings", "Warnings about segments, by code.", "model", "code")

        self.request_duration = self._histogram(
            "request_duration_seconds",
            "Time from a request's first byte to the end of its answer.",
            _REQUEST_BUCKETS,
            "source_length",
        )
        self.queue_duration = self._histogram(
            "queue_duration_seconds",
            "Time from a translation's submission until its first sequence is taken up.",
            _WAIT_BUCKETS,
            "source_length",
        )
        self.time_to_first_token = self._histogram(
            "time_to_first_token_seconds",
            "Time from a translation's submission until its first token is decoded.",
            _WAIT_BUCKETS,
            "source_length",
        )
        self.time_per_token = self._histogram(
            "time_per_output_token_seconds",
            "Mean time between the tokens of a sequence, after the first.",
            _TOKEN_BUCKETS,
            "source_length",
        )
        self.encode_duration = self._histogram(
            "encode_step_duration_seconds", "Time in encoders, of each step that encoded.", _STEP_BUCKETS
        )
        self.decode_duration = self._histogram(
            "decode_step_duration_seconds", "Time in the decoder, of each step.", _STEP_BUCKETS
        )
        self.batch_rows = self._histogram("batch_rows", "Rows decoded in a step.", _ROW_BUCKETS)
        self.padding = self._histogram(
            "encode_padding_ratio", "Share of padding in what encoders read, of each step that encoded.", _SHARE_BUCKETS
        )
        self.start_duration = self._gauge("start_duration_seconds", "Time from the start until the models were warm.")
        self._gauge("build_info", "Always 1; labels tell the versions.", *build).labels(**build).set(1)
        ProcessCollector(registry=self.registry)
        for outcome in outcomes():  # There from the beginning, so that a first error is seen as an increase.
            self.requests.add(("/v1/translate", outcome), 0.0)
        self.registry.register(self._series)

    def watch(self, engine: Engine) -> None:
        """Shows the numbers of an engine at each scrape; called once."""
        self.registry.register(_EngineCollector(engine))

    def count_request(self, route: str, outcome: Outcome, seconds: float, facts: RequestFacts | None = None) -> None:
        """Counts one request that has ended."""
        self._series.note(self._count_request, route, outcome, seconds, facts, time.time())

    def _count_request(
        self, route: str, outcome: Outcome, seconds: float, facts: RequestFacts | None, ended_at: float
    ) -> None:
        self.requests.add((route, outcome))
        self.request_seconds.add((route,), seconds)
        source_tokens, exemplar = 0, None
        if facts is not None:
            source_tokens = facts.source_tokens
            if facts.reason is not None:
                self.rejections.add((facts.reason,))
            if facts.model is not None:
                self.model_requests.add((facts.model, outcome))
                labels = {"request_id": facts.request_id}
                if facts.trace_id is not None:
                    labels["trace_id"] = facts.trace_id
                exemplar = Exemplar(labels, seconds, ended_at)
        self.request_duration.observe(seconds, (length_class(source_tokens),), exemplar=exemplar)

    def count_cancellation(self) -> None:
        """Counts a translation that was given up because its client went away."""
        self._series.note(self.cancellations.add)

    def count_result(self, model: str, result: RequestResult) -> None:
        """Counts what the engine finished."""
        sequences = [(each.num_source_tokens, each.num_target_tokens, each.timings) for each in result.sequences]
        self._series.note(self._count_result, model, sequences)

    def _count_result(self, model: str, sequences: Sequence[tuple[int, int, SequenceTimings]]) -> None:
        num_source_tokens = sum(num_source for num_source, _, _ in sequences)
        labels = (length_class(num_source_tokens),)
        self.source_tokens.add((model,), num_source_tokens)
        self.target_tokens.add((model,), sum(num_target for _, num_target, _ in sequences))
        self.queue_duration.observe(min(timings.queue_seconds for _, _, timings in sequences), labels)
        self.time_to_first_token.observe(min(timings.first_token_seconds for _, _, timings in sequences), labels)
        for num_source, num_target, timings in sequences:
            if num_target > 1:
                stay = timings.queue_seconds + timings.encode_seconds + timings.decode_seconds
                seconds = max(0.0, stay - timings.first_token_seconds) / (num_target - 1)
                self.time_per_token.observe(seconds, (length_class(num_source),))

    def count_outcomes(self, model: str, outcomes: Iterable[SegmentOutcome]) -> None:
        """Counts what became of segments."""
        facts = [(outcome.num_retries, outcome.truncated, outcome.warnings) for outcome in outcomes]
        self._series.note(self._count_outcomes, model, facts)

    def _count_outcomes(self, model: str, outcomes: Sequence[tuple[int, bool, Iterable[str]]]) -> None:
        labels = (model,)
        for num_retries, truncated, warnings in outcomes:
            self.segments.add(labels)
            # Most have none; the first one makes the series all the same.
            self.retries.add(labels, num_retries)
            self.truncations.add(labels, truncated)
            for code in warnings:
                self.warnings.add((model, code))

    def count_step(self, step: StepMessage) -> None:
        """Counts one step of the engine, or several that followed one another."""
        self._series.note(self._count_step, step)

    def _count_step(self, step: StepMessage) -> None:
        if step.num_rows:
            self.batch_rows.observe(step.num_rows / step.num_steps, times=step.num_steps)
            self.decode_duration.observe(step.decode_seconds / step.num_steps, times=step.num_steps)
        if step.num_encoded_tokens:
            self.encode_duration.observe(step.encode_seconds)
            num_positions = step.num_encoded_tokens + step.num_padding_tokens
            self.padding.observe(step.num_padding_tokens / num_positions)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return self._series.counter(f"gossamer_{name}", text, *labels)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"gossamer_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> Histogram:
        return self._series.histogram(f"gossamer_{name}", text, bounds, *labels)


def length_class(source_tokens: int) -> str:
    """The value of the label `source_length`."""
    return next((label for most, label in LENGTH_CLASSES if source_tokens <= most), LONGEST)


def outcomes() -> tuple[str, ...]:
    """Every value of the label `outcome`."""
    return get_args(Outcome)


class _EngineCollector(Collector):
    """Reads the engine's numbers when they are asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        """Nothing: what is registered is not asked for its names, as the engine may not have started."""
        return []

    def collect(self) -> Iterable[Metric]:
        stats = self._engine.stats()
        yield GaugeMetricFamily("gossamer_ready", "1 if requests are taken now.", float(self._engine.is_ready))
        yield GaugeMetricFamily("gossamer_running_sequences", "Sequences being decoded.", stats.running_sequences)
        yield GaugeMetricFamily("gossamer_waiting_sequences", "Sequences not yet started.", stats.waiting_sequences)
        yield GaugeMetricFamily("gossamer_running_requests", "Translations being decoded.", stats.running_requests)
        yield GaugeMetricFamily("gossamer_waiting_requests", "Translations not yet started.", stats.waiting_requests)
        yield GaugeMetricFamily("gossamer_waiting_tokens", "Source tokens not yet started.", stats.waiting_tokens)
        yield GaugeMetricFamily(
            "gossamer_queue_usage_ratio",
            "Share of the queue's room that is taken.",
            _share(stats.waiting_tokens, stats.max_waiting_tokens),
        )
        yield GaugeMetricFamily(
            "gossamer_reserved_rows_ratio",
            "Share of the batch's rows that are spoken for.",
            _share(stats.reserved_rows, stats.max_rows),
        )
        yield GaugeMetricFamily(
            "gossamer_kv_cache_usage_ratio",
            "Share of the cache that is spoken for.",
            _share(stats.kv_cache_used_bytes, stats.kv_cache_total_bytes),
        )
        yield CounterMetricFamily("gossamer_steps", "Decode steps done.", value=stats.steps_total)
        yield CounterMetricFamily("gossamer_encoded_tokens", "Source tokens encoded.", value=stats.source_tokens_total)
        yield CounterMetricFamily(
            "gossamer_decoded_tokens", "Tokens decoded over all rows and beams.", value=stats.target_tokens_total
        )
        if stats.gpu_memory_total_bytes:
            yield GaugeMetricFamily(
                "gossamer_gpu_memory_used_bytes", "Of the model's device, by everyone.", stats.gpu_memory_used_bytes
            )
            yield GaugeMetricFamily("gossamer_gpu_memory_bytes", "There is.", stats.gpu_memory_total_bytes)
        models = GaugeMetricFamily(
            "gossamer_model_info",
            "Always 1; labels tell of a loaded model.",
            labels=["model", "source", "target", "precision", "revision"],
        )
        for info in self._engine.models():
            labels = (info.name, info.source_language, info.target_language, info.precision, info.revision)
            models.add_metric(labels, 1)
        yield models


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
