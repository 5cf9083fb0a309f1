import asyncio

import pytest

from service.engine.errors import EngineDead, RequestAborted
from service.engine.request import EngineRequest, RequestDoneEvent, SequenceRequest, TokensEvent
from tests.service.fakes import FakeEngine

REQUEST = EngineRequest("r", "en-fr", (SequenceRequest((5, 6, 3)),))


def test_fake_engine_gives_the_source_back_as_result_and_as_stream():
    async def scenario():
        engine = FakeEngine()
        await engine.start()
        result = await engine.submit(REQUEST)
        assert result.sequences[0].hypotheses[0].tokens == (5, 6, 3)
        events = [event async for event in engine.stream(REQUEST)]
        assert [event for event in events if isinstance(event, TokensEvent)] == [
            TokensEvent(0, (5,)),
            TokensEvent(0, (6,)),
        ]
        assert events[-1] == RequestDoneEvent(result)

    asyncio.run(scenario())


def test_fake_engine_ends_what_it_holds_on_abort_cancel_and_death():
    async def scenario():
        engine = FakeEngine(hold=asyncio.Event())
        await engine.start()

        held = asyncio.create_task(engine.submit(REQUEST))
        await asyncio.sleep(0)
        engine.abort("r")
        with pytest.raises(RequestAborted):
            await held

        held = asyncio.create_task(engine.submit(REQUEST))
        await asyncio.sleep(0)
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        assert engine.aborted == ["r", "r"]

        held = asyncio.create_task(engine.submit(REQUEST))
        await asyncio.sleep(0)
        engine.die()
        with pytest.raises(EngineDead):
            await held
        assert not engine.is_ready
        assert isinstance(await engine.wait_closed(), EngineDead)

    asyncio.run(scenario())
