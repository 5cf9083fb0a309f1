import asyncio
import random

import pytest

from loadtests import scenarios
from loadtests.arrivals import poisson_times
from loadtests.peers.http_load import Form
from loadtests.scenarios import SCENARIOS, Ask, Source, measure_scenario, run, sustained_rate
from loadtests.texts import Texts
from model.description import describe, open_tokenizer
from service.settings import BUNDLED_MODELS


@pytest.fixture(scope="module")
def texts():
    folder = BUNDLED_MODELS / "en-fr"
    return Texts(open_tokenizer(folder, describe(folder)), "en")


def make_source(seed=1, *, fixed_lengths=False):
    folder = BUNDLED_MODELS / "en-fr"
    return Source(Form("bundled", folder, folder, folder, fixed_lengths, max_segment_tokens=128), seed)


class FakeSystem:
    """Answers at once, or after what is asked of it; takes `capacity` requests a second."""

    def __init__(self, capacity=1e9):
        self.name, self.errors, self.asked, self.finished = "ours", [], [], 0
        self._seconds, self._turn = 1 / capacity, asyncio.Lock()
        self.server = self

    def cpu_seconds(self):
        return 0.5 * self.finished

    async def ask(self, text, num_tokens=None, *, attention=None, upload_seconds=0.0):
        self.asked.append(text)
        await asyncio.sleep(upload_seconds)
        async with self._turn:
            await asyncio.sleep(self._seconds)
        self.finished += 1
        return True


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_scenario_asks_what_it_says_and_the_same_again(name, texts):
    generators = random.Random(3), random.Random(3)
    same, again = make_source(5), make_source(5)
    asks = [SCENARIOS[name].make(same, generators[0]) for _ in range(12)]
    assert asks == [SCENARIOS[name].make(again, generators[1]) for _ in range(12)]
    times = SCENARIOS[name].times(SCENARIOS[name].rate, 12, 1)
    assert len(times) == 12 and times == sorted(times)
    if name == "arrays":
        assert all(len(ask.text) == 100 for ask in asks)
        return
    lengths = [texts.count(ask.text) for ask in asks]
    words = [len(ask.text.split()) for ask in asks]
    expected = {"chat": (4, 16, lengths), "slow-clients": (4, 16, lengths), "documents": (2_000, 2_100, words)}
    low, high, seen = expected.get(name, (4, 420, lengths))
    assert low <= min(seen) and max(seen) <= high
    assert any(ask.upload_seconds for ask in asks) == (name == "slow-clients")
    assert any(ask.cancel_seconds for ask in asks) == (name == "cancel")


def test_where_lengths_are_fixed_every_text_is_one_sentence_and_says_how_many_tokens_to_write(texts):
    for ask in (make_source(fixed_lengths=True).sentence(12), make_source(fixed_lengths=True).sentences(60)):
        assert ask.num_tokens == texts.count(ask.text)
        assert "." not in ask.text
    assert make_source().sentences(60).num_tokens is None


def test_clients_that_leave_are_not_counted_and_their_requests_end():
    system = FakeSystem(capacity=10)

    async def go():
        return await run(system, [Ask("stays"), Ask("leaves", cancel_seconds=0.01)], [0.0, 0.01])

    seen, _ = asyncio.run(go())
    assert [one.result for one in seen] == [None, "left"]
    assert system.finished == 1


def test_a_slow_upload_is_not_the_servers_time():
    found = asyncio.run(measure_scenario(SCENARIOS["slow-clients"], [FakeSystem(1e5)], make_source(), 0.5, 1))
    ours = found["systems"]["ours"]
    assert ours["requests"] == 10 and max(ours["seconds"]) < 0.5
    assert ours["span_seconds"] > 1.5
    assert ours["cpu_seconds_per_request"] == 0.5


@pytest.mark.alone
def test_the_rate_that_a_system_sustains_is_found(monkeypatch):
    monkeypatch.setattr(scenarios, "_START_RATE", 20.0)
    monkeypatch.setattr(scenarios, "_MIN_REQUESTS", 20)
    monkeypatch.setattr(scenarios, "_BOUND_SECONDS", 0.3)
    monkeypatch.setattr(scenarios, "_PAUSE_SECONDS", 0.0)
    found = asyncio.run(sustained_rate(FakeSystem(capacity=60), make_source(), 0.5, 1))
    assert 20 <= found["requests_per_second"] <= 200  # of 20 a third of a second later than the last may pass
    passed = [step["rate"] for step in found["steps"] if step["passes"]]
    assert found["requests_per_second"] == max(passed)
    assert any(step["rate"] < 1.1 * max(passed) for step in found["steps"] if not step["passes"])
    assert asyncio.run(sustained_rate(FakeSystem(capacity=4), make_source(), 0.1, 1))["requests_per_second"] == 0.0


def test_arrivals_of_a_scenario_do_not_look_at_the_server():
    assert SCENARIOS["chat"].times is poisson_times
    bursts = SCENARIOS["bursts"].times(8.0, 60, 1)
    assert [bursts.count(time) for time in dict.fromkeys(bursts)] == [24, 24, 12]
