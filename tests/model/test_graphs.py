"""Decode steps of fixed shapes, on the processor: against ordinary steps, and replayed from a recording."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from model.decoding import DecodingOptions
from model.generation import generate
from model.graphs import BestSummary, GraphState, OutOfPages, _report, rungs
from model.search import best_tokens, candidates
from tests.model.company import check_any_company
from tests.model.graph_captures import TracedCapture
from tests.model.tiny import VARIATIONS, VOCAB_SIZE, prefill, random_sources, step, tiny_model

torch.set_num_threads(1)


def graph_model(capture=None, *, max_rows=24, longest=64, num_pages=200, **changes):
    """In float64, where the noise of another order of sums cannot turn one token into another."""
    model = tiny_model(**changes).double().requires_grad_(False)
    config = model.config
    cache_bytes = num_pages * 16 * 2 * config.num_decoder_layers * config.d_model * 8
    with torch.no_grad():
        model.use_graphs(max_rows=max_rows, max_positions=longest, cache_bytes=cache_bytes, capture=capture)
    return model


def ordinary(model):
    """The same weights with caches that are rectangles."""
    twin = type(model)(model.config).double().eval().requires_grad_(False)
    twin.load_state_dict(model.state_dict())
    return twin


def close(got, expected):
    torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("most", [1, 2, 5, 24, 100, 128, 256])
def test_rungs_waste_little(most):
    sizes = rungs(most)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == most
    for rows in range(1, most + 1):
        assert next(size for size in sizes if size >= rows) < 2 * rows


SPECIAL = ("rotary positions", "learned positions")
"""What differs in the operations of a step; to record one takes a second."""


@pytest.mark.parametrize(
    ("name", "is_traced"), [*((name, False) for name in VARIATIONS), *((name, True) for name in SPECIAL)]
)
def test_steps_give_the_logits_of_the_ordinary_ones(name, is_traced):
    capture = TracedCapture() if is_traced else None
    model = graph_model(capture, max_rows=6, longest=24, **VARIATIONS[name])
    sources = random_sources([3, 17, 9, 1, 20])
    state, expected_state = prefill(model, sources), prefill(ordinary(model), sources)
    assert isinstance(state, GraphState)
    twin = ordinary(model)
    generator = random.Random(1)
    for position in range(20):
        tokens = [model.config.decoder_start_id if not position else generator.randrange(VOCAB_SIZE) for _ in sources]
        close(step(model, state, tokens), step(twin, expected_state, tokens))
    if capture is not None:
        assert capture.num_replays == 20


_MODEL = graph_model(num_encoder_layers=1, num_decoder_layers=2)
_TWIN = ordinary(_MODEL)


def _alone(source, tokens):
    state = prefill(_TWIN, [source])
    return [step(_TWIN, state, [token])[0] for token in tokens][-1]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_rows_that_join_leave_fork_and_change_places_go_on_as_if_alone(data):
    def check(logits, source, tokens):
        close(logits, _alone(source, tokens))

    check_any_company(data, _MODEL, _MODEL._graphs._pool, check, longest_source=40, most_steps=60)


SEARCHES = (
    DecodingOptions(max_target_tokens=20, no_repeat_ngram_size=2),
    DecodingOptions(beam_size=4, num_hypotheses=3, max_target_tokens=20, length_penalty=0.7),
    DecodingOptions(beam_size=5, max_target_tokens=20, min_target_tokens=6, repetition_penalty=1.3),
    DecodingOptions(temperature=1.0, seed=3, max_target_tokens=20),
)


def test_searches_in_recorded_steps_find_the_same_tokens():
    capture = TracedCapture()
    model = graph_model(capture, max_rows=10, seed=3)
    twin = ordinary(model)
    sources = random_sources([4, 9], seed=2)
    for options in SEARCHES:
        got, expected = (generate(each, sources, options, max_batch_rows=10) for each in (model, twin))
        for mine, theirs in zip(got, expected, strict=True):
            assert [each.tokens for each in mine] == [each.tokens for each in theirs]
            for one, other in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(one.token_log_probs, other.token_log_probs, atol=1e-4)
    assert capture.num_replays > capture.num_captures > 0


class NoLooking(TorchDispatchMode):
    """Refuses what makes a processor wait for a GPU: numbers read from a tensor, and shapes that depend on them."""

    REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "item", "is_nonzero", "equal")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert not name.startswith(self.REFUSED), f"{name} looks at numbers"
        indices = args[1] if name.startswith("index") and isinstance(args[1], list | tuple) else ()
        for index in indices:
            assert index is None or index.dtype != torch.bool, "a mask as an index is a nonzero"
        return function(*args, **(kwargs or {}))


def test_a_step_with_all_that_goes_with_it_looks_at_no_number():
    model = graph_model()
    state = prefill(model, random_sources([4, 20, 7]))
    tokens = torch.tensor([5, 6, 7])
    with torch.no_grad(), NoLooking():
        for _ in range(18):  # pages are begun on the way
            model.decode_step_summarized(tokens, state)
        state.select([0, 0, 2])  # and one is copied
        model.decode_step_summarized(tokens, state)
        state.join(model.prefill(random_sources([5])))
        _, summary = model.decode_step_summarized(torch.tensor([5, 6, 7, 2]), state)
        assert summary.best_tokens()[1].shape == (4,)


def test_the_refusal_would_see_it():
    with pytest.raises(AssertionError, match="looks at numbers"), NoLooking():
        torch.ones(2).sum().item()
    with pytest.raises(AssertionError, match="a mask as an index"), NoLooking():
        torch.ones(2)[torch.tensor([True, False])]


def test_a_page_does_not_hand_on_what_was_not_finite():
    model = graph_model(num_pages=2)
    expected = step(model, prefill(model, random_sources([4])), [5]).clone()
    poisoned = prefill(model, random_sources([4]))
    step(model, poisoned, [5])
    model._graphs._pool.numbers[:, :, 32:] = float("nan")  # all that is ever lent
    del poisoned
    state = prefill(model, random_sources([4]))
    assert torch.equal(step(model, state, [5]), expected)


def test_padding_rows_leave_the_page_of_zeros_alone():
    model = graph_model(max_rows=8)
    state = prefill(model, random_sources([4, 5, 6, 7, 8]))
    for _ in range(17):
        step(model, state, [5, 6, 7, 8, 9])
    assert not model._graphs._pool.numbers[:, :, :16].any()


def test_more_pages_or_rows_than_there_are_is_an_error_that_says_how_many():
    model = graph_model(num_pages=3, max_rows=2)
    with pytest.raises(OutOfPages, match="all 3 pages"):
        prefill(model, random_sources([60]))
    state = prefill(model, random_sources([1, 1, 1]))
    assert model._graphs._pool.num_used == 3
    with pytest.raises(OutOfPages):
        step(model, state, [5, 5, 5])
    del state
    wide = graph_model(max_rows=2)
    with pytest.raises(ValueError, match="3 rows in a step; there is room for 2"):
        step(wide, prefill(wide, random_sources([1, 1, 1])), [5, 5, 5])


def test_what_cannot_be_captured_runs_as_it_is(caplog):
    def fail(step, buffers):
        raise RuntimeError("operation not permitted when stream is capturing")

    model = graph_model(fail, max_rows=2)
    model.capture_steps()
    assert model._graphs.num_captured == 0
    assert "cannot be captured" in caplog.text
    sources = random_sources([4, 9])
    close(
        step(model, prefill(model, sources), [5, 6]), step(ordinary(model), prefill(ordinary(model), sources), [5, 6])
    )


def test_no_more_is_captured_than_is_allowed(monkeypatch):
    monkeypatch.setattr("model.graphs.MAX_GRAPHS", 3)
    model = graph_model(lambda step, buffers: lambda: step(*buffers), max_rows=8)
    model.capture_steps()
    assert model._graphs.num_captured == 3
    assert len(model._graphs._steps) > 3


def _summary(logits, num_best):
    found = torch.zeros(len(logits), 2 * num_best + 1, dtype=torch.int32)
    _report(logits, found, num_best)
    values, ids = found[:, :num_best].view(torch.float32), found[:, num_best:-1].long()
    return BestSummary(logits, torch.arange(len(logits)), values, ids, found[:, -1].view(torch.float32))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), rows=st.integers(1, 5), k=st.sampled_from([1, 2, 8]), coarse=st.booleans(),
    size=st.sampled_from([12, 300, 1500]),
)  # fmt: skip
def test_search_finds_the_same_with_the_best_of_a_step_and_without(seed, rows, k, coarse, size):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, generator=generator) * 3
    if coarse:
        logits = logits.round()  # many ties
    banned = [set(torch.randint(0, size, (3,), generator=generator).tolist()) | {0, 2} for _ in range(rows)]
    if seed % 2:
        banned = [banned[0]] * rows
    for row, tokens in enumerate(banned):
        tokens.add(int(logits[row].argmax()))  # the best of all may not be had
    log_probs = logits.log_softmax(-1)
    for row, tokens in enumerate(banned):
        log_probs[row, list(tokens)] = -torch.inf
    values, ids = candidates(log_probs, k)
    summary = _summary(logits, 12)
    got = summary.candidates(k, banned)
    if got is None:
        is_short = (log_probs > -torch.inf).sum(1).min() < k
        assert coarse or k == 8 or is_short
    else:
        assert torch.equal(got[1], ids)
        torch.testing.assert_close(got[0], values)
    best = best_tokens(logits)[1]
    assert torch.equal(summary.best_tokens()[1], best)
    torch.testing.assert_close(summary.log_probs(best), logits.log_softmax(-1).amax(-1))
    worst = logits.argmin(-1)
    torch.testing.assert_close(summary.log_probs(worst), logits.log_softmax(-1).amin(-1))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_the_best_of_a_step_do_not_hide_what_is_not_finite(poison):
    logits = torch.zeros(2, 1500)
    logits[1, 777] = poison
    if poison == float("-inf"):
        logits[1] = poison
    values, _ = _summary(logits, 64).best_tokens()
    assert values.isfinite().tolist() == [True, False]
