"""Search against judges that share nothing with it: full enumeration, a plain numpy beam search, softmax by hand."""

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.decoding import DecodingOptions, InvalidDecodingOptions
from model.search import (
    ARGMAX_BLOCK_SIZE,
    TOP_K_BLOCK_SIZE,
    BeamSearch,
    Constraints,
    GreedySearch,
    NonFiniteLogits,
    SamplingSearch,
    advance_batch,
    best_tokens,
    candidates,
    start_search,
)

EOS = 0
PAD = 1


class RandomModel:
    """Stands for a decoder: random logits, the same ones whenever the same tokens were written."""

    def __init__(self, seed, vocabulary_size, eos_bonus=0.0):
        self.seed = seed
        self.vocabulary_size = vocabulary_size
        self.eos_bonus = eos_bonus

    def logits(self, tokens):
        logits = np.random.default_rng([self.seed, len(tokens), *tokens]).normal(0, 2, self.vocabulary_size)
        logits[EOS] += self.eos_bonus
        return torch.tensor(logits, dtype=torch.float32)

    def log_probs(self, tokens):
        logits = self.logits(tokens).double().numpy()
        return logits - np.log(np.sum(np.exp(logits)))


class TableModel:
    """Probabilities written out for some prefixes; anywhere else eos is certain."""

    def __init__(self, vocabulary_size, table):
        self.vocabulary_size = vocabulary_size
        self.table = table

    def logits(self, tokens):
        probs = torch.zeros(self.vocabulary_size)
        for token, prob in self.table.get(tuple(tokens), {EOS: 1.0}).items():
            probs[token] = prob
        return probs.log()


def decode_all(searches, models):
    """Runs searches as one batch, each on its own model; the steps taken by each."""
    written = [[[]] for _ in searches]
    steps = [[] for _ in searches]
    while True:
        running = [i for i, search in enumerate(searches) if not search.finished]
        if not running:
            return steps
        logits = torch.stack([models[i].logits(tokens) for i in running for tokens in written[i]])
        for i, step in zip(running, advance_batch([searches[i] for i in running], logits), strict=True):
            written[i] = [[*written[i][p], token] for p, token in zip(step.parents, step.tokens, strict=True)]
            steps[i].append(written[i])
            assert len(written[i]) == searches[i].num_rows <= searches[i].max_rows
            assert searches[i].finished == (not written[i])


def decode(model, options, max_tokens=8, **kwargs):
    search = start_search(options, eos_id=EOS, max_tokens=max_tokens, **kwargs)
    decode_all([search], [model])
    return search.hypotheses()


def all_hypotheses(model, allowed_ids, max_tokens, length_penalty):
    """(score, tokens) of every possible hypothesis, best first."""
    words = [token for token in allowed_ids if token != EOS]
    found = []
    for length in range(1, max_tokens + 1):
        for start in itertools.product(words, repeat=length - 1):
            for last in allowed_ids if length == max_tokens else [EOS]:
                tokens = (*start, last)
                total = sum(model.log_probs(tokens[:i])[token] for i, token in enumerate(tokens))
                found.append((total / length**length_penalty, tokens))
    return sorted(found, reverse=True)


def numpy_beam_search(model, beam_size, length_penalty, max_tokens, early_stopping, threshold=math.inf):
    """Beam search the way Hugging Face writes it: full arrays, b rows from the start, -1e9 where nothing is yet.

    What the threshold gives up keeps its row, at -1e9.

    Returns:
        The running sequences after each step, and the finished (score, tokens), best first.
    """
    running = [()] * beam_size
    totals = np.array([0.0] + [-1e9] * (beam_size - 1))
    done = [(-1e9, None)] * beam_size
    steps = []
    for length in range(1, max_tokens + 1):
        scores = totals[:, None] + np.stack([model.log_probs(tokens) for tokens in running])
        flat = scores.reshape(-1)
        order = np.argsort(-flat, kind="stable")[: 2 * beam_size]
        continued = [(*running[place // scores.shape[1]], int(place % scores.shape[1])) for place in order]
        ends = [tokens[-1] == EOS or length == max_tokens for tokens in continued]
        done += [
            (flat[place] / length**length_penalty, tokens)
            for place, tokens, is_end in list(zip(order, continued, ends, strict=True))[:beam_size]
            if is_end
        ]
        done = sorted(done, key=lambda item: -item[0])[:beam_size]
        is_full = all(tokens is not None for _, tokens in done)
        alive = [i for i, is_end in enumerate(ends) if not is_end][:beam_size]
        if not alive:
            break
        running = [continued[i] for i in alive]
        totals = flat[order[alive]]
        reference = max(flat[order[0]], done[0][0] * length**length_penalty)
        hopeless = totals < reference - threshold
        hopeless[0] &= done[0][1] is not None
        totals[hopeless] = -1e9
        if hopeless.all():
            break
        if is_full and (early_stopping or totals[0] / length**length_penalty <= done[-1][0]):
            break
        steps.append([list(tokens) for tokens, total in zip(running, totals, strict=True) if total > -1e8])
    return [*steps, []], [item for item in done if item[1] is not None]


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_options", "field", "allowed"),
    [
        ({"beam_size": 0}, "beam_size", "an integer from 1 to 16"),
        ({"beam_size": 17}, "beam_size", "an integer from 1 to 16"),
        ({"beam_size": True}, "beam_size", "an integer from 1 to 16"),
        ({"beam_size": 2.0}, "beam_size", "an integer from 1 to 16"),
        ({"length_penalty": math.nan}, "length_penalty", "a number from -10 to 10"),
        ({"length_penalty": "1"}, "length_penalty", "a number from -10 to 10"),
        ({"beam_threshold": 2.5}, "beam_threshold", "none with a beam_size of 1, which has nothing to give up"),
        ({"beam_threshold": -0.5}, "beam_threshold", "a number from 0 to 1000"),
        ({"beam_threshold": math.inf}, "beam_threshold", "a number from 0 to 1000"),
        ({"num_hypotheses": 0}, "num_hypotheses", "an integer from 1 to 16"),
        ({"num_hypotheses": 3, "beam_size": 2}, "num_hypotheses", "at most beam_size, which is 2"),
        ({"temperature": -0.1}, "temperature", "a number from 0 to 100"),
        ({"temperature": math.inf}, "temperature", "a number from 0 to 100"),
        ({"temperature": 1, "beam_size": 4}, "temperature", "only 0 with a beam_size above 1, which is 4"),
        ({"top_k": 0, "temperature": 1}, "top_k", "an integer from 1 to 9223372036854775807"),
        ({"top_k": 5}, "top_k", "none without a temperature above 0"),
        ({"top_p": 0.0, "temperature": 1}, "top_p", "a number above 0 and at most 1"),
        ({"top_p": 1.1, "temperature": 1}, "top_p", "a number above 0 and at most 1"),
        ({"top_p": 0.5}, "top_p", "none without a temperature above 0"),
        ({"seed": -1}, "seed", "an integer from 0"),
        ({"seed": 2**63}, "seed", "an integer from 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size", "an integer from 0 to 9223372036854775807"),
        ({"repetition_penalty": 0}, "repetition_penalty", "a number above 0 and at most 10"),
        ({"max_target_tokens": 0}, "max_target_tokens", "an integer from 1 to 9223372036854775807"),
        ({"min_target_tokens": -1}, "min_target_tokens", "an integer from 0 to 9223372036854775807"),
        ({"min_target_tokens": 9, "max_target_tokens": 8}, "min_target_tokens", "max_target_tokens, which is 8"),
        ({"early_stopping": "never"}, "early_stopping", "true or false"),
    ],
)
def test_wrong_option_is_refused_with_field_value_and_what_is_allowed(given_options, field, allowed):
    with pytest.raises(InvalidDecodingOptions) as caught:
        DecodingOptions(**given_options)
    assert caught.value.field == field
    assert caught.value.value == given_options[field] or math.isnan(given_options[field])
    assert allowed in caught.value.allowed
    assert str(caught.value) == f"{field} is {given_options[field]!r}; allowed is {caught.value.allowed}"


def test_options_at_their_bounds_are_accepted_and_cannot_be_changed():
    options = DecodingOptions(beam_size=16, num_hypotheses=16, length_penalty=-10, repetition_penalty=10)
    DecodingOptions(temperature=100, top_k=1, top_p=1, seed=2**63 - 1, min_target_tokens=3, max_target_tokens=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.beam_size = 1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"forbidden_ids": [PAD, EOS]}, "eos_id=0 is among forbidden_ids"),
        ({"forced_prefix": [2, EOS]}, "eos_id=0 is in forced_prefix"),
        ({"forced_prefix": [2, 3, 4]}, "forced_prefix has 3 tokens, and must have fewer than the limit of 3"),
    ],
)
def test_search_that_cannot_end_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        start_search(DecodingOptions(max_target_tokens=3), eos_id=EOS, max_tokens=10, **kwargs)


# --- best tokens and candidates --------------------------------------------------------------------------------------

SIZES = [1, 5, 2 * TOP_K_BLOCK_SIZE + 1, 2 * ARGMAX_BLOCK_SIZE - 1, 2 * ARGMAX_BLOCK_SIZE, 1000, 1024, 3001]


@pytest.mark.parametrize("vocabulary_size", SIZES)
@pytest.mark.parametrize("has_ties", [False, True])
def test_best_tokens_and_candidates_agree_with_a_stable_sort(vocabulary_size, has_ties):
    rng = np.random.default_rng(vocabulary_size)
    scores = rng.normal(size=(7, vocabulary_size)).astype(np.float32)
    if has_ties:
        scores = np.round(scores)
        scores[0] = 0
        scores[1, : vocabulary_size // 2] = -np.inf
    scores[2, -1] = 9  # The last block is not a whole one.
    order = np.argsort(-scores, axis=1, kind="stable")
    values, ids = best_tokens(torch.from_numpy(scores))
    assert ids.tolist() == order[:, 0].tolist()
    assert values.tolist() == scores.max(axis=1).tolist()
    for k in (1, 2, 8, 32, vocabulary_size + 1):
        values, ids = candidates(torch.from_numpy(scores), k)
        expected = np.take_along_axis(scores, order[:, :k], axis=1)
        assert values.tolist() == expected.tolist()
        finite = np.isfinite(expected)  # Which ones of the impossible tokens are listed means nothing.
        assert ids.numpy()[finite].tolist() == order[:, :k][finite].tolist()


def test_best_tokens_of_a_strided_view_are_right():
    logits = torch.randn(3, 4, 1000, generator=torch.Generator().manual_seed(0))
    assert best_tokens(logits[:, -1])[1].tolist() == logits[:, -1].argmax(-1).tolist()
    assert candidates(logits[:, -1], 4)[1].tolist() == logits[:, -1].topk(4).indices.tolist()


# --- greedy ----------------------------------------------------------------------------------------------------------


def test_greedy_takes_the_most_probable_token_until_eos():
    model = RandomModel(3, 9, eos_bonus=1.0)
    tokens = []
    while (not tokens or tokens[-1] != EOS) and len(tokens) < 20:
        tokens.append(int(model.log_probs(tokens).argmax()))
    (hypothesis,) = decode(model, DecodingOptions(), max_tokens=20)
    assert hypothesis.tokens == tuple(tokens)
    assert hypothesis.finish_reason == "stop"
    assert hypothesis.tokens_without_eos == tuple(tokens[:-1])


@pytest.mark.parametrize("seed", range(20))
def test_beam_of_one_is_greedy(seed):
    model = RandomModel(seed, 9, eos_bonus=seed % 3)
    for options in (
        DecodingOptions(),
        DecodingOptions(min_target_tokens=3, no_repeat_ngram_size=2),
        DecodingOptions(length_penalty=0),
    ):
        constraints = Constraints(EOS, (PAD,), (4,), options.min_target_tokens, options.no_repeat_ngram_size)
        greedy, beam = GreedySearch(options, constraints, 10), BeamSearch(options, constraints, 10)
        assert decode_all([greedy], [model]) == decode_all([beam], [model])
        (one,), (other,) = greedy.hypotheses(), beam.hypotheses()
        assert one.tokens == other.tokens
        assert one.finish_reason == other.finish_reason
        assert one.token_log_probs == pytest.approx(other.token_log_probs)
        assert one.score == pytest.approx(other.score)


def test_greedy_without_log_probs_chooses_the_same_and_has_none():
    model = RandomModel(5, 9)
    (full,) = decode(model, DecodingOptions(), with_log_probs=True)
    (bare,) = decode(model, DecodingOptions(), with_log_probs=False)
    assert bare.tokens == full.tokens
    assert (bare.score, bare.log_prob, bare.token_log_probs) == (None, None, None)


def test_greedy_without_constraints_or_log_probs_looks_at_the_logits_once(monkeypatch):
    """The fast path: a softmax or a top-k over (R, V) for plain greedy rows would be a slip."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("not needed for greedy search")

    monkeypatch.setattr(torch.Tensor, "log_softmax", refuse)
    monkeypatch.setattr(torch.Tensor, "topk", refuse)
    monkeypatch.setattr(torch.Tensor, "sort", refuse)
    monkeypatch.setattr("model.search.apply_constraints", refuse)
    searches = [
        start_search(DecodingOptions(), eos_id=EOS, max_tokens=9, forbidden_ids=[PAD], with_log_probs=False)
        for _ in range(4)
    ]
    logits = torch.eye(4, 1000).roll(7, dims=1)
    assert [step.tokens for step in advance_batch(searches, logits)] == [[7], [8], [9], [10]]


# --- beam search -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_wide_beam_finds_the_exact_n_best_of_full_enumeration(seed, length_penalty):
    # Three words and eos, at most 3 tokens: 9 running rows, 12 candidates before the last step. 16 beams lose nothing.
    model = RandomModel(seed, 5)
    options = DecodingOptions(beam_size=16, num_hypotheses=16, length_penalty=length_penalty)
    found = decode(model, options, max_tokens=3, forbidden_ids=[PAD])
    expected = all_hypotheses(model, [EOS, 2, 3, 4], 3, length_penalty)[:16]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("threshold", [None, 0.0, 0.7, 2.5])
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(12))
def test_beam_search_follows_a_plain_numpy_beam_search_step_by_step(seed, beam_size, early_stopping, threshold):
    model = RandomModel(seed, 13, eos_bonus=seed % 4)
    length_penalty = [0.0, 1.0, 0.5, 2.0, -0.5][seed % 5]
    if beam_size == 1:
        threshold = None  # there is nothing to give up
    options = DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=beam_size,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        beam_threshold=threshold,
    )
    search = start_search(options, eos_id=EOS, max_tokens=9)
    (steps,) = decode_all([search], [model])
    expected_steps, expected = numpy_beam_search(
        model, beam_size, length_penalty, 9, early_stopping, math.inf if threshold is None else threshold
    )
    assert steps == expected_steps
    assert [hypothesis.tokens for hypothesis in search.hypotheses()] == [tokens for _, tokens in expected]
    scores = [hypothesis.score for hypothesis in search.hypotheses()]
    assert scores == pytest.approx([score for score, _ in expected], abs=1e-5)


def test_a_beam_gives_up_what_lies_too_far_behind_and_ends_when_nothing_else_is_left():
    table = {
        (): {2: 0.50, 3: 0.40, 4: 0.1}, (2,): {EOS: 0.9, 3: 0.1}, (3,): {EOS: 0.2, 4: 0.8}, (4,): {4: 1.0},
        (3, 4): {EOS: 1.0}, (4, 4): {EOS: 1.0}, (2, 3): {EOS: 1.0},
    }  # fmt: skip
    model = TableModel(5, table)
    plain = start_search(DecodingOptions(beam_size=3), eos_id=EOS, max_tokens=9)
    assert [len(rows) for rows in decode_all([plain], [model])[0]] == [3, 3, 0]
    # 4 lies 1.6 behind 2 at once. Of the rest, "3 4" would score better than the finished "2"; "2 3" lies 2.2 behind.
    pruned = start_search(DecodingOptions(beam_size=3, beam_threshold=1.5), eos_id=EOS, max_tokens=9)
    steps = decode_all([pruned], [model])[0]
    assert steps == [[[2], [3]], [[3, 4]], []]
    assert pruned.hypotheses()[0].tokens == plain.hypotheses()[0].tokens == (3, 4, EOS)


def test_length_penalty_moves_the_choice_from_short_to_long():
    table = {(): {2: 0.6, 3: 0.4}, (2,): {EOS: 0.7, 4: 0.3}, (3,): {4: 0.9, EOS: 0.1}, (3, 4): {4: 1.0}}
    model = TableModel(5, table)
    short, long = (2, EOS), (3, 4, 4, EOS)
    short_log_prob, long_log_prob = math.log(0.6 * 0.7), math.log(0.4 * 0.9)
    for length_penalty, expected, score in [
        (0.0, short, short_log_prob),
        (1.0, long, long_log_prob / 4),
        (-1.0, short, short_log_prob * 2),
    ]:
        options = DecodingOptions(beam_size=4, length_penalty=length_penalty)
        (best,) = decode(model, options)
        assert best.tokens == expected
        assert best.score == pytest.approx(score)


def test_eos_beyond_the_first_b_candidates_does_not_finish_a_hypothesis():
    even = dict.fromkeys(range(2, 10), 0.125)
    model = TableModel(10, {(): {2: 0.4, 3: 0.35, EOS: 0.25}, (2,): even, (3,): even})
    found = decode(model, DecodingOptions(beam_size=2, num_hypotheses=2, length_penalty=0.0))
    assert (EOS,) not in [hypothesis.tokens for hypothesis in found]
    assert max(hypothesis.log_prob for hypothesis in found) < math.log(0.25)
    assert decode(model, DecodingOptions(beam_size=3, length_penalty=0.0))[0].tokens == (EOS,)


@pytest.mark.parametrize("seed", range(5))
def test_n_best_is_sorted_distinct_and_begins_with_the_best(seed):
    model = RandomModel(seed, 11, eos_bonus=1.0)
    ten = decode(model, DecodingOptions(beam_size=10, num_hypotheses=10))
    assert len({hypothesis.tokens for hypothesis in ten}) == 10
    assert [hypothesis.score for hypothesis in ten] == sorted((h.score for h in ten), reverse=True)
    assert decode(model, DecodingOptions(beam_size=10, num_hypotheses=3)) == ten[:3]


def test_fewer_hypotheses_are_returned_where_the_vocabulary_has_no_more():
    model = TableModel(3, {(): {2: 0.5, EOS: 0.5}})
    found = decode(model, DecodingOptions(beam_size=4, num_hypotheses=4))
    assert {hypothesis.tokens for hypothesis in found} == {(EOS,), (2, EOS)}


def test_ties_go_to_the_lowest_row_and_the_lowest_id():
    flat = dict.fromkeys(range(1, 6), 0.2)
    model = TableModel(6, {(): flat, **{(i,): flat for i in range(1, 6)}})
    search = start_search(DecodingOptions(beam_size=3), eos_id=EOS, max_tokens=9)
    (steps,) = decode_all([search], [model])
    assert steps[0] == [[1], [2], [3]]
    assert steps[1] == [[1, 1], [1, 2], [1, 3]]
    assert decode(model, DecodingOptions())[0].tokens == (1, 1, EOS)


# --- sampling --------------------------------------------------------------------------------------------------------


def sample_first_tokens(logits, num_draws, first_seed=0, **options):
    """The first token of many sequences with seeds of their own, drawn in one batch."""
    searches = [
        start_search(DecodingOptions(seed=first_seed + i, **options), eos_id=EOS, max_tokens=1)
        for i in range(num_draws)
    ]
    advance_batch(searches, logits.expand(num_draws, -1))
    return [search.hypotheses()[0].tokens[0] for search in searches]


def chi_square(counts, probs):
    counts = np.asarray(counts)
    expected = np.asarray(probs) * counts.sum()
    return float(np.sum((counts - expected) ** 2 / expected))


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ({"temperature": 1.0}, lambda p: p),
        ({"temperature": 0.5}, lambda p: p**2),
        ({"temperature": 2.0}, np.sqrt),
        ({"temperature": 1.0, "top_k": 5}, lambda p: np.where(p >= np.sort(p)[-5], p, 0)),
        ({"temperature": 2.0, "top_k": 6, "top_p": 0.999}, lambda p: np.where(p >= np.sort(p)[-6], np.sqrt(p), 0)),
    ],
)
def test_sampling_frequencies_match_the_tempered_softmax(options, reference):
    logits = RandomModel(7, 8).logits([]) / 2
    probs = reference(logits.double().softmax(-1).numpy())
    probs = probs / probs.sum()
    counts = np.bincount(sample_first_tokens(logits, 4000, **options), minlength=8)
    assert counts[probs == 0].sum() == 0
    # 24.3 is exceeded by 1 in 1000 right samplers with 7 degrees of freedom (fewer for fewer); the seeds are fixed.
    assert chi_square(counts[probs > 0], probs[probs > 0]) < 24.3


@pytest.mark.parametrize("options", [{}, {"top_p": 1.0}, {"top_p": 0.95}, {"top_k": 900}])
def test_sampling_reaches_far_beyond_the_first_candidates(options):
    """A flat row of 1,000 tokens: most draws lie beyond those that are fetched at first."""
    logits = RandomModel(2, 1000).logits([]) / 4
    probs = logits.double().softmax(-1).numpy()
    order = np.argsort(-probs)
    kept = (
        order[:900]
        if "top_k" in options
        else order[: 1 + int(np.sum(np.cumsum(probs[order]) < options.get("top_p", 2)))]
    )
    counts = np.bincount(sample_first_tokens(logits, 800, temperature=1.0, **options), minlength=1000)
    groups = np.array_split(kept, 8)
    assert counts[kept].sum() == 800
    assert chi_square([counts[g].sum() for g in groups], [probs[g].sum() / probs[kept].sum() for g in groups]) < 24.3


def test_top_p_keeps_the_smallest_set_that_holds_the_mass():
    logits = torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2]).log()
    for top_p, kept in [
        (0.01, {1}),
        (0.39, {1}),
        (0.41, {1, 3}),
        (0.64, {1, 3}),
        (0.66, {1, 3, 4}),
        (0.96, set(range(5))),
    ]:
        assert set(sample_first_tokens(logits, 400, temperature=1.0, top_p=top_p)) == kept


def test_top_p_counts_the_mass_left_by_top_k():
    logits = torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2]).log()
    # Among the best two 0.4 is 0.615 of the mass.
    assert set(sample_first_tokens(logits, 400, temperature=1.0, top_k=2, top_p=0.6)) == {1}
    assert set(sample_first_tokens(logits, 400, temperature=1.0, top_k=2, top_p=0.63)) == {1, 3}


def test_impossible_tokens_are_never_drawn():
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf])
    assert set(sample_first_tokens(logits, 300, temperature=100.0)) == {1, 3}
    search = SamplingSearch(DecodingOptions(temperature=1.0), Constraints(EOS), 5)
    log_probs = np.array(
        [math.log(0.5), math.log(0.4999999), -math.inf], dtype=np.float32
    )  # Rounding leaves a gap below 1.
    assert search.pick(log_probs, 1 - 2**-53, is_whole=True) == 1


def test_each_token_owns_the_half_open_interval_of_its_mass():
    search = SamplingSearch(DecodingOptions(temperature=1.0), Constraints(EOS), 5)
    log_probs = np.array([0.0, -math.inf, 0.0], dtype=np.float32)  # Mass 2, so that the boundary is an exact number.
    places = [search.pick(log_probs[[0, 2, 1]], uniform, is_whole=True) for uniform in (0.0, 0.4999, 0.5, 0.9999)]
    assert places == [0, 0, 1, 1]


@pytest.mark.parametrize("options", [{"top_k": 1, "temperature": 1.0}, {"temperature": 1e-30}, {"temperature": 1e-300}])
def test_sampling_from_one_token_is_greedy(options):
    model = RandomModel(4, 200)
    (drawn,) = decode(model, DecodingOptions(**options), max_tokens=12)
    (greedy,) = decode(model, DecodingOptions(), max_tokens=12)
    assert drawn.tokens == greedy.tokens
    assert drawn.token_log_probs == pytest.approx(greedy.token_log_probs)


def test_seed_repeats_a_sample_and_other_seeds_differ():
    model = RandomModel(4, 300)
    by_seed = [decode(model, DecodingOptions(temperature=1.0, seed=seed)) for seed in (1, 1, 2)]
    assert by_seed[0] == by_seed[1]
    assert by_seed[0] != by_seed[2]
    unseeded = {decode(model, DecodingOptions(temperature=1.0))[0].tokens for _ in range(5)}
    assert len(unseeded) > 1


# --- a batch of mixed settings ---------------------------------------------------------------------------------------

MIXED = [
    DecodingOptions(),
    DecodingOptions(temperature=1.0, seed=1),
    DecodingOptions(beam_size=4, num_hypotheses=4),
    DecodingOptions(beam_size=4, beam_threshold=0.3),
    DecodingOptions(no_repeat_ngram_size=1, min_target_tokens=3),
    DecodingOptions(temperature=1.5, seed=2, top_k=700, repetition_penalty=1.5),
    DecodingOptions(temperature=3.0, seed=3, top_p=0.9),
    DecodingOptions(beam_size=7, num_hypotheses=2, length_penalty=0.3, no_repeat_ngram_size=2, early_stopping=True),
    DecodingOptions(repetition_penalty=2.0, max_target_tokens=5),
    DecodingOptions(beam_size=2, repetition_penalty=0.5),
    DecodingOptions(temperature=2.0, seed=4, top_k=3),
]


@pytest.mark.parametrize("vocabulary_size", [20, 1500])
def test_each_search_of_a_mixed_batch_chooses_as_if_it_were_alone(vocabulary_size):
    models = [RandomModel(i, vocabulary_size, eos_bonus=2.0) for i in range(len(MIXED))]

    def started(i):
        prefix = [5, 6] if i % 3 == 2 else []
        return start_search(
            MIXED[i], eos_id=EOS, max_tokens=12, forbidden_ids=[PAD], forced_prefix=prefix, with_log_probs=i != 0
        )

    together = [started(i) for i in range(len(MIXED))]
    decode_all(together, models)
    for i, search in enumerate(together):
        alone = started(i)
        decode_all([alone], [models[i]])
        assert search.hypotheses() == alone.hypotheses()


def test_logits_are_left_unchanged():
    logits = torch.randn(len(MIXED), 600, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    for group in (MIXED, MIXED[:1] * len(MIXED)):
        searches = [start_search(o, eos_id=EOS, max_tokens=9, forced_prefix=[8], forbidden_ids=[2]) for o in group]
        advance_batch(searches, logits)
        assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_accepted(dtype):
    logits = RandomModel(1, 700).logits([]).to(dtype)[None]
    for options in MIXED:
        search = start_search(options, eos_id=EOS, max_tokens=9, forced_prefix=[8], forbidden_ids=[2])
        assert search.advance(logits).tokens == [8]
        search.advance(logits.expand(search.num_rows, -1))


def test_wrong_number_of_rows_and_finished_searches_are_refused():
    search = start_search(DecodingOptions(), eos_id=EOS, max_tokens=1)
    with pytest.raises(ValueError, match="logits have 2 rows, but the searches hold 1"):
        search.advance(torch.zeros(2, 5))
    with pytest.raises(RuntimeError, match="still has 1 running rows"):
        search.hypotheses()
    search.advance(torch.zeros(1, 5))
    with pytest.raises(ValueError, match="search 0 of the batch has finished"):
        search.advance(torch.zeros(0, 5))


# --- constraints -----------------------------------------------------------------------------------------------------

ALL_KINDS = [
    DecodingOptions(),
    DecodingOptions(beam_size=3, num_hypotheses=3),
    DecodingOptions(temperature=2.0, seed=0),
    DecodingOptions(repetition_penalty=1.2),
]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    size=st.integers(1, 3),
    options=st.sampled_from(ALL_KINDS),
    vocabulary_size=st.integers(3, 6),
)
def test_no_repeat_ngram_never_repeats_an_ngram(seed, size, options, vocabulary_size):
    model = RandomModel(seed, vocabulary_size, eos_bonus=-2.0)
    for hypothesis in decode(model, dataclasses.replace(options, no_repeat_ngram_size=size), max_tokens=15):
        ngrams = Counter(hypothesis.tokens[i : i + size] for i in range(len(hypothesis.tokens) - size + 1))
        assert max(ngrams.values(), default=1) == 1


def test_ngrams_of_a_larger_size_may_still_repeat_smaller_ones():
    constraints = Constraints(EOS, no_repeat_ngram_size=3)
    assert constraints.banned_ids([2, 3, 4, 2, 3]) == {4}
    assert constraints.banned_ids([2, 3, 2]) == set()
    assert Constraints(EOS, no_repeat_ngram_size=2).banned_ids([2, 3, 2]) == {3}
    assert Constraints(EOS, no_repeat_ngram_size=1).banned_ids([2, 3, 2]) == {2, 3}


@pytest.mark.parametrize("options", ALL_KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_forced_prefix_begins_every_hypothesis_and_keeps_its_real_log_probs(options, seed):
    model = RandomModel(seed, 8)
    prefix = (3, PAD, 3, 7)  # Even a forbidden token.
    for hypothesis in decode(model, options, max_tokens=9, forced_prefix=prefix, forbidden_ids=[PAD]):
        assert hypothesis.tokens[:4] == prefix
        assert len(hypothesis.tokens) > 4
        expected = [model.log_probs(prefix[:i])[token] for i, token in enumerate(prefix)]
        assert hypothesis.token_log_probs[:4] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("options", ALL_KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_forbidden_tokens_are_never_chosen(options, seed):
    model = RandomModel(seed, 8, eos_bonus=-2.0)
    for hypothesis in decode(model, options, max_tokens=20, forbidden_ids=[PAD, 3, 5]):
        assert not {PAD, 3, 5} & set(hypothesis.tokens)


@pytest.mark.parametrize("options", ALL_KINDS)
def test_limit_cuts_with_finish_reason_length(options):
    model = RandomModel(1, 8, eos_bonus=-100.0)
    for max_target_tokens, limit in [(None, 6), (4, 4), (9, 6)]:
        for hypothesis in decode(
            model, dataclasses.replace(options, max_target_tokens=max_target_tokens), max_tokens=6
        ):
            assert len(hypothesis.tokens) == limit
            assert hypothesis.finish_reason == "length"
            assert hypothesis.tokens_without_eos == hypothesis.tokens


@pytest.mark.parametrize("options", ALL_KINDS)
def test_eos_as_the_last_token_allowed_is_a_stop(options):
    model = TableModel(5, {(): {3: 1.0}, (3,): {4: 1.0}})
    best = decode(model, options, max_tokens=3)[0]
    assert (best.tokens, best.finish_reason) == ((3, 4, EOS), "stop")


@pytest.mark.parametrize("options", ALL_KINDS)
@pytest.mark.parametrize("min_target_tokens", [1, 4])
def test_eos_waits_for_the_minimum(options, min_target_tokens):
    model = RandomModel(2, 8, eos_bonus=20.0)
    wanted = dataclasses.replace(options, min_target_tokens=min_target_tokens)
    for hypothesis in decode(model, wanted, max_tokens=9):
        assert hypothesis.finish_reason == "stop"
        assert len(hypothesis.tokens_without_eos) == min_target_tokens


@pytest.mark.parametrize("beam_size", [1, 2])
def test_repetition_penalty_scales_log_probs_of_written_tokens_in_the_score_only(beam_size):
    same = {2: 0.5, 3: 0.3, EOS: 0.2}
    model = TableModel(4, {(): same, (2,): same, (2, 3): same, (3,): same, (3, 2): same})
    options = DecodingOptions(beam_size=beam_size, repetition_penalty=3.0)
    best = decode(model, options)[0]
    # After 2, log(0.5) * 3 = log(0.125) loses against 0.3; after 2 and 3, both lose against eos.
    assert best.tokens == (2, 3, EOS)
    assert best.token_log_probs == pytest.approx([math.log(0.5), math.log(0.3), math.log(0.2)])
    repeated = decode(model, dataclasses.replace(options, min_target_tokens=3), max_tokens=3)[0]
    assert repeated.tokens == (2, 3, 2)
    assert repeated.log_prob == pytest.approx(math.log(0.5 * 0.3 * 0.5))
    assert repeated.score == pytest.approx((math.log(0.5) + math.log(0.3) + 3 * math.log(0.5)) / 3)


@pytest.mark.parametrize("options", MIXED)
def test_log_probs_are_the_models_own_and_add_up(options):
    model = RandomModel(6, 30, eos_bonus=1.0)
    for hypothesis in decode(model, options, max_tokens=10, forced_prefix=[4, 4, 4], forbidden_ids=[PAD]):
        expected = [model.log_probs(hypothesis.tokens[:i])[token] for i, token in enumerate(hypothesis.tokens)]
        assert hypothesis.token_log_probs == pytest.approx(expected, abs=1e-5)
        assert hypothesis.log_prob == pytest.approx(sum(expected), abs=1e-4)
        if options.repetition_penalty == 1.0:
            length = len(hypothesis.tokens)
            assert hypothesis.score == pytest.approx(hypothesis.log_prob / length**options.length_penalty)


# --- rows with infinities --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ALL_KINDS)
def test_eos_ends_a_hypothesis_that_may_not_go_on(options):
    # Two words, each allowed once, and eos only after five: a dead end after two.
    model = RandomModel(3, 4)
    wanted = dataclasses.replace(options, no_repeat_ngram_size=1, min_target_tokens=5)
    for hypothesis in decode(model, wanted, forbidden_ids=[PAD]):
        assert sorted(hypothesis.tokens) == [EOS, 2, 3]
        assert hypothesis.tokens[-1] == EOS
        expected = model.log_probs(hypothesis.tokens[:2])[EOS]
        assert hypothesis.token_log_probs[-1] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("options", ALL_KINDS)
def test_dead_end_gives_eos_wherever_its_id_is(options):
    search = start_search(options, eos_id=3, max_tokens=9, forbidden_ids=[0, 1, 2, 4])
    assert search.advance(torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]])).tokens == []
    assert search.hypotheses()[0].tokens == (3,)
    wanted = dataclasses.replace(options, min_target_tokens=2)
    search = start_search(wanted, eos_id=3, max_tokens=9, forbidden_ids=[0, 1, 2, 4])
    search.advance(torch.tensor([[5.0, 4.0, 3.0, -math.inf, 1.0]]))
    assert search.hypotheses()[0].tokens == (3,)
    assert math.isfinite(search.hypotheses()[0].score)


@pytest.mark.parametrize("options", ALL_KINDS)
def test_forced_token_of_probability_zero_is_chosen_and_scores_stay_finite(options):
    model = TableModel(5, {(): {2: 1.0}, (3,): {4: 0.7, 2: 0.3}})
    best = decode(model, dataclasses.replace(options, temperature=0.0), forced_prefix=[3])[0]
    assert best.tokens == (3, 4, EOS)
    assert math.isfinite(best.score)
    assert best.token_log_probs[1:] == pytest.approx([math.log(0.7), 0.0])


@pytest.mark.parametrize("options", ALL_KINDS)
@pytest.mark.parametrize(
    "row",
    [[math.nan, 0.0, 0.0, 0.0], [0.0, math.inf, 0.0, 0.0], [-math.inf] * 4],
)
@pytest.mark.parametrize("forbidden", [[], [PAD], [3]])
def test_broken_row_is_named_and_no_search_advances(options, row, forbidden):
    def started():
        return [
            start_search(one, eos_id=EOS, max_tokens=9, forbidden_ids=forbidden)
            for one in (DecodingOptions(), options, DecodingOptions(temperature=1.0, seed=5))
        ]

    good = torch.tensor([0.0, 1.0, 2.0, 0.5])
    searches = started()
    with pytest.raises(NonFiniteLogits) as caught:
        advance_batch(searches, torch.stack([good, torch.tensor(row), good]))
    assert caught.value.rows == [1]
    del searches[1]
    expected = started()
    del expected[1]
    repeated = torch.stack([good, good])
    assert advance_batch(searches, repeated) == advance_batch(expected, repeated)
