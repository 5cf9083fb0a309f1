"""With `batch_invariant`, not one bit of a sequence depends on its neighbours, also in float32."""

import random

import pytest
import torch

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.linear import BatchVariance, Linear
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.runner import Runner
from service.engine.scheduler import Scheduler
from tests.data.make_tiny_checkpoint import FOLDER as TINY_CHECKPOINT
from tests.model.tiny import VARIATIONS, random_sources, random_targets, tiny_model

torch.set_num_threads(1)
LIMITS = EngineLimits(max_rows=48)
OPTIONS = (
    DecodingOptions(max_target_tokens=12),
    DecodingOptions(beam_size=4, num_hypotheses=4, max_target_tokens=12),
    DecodingOptions(temperature=1.0, seed=1, max_target_tokens=12),
)


@pytest.fixture
def checkpoint():
    return load_checkpoint(TINY_CHECKPOINT)


def sequences(eos_id):
    generator = random.Random(1)
    return [
        SequenceRequest((*(generator.randrange(4, 60) for _ in range(generator.randint(1, 30))), eos_id), options)
        for options in OPTIONS
        for _ in range(8)
    ]


def decode(runner, name, arrivals):
    """The hypotheses of each request, with every digit of their numbers; `arrivals` are steps and sequences."""
    scheduler = Scheduler(runner.models(), LIMITS)
    waiting = sorted(((step, index) for index, (step, _) in enumerate(arrivals)), reverse=True)
    results, step = {}, 0
    while waiting or not scheduler.is_idle:
        while waiting and waiting[-1][0] <= step:
            index = waiting.pop()[1]
            scheduler.submit(EngineRequest(str(index), name, (arrivals[index][1],), with_log_probs=True))
        for update in runner.execute(scheduler.schedule()).updates:
            if update.is_final:
                results[int(scheduler.owner(update.sequence_id)[0])] = update.hypotheses
                scheduler.finish(update.sequence_id)
        step += 1
        scheduler.check_integrity()
    return [results[index] for index in range(len(arrivals))]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_bit_is_that_of_the_sequence_alone_in_any_company(precision):
    checkpoint = load_checkpoint(TINY_CHECKPOINT)
    runner = Runner([checkpoint], LIMITS, precision=precision, batch_invariant=True)
    wanted = sequences(checkpoint.config.eos_id)
    alone = [decode(runner, checkpoint.name, [(0, sequence)])[0] for sequence in wanted]
    together = decode(runner, checkpoint.name, [(0, sequence) for sequence in wanted])
    assert together == alone
    generator = random.Random(2)
    assert decode(runner, checkpoint.name, [(generator.randrange(20), sequence) for sequence in wanted]) == alone


@pytest.mark.parametrize("variation", ["paper", "Marian", "pre-norm", "rotary positions", "learned positions"])
def test_it_holds_for_every_kind_of_arithmetic(variation):
    model = tiny_model(**VARIATIONS[variation])
    model.make_batch_invariant()
    sources = random_sources((9, 4, 12, 1, 17), model.config.source_vocab_size)
    targets = random_targets(len(sources), 20, model.config.decoder_start_id)

    def logits(rows):
        state = model.prefill([sources[row] for row in rows])
        return torch.stack([model.decode_step(targets[rows, t], state) for t in range(20)], dim=1)

    with torch.no_grad():
        together = logits([3, 0, 4, 1, 2])
        for place, row in enumerate([3, 0, 4, 1, 2]):
            assert torch.equal(logits([row])[0], together[place])


def test_a_product_whose_rows_depend_on_their_place_is_refused(monkeypatch):
    linear = Linear(8, 8, bias=False)
    torch.nn.init.normal_(linear.weight)
    exact = torch.nn.functional.linear

    def shifty(inputs, weight, bias):
        result = exact(inputs, weight, bias)
        return result * (1 + 1e-6 * torch.arange(len(result)).unsqueeze(1))

    monkeypatch.setattr("model.linear.functional.linear", shifty)
    with pytest.raises(BatchVariance, match=r"16 rows with a weight of \(8, 8\)"):
        linear.use_row_blocks(16)


def test_it_finds_what_the_ordinary_mode_finds(checkpoint):
    """The ordinary mode rounds a little differently with each batch, so numbers are only nearly the same."""
    wanted = [(0, sequence) for sequence in sequences(checkpoint.config.eos_id)]
    together = decode(Runner([checkpoint], LIMITS), checkpoint.name, wanted)
    apart = decode(Runner([checkpoint], LIMITS, batch_invariant=True), checkpoint.name, wanted)
    for one, other in zip(apart, together, strict=True):
        assert [hypothesis.tokens for hypothesis in one] == [hypothesis.tokens for hypothesis in other]
        assert one[0].token_log_probs == pytest.approx(other[0].token_log_probs, abs=2e-3)
