"""The engine on a GPU. Skipped where there is none, and so far it was: no GPU was at hand when this was written."""

import pytest
import torch

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.device import choose_device
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.runner import Runner
from service.engine.scheduler import Scheduler
from tests.data.make_tiny_checkpoint import FOLDER as TINY_CHECKPOINT

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

OPTIONS = (
    DecodingOptions(max_target_tokens=20),
    DecodingOptions(beam_size=4, num_hypotheses=2, max_target_tokens=20),
    DecodingOptions(temperature=1.0, top_k=5, seed=1, max_target_tokens=20),
)


def decode(device, precision):
    checkpoint = load_checkpoint(TINY_CHECKPOINT, choose_device(device))
    limits = EngineLimits()
    runner = Runner([checkpoint], limits, precision=precision)
    runner.warm_up()
    scheduler = Scheduler(runner.models(), limits)
    texts = ("The spider feels the web.", "Hello.", "How many trains leave on Sunday?")
    sources = [checkpoint.tokenizer.encode(text, "en", add_eos=True).ids for text in texts]
    sequences = tuple(SequenceRequest(source, options) for source in sources for options in OPTIONS)
    scheduler.submit(EngineRequest("r", checkpoint.name, sequences, with_log_probs=True))
    found = {}
    while not scheduler.is_idle:
        for update in runner.execute(scheduler.schedule()).updates:
            if update.is_final:
                assert update.failure is None
                found[scheduler.owner(update.sequence_id)[1]] = update.hypotheses[0]
                scheduler.finish(update.sequence_id)
    return runner.models()[0].precision, [found[index] for index in range(len(sequences))]


def test_float32_finds_what_the_processor_finds():
    _, expected = decode("cpu", "float32")
    _, found = decode("cuda", "float32")
    assert [each.tokens for each in found] == [each.tokens for each in expected]


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "auto"])
def test_half_formats_translate(precision):
    held, found = decode("cuda", precision)
    assert held in ("bfloat16", "float16") if precision == "auto" else held == precision
    assert all(torch.isfinite(torch.tensor(each.token_log_probs)).all() for each in found)
