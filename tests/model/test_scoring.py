import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from model.decoding import DecodingOptions
from model.generation import generate
from model.scoring import candidates_from_logits, next_candidates, score, score_logits
from model.search import Constraints, SamplingSearch
from model.selection import TraceError
from tests.model.test_trace import SHAPES, TARGET, make_model, source_for, tolerance
from tests.model.tiny import EOS, forward

V = 29


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param


@pytest.fixture(params=["float32", "int8"])
def model(request, shape):
    return make_model(shape, request.param)


def logits_of(seed=0, scale=2.0):
    return scale * torch.randn(V, generator=torch.Generator().manual_seed(seed))


def test_a_score_is_the_cross_entropy(model):
    source = source_for(model)
    found = score(model, source, TARGET, label_smoothing=0.1)
    logits = forward(model, source, [model.config.decoder_start_id, *TARGET[:-1]])
    expected = functional.cross_entropy(logits, torch.tensor(TARGET), reduction="none")
    np.testing.assert_allclose(found.nats, expected, atol=1e-5)
    np.testing.assert_allclose(found.bits, found.nats / math.log(2))
    np.testing.assert_allclose(found.probabilities, np.exp(-found.nats))
    assert found.total_nats == pytest.approx(float(expected.sum()), abs=1e-4)
    assert found.total_bits == pytest.approx(found.total_nats / math.log(2))
    assert found.perplexity == pytest.approx(float(expected.mean().exp()), rel=1e-4)
    smoothed = functional.cross_entropy(logits, torch.tensor(TARGET), label_smoothing=0.1, reduction="none")
    np.testing.assert_allclose(found.smoothed_nats, smoothed, atol=1e-5)
    assert found.total_smoothed_nats == pytest.approx(float(smoothed.sum()), abs=1e-4)


def test_without_smoothing_both_values_are_one():
    found = score_logits(torch.stack([logits_of(0), logits_of(1)]), [3, 4])
    np.testing.assert_array_equal(found.nats, found.smoothed_nats)


def test_ranks_count_the_tokens_that_are_more_probable():
    logits = torch.tensor([[0.0, 3.0, 1.0, 3.0], [5.0, 4.0, 3.0, 2.0]])
    assert score_logits(logits, [2, 3]).ranks.tolist() == [3, 4]
    assert score_logits(logits, [3, 0]).ranks.tolist() == [1, 1]


def test_the_score_of_what_a_search_wrote_is_its_log_probability(model):
    source = source_for(model)
    for hypothesis in generate(model, [source], DecodingOptions(beam_size=4, num_hypotheses=4))[0]:
        found = score(model, source, hypothesis.tokens)
        np.testing.assert_allclose(-found.nats, hypothesis.token_log_probs, atol=tolerance(model, 1e-4))
        assert -found.total_nats == pytest.approx(hypothesis.log_prob, abs=tolerance(model, 1e-4) * 5)


def test_always_taking_the_first_candidate_writes_the_greedy_translation(model):
    source, constraints = source_for(model), Constraints(eos_id=EOS, forbidden_ids=(0, 2))
    expected = generate(model, [source], DecodingOptions(max_target_tokens=8), forbidden_ids=(0, 2))[0][0].tokens
    prefix = []
    while len(prefix) < len(expected):
        prefix.append(next_candidates(model, source, prefix, constraints=constraints).greedy_id)
    assert tuple(prefix) == expected


def test_candidates_hold_the_models_own_numbers():
    logits = logits_of()
    found = candidates_from_logits(logits, (), k=5)
    probabilities = logits.double().softmax(0)
    order = probabilities.sort(descending=True).indices
    assert [item.token_id for item in found.candidates] == order[:5].tolist()
    assert [item.rank for item in found.candidates] == [1, 2, 3, 4, 5]
    for item in found.candidates:
        assert item.logit == pytest.approx(float(logits[item.token_id]))
        assert item.probability == pytest.approx(float(probabilities[item.token_id]), abs=1e-6)
        assert item.processed_probability == pytest.approx(item.probability, abs=1e-6)
        assert item.log_prob == pytest.approx(math.log(item.probability), abs=1e-5)
    assert found.probability_sum == pytest.approx(1, abs=1e-6)
    assert found.entropy_nats == pytest.approx(float(-(probabilities * probabilities.log()).sum()), abs=1e-5)
    assert len(candidates_from_logits(logits, (), k=1000).candidates) == V


def test_equals_are_ranked_by_id():
    logits = torch.zeros(V)
    found = candidates_from_logits(logits, (), k=3)
    assert [(item.token_id, item.rank) for item in found.candidates] == [(0, 1), (1, 2), (2, 3)]


def test_forbidden_tokens_keep_their_raw_probability_and_lose_the_processed_one():
    logits = logits_of()
    best, second = logits.sort(descending=True).indices[:2].tolist()
    constraints = Constraints(eos_id=EOS, forbidden_ids=(best,))
    found = candidates_from_logits(logits, (), k=1, constraints=constraints)
    assert [item.token_id for item in found.candidates] == [best, second]
    assert found.greedy_id == second
    assert (found.candidates[0].is_permitted, found.candidates[1].is_permitted) == (False, True)
    assert found.candidates[0].processed_probability == 0 and found.candidates[0].probability > 0
    rest = 1 - found.candidates[0].probability
    expected = found.candidates[1].probability / rest
    assert found.candidates[1].processed_probability == pytest.approx(expected, abs=1e-6)


def test_the_prefix_decides_what_is_forbidden():
    logits = logits_of()
    best = int(logits.argmax())
    constraints = Constraints(eos_id=EOS, no_repeat_ngram_size=1)
    assert candidates_from_logits(logits, (best,), constraints=constraints).greedy_id != best
    assert candidates_from_logits(logits, (), constraints=constraints).greedy_id == best


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, None), (0.5, None, None), (2.0, 5, None), (1.0, None, 0.6), (0.7, 8, 0.8), (1.0, None, 1.0)],
)
def test_processed_probabilities_are_those_that_sampling_draws_with(temperature, top_k, top_p):
    logits = logits_of(3)
    constraints = Constraints(eos_id=EOS, forbidden_ids=(0, 2))
    found = candidates_from_logits(
        logits, (), k=V, temperature=temperature, top_k=top_k, top_p=top_p, constraints=constraints
    )
    options = DecodingOptions(temperature=temperature, top_k=top_k, top_p=top_p)
    search = SamplingSearch(options, constraints, 10)
    log_probs = logits.log_softmax(0)
    log_probs[[0, 2]] = -math.inf
    tempered = (log_probs / temperature).log_softmax(0).sort(descending=True)
    draws = np.zeros(V)
    uniforms = (np.arange(2000) + 0.5) / 2000
    for uniform in uniforms:
        draws[tempered.indices[search.pick(tempered.values.tolist(), uniform, is_whole=True)]] += 1 / 2000
    processed = {item.token_id: item.processed_probability for item in found.candidates}
    np.testing.assert_allclose([processed[token] for token in range(V)], draws, atol=1.1e-3)
    assert sum(processed.values()) == pytest.approx(1)


def test_at_temperature_zero_the_greedy_choice_has_all():
    found = candidates_from_logits(logits_of(), (), temperature=0)
    assert [item.processed_probability for item in found.candidates] == [1] + [0] * 9


def test_next_candidates_is_the_row_of_the_whole_target(model):
    source = source_for(model)
    logits = forward(model, source, [model.config.decoder_start_id, *TARGET])
    for length in (0, 2, 5):
        found = next_candidates(model, source, TARGET[:length], k=3)
        assert found.prefix_ids == tuple(TARGET[:length])
        best = candidates_from_logits(logits[length], (), k=3).candidates
        for item, expected in zip(found.candidates, best, strict=True):
            assert item.token_id == expected.token_id
            assert item.probability == pytest.approx(expected.probability, abs=tolerance(model, 1e-5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"top_k": 0}, "top_k 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 0.0}, "top_p 0.0"),
    ],
)
def test_options_out_of_range_are_named(options, message):
    with pytest.raises(TraceError, match=message):
        candidates_from_logits(logits_of(), (), **options)
    with pytest.raises(TraceError, match="label_smoothing is 1.0"):
        score_logits(logits_of()[None], [3], label_smoothing=1.0)
