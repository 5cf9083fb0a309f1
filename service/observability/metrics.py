"""The server's metrics, on a registry of their own; docs/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.engine.interface import EngineStats

Outcome = Literal["ok", "client_error", "rejected", "deadline", "cancelled", "error"]
"""How a request ended: `rejected` is a 503, `deadline` a 504, `cancelled` a client that went away."""

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """What is counted. Every label has few values: routes are templates, never paths."""

    def __init__(
        self, version: str, stats: Callable[[], EngineStats], registry: CollectorRegistry | None = None
    ) -> None:
        """Registers the metrics.

        Args:
            version: Of the server.
            stats: Asked at each scrape.
            registry: Where to; a new one by default.
        """
        # Each counter would have a second series that says when it was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # not annotated in the library
        self.registry = registry or CollectorRegistry()
        self.requests = Counter(
            "gossamer_requests", "Requests by route and outcome.", ["route", "outcome"], registry=self.registry
        )
        self.request_duration = Histogram(
            "gossamer_request_duration_seconds",
            "Time from a request's first byte to the end of its answer.",
            ["route"],
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.source_tokens = Counter(
            "gossamer_source_tokens", "Source tokens of finished translations.", registry=self.registry
        )
        self.target_tokens = Counter(
            "gossamer_target_tokens", "Target tokens of finished translations.", registry=self.registry
        )
        build = Gauge(
            "gossamer_build_info", "Always 1; the label tells the version.", ["version"], registry=self.registry
        )
        build.labels(version).set(1)
        self.registry.register(_EngineCollector(stats))

    def count_request(self, route: str, outcome: Outcome, seconds: float) -> None:
        """Counts one finished request."""
        self.requests.labels(route, outcome).inc()
        self.request_duration.labels(route).observe(seconds)

    def count_tokens(self, source_tokens: int, target_tokens: int) -> None:
        """Counts the tokens of one finished translation."""
        self.source_tokens.inc(source_tokens)
        self.target_tokens.inc(target_tokens)


def outcomes() -> tuple[str, ...]:
    """Every value of the label `outcome`."""
    return get_args(Outcome)


class _EngineCollector(Collector):
    """Reads the engine's numbers when they are asked for."""

    def __init__(self, stats: Callable[[], EngineStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        yield GaugeMetricFamily("gossamer_running_sequences", "Sequences being decoded.", stats.running_sequences)
        yield GaugeMetricFamily("gossamer_waiting_sequences", "Sequences not yet started.", stats.waiting_sequences)
