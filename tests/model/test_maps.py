import numpy as np
import pytest

from model.maps import aggregate, cross_rollout, merge_words, rollout, treat_special
from model.selection import SelectionError
from model.trace import replay
from model.words import Word
from tests.model.test_trace import TARGET, make_model, source_for


def random_maps(*shape, seed=0):
    weights = np.random.default_rng(seed).random(shape).astype(np.float32)
    return weights / weights.sum(-1, keepdims=True)


def words(*groups):
    return tuple(Word(pieces, (0, 0), False) for pieces in groups)


def test_aggregates_keep_all_four_axes():
    maps = random_maps(3, 4, 5, 6)
    np.testing.assert_allclose(aggregate(maps, "mean")[:, 0], maps.mean(1), atol=1e-6)
    np.testing.assert_array_equal(aggregate(maps, "max", "layers")[0], maps.max(0))
    np.testing.assert_allclose(aggregate(maps, "mean", "both")[0, 0], maps.mean((0, 1)), atol=1e-6)
    assert aggregate(maps, "mean", "layers").shape == (1, 4, 5, 6)
    assert aggregate(maps, "none") is maps
    np.testing.assert_allclose(aggregate(maps, "mean").sum(-1), 1, atol=1e-6)
    with pytest.raises(SelectionError, match="aggregate 'sum' does not exist"):
        aggregate(maps, "sum")


def test_rollout_multiplies_layers_with_half_a_residual():
    maps = random_maps(3, 2, 5, 5)
    expected = np.eye(5)
    for layer in range(3):
        mixing = 0.5 * maps[layer].mean(0) + 0.5 * np.eye(5)
        expected = mixing @ expected
        np.testing.assert_allclose(rollout(maps)[layer, 0], expected, atol=1e-6)
    np.testing.assert_allclose(rollout(maps).sum(-1), 1, atol=1e-6)


def test_rollout_of_heads_that_look_at_themselves_is_the_identity():
    maps = np.broadcast_to(np.eye(4, dtype=np.float32), (3, 2, 4, 4))
    np.testing.assert_allclose(rollout(maps), np.broadcast_to(np.eye(4), (3, 1, 4, 4)), atol=1e-7)


def test_rollout_through_the_decoder_shares_everything_out():
    model = make_model("6+2 post-norm", "float32")
    found = replay(model, source_for(model), TARGET)
    shares = cross_rollout(found.encoder, found.decoder, found.cross)
    assert shares.to_source.shape == (2, 1, 5, 8) and shares.to_target.shape == (2, 1, 5, 5)
    np.testing.assert_allclose(shares.to_source.sum(-1) + shares.to_target.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(shares.source_only.sum(-1), 1, atol=1e-6)
    assert (shares.to_target[..., *np.triu_indices(5, 1)] == 0).all()
    # One layer by hand: half of what the position was and mixed from its past, then half from across.
    past = 0.5 * np.eye(5) + 0.5 * found.decoder[0].mean(0)
    np.testing.assert_allclose(shares.to_target[0, 0], 0.5 * past, atol=1e-6)
    memory = rollout(found.encoder)[-1, 0]
    np.testing.assert_allclose(shares.to_source[0, 0], 0.5 * found.cross[0].mean(0) @ memory, atol=1e-6)
    second = 0.5 * (0.5 * np.eye(5) + 0.5 * found.decoder[1].mean(0)) @ shares.to_source[0, 0]
    np.testing.assert_allclose(shares.to_source[1, 0], second + 0.5 * found.cross[1].mean(0) @ memory, atol=1e-6)


def test_special_tokens_can_be_kept_hidden_or_made_up_for():
    maps = random_maps(2, 3, 4, 5)
    queries, keys = [False, False, False, True], [False, True, False, False, True]
    kept = treat_special(maps, "keep", queries, keys)
    np.testing.assert_array_equal(kept.maps, maps)
    hidden = treat_special(maps, "hide", queries, keys)
    assert (hidden.queries, hidden.keys) == ((0, 1, 2), (0, 2, 3))
    np.testing.assert_array_equal(hidden.maps, maps[:, :, :3][..., [0, 2, 3]])
    assert (hidden.maps.sum(-1) < 1).all()
    full = treat_special(maps, "renormalise", queries, keys)
    np.testing.assert_allclose(full.maps, hidden.maps / hidden.maps.sum(-1, keepdims=True), atol=1e-6)
    with pytest.raises(SelectionError, match="special 'drop'"):
        treat_special(maps, "drop", queries, keys)


def test_a_row_that_saw_nothing_else_stays_zero():
    maps = np.array([[[[0, 1], [0.5, 0.5]]]], dtype=np.float32)
    shown = treat_special(maps, "renormalise", [False, False], [False, True])
    np.testing.assert_array_equal(shown.maps[0, 0], [[0], [1]])


def test_words_sum_over_keys_and_average_over_queries():
    maps = random_maps(2, 3, 4, 5)
    merged = merge_words(maps, words((0, 1), (2,), (3,)), words((0,), (1, 2, 3), (4,)))
    assert merged.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(merged[:, :, 0, 1], maps[:, :, :2, 1:4].sum(-1).mean(-1), atol=1e-6)
    np.testing.assert_allclose(merged[:, :, 2, 2], maps[:, :, 3, 4], atol=1e-6)
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-6)


def test_words_of_one_piece_change_nothing():
    maps = random_maps(2, 3, 4, 5)
    merged = merge_words(maps, words(*((i,) for i in range(4))), words(*((i,) for i in range(5))))
    np.testing.assert_array_equal(merged, maps)
