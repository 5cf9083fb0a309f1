"""What several tests of the engine need. No torch here."""

import contextlib
import math
import threading

from model.decoding import DecodingOptions, Hypothesis
from service.engine.async_engine import AsyncEngine
from service.engine.interface import ModelInfo
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.step import SequenceUpdate, StepResult

EOS = 3
WAIT_SECONDS = 30
"""A test that waits longer for a thread has found a fault."""

INFO = ModelInfo(
    name="tiny",
    source_language="en",
    target_language="fr",
    revision="r",
    precision="float32",
    source_vocab_size=100,
    target_vocab_size=100,
    eos_id=EOS,
    max_source_tokens=1000,
    max_target_tokens=1000,
    cache_bytes_per_token=1,
)


def make_limits(**changes):
    sizes = {
        "max_rows": 4,
        "kv_cache_bytes": 1000,
        "max_waiting_tokens": 10_000,
        "max_wait_seconds": math.inf,
        "max_encode_tokens_per_step": 50,
        "max_source_tokens": 100,
        "max_target_tokens": 100,
    }
    return EngineLimits(**(sizes | changes))


def make_sequence(length=4, *, first=4, beam_size=1, max_target_tokens=None, **options):
    """A source of `length` tokens, eos included, that counts up from `first`."""
    ids = tuple(first + i % 90 for i in range(length - 1))
    options = DecodingOptions(beam_size=beam_size, max_target_tokens=max_target_tokens, **options)
    return SequenceRequest((*ids, EOS), options)


def make_request(request_id="r", lengths=(4,), *, model="tiny", deadline=None, **options):
    sequences = tuple(make_sequence(length, **options) for length in lengths)
    return EngineRequest(request_id, model, sequences, deadline)


class ScriptedRunner:
    """A `ModelRunner` that needs no model: a sequence is given back token by token, one a step; beside it are `others`.

    With `is_gated` each step waits for a `allow_step`. `fault` is raised by the next step; sources in `poisoned` fail.
    """

    useful_rows = None

    def __init__(self, infos=(INFO,), *, is_gated=False, others=()):
        self.infos = tuple(infos)
        self.others = others
        self.gate = threading.Semaphore(0) if is_gated else None
        self.in_step = threading.Event()
        self.fault = None
        self.warm_up_fault = None
        self.poisoned = set()
        self.running = {}
        self.steps = []
        """For each step the sources that were decoded in it."""
        self.strides = []
        """The stride that each step was given."""
        self.thread = None

    def models(self):
        return self.infos

    def beside(self):
        return self.others

    def warm_up(self):
        self.thread = threading.current_thread()
        if self.warm_up_fault is not None:
            raise self.warm_up_fault

    def allow_steps(self, count=1):
        self.gate.release(count)

    def open_gate(self):
        gate, self.gate = self.gate, None
        gate.release(1000)

    def execute(self, output):
        for sequence_id in output.departed:
            self.running.pop(sequence_id, None)
        newcomers = [newcomer for group in output.groups for newcomer in group.newcomers]
        self.running.update({newcomer.sequence_id: (newcomer, 0) for newcomer in newcomers})
        self.steps.append([newcomer.source_ids for newcomer, _ in self.running.values()])
        num_rows = len(self.running)
        self.strides.append(output.stride)
        self.in_step.set()
        gate = self.gate
        if gate is not None:
            assert gate.acquire(timeout=WAIT_SECONDS), "no test allowed the step"
        self.in_step.clear()
        if self.fault is not None:
            raise self.fault
        updates = [self._advance(sequence_id) for sequence_id in list(self.running)]
        return StepResult(tuple(updates), {newcomer.sequence_id: 0.0 for newcomer in newcomers}, num_rows)

    def _advance(self, sequence_id):
        newcomer, position = self.running[sequence_id]
        source = newcomer.source_ids
        if source in self.poisoned:
            del self.running[sequence_id]
            return SequenceUpdate(sequence_id, failure="poisoned")
        self.running[sequence_id] = newcomer, position + 1
        if source[position] != EOS:
            return SequenceUpdate(sequence_id, source[position : position + 1])
        del self.running[sequence_id]
        return SequenceUpdate(sequence_id, (), (Hypothesis(source, "stop"),))


@contextlib.asynccontextmanager
async def running_engine(runner, limits=None, on_step=None):
    """An engine around `runner`, started, and stopped at the end; after which its books must balance."""
    engine = AsyncEngine(lambda: runner, limits or make_limits(), on_step)
    await engine.start()
    try:
        yield engine
    finally:
        if getattr(runner, "gate", None) is not None:
            runner.open_gate()
        await engine.stop(grace_seconds=0)
    assert_all_is_free(engine)


def assert_all_is_free(engine):
    stats = engine.stats()
    assert stats.reserved_rows == 0
    assert stats.kv_cache_used_bytes == 0
    assert stats.running_sequences == stats.waiting_sequences == stats.waiting_tokens == 0
    # This engine's own: servers that live as long as the whole run of tests have theirs.
    assert not engine._core._thread.is_alive()
