from prometheus_client import CollectorRegistry, generate_latest

from service.engine.interface import EngineStats
from service.observability.metrics import Metrics


def test_metrics_live_in_the_registry_they_are_given():
    registry = CollectorRegistry()
    metrics = Metrics("1.2", lambda: EngineStats(running_sequences=5), registry)
    assert metrics.registry is registry
    text = generate_latest(registry).decode()
    assert 'gossamer_build_info{version="1.2"} 1.0' in text
    assert "gossamer_running_sequences 5.0" in text


def test_names_carry_the_prefix_and_counters_end_in_total():
    metrics = Metrics("1", EngineStats)
    metrics.count_request("/v1/translate", "ok", 0.2)
    metrics.count_tokens(3, 4)
    for family in metrics.registry.collect():
        assert family.name.startswith("gossamer_")
        for sample in family.samples:
            assert not sample.name.endswith("_created")
            assert sample.name.endswith("_total") == (family.type == "counter")


def test_requests_and_tokens_are_counted():
    metrics = Metrics("1", EngineStats)
    metrics.count_request("/v1/translate", "ok", 0.2)
    metrics.count_tokens(3, 4)
    metrics.count_tokens(1, 1)
    value = metrics.registry.get_sample_value
    assert value("gossamer_requests_total", {"route": "/v1/translate", "outcome": "ok"}) == 1
    assert value("gossamer_request_duration_seconds_sum", {"route": "/v1/translate"}) == 0.2
    assert (value("gossamer_source_tokens_total"), value("gossamer_target_tokens_total")) == (4, 5)
