import pytest
from prometheus_client import CollectorRegistry, generate_latest

from model.decoding import Hypothesis
from service.engine.core import StepMessage
from service.engine.interface import EngineStats
from service.engine.request import RequestResult, SequenceResult, SequenceTimings
from service.observability.facts import RequestFacts
from service.observability.metrics import LONGEST, Metrics, length_class
from service.pipeline import Outcome, Part
from tests.service.fakes import FakeEngine


@pytest.fixture
def metrics():
    return Metrics({"version": "1"})


def test_metrics_live_in_the_registry_they_are_given():
    registry = CollectorRegistry()
    metrics = Metrics({"version": "1.2"}, registry)
    metrics.watch(FakeEngine(current_stats=EngineStats(running_sequences=5)))
    assert metrics.registry is registry
    text = generate_latest(registry).decode()
    assert 'gossamer_build_info{version="1.2"} 1.0' in text
    assert "gossamer_running_sequences 5.0" in text
    assert "process_resident_memory_bytes" in text


def test_names_carry_the_prefix_and_counters_end_in_total(metrics):
    metrics.watch(FakeEngine())
    metrics.count_request("/v1/translate", "ok", 0.2, RequestFacts("id", reason="queue-full", model="en-fr"))
    for family in metrics.registry.collect():
        assert family.name.startswith(("gossamer_", "process_"))
        for sample in family.samples:
            assert not sample.name.endswith("_created")
            assert sample.name.endswith("_total") == (family.type == "counter")


def test_requests_are_counted_with_what_is_known_of_them(metrics):
    facts = RequestFacts("id", model="en-fr", source_tokens=33, reason="deadline-exceeded")
    metrics.count_request("/v1/translate", "deadline", 0.2, facts)
    value = metrics.registry.get_sample_value
    assert value("gossamer_requests_total", {"route": "/v1/translate", "outcome": "deadline"}) == 1
    assert value("gossamer_request_seconds_total", {"route": "/v1/translate"}) == 0.2
    assert value("gossamer_model_requests_total", {"model": "en-fr", "outcome": "deadline"}) == 1
    assert value("gossamer_rejections_total", {"reason": "deadline-exceeded"}) == 1
    assert value("gossamer_request_duration_seconds_sum", {"source_length": "33-128"}) == 0.2


def test_a_result_tells_the_first_of_its_sequences_and_the_pace_of_each(metrics):
    late = SequenceResult((), "stop", SequenceTimings(4.0, 1.0, 7.0, 6.0), num_source_tokens=5, num_target_tokens=3)
    early = SequenceResult((), "stop", SequenceTimings(2.0, 1.0, 3.0, 3.5), num_source_tokens=40, num_target_tokens=1)
    metrics.count_result("en-fr", RequestResult("id", (late, early)))
    value = metrics.registry.get_sample_value
    assert value("gossamer_source_tokens_total", {"model": "en-fr"}) == 45
    assert value("gossamer_target_tokens_total", {"model": "en-fr"}) == 4
    assert value("gossamer_queue_duration_seconds_sum", {"source_length": "33-128"}) == 2.0
    assert value("gossamer_time_to_first_token_seconds_sum", {"source_length": "33-128"}) == 3.5
    # Twelve seconds in all, six of them before the first token, two tokens after it; the other has no second token.
    assert value("gossamer_time_per_output_token_seconds_sum", {"source_length": "1-32"}) == 3.0
    assert value("gossamer_time_per_output_token_seconds_count", {"source_length": "33-128"}) is None


def test_steps_tell_rows_padding_and_durations(metrics):
    metrics.count_step(StepMessage(3, 0.0, 0.02))
    metrics.count_step(StepMessage(5, 0.01, 0.03, num_encoded_tokens=30, num_padding_tokens=10))
    metrics.count_step(StepMessage(0, 0.0, 0.0))
    value = metrics.registry.get_sample_value
    assert (value("gossamer_batch_rows_count"), value("gossamer_batch_rows_sum")) == (2, 8)
    assert value("gossamer_decode_step_duration_seconds_sum") == 0.05
    assert value("gossamer_encode_step_duration_seconds_count") == 1
    assert value("gossamer_encode_padding_ratio_sum") == 0.25


@pytest.mark.parametrize(
    ("source_tokens", "label"),
    [(0, "0"), (1, "1-32"), (32, "1-32"), (33, "33-128"), (128, "33-128"), (129, LONGEST), (10**6, LONGEST)],
)
def test_length_classes(source_tokens, label):
    assert length_class(source_tokens) == label


def test_what_became_of_segments_is_counted(metrics):
    part = Part(0, 2, ("non",), hypotheses=(Hypothesis((5, 6), "length"),))
    metrics.count_outcomes("en-fr", [Outcome((part,), ("untranslated", "length"), num_retries=2)])
    metrics.count_outcomes("en-fr", [Outcome((Part(0, 2, ("no",)),))])
    value = metrics.registry.get_sample_value
    assert value("gossamer_segments_total", {"model": "en-fr"}) == 2
    assert value("gossamer_retries_total", {"model": "en-fr"}) == 2
    assert value("gossamer_truncations_total", {"model": "en-fr"}) == 1
    assert value("gossamer_warnings_total", {"model": "en-fr", "code": "untranslated"}) == 1
