"""Our counters and histograms against those of prometheus-client: what is written out is the same."""

import threading

import pytest
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client import Counter as TheirCounter
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.core import Exemplar
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from service.observability.series import Series

BOUNDS = (0.0, 0.05, 0.5, 1, 10.0)
VALUES = (0.0, 0.01, 0.05, 0.050001, 0.5, 1.0, 1.5, 10.0, 11.0, 1e9)


@pytest.fixture
def both():
    """A registry of ours and one of theirs."""
    disable_created_metrics()
    ours, theirs, series = CollectorRegistry(), CollectorRegistry(), Series()
    ours.register(series)
    return ours, theirs, series


@pytest.mark.parametrize("write", [generate_latest, generate_openmetrics])
def test_what_is_written_is_what_the_library_writes(both, write):
    ours, theirs, series = both
    counter = series.counter("requests", "How many.", "route", "outcome")
    plain = series.counter("plain", "Without labels.")
    histogram = series.histogram("seconds", "How long.", BOUNDS, "length")
    series.histogram("empty", "Nothing yet.", BOUNDS)
    their_counter = TheirCounter("requests", "How many.", ["route", "outcome"], registry=theirs)
    their_plain = TheirCounter("plain", "Without labels.", registry=theirs)
    their_histogram = TheirHistogram("seconds", "How long.", ["length"], buckets=BOUNDS, registry=theirs)
    TheirHistogram("empty", "Nothing yet.", buckets=BOUNDS, registry=theirs)
    for route in ("/a", '/"b\\\n'):
        counter.add((route, "ok"))
        counter.add((route, "ok"), 2.5)
        their_counter.labels(route, "ok").inc(3.5)
    counter.add(("/c", "ok"), 0.0)
    their_counter.labels("/c", "ok")
    plain.add()
    their_plain.inc()
    for value in VALUES:
        histogram.observe(value, ("long",))
        their_histogram.labels("long").observe(value)
    histogram.observe(0.2, ("short",), times=3)
    for _ in range(3):
        their_histogram.labels("short").observe(0.2)
    assert set(write(ours).splitlines()) == set(write(theirs).splitlines())


def test_a_bucket_names_the_last_one_that_fell_into_it(both):
    ours, _, series = both
    histogram = series.histogram("seconds", "How long.", BOUNDS)
    for value, name in ((0.2, "first"), (0.3, "second"), (0.4, None), (7.0, "slow")):
        histogram.observe(value, exemplar=Exemplar({"request_id": name}, value, 1.0) if name else None)
    (family,) = ours.collect()
    found = {sample.labels["le"]: sample.exemplar for sample in family.samples if sample.exemplar}
    assert {name: (each.labels["request_id"], each.value) for name, each in found.items()} == {
        "0.5": ("second", 0.3),
        "10.0": ("slow", 7.0),
    }


def value_of(series):
    (family,) = series.collect()
    return family.samples[0].value


def test_what_was_noted_is_counted_before_it_is_told():
    series = Series()
    counter = series.counter("requests", "How many.")
    series.note(counter.add)
    series.note(counter.add, (), 2.0)
    assert value_of(series) == 3
    assert value_of(series) == 3


def test_notes_do_not_pile_up():
    series = Series()
    counter = series.counter("requests", "How many.")
    for _ in range(10_000):
        series.note(counter.add)
    assert counter.family().samples[0].value > 9_000  # nobody asked


def test_threads_lose_nothing():
    series = Series()
    counter = series.counter("requests", "How many.")

    def count():
        for _ in range(20_000):
            series.note(counter.add)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = [value_of(series) for _ in range(50)]
    for thread in threads:
        thread.join()
    assert seen == sorted(seen)
    assert value_of(series) == 80_000
