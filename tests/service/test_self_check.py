import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

from service.app import create_app
from service.engine.errors import EngineDead, EngineStopping, SequenceFailed
from service.engine.interface import EngineState
from service.engine.request import EngineRequest, RequestResult, SequenceRequest
from service.self_check import CheckedEngine, check_models
from service.settings import Settings
from service.translator import Translator
from tests.service.fake_tokenizer import FakeTokenizer
from tests.service.fakes import FAKE_MODEL, FakeEngine

TINY = Path(__file__).resolve().parents[1] / "data/tiny_checkpoint"
REQUEST = EngineRequest("one", "en-fr", (SequenceRequest((5, 6, 3)),))


def checked(fake):
    tokenizers = {info.name: FakeTokenizer() for info in fake.model_infos}
    return CheckedEngine(fake, Translator(fake, tokenizers, max_segment_tokens=128))


class Strange(FakeEngine):
    """An engine whose results are changed by `spoil`, a function from a hypothesis and the size of its company."""

    spoil = staticmethod(lambda hypothesis, company: hypothesis)

    async def submit(self, request):
        result = await super().submit(request)
        sequences = tuple(
            replace(
                sequence,
                hypotheses=tuple(self.spoil(hypothesis, len(request.sequences)) for hypothesis in sequence.hypotheses),
            )
            for sequence in result.sequences
        )
        return RequestResult(result.request_id, sequences)


def test_it_is_ready_only_when_each_model_has_translated_alone_and_in_company():
    async def scenario():
        fake = FakeEngine((FAKE_MODEL, replace(FAKE_MODEL, name="ja-en", source_language="ja")), hold=asyncio.Event())
        engine = checked(fake)
        starting = asyncio.ensure_future(engine.start())
        await asyncio.sleep(0.01)
        assert fake.is_ready
        assert (engine.is_ready, engine.state) == (False, EngineState.STARTING)
        assert engine.not_ready_reason == "the engine is trying out its models"
        with pytest.raises(EngineStopping):
            await engine.submit(REQUEST)
        with pytest.raises(EngineStopping):
            await anext(engine.stream(REQUEST))
        fake.hold.set()
        await starting
        assert (engine.is_ready, engine.not_ready_reason) == (True, None)
        # A fake gives the source back, and copies are tried again: each kind of request is counted once.
        assert list(dict.fromkeys((asked.model, len(asked.sequences)) for asked in fake.requests)) == [
            ("en-fr", 1),
            ("en-fr", 3),
            ("ja-en", 1),
            ("ja-en", 3),
        ]
        await engine.submit(REQUEST)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda hypothesis, company: replace(hypothesis, tokens=()), "not translated"),
        (lambda hypothesis, company: replace(hypothesis, log_prob=math.nan), "no log-probabilities"),
        (lambda hypothesis, company: replace(hypothesis, log_prob=1.0), "no log-probabilities"),
        (lambda hypothesis, company: replace(hypothesis, log_prob=None), "no log-probabilities"),
        (lambda hypothesis, company: replace(hypothesis, log_prob=-5.0 * company), "alone and"),
    ],
)
def test_what_no_working_model_gives_ends_the_start(spoil, part):
    async def scenario():
        fake = Strange()
        fake.spoil = spoil
        engine = checked(fake)
        with pytest.raises(EngineDead, match=f"en-fr failed its self-translation: .*{part}.*GOSSAMER_SELF_CHECK=false"):
            await engine.start()
        assert fake.stopped_with_grace_seconds == 0
        assert (engine.is_ready, engine.state) == (False, EngineState.DEAD)
        assert part in engine.not_ready_reason
        assert part in (await engine.wait_closed()).reason
        with pytest.raises(EngineDead):
            await engine.submit(REQUEST)

    asyncio.run(scenario())


def test_a_model_that_fails_outright_is_named():
    async def scenario():
        with pytest.raises(EngineDead, match=r"en-fr failed .*it broke"):
            await checked(FakeEngine(error=SequenceFailed(0, "it broke"))).start()

    asyncio.run(scenario())


def test_a_stop_in_the_midst_of_it_is_no_death():
    async def scenario():
        fake = FakeEngine(hold=asyncio.Event())
        engine = checked(fake)
        starting = asyncio.ensure_future(engine.start())
        await asyncio.sleep(0.01)
        await engine.stop(0)
        with pytest.raises(EngineStopping):
            await starting
        assert engine.state is EngineState.STOPPED

    asyncio.run(scenario())


def test_what_it_says_of_itself_is_what_the_engine_says_once_it_has_passed():
    async def scenario():
        fake = FakeEngine()
        engine = checked(fake)
        await engine.start()
        fake.die("broken")
        assert (engine.state, engine.not_ready_reason) == (EngineState.DEAD, "the engine died: broken")

    asyncio.run(scenario())


def test_a_language_without_a_sentence_of_its_own_gets_one():
    async def scenario():
        fake = FakeEngine((replace(FAKE_MODEL, source_language="xx"),))
        await fake.start()
        await check_models(Translator(fake, {"en-fr": FakeTokenizer()}, max_segment_tokens=128), fake.models())
        assert {len(asked.sequences) for asked in fake.requests} == {1, 3}

    asyncio.run(scenario())


def test_without_the_check_an_untrained_model_is_served(monkeypatch):
    def refuse(*_args):
        raise AssertionError("it is checked")

    monkeypatch.setattr("service.app.CheckedEngine", refuse)
    create_app(Settings(models=(TINY,), self_check=False))
    with pytest.raises(AssertionError, match="it is checked"):
        create_app(Settings(models=(TINY,)))
