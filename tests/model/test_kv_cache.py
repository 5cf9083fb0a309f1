"""Decoding with caches gives the logits of the whole sequence without them, whoever joins or leaves."""

import pytest
import torch

from model.kv_cache import SelfAttentionCache
from model.layers import PositionTooLarge
from tests.model.tiny import (
    VARIATIONS,
    VOCAB_SIZE,
    forward,
    prefill,
    random_sources,
    random_targets,
    step,
    tiny_model,
)

TOLERANCE = {"atol": 5e-5, "rtol": 1e-5}


class Row:
    """One sequence in a running batch, and what a pass without caches says about it."""

    def __init__(self, model, source, length, seed):
        self.source = source
        self.target = random_targets(1, length, model.config.decoder_start_id, seed)[0].tolist()
        self.expected = forward(model, source, self.target)
        self.position = 0

    @property
    def token(self):
        return self.target[self.position]

    def check(self, logits):
        torch.testing.assert_close(logits, self.expected[self.position], **TOLERANCE)
        self.position += 1


def make_rows(model, lengths, target_length=12, seed=0):
    sources = random_sources(lengths, model.config.source_vocab_size, seed)
    return [Row(model, source, target_length, seed + 10 * index) for index, source in enumerate(sources)]


def run(model, state, rows, steps):
    for _ in range(steps):
        for row, logits in zip(rows, step(model, state, [row.token for row in rows]), strict=True):
            row.check(logits)


@pytest.mark.parametrize("variation", VARIATIONS)
def test_cached_steps_of_a_padded_batch_give_the_logits_of_each_row_alone(variation):
    model = tiny_model(**VARIATIONS[variation])
    rows = make_rows(model, [9, 4, 12, 1])
    run(model, prefill(model, [row.source for row in rows]), rows, 12)


@pytest.mark.parametrize("variation", ["paper", "pre-norm", "rotary positions", "learned positions", "Marian"])
def test_rows_leave_and_late_ones_join(variation):
    model = tiny_model(**VARIATIONS[variation])
    first, second, third, fourth = make_rows(model, [9, 4, 6, 11])
    state = prefill(model, [first.source, second.source, third.source])
    run(model, state, [first, second, third], 3)
    state.select([1, 2])  # the longest leaves
    run(model, state, [second, third], 2)
    state.join(prefill(model, [fourth.source]))  # one longer than all joins, at position 0
    assert state.num_rows == 3
    run(model, state, [second, third, fourth], 4)
    state.select([2, 0])  # in another order
    late = make_rows(model, [2, 3], seed=5)
    state.join(prefill(model, [row.source for row in late]))
    run(model, state, [fourth, second, *late], 3)
    assert [row.position for row in (fourth, second, *late)] == [7, 12, 3, 3]


def test_an_old_row_that_outlives_all_others_and_a_batch_that_ran_empty():
    model = tiny_model()
    old, young = make_rows(model, [4, 7])
    state = prefill(model, [old.source])
    run(model, state, [old], 5)
    state.join(prefill(model, [young.source]))
    run(model, state, [old, young], 1)
    state.select([1])
    run(model, state, [young], 2)
    state.select([])
    assert (state.num_rows, state.max_position) == (0, 0)
    [next_row] = make_rows(model, [5], seed=3)
    state.join(prefill(model, [next_row.source]))
    run(model, state, [next_row], 12)


def test_departed_rows_leave_no_columns_behind():
    model = tiny_model()
    long, short = make_rows(model, [20, 3])
    state = prefill(model, [long.source, short.source])
    run(model, state, [long, short], 4)
    state.join(prefill(model, [short.source]))
    state.select([2])
    assert state.max_position == 0
    assert state.source_mask.shape == (1, 3)
    assert {cache.keys.shape[2] for cache in state.cross_caches} == {3}


def test_one_row_becomes_several_and_beams_change_places():
    model = tiny_model()
    a, b = random_sources([5, 8])
    state = prefill(model, [a, b])
    step(model, state, [2, 2])
    state.select([0, 0, 0, 1, 1, 1])
    step(model, state, [5, 6, 7, 8, 9, 10])
    # In the first sequence row 2 wins twice, in the second the rows turn.
    state.reorder([2, 2, 0, 4, 5, 3])
    logits = step(model, state, [11, 12, 13, 14, 15, 16])
    histories = [(a, [2, 7, 11]), (a, [2, 7, 12]), (a, [2, 5, 13]), (b, [2, 9, 14]), (b, [2, 10, 15]), (b, [2, 8, 16])]
    for row, (source, target) in zip(logits, histories, strict=True):
        torch.testing.assert_close(row, forward(model, source, target)[-1], **TOLERANCE)


def test_reorder_leaves_the_memory_alone_and_select_moves_it():
    model = tiny_model()
    state = prefill(model, random_sources([5, 8]))
    keys = state.cross_caches[0].keys
    step(model, state, [5, 6])
    state.reorder([1, 1])
    assert state.cross_caches[0].keys is keys
    assert torch.equal(state.self_caches[0].keys[0], state.self_caches[0].keys[1])
    state.select([1, 0])
    assert torch.equal(state.cross_caches[0].keys, keys[[1, 0]])


def test_reorder_must_name_every_row():
    state = prefill(tiny_model(), random_sources([5, 8]))
    with pytest.raises(ValueError, match="1 rows given to reorder a state of 2 rows"):
        state.reorder([0])


@pytest.mark.parametrize("variation", ["paper", "rotary positions"])
def test_caches_and_positions_grow_as_far_as_a_row_goes(variation):
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1, **VARIATIONS[variation])
    length = 300  # the caches begin with 16 positions, the sinusoids with 256
    old, young = make_rows(model, [260, 3], target_length=length)
    state = prefill(model, [old.source])
    run(model, state, [old], 100)
    state.join(prefill(model, [young.source]))
    run(model, state, [old, young], length - 100)
    assert state.positions.tolist() == [300, 200]
    assert state.max_position == 300


def test_a_learned_table_ends_decoding_with_both_numbers():
    model = tiny_model(positions="learned", max_positions=5)
    state = prefill(model, random_sources([4]))
    for _ in range(5):
        step(model, state, [7])
    with pytest.raises(PositionTooLarge, match="position 5 .* 5 rows"):
        step(model, state, [7])


def test_what_lies_behind_a_row_is_not_read():
    """A row that joins late gets the cache columns of those before it: their numbers must not matter."""
    model = tiny_model()
    old, young = make_rows(model, [4, 7])
    state = prefill(model, [old.source])
    run(model, state, [old], 6)
    state.join(prefill(model, [young.source]))
    for cache in state.self_caches:
        cache.keys[1] = 1e6
        cache.values[1] = -1e6
    run(model, state, [old, young], 3)


def test_a_cache_writes_each_row_at_its_own_position():
    cache = SelfAttentionCache(rows=2, num_heads=1, width=3, device=torch.device("cpu"), dtype=torch.float32)
    keys, values = torch.ones(2, 1, 1, 3), 2 * torch.ones(2, 1, 1, 3)
    seen_keys, seen_values = cache.write(keys, values, torch.tensor([4, 1]), 4)
    assert seen_keys.shape == seen_values.shape == (2, 1, 5, 3)
    assert seen_keys[:, 0, :, 0].tolist() == [[0, 0, 0, 0, 1], [0, 1, 0, 0, 0]]
    assert seen_values[:, 0, :, 0].tolist() == [[0, 0, 0, 0, 2], [0, 2, 0, 0, 0]]


def test_caches_have_the_number_format_of_the_model():
    model = tiny_model().to(torch.bfloat16)
    state = prefill(model, random_sources([5, 2]))
    logits = step(model, state, [2, 2])
    assert logits.dtype == state.self_caches[0].keys.dtype == torch.bfloat16
    assert logits.shape == (2, VOCAB_SIZE)
