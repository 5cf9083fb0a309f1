"""Counters and histograms that cost little to count on, for a registry of prometheus-client.

The library's own take three microseconds a count: a lock for each bucket, checks of labels and of exemplars, a search
from the first bucket on. With a dozen counts a request that is a tenth of what a short one costs besides its model.
Here a count is an addition, under one lock for all, and is done together with some others: between two pieces of
other work its code and its numbers have left the processor's caches, and take ten times as long as in a row. What the
library writes out is made when somebody asks for it.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, Exemplar, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]

_MOST_NOTED = 256
"""Notes that wait to be counted: some milliseconds of work in a row."""


class Counter:
    """Numbers that only grow, one for each combination of labels that was counted."""

    def __init__(self, name: str, text: str, label_names: Sequence[str] = ()) -> None:
        self._name, self._text, self._label_names = name, text, label_names
        self._values: dict[Labels, float] = {} if label_names else {(): 0.0}

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        """Adds to one of them; 0 makes it known."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def family(self) -> Metric:
        """For the library."""
        family = CounterMetricFamily(self._name, self._text, labels=self._label_names)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class _Distribution:
    __slots__ = ("counts", "exemplars", "sum")

    def __init__(self, num_buckets: int) -> None:
        self.counts = [0] * num_buckets
        self.exemplars: dict[int, Exemplar] = {}
        self.sum = 0.0


class Histogram:
    """How often values fell into each of some ranges, for each combination of labels."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], label_names: Sequence[str] = ()) -> None:
        self._name, self._text, self._label_names = name, text, label_names
        self._bounds = tuple(bounds)
        """Largest values of the ranges, ascending; one more range has what is above."""
        self._names = [floatToGoString(bound) for bound in (*bounds, float("inf"))]  # type: ignore[no-untyped-call]
        self._distributions: dict[Labels, _Distribution] = {}
        if not label_names:
            self.observe(0.0, times=0)

    def observe(self, value: float, labels: Labels = (), *, times: int = 1, exemplar: Exemplar | None = None) -> None:
        """Counts a value, so many times."""
        found = self._distributions.get(labels)
        if found is None:
            found = self._distributions[labels] = _Distribution(len(self._names))
        place = bisect.bisect_left(self._bounds, value)
        found.counts[place] += times
        found.sum += value * times
        if exemplar is not None:
            found.exemplars[place] = exemplar

    def family(self) -> Metric:
        """For the library."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._label_names)
        for labels, found in self._distributions.items():
            sums = itertools.accumulate(found.counts)
            buckets = [
                (name, float(count), found.exemplars[place]) if place in found.exemplars else (name, float(count))
                for place, (name, count) in enumerate(zip(self._names, sums, strict=True))
            ]
            family.add_metric(labels, buckets, found.sum)
        return family


class Series(Collector):
    """All counters and histograms of a process.

    series.note(requests.add, ("/v1/translate", "ok"))

    Whatever was noted before somebody asks is counted in what is told.
    """

    def __init__(self) -> None:
        self._all: list[Counter | Histogram] = []
        self._noted: collections.deque[tuple[Callable[..., None], tuple[Any, ...]]] = collections.deque()
        self._lock = threading.Lock()
        """Held while numbers change, or are told."""

    def counter(self, name: str, text: str, *label_names: str) -> Counter:
        """A new counter; the name without `_total`."""
        counter = Counter(name, text, label_names)
        self._all.append(counter)
        return counter

    def histogram(self, name: str, text: str, bounds: Sequence[float], *label_names: str) -> Histogram:
        """A new histogram."""
        histogram = Histogram(name, text, bounds, label_names)
        self._all.append(histogram)
        return histogram

    def note(self, count: Callable[..., None], *arguments: Any) -> None:
        """Has `count(*arguments)` called soon, in this thread or another; from any thread.

        What the arguments hold stays in memory until then, so no texts.
        """
        self._noted.append((count, arguments))
        if len(self._noted) >= _MOST_NOTED:
            with self._lock:
                self._count()

    def collect(self) -> Iterable[Metric]:
        """As they are now, all of one moment."""
        with self._lock:
            self._count()
            return [each.family() for each in self._all]

    def _count(self) -> None:
        """Called with the lock held, so that nobody else takes from the notes."""
        while self._noted:
            count, arguments = self._noted.popleft()
            count(*arguments)
