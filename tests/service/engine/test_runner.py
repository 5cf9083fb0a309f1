"""The engine on real, tiny models: what a sequence gets must not depend on who is beside it.

The judge is `model.generation.generate` with one sequence at a time. Random models compute in float64 here: there, the
noise by which a row of a batch differs from the same row alone is too small to tip the balance between two tokens.
"""

import asyncio
import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from model.checkpoint import Checkpoint, load_checkpoint
from model.config import TransformerConfig
from model.decoding import DecodingOptions
from model.generation import forbidden_outputs, generate, target_limit
from model.linear import has_int8_kernels
from model.native.library import kernels
from model.transformer import Transformer
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest, TokensEvent
from service.engine.runner import NOT_FINITE, Runner, _Turns
from service.engine.scheduler import Scheduler
from service.engine.step import EncodeGroup, Newcomer, SchedulerOutput
from tests.data.make_tiny_checkpoint import FOLDER as TINY_CHECKPOINT
from tests.model.graph_captures import TracedCapture
from tests.service.engine.helpers import running_engine

torch.set_num_threads(1)

VOCABULARY = 64
EOS = 3
MAX_TARGET_TOKENS = 40
LIMITS = EngineLimits(
    max_rows=12, max_source_tokens=64, max_target_tokens=MAX_TARGET_TOKENS, max_encode_tokens_per_step=40
)
OPTIONS = (
    DecodingOptions(),
    DecodingOptions(max_target_tokens=5),
    DecodingOptions(no_repeat_ngram_size=2),
    DecodingOptions(repetition_penalty=1.5),
    DecodingOptions(min_target_tokens=8),
    DecodingOptions(temperature=1.0, seed=1),
    DecodingOptions(temperature=0.7, top_k=9, seed=2),
    DecodingOptions(temperature=1.3, top_p=0.8, seed=3),
    DecodingOptions(beam_size=2),
    DecodingOptions(beam_size=4, num_hypotheses=3, length_penalty=0.6),
    DecodingOptions(beam_size=5, early_stopping=True, no_repeat_ngram_size=3),
)


def make_checkpoint(name="random", seed=0, **config):
    """A random model in float64 whose targets end by themselves, at different lengths."""
    shape = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = TransformerConfig(
        source_vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        output_bias=True,
        tie_output=False,
        **(shape | config),
    )
    model = Transformer(config, seed=seed).double().eval().requires_grad_(False)
    model.output.weight.mul_(4.0)  # Random models are undecided, and repeat themselves; this one less so.
    model.output.bias[config.eos_id] = 9.0
    tokenizer = SimpleNamespace(unk_id=1, bos_id=2)
    return Checkpoint(name, "en", "fr", config, model, tokenizer, "r", {})


CHECKPOINT = make_checkpoint()


def make_sequence(generator, options=None, max_length=30):
    length = generator.randrange(0, max_length)
    ids = tuple(generator.randrange(4, VOCABULARY) for _ in range(length))
    return SequenceRequest((*ids, EOS), options or generator.choice(OPTIONS))


def alone(sequence, checkpoint=CHECKPOINT):
    """The hypotheses' tokens when the sequence is all there is."""
    options = sequence.options
    if options.max_target_tokens is None:
        limit = min(target_limit(checkpoint.config, len(sequence.source_ids)), MAX_TARGET_TOKENS)
        options = replace(options, max_target_tokens=max(limit, options.min_target_tokens))
    (hypotheses,) = generate(
        checkpoint.model,
        [sequence.source_ids],
        options,
        forbidden_ids=forbidden_outputs(checkpoint.config, checkpoint.tokenizer),
    )
    return [hypothesis.tokens for hypothesis in hypotheses]


class Loop:
    """Scheduler and runner, stepped by the test."""

    def __init__(self, checkpoints=(CHECKPOINT,), limits=LIMITS, **how):
        self.runner = Runner(checkpoints, limits, **how)
        self.scheduler = Scheduler(self.runner.models(), limits)
        self.results = {}
        self.failures = {}
        self.told = {}
        self.num_rows = []

    def submit(self, request_id, *sequences, model="random", with_log_probs=False):
        self.scheduler.submit(EngineRequest(request_id, model, sequences, with_log_probs=with_log_probs))

    def step(self):
        result = self.runner.execute(self.scheduler.schedule())
        self.num_rows.append(result.num_rows)
        for update in result.updates:
            owner = self.scheduler.owner(update.sequence_id)
            self.told[owner] = self.told.get(owner, ()) + update.new_token_ids
            if update.is_final:
                self.scheduler.finish(update.sequence_id)
                self.failures[owner] = update.failure
                self.results[owner] = update.hypotheses
        self.scheduler.check_integrity()
        return result

    def run(self):
        while not self.scheduler.is_idle:
            self.step()
        assert self.step().num_rows == 0

    def tokens(self, request_id, index=0):
        return [hypothesis.tokens for hypothesis in self.results[request_id, index]]


def _bytes_held(runner):
    """Pages and sources of all batches, what is shared counted once."""
    held = 0
    for lane, batch in runner._lanes.items():
        if lane.is_native:
            held += batch._batch.num_held_bytes
        elif batch._state is not None:
            sources = {memory.data_ptr(): memory.nbytes for memory in batch._state._memories}
            held += batch._state._pool.num_used * batch._state._pool.page_bytes + sum(sources.values())
    return held


@pytest.mark.parametrize("seed", range(3))
def test_no_more_cache_is_held_than_is_reserved(seed):
    checkpoint = make_checkpoint(seed=seed)
    checkpoint.model.float().quantize()
    if not checkpoint.model.cache_page_tokens:
        pytest.skip("no kernels: caches are rectangles, which this does not hold for")
    generator = random.Random(seed)
    loop = Loop((checkpoint,))
    for index in range(14):
        loop.submit(str(index), make_sequence(generator, OPTIONS[index % len(OPTIONS)]))
    most = 0
    while not loop.scheduler.is_idle:
        loop.step()
        held = _bytes_held(loop.runner)
        assert held <= loop.scheduler._slots.used_cache_bytes
        most = max(most, held)
    assert most > 0


def test_judge_is_worth_something():
    """The sequences of these tests end at different lengths, by themselves, and depend on their sources."""
    generator = random.Random(0)
    results = [alone(make_sequence(generator, OPTIONS[0]))[0] for _ in range(30)]
    assert len(set(results)) > 15
    assert len({len(tokens) for tokens in results}) > 8
    assert sum(tokens[-1] == EOS for tokens in results) > 10


@pytest.mark.parametrize("seed", range(8))
def test_continuous_batch_equals_alone_in_any_order_of_arrival(seed):
    generator = random.Random(seed)
    loop = Loop()
    requests = {f"r{i}": [make_sequence(generator) for _ in range(generator.choice([1, 1, 1, 4]))] for i in range(12)}
    for request_id, sequences in requests.items():
        loop.submit(request_id, *sequences)
        for _ in range(generator.choice([0, 0, 1, 3, 10])):
            loop.step()
    loop.run()
    assert max(loop.num_rows) > 6
    for request_id, sequences in requests.items():
        for index, sequence in enumerate(sequences):
            assert loop.tokens(request_id, index) == alone(sequence), sequence.options


def test_long_sources_sit_out_steps_of_short_ones_and_translate_the_same(monkeypatch):
    limits = replace(LIMITS, max_source_tokens=200, max_encode_tokens_per_step=400)
    loop = Loop(limits=limits)
    turns = itertools.cycle((False, False, True))
    monkeypatch.setattr(loop.runner._turns, "is_due", lambda seconds: next(turns))
    generator = random.Random(2)
    long = SequenceRequest((*(generator.randrange(4, VOCABULARY) for _ in range(150)), EOS), OPTIONS[9])
    options = DecodingOptions(min_target_tokens=12, max_target_tokens=12)
    short = [make_sequence(generator, options) for _ in range(3)]
    for index, sequence in enumerate(short):
        loop.submit(str(index), sequence)
    for request_id in ("long", "gone"):
        loop.submit(request_id, long)
    loop.step()
    loop.scheduler.cancel("gone")  # before its turn has come
    loop.run()
    assert loop.num_rows[:9] == [3, 3, 3 + 1, 3, 3, 3 + 4, 3, 3, 3 + 4]
    assert loop.tokens("long") == alone(long)
    assert [loop.tokens(str(index)) for index in range(len(short))] == [alone(sequence) for sequence in short]


def test_turns_are_by_time_and_nobody_waits_for_ever():
    turns = _Turns()
    assert turns.is_due(0.001)  # nothing is known of them yet
    turns.taken(0.008)
    assert [turns.is_due(0.003) for _ in range(3)] == [False, False, True]
    turns.taken(1.0)
    assert [turns.is_due(0.001) for _ in range(65)] == [False] * 64 + [True]
    turns.taken(0.002)
    assert turns.is_due(0.005)  # long ones are cheap: all step together


def test_steps_of_fixed_shapes_replayed_from_a_recording_translate_the_same():
    """As CUDA graphs do, with what stands for them where there is no GPU."""
    capture = TracedCapture()
    limits = replace(LIMITS, max_rows=10, kv_cache_bytes=2**20)
    loop = Loop((make_checkpoint(),), limits, capture=capture)
    generator = random.Random(5)
    requests = {str(index): make_sequence(generator, options, 12) for index, options in enumerate(OPTIONS)}
    for request_id, sequence in requests.items():
        loop.submit(request_id, sequence)
        loop.step()
    loop.run()
    (batch,) = loop.runner._lanes.values()
    assert batch._model._graphs._pool.num_used == 0
    assert capture.num_replays > 2 * capture.num_captures > 0
    for request_id, sequence in requests.items():
        assert loop.tokens(request_id) == alone(sequence), sequence.options


@pytest.mark.parametrize(
    "config",
    [
        {"norm": "pre", "final_norm": True},
        {"positions": "rotary"},
        {"positions": "learned", "max_positions": 64},
        {"num_encoder_layers": 1, "num_decoder_layers": 3, "activation": "swish", "sinusoid_layout": "halves"},
    ],
    ids=lambda config: next(iter(config.values())),
)
def test_continuous_batch_equals_alone_for_other_architectures(config):
    checkpoint = make_checkpoint(**config)
    generator = random.Random(1)
    loop = Loop([checkpoint])
    sequences = [make_sequence(generator) for _ in range(14)]
    for index, sequence in enumerate(sequences):
        loop.submit(str(index), sequence)
        loop.step()
    loop.run()
    for index, sequence in enumerate(sequences):
        assert loop.tokens(str(index)) == alone(sequence, checkpoint)


def test_late_joiner_beside_a_row_far_along():
    generator = random.Random(2)
    loop = Loop()
    early = make_sequence(generator, DecodingOptions(min_target_tokens=MAX_TARGET_TOKENS))
    late = make_sequence(generator, OPTIONS[0], max_length=60)
    loop.submit("early", early)
    for _ in range(30):
        loop.step()
    loop.submit("late", late)
    loop.run()
    assert loop.tokens("early") == alone(early)
    assert loop.tokens("late") == alone(late)


def test_models_run_side_by_side_with_one_budget():
    checkpoints = [make_checkpoint("a", seed=1), make_checkpoint("b", seed=2, d_model=32, num_decoder_layers=1)]
    generator = random.Random(3)
    loop = Loop(checkpoints)
    sequences = [make_sequence(generator) for _ in range(20)]
    for index, sequence in enumerate(sequences):
        loop.submit(str(index), sequence, model="ab"[index % 2])
    loop.run()
    assert max(loop.num_rows) <= LIMITS.max_rows
    for index, sequence in enumerate(sequences):
        assert loop.tokens(str(index)) == alone(sequence, checkpoints[index % 2])
    assert [info.cache_bytes_per_token for info in loop.runner.models()] == [2 * 2 * 16 * 8, 2 * 1 * 32 * 8]


def test_beam_gives_as_many_hypotheses_as_asked_for_best_first():
    loop = Loop()
    loop.submit("r", make_sequence(random.Random(4), DecodingOptions(beam_size=4, num_hypotheses=3)))
    loop.run()
    hypotheses = loop.results["r", 0]
    assert len({hypothesis.tokens for hypothesis in hypotheses}) == 3
    scores = [hypothesis.score for hypothesis in hypotheses]
    assert scores == sorted(scores, reverse=True)


def test_greedy_carries_log_probs_only_when_asked():
    loop = Loop()
    sequence = make_sequence(random.Random(5), OPTIONS[0])
    loop.submit("with", sequence, with_log_probs=True)
    loop.submit("without", sequence)
    loop.run()
    assert loop.results["with", 0][0].log_prob < 0
    assert loop.results["without", 0][0].log_prob is None
    assert loop.tokens("with") == loop.tokens("without")


def test_forced_prefix_begins_every_hypothesis():
    loop = Loop()
    source = make_sequence(random.Random(6)).source_ids
    for options in (OPTIONS[0], OPTIONS[5], OPTIONS[9]):
        loop.submit(str(options), SequenceRequest(source, options, forced_prefix=(7, 8, 9)))
    loop.run()
    assert len(loop.results) == 3
    for hypotheses in loop.results.values():
        assert all(hypothesis.tokens[:3] == (7, 8, 9) for hypothesis in hypotheses)


def test_what_updates_tell_is_the_result():
    generator = random.Random(7)
    loop = Loop()
    sequences = [make_sequence(generator, options) for options in OPTIONS]
    loop.submit("r", *sequences)
    loop.run()
    for index, sequence in enumerate(sequences):
        told = loop.told["r", index]
        if sequence.options.beam_size > 1 or sequence.options.repetition_penalty != 1.0:
            assert told == ()
        else:
            assert told == loop.results["r", index][0].tokens_without_eos


def test_cancelled_rows_leave_at_once_and_neighbours_do_not_notice():
    generator = random.Random(8)
    loop = Loop()
    long = DecodingOptions(min_target_tokens=30)
    stays = [make_sequence(generator, options) for options in (long, OPTIONS[9], OPTIONS[5])]
    loop.submit("before", stays[0])
    loop.submit("leaves", make_sequence(generator, DecodingOptions(beam_size=3, min_target_tokens=30)))
    loop.submit("after", *stays[1:])
    for _ in range(5):
        loop.step()
    rows = loop.num_rows[-1]
    loop.scheduler.cancel("leaves")
    loop.step()
    assert loop.num_rows[-1] <= rows - 3
    loop.run()
    assert loop.tokens("before") == alone(stays[0])
    assert loop.tokens("after", 0) == alone(stays[1])
    assert loop.tokens("after", 1) == alone(stays[2])


def test_departure_of_a_sequence_that_is_not_there_is_no_error():
    runner = Runner([CHECKPOINT], LIMITS)
    assert runner.execute(SchedulerOutput(departed=(5,))).num_rows == 0


@pytest.mark.parametrize("kind", [0, 5, 9], ids=["greedy", "sampling", "beam"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_poisoned_sequence_does_not_hurt_its_neighbours(kind, value, monkeypatch):
    generator = random.Random(9)
    poisoned = SequenceRequest((63, 62, 61, EOS), replace(OPTIONS[kind], min_target_tokens=10))
    kinds = [replace(options, min_target_tokens=10) for options in (OPTIONS[0], OPTIONS[kind], OPTIONS[9], OPTIONS[5])]
    others = [make_sequence(generator, options) for options in kinds]  # Nobody else leaves in the same step.
    loop = Loop(limits=replace(LIMITS, max_rows=20, max_encode_tokens_per_step=1000))
    for index, sequence in enumerate([*others[:2], poisoned, *others[2:]]):
        loop.submit(str(index), sequence)

    decode_step = CHECKPOINT.model.decode_step_summarized
    num_calls = 0

    def decode_step_with_poison(tokens, state, reads):
        nonlocal num_calls
        logits, summary = decode_step(tokens, state, reads)
        num_calls += 1
        if num_calls == 3:
            (batch,) = loop.runner._lanes.values()
            (poisoned_id,) = loop.scheduler._requests["2"].running
            (rows,) = [place.rows for place in batch._placed() if place.sequence.sequence_id == poisoned_id]
            logits[rows[-1]] = value
        return logits, summary

    monkeypatch.setattr(CHECKPOINT.model, "decode_step_summarized", decode_step_with_poison)
    loop.run()
    monkeypatch.undo()
    assert loop.failures == {("2", 0): NOT_FINITE} | {(name, 0): None for name in "0134"}
    for name, sequence in zip("0134", others, strict=True):
        assert loop.tokens(name) == alone(sequence)


def test_weights_that_give_nan_for_one_token_fail_only_the_source_that_holds_it():
    checkpoint = make_checkpoint(share_embeddings=False)
    checkpoint.model.source_embedding.weight[63] = float("nan")
    generator = random.Random(10)
    loop = Loop([checkpoint])
    good = [make_sequence(generator, OPTIONS[i % 11]) for i in range(8)]
    good = [sequence for sequence in good if 63 not in sequence.source_ids]
    loop.submit("bad", SequenceRequest((63, EOS)))
    loop.submit("good", *good)
    loop.run()
    assert loop.failures["bad", 0] == NOT_FINITE
    assert len(good) > 3
    for index, sequence in enumerate(good):
        assert loop.tokens("good", index) == alone(sequence, checkpoint)


def test_all_sequences_of_a_step_may_fail():
    checkpoint = make_checkpoint()
    loop = Loop([checkpoint])
    loop.submit("a", make_sequence(random.Random(11), OPTIONS[0]), make_sequence(random.Random(11), OPTIONS[9]))
    checkpoint.model.output.bias.fill_(float("nan"))
    loop.run()
    assert list(loop.failures.values()) == [NOT_FINITE] * 2


def test_model_that_gives_only_nan_is_found_at_the_start():
    checkpoint = make_checkpoint()
    checkpoint.model.output.bias.fill_(float("nan"))
    with pytest.raises(RuntimeError, match="'random' cannot be used"):
        Runner([checkpoint], LIMITS).warm_up()


def test_warm_up_leaves_nothing_behind():
    loop = Loop()
    loop.runner.warm_up()
    loop.run()
    assert loop.num_rows == [0]


def test_two_models_of_one_name_are_refused():
    with pytest.raises(ValueError, match="'random', 'random'"):
        Runner([CHECKPOINT, CHECKPOINT], LIMITS)
    with pytest.raises(ValueError, match="must be one"):
        Runner([], LIMITS)


def test_learned_positions_limit_what_a_model_takes():
    checkpoint = make_checkpoint(positions="learned", max_positions=20)
    (info,) = Runner([checkpoint], LIMITS).models()
    assert (info.max_source_tokens, info.max_target_tokens) == (20, 20)
    loop = Loop([checkpoint])
    loop.submit("r", SequenceRequest((*[5] * 19, EOS), DecodingOptions(min_target_tokens=20)))
    loop.run()
    assert len(loop.tokens("r")[0]) == 20


@pytest.mark.parametrize(
    ("precision", "kernels", "held"),
    [("float32", True, "float32"), ("int8", True, "int8"), ("auto", True, "int8"), ("auto", False, "float32")],
)
def test_precision_is_as_asked_or_as_the_processor_can(precision, kernels, held, monkeypatch):
    if kernels and not has_int8_kernels():
        pytest.skip("torch has no int8 kernels for this processor")
    monkeypatch.setattr("model.transformer.has_int8_kernels", lambda: kernels)
    checkpoint = load_checkpoint(TINY_CHECKPOINT)
    runner = Runner([checkpoint], LIMITS, precision=precision)
    assert runner.models()[0].precision == held
    assert checkpoint.model.is_quantized == (held == "int8")
    runner.warm_up()


def test_whole_engine_on_a_checkpoint_from_disk():
    checkpoint = load_checkpoint(TINY_CHECKPOINT)
    ids = [
        checkpoint.tokenizer.encode(text, "en", add_eos=True).ids
        for text in ("Hello.", "The spider feels the web.", "How many trains leave on Sunday?")
    ]

    async def scenario():
        async with running_engine(Runner([checkpoint], LIMITS), LIMITS) as engine:
            sequences = tuple(SequenceRequest(ids[i % 3], OPTIONS[i]) for i in range(11))
            batch = EngineRequest("batch", "tiny", sequences)
            events = []

            async def listen():
                async for event in engine.stream(EngineRequest("stream", "tiny", (SequenceRequest(ids[1]),))):
                    events.append(event)

            result, _ = await asyncio.gather(engine.submit(batch), listen())
            return result, events

    result, events = asyncio.run(scenario())
    for i, sequence in enumerate(result.sequences):
        expected = alone(SequenceRequest(ids[i % 3], OPTIONS[i]), checkpoint)
        assert [hypothesis.tokens for hypothesis in sequence.hypotheses] == expected
    streamed = [token for event in events if isinstance(event, TokensEvent) for token in event.token_ids]
    assert tuple(streamed) == events[-1].result.sequences[0].hypotheses[0].tokens_without_eos
    assert tuple(streamed) == alone(SequenceRequest(ids[1]), checkpoint)[0][: len(streamed)]


@pytest.mark.skipif(kernels() is None, reason="the kernels were not compiled")
def test_runners_of_one_small_model_decode_at_the_same_time_what_each_decodes_alone():
    checkpoint = load_checkpoint(TINY_CHECKPOINT, torch.device("cpu"), precision="int8")
    limits = EngineLimits(max_rows=64, max_source_tokens=64, max_target_tokens=300)
    runner = Runner([checkpoint], limits, 2)
    generator = random.Random(5)
    options = (DecodingOptions(beam_size=3), DecodingOptions(), DecodingOptions(temperature=1.0, seed=1))
    size = checkpoint.config.source_vocab_size
    newcomers = [
        Newcomer(
            number,
            (*(generator.randrange(4, size) for _ in range(generator.randrange(1, 40))), checkpoint.config.eos_id),
            options[number % 3],
            (),
            300 if number < 3 else 20,  # beyond the table of positions as it is at first
            False,
        )
        for number in range(24)
    ]

    def run(runner, newcomers):
        found = {}
        output = SchedulerOutput(groups=(EncodeGroup(checkpoint.name, tuple(newcomers)),))
        while len(found) < len(newcomers):
            updates = runner.execute(output).updates
            found |= {update.sequence_id: update.hypotheses for update in updates if update.is_final}
            output = SchedulerOutput()
        return found

    together = run(Runner([checkpoint], limits, 1), newcomers)
    runners = [runner, *runner.beside()]
    assert len(runners) == 2
    with ThreadPoolExecutor(2) as threads:
        parts = list(threads.map(run, runners, (newcomers[::2], newcomers[1::2])))
    assert parts[0] | parts[1] == together


def test_nothing_is_beside_a_runner_of_one_thread_or_without_our_kernels():
    checkpoint = load_checkpoint(TINY_CHECKPOINT, torch.device("cpu"), precision="int8")
    assert Runner([checkpoint], LIMITS, 1).beside() == []
    assert Runner([CHECKPOINT], LIMITS, 2).beside() == []
    torch.set_num_threads(1)
