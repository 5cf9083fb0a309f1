import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from service.engine.errors import DeadlineExceeded, RequestAborted, UnknownModel
from service.engine.request import EngineRequest, SequenceRequest
from service.observability.engine import MeasuredEngine
from service.observability.facts import RequestFacts, request_facts
from service.observability.metrics import Metrics
from tests.service.fakes import FakeEngine

REQUEST = EngineRequest("one", "en-fr", (SequenceRequest((5, 6, 3)),))


class Measured:
    def __init__(self, **options):
        self.fake = FakeEngine(**options)
        self.metrics = Metrics({"version": "1"})
        self.engine = MeasuredEngine(self.fake, self.metrics)
        self.facts = RequestFacts("id")
        request_facts.set(self.facts)

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"gossamer_{name}", labels)


def run(scenario):
    """In a context of its own, so that no facts are left behind."""
    return asyncio.run(scenario())


def test_a_finished_request_is_counted_and_its_facts_are_noted():
    async def scenario():
        measured = Measured()
        await measured.engine.start()
        await measured.engine.submit(REQUEST)
        assert measured.value("source_tokens_total", model="en-fr") == 3
        assert (measured.facts.model, measured.facts.source_tokens, measured.facts.target_tokens) == ("en-fr", 3, 3)
        assert measured.value("cancellations_total") == 0

    run(scenario)


@pytest.mark.parametrize("seen", [1, None])
def test_a_stream_is_cancelled_only_if_it_is_left_before_its_end(seen):
    async def scenario():
        measured = Measured()
        await measured.engine.start()
        async with aclosing(measured.engine.stream(REQUEST)) as events:
            number = 0
            async for _ in events:
                number += 1
                # To the last event but no further: the generator is closed while it stands there.
                if number == (seen or 4):
                    break
        assert measured.value("cancellations_total") == (1 if seen else 0)
        assert measured.value("source_tokens_total", model="en-fr") == (None if seen else 3)

    run(scenario)


def test_a_caller_that_is_cancelled_counts_once_whatever_it_waited_for():
    async def scenario():
        measured = Measured(hold=asyncio.Event())
        await measured.engine.start()
        requests = [replace(REQUEST, request_id=name) for name in ("one", "two")]
        tasks = [asyncio.ensure_future(measured.engine.submit(request)) for request in requests]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert measured.value("cancellations_total") == 1

    run(scenario)


@pytest.mark.parametrize(
    ("error", "cancellations"),
    [(DeadlineExceeded("one"), 0), (UnknownModel("x", []), 0), (RequestAborted("one"), 1)],
)
def test_refusals_and_failures_are_no_cancellations(error, cancellations):
    async def scenario():
        measured = Measured(error=error)
        await measured.engine.start()
        with pytest.raises(type(error)):
            await measured.engine.submit(REQUEST)
        assert measured.value("cancellations_total") == cancellations

    run(scenario)


def test_a_name_that_is_no_model_becomes_no_label():
    async def scenario():
        measured = Measured()
        await measured.engine.start()
        with pytest.raises(UnknownModel):
            await measured.engine.submit(EngineRequest("one", "secret", REQUEST.sequences))
        assert measured.facts.model is None

    run(scenario)
