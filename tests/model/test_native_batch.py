"""Search in the kernels: what `model/search.py` finds, whoever is beside it and however many steps a call has."""

import ctypes
import random
import threading
import time

import pytest
import torch

from model.config import TransformerConfig
from model.decoding import DecodingOptions
from model.generation import generate
from model.native.batch import NativeBatch, Wanted
from model.native.library import kernels
from model.search import advance_batch, start_search
from model.transformer import Transformer

pytestmark = pytest.mark.skipif(kernels() is None, reason="needs the compiled kernels")

VOCABULARY = 64
EOS = 3
FORBIDDEN = (0, 1, 2)
LIMIT = 40
OPTIONS = (
    DecodingOptions(),
    DecodingOptions(max_target_tokens=5),
    DecodingOptions(no_repeat_ngram_size=1),
    DecodingOptions(no_repeat_ngram_size=2),
    DecodingOptions(no_repeat_ngram_size=1000),
    DecodingOptions(min_target_tokens=20),
    DecodingOptions(beam_size=2, num_hypotheses=2),
    DecodingOptions(beam_size=4, num_hypotheses=3, length_penalty=0.6),
    DecodingOptions(beam_size=4, num_hypotheses=4, length_penalty=-1.0, min_target_tokens=6),
    DecodingOptions(beam_size=5, num_hypotheses=5, early_stopping=True, no_repeat_ngram_size=3),
    DecodingOptions(beam_size=16, num_hypotheses=16, length_penalty=2.0),
    DecodingOptions(beam_size=4, num_hypotheses=4, beam_threshold=0.5),
    DecodingOptions(beam_size=16, num_hypotheses=16, beam_threshold=2.0, length_penalty=0.0),
    DecodingOptions(beam_size=4, num_hypotheses=4, beam_threshold=0.0, min_target_tokens=9),
)


def make_model(seed=0):
    config = TransformerConfig(
        source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY, d_model=16, num_heads=2, d_ff=32,
        num_encoder_layers=2, num_decoder_layers=2, output_bias=True, tie_output=False,
    )  # fmt: skip
    model = Transformer(config, seed=seed).eval().requires_grad_(False)
    model.output.weight.mul_(4.0)  # Random models are undecided, and repeat themselves; this one less so.
    model.output.bias[EOS] = 9.0
    model.quantize()
    return model


MODEL = make_model()


def make_source(generator):
    return [*(generator.randrange(4, VOCABULARY) for _ in range(generator.randrange(20))), EOS]


def alone(source, options, prefix=()):
    """What Python's search finds for one sequence that has the model to itself."""
    search = start_search(options, eos_id=EOS, max_tokens=LIMIT, forbidden_ids=FORBIDDEN, forced_prefix=prefix)
    state = MODEL.prefill([source])
    tokens = [MODEL.config.decoder_start_id]
    while not search.finished:
        logits, summary = MODEL.decode_step_summarized(torch.tensor(tokens), state)
        (step,) = advance_batch([search], logits, summary)
        tokens = step.tokens
        state.select(step.parents)
    return search.hypotheses()


def make_batch():
    book = MODEL.native_book()
    return MODEL.native_batch(book, FORBIDDEN), book


def run(batch, newcomers, generator):
    """Sequences join in turns and are decoded in calls of one step to many."""
    waiting, ended = list(newcomers), {}
    while waiting or batch.num_rows:
        count = generator.randrange(4)
        batch.join(waiting[:count]) if waiting and count else None
        waiting = waiting[count:]
        ended |= {each.key: each for each in batch.advance(generator.choice([1, 2, 50])).ended}
    return ended


def assert_alike(found, wanted):
    assert [each.tokens for each in found] == [each.tokens for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.finish_reason == other.finish_reason
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_finds_what_search_in_python_finds_whoever_is_beside_it(seed):
    generator = random.Random(seed)
    batch, book = make_batch()
    newcomers = [Wanted(key, make_source(generator), OPTIONS[key % len(OPTIONS)], LIMIT) for key in range(42)]
    ended = run(batch, newcomers, generator)
    for one in newcomers:
        assert_alike(ended[one.key].hypotheses, alone(one.source_ids, one.options))
    assert book.num_used == 0
    lengths = {len(each.hypotheses[0].tokens) for each in ended.values()}
    assert len(lengths) > 5, "a judge that always says the same is none"


@pytest.mark.parametrize("with_log_probs", [True, False])
def test_greedy_searches_among_themselves_need_no_logits(with_log_probs):
    generator = random.Random(5)
    batch, _ = make_batch()
    greedy = [options for options in OPTIONS if options.beam_size == 1]
    newcomers = [
        Wanted(key, make_source(generator), greedy[key % len(greedy)], LIMIT, prefix, with_log_probs)
        for key, prefix in enumerate([(), (7, 9), (), (11,)] * 6)
    ]
    ended = run(batch, newcomers, generator)
    for one in newcomers:
        (found,), (wanted,) = ended[one.key].hypotheses, alone(one.source_ids, one.options, one.forced_prefix)
        assert found.tokens == wanted.tokens
        if with_log_probs:
            assert_alike([found], [wanted])
        else:
            assert found.token_log_probs is None


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[7]], ids=["greedy", "beam"])
def test_forced_prefix_is_written_even_where_it_is_forbidden(options):
    generator = random.Random(3)
    source, prefix = make_source(generator), (7, FORBIDDEN[1], 9)
    batch, _ = make_batch()
    batch.join([Wanted(0, source, options, LIMIT, prefix)])
    (ended,) = batch.advance(100).ended
    assert all(each.tokens[:3] == prefix for each in ended.hypotheses)
    assert_alike(ended.hypotheses, alone(source, options, prefix))


def test_same_as_generate_with_log_probs_left_out():
    generator = random.Random(4)
    sources = [make_source(generator) for _ in range(6)]
    batch, _ = make_batch()
    batch.join([Wanted(key, source, OPTIONS[1], LIMIT, (), False) for key, source in enumerate(sources)])
    ended = {each.key: each for each in run(batch, [], generator).values()}
    for key, source in enumerate(sources):
        ((wanted,),) = generate(MODEL, [source], OPTIONS[1], forbidden_ids=FORBIDDEN)
        (found,) = ended[key].hypotheses
        assert (found.tokens, found.finish_reason, found.token_log_probs) == (wanted.tokens, wanted.finish_reason, None)


def test_new_tokens_of_a_greedy_sequence_are_told_once_and_all():
    source = make_source(random.Random(5))
    options = DecodingOptions(min_target_tokens=12)
    batch, _ = make_batch()
    batch.join([Wanted(0, source, options, LIMIT), Wanted(1, source, OPTIONS[8], LIMIT)])
    told, ended = [], ()
    while not ended:
        ended = [each for each in batch.advance(3).ended if each.key == 0]
        told += [token for _, tokens in batch.new_tokens() for token in tokens]
    told += ended[0].new_tokens
    assert tuple(told) == alone(source, options)[0].tokens_without_eos


def test_fewer_rows_go_on_where_a_threshold_gives_some_up():
    source, rows = make_source(random.Random(6)), []
    for threshold in (None, 0.5):
        options = DecodingOptions(beam_size=8, min_target_tokens=20, beam_threshold=threshold)
        batch, book = make_batch()
        batch.join([Wanted(0, source, options, LIMIT)])
        rows.append(batch.advance(20).num_rows)
        assert (len(batch._sequences) > 0) == (book.num_used > 0)
    assert rows[0] == 1 + 19 * 8
    assert 20 <= rows[1] < rows[0] / 2


def test_call_ends_when_a_sequence_does_or_when_somebody_wants_in():
    batch, _ = make_batch()
    options = [DecodingOptions(min_target_tokens=count, max_target_tokens=count) for count in (3, 30)]
    batch.join([Wanted(key, [5, 6, EOS], one, LIMIT) for key, one in enumerate(options)])
    advance = batch.advance(100)
    assert (advance.num_steps, advance.num_rows, [each.key for each in advance.ended]) == (3, 6, [0])
    assert batch.advance(4).num_steps == 4
    assert batch.advance(100, max_seconds=0.0).num_steps == 1
    assert batch.advance(100, is_wanted=ctypes.c_int32(1)).num_steps == 1
    advance = batch.advance(100)
    assert (advance.num_steps, [each.key for each in advance.ended]) == (30 - 3 - 4 - 1 - 1, [1])
    assert batch.advance(100).num_steps == 0


def test_another_thread_can_end_a_call():
    batch, _ = make_batch()
    endless = DecodingOptions(beam_size=16, min_target_tokens=100_000, max_target_tokens=100_000)
    batch.join([Wanted(0, [5, EOS], endless, 100_000)])
    wanted = ctypes.c_int32()
    timer = threading.Timer(0.05, lambda: setattr(wanted, "value", 1))
    timer.start()
    started = time.monotonic()
    advance = batch.advance(100_000, is_wanted=wanted)
    timer.join()
    assert 1 <= advance.num_steps < 100_000
    assert time.monotonic() - started < 20


def test_what_is_dropped_gives_its_pages_back():
    batch, book = make_batch()
    options = DecodingOptions(beam_size=4, min_target_tokens=30)
    batch.join([Wanted(key, [5, 6, EOS], options, LIMIT) for key in range(3)])
    batch.advance(20)
    assert book.num_used > 0
    batch.drop({0, 2, 7})
    assert batch.num_rows == 4
    batch.drop({1})
    assert (batch.num_rows, book.num_used) == (0, 0)


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[7]], ids=["greedy", "beam"])
def test_numbers_that_are_not_finite_fail_their_own_sequence_only(options):
    model = make_model(seed=1)
    model.source_embedding.weight[63] = float("nan")
    book = model.native_book()
    batch = model.native_batch(book, FORBIDDEN)
    batch.join([Wanted(key, source, options, LIMIT) for key, source in enumerate(([5, 6, EOS], [63, EOS]))])
    ended = run(batch, [], random.Random(0))
    assert (ended[1].is_finite, ended[1].hypotheses) == (False, ())
    assert ended[0].is_finite and ended[0].hypotheses
    assert book.num_used == 0


def test_where_everything_is_banned_the_sentence_may_end():
    batch, _ = make_batch()
    free = VOCABULARY - len(FORBIDDEN) - 1  # and eos, which is not allowed yet
    for beam_size in (1, 2):
        options = DecodingOptions(
            beam_size=beam_size, no_repeat_ngram_size=1, min_target_tokens=free + 5, max_target_tokens=free + 9
        )
        batch.join([Wanted(beam_size, [5, EOS], options, 1000)])
    ended = run(batch, [], random.Random(0))
    for one in ended.values():
        (hypothesis,) = one.hypotheses[:1]
        assert hypothesis.tokens[-1] == EOS and len(hypothesis.tokens) == free + 1
        assert len(set(hypothesis.tokens)) == free + 1


def test_searches_that_the_kernels_do_not_know_are_named():
    assert NativeBatch.can_search(OPTIONS[10], VOCABULARY)
    assert not NativeBatch.can_search(OPTIONS[10], 32)  # all of the vocabulary would be candidates
    assert not NativeBatch.can_search(DecodingOptions(temperature=0.5), VOCABULARY)
    assert not NativeBatch.can_search(DecodingOptions(repetition_penalty=1.1), VOCABULARY)
