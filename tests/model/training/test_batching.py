import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.training.batching import bucket_length, make_batch, plan_batches
from model.training.data import Corpus, TokenLists

PAD, START, EOS = 0, 2, 3


def _corpus(lengths):
    sources = TokenLists.from_lists([[5] * source + [EOS] for source, _ in lengths])
    targets = TokenLists.from_lists([list(range(10, 10 + target)) for _, target in lengths])
    return Corpus(sources, targets, np.ones(len(lengths)), 0, {})


@given(st.integers(1, 2_000))
def test_a_bucket_holds_its_length_and_wastes_little(length):
    bucket = bucket_length(length)
    assert length <= bucket <= max(length + 1, length * 1.25)
    assert bucket_length(bucket) == bucket


def test_buckets_are_few():
    assert len({bucket_length(length) for length in range(1, 129)}) == 20


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=200), st.integers(16, 400))
def test_every_pair_is_in_exactly_one_batch_within_the_budget(lengths, budget):
    corpus = _corpus(lengths)
    batches = plan_batches(corpus, np.arange(len(lengths)), budget, (1, 0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for pairs in batches:
        batch = make_batch(corpus, pairs, PAD, START, EOS)
        if len(pairs) > 1:
            assert batch.target_inputs.numel() <= budget
            assert batch.source_ids.numel() <= 2 * budget


def test_batches_of_a_natural_mixture_are_well_filled():
    generator = np.random.default_rng(0)
    targets = np.clip(generator.gamma(2.0, 5.0, 20_000), 1, 100).astype(int)
    sources = np.clip(targets * generator.normal(1.0, 0.2, 20_000), 1, 120).astype(int)
    corpus = _corpus(list(zip(sources.tolist(), targets.tolist(), strict=True)))
    batches = [
        make_batch(corpus, pairs, PAD, START, EOS) for pairs in plan_batches(corpus, np.arange(20_000), 750, (1,))
    ]
    real = sum(batch.num_target_tokens for batch in batches)
    assert real / sum(batch.target_outputs.numel() for batch in batches) > 0.9
    assert sum(int(batch.source_mask.sum()) for batch in batches) / sum(b.source_ids.numel() for b in batches) > 0.85
    assert real / len(batches) > 0.85 * 750
    assert len({(batch.source_ids.shape, batch.target_inputs.shape) for batch in batches}) < 250


def test_the_same_seed_gives_the_same_batches_and_another_seed_others():
    corpus = _corpus([(n % 17, n % 13) for n in range(500)])
    first, again, other = (
        [batch.tolist() for batch in plan_batches(corpus, np.arange(500), 200, seed)]
        for seed in ((1, 0), (1, 0), (1, 1))
    )
    assert first == again
    assert first != other


def test_a_batch_shifts_targets_by_one_and_masks_padding():
    corpus = _corpus([(3, 2), (1, 4)])
    batch = make_batch(corpus, np.array([0, 1]), PAD, START, EOS)
    assert batch.source_ids.tolist() == [[5, 5, 5, EOS], [5, EOS, PAD, PAD]]
    assert torch.equal(batch.source_mask, batch.source_ids != PAD)
    assert batch.target_inputs.tolist() == [[START, 10, 11, PAD, PAD, PAD], [START, 10, 11, 12, 13, PAD]]
    assert batch.target_outputs.tolist() == [[10, 11, EOS, PAD, PAD, PAD], [10, 11, 12, 13, EOS, PAD]]
    assert batch.num_target_tokens == 8


def test_links_become_shares_of_the_row_that_has_read_or_that_predicts_a_token():
    corpus = _corpus([(3, 2), (1, 4)])
    # Target token 0 belongs to source tokens 0 and 2, target token 1 to source token 1; of the second pair, 3 to 0.
    links = TokenLists.from_lists([[0, 0, 2, 0, 1, 1], [0, 3]])
    corpus = Corpus(corpus.sources, corpus.targets, corpus.weights, 0, {}, links)
    predicting = torch.zeros(2, 6, 4)
    predicting[0, 0, [0, 2]] = 0.5
    predicting[0, 1, 1] = 1.0
    predicting[1, 3, 0] = 1.0
    batch = make_batch(corpus, np.array([0, 1]), PAD, START, EOS, "predicted")
    assert torch.equal(batch.alignment, predicting)
    # One later: the inputs start with the start token.
    batch = make_batch(corpus, np.array([0, 1]), PAD, START, EOS, "input")
    assert torch.equal(batch.alignment, predicting.roll(1, dims=1))
    assert make_batch(corpus, np.array([0]), PAD, START, EOS).alignment is None
