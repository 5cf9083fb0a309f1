import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from model.layers import (
    Embedding,
    FeedForward,
    GrowingTable,
    LayerNorm,
    PositionTooLarge,
    Residual,
    Rotary,
    sinusoids,
)
from tests.model.tiny import VOCAB_SIZE, tiny_config, tiny_model

CPU = torch.device("cpu")


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- sinusoids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1, 17, 5_000, 1_000_000])
def test_sinusoids_are_the_formula_of_section_3_5(position):
    width = 10
    [row] = sinusoids(position, position + 1, width, "interleaved")
    for i in range(width // 2):
        angle = position / 10_000 ** (2 * i / width)
        assert row[2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert row[2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_halves_hold_all_sines_and_then_all_cosines():
    interleaved, halves = sinusoids(3, 9, 8, "interleaved"), sinusoids(3, 9, 8, "halves")
    assert torch.equal(halves, torch.cat((interleaved[:, 0::2], interleaved[:, 1::2]), dim=1))


def test_a_table_grown_bit_by_bit_is_that_computed_at_once():
    table = GrowingTable(6, "interleaved", initial_rows=4)
    for count in (3, 5, 6, 11, 40):
        assert table.rows(count, CPU, torch.float32).shape[0] >= count
    assert torch.equal(table.rows(1, CPU, torch.float32)[:40], sinusoids(0, 40, 6, "interleaved"))


def test_a_table_asked_for_in_bfloat16_is_exact_again_in_float32():
    table = GrowingTable(6, "halves", initial_rows=4)
    assert table.rows(4, CPU, torch.bfloat16).dtype == torch.bfloat16
    table.rows(9, CPU, torch.bfloat16)
    assert torch.equal(table.rows(9, CPU, torch.float32)[:9], sinusoids(0, 9, 6, "halves"))


def test_a_table_grown_in_inference_mode_serves_training_later():
    rotary = Rotary(8)
    with torch.inference_mode():
        rotary.rotate(randn(1, 1, 1, 8), torch.tensor([[900]]), 900)
    vectors = randn(1, 1, 3, 8).requires_grad_()
    rotary.rotate(vectors, None, 2).square().sum().backward()
    assert vectors.grad is not None


def test_positions_beyond_the_first_table_are_embedded_right():
    config = tiny_config()
    embedding = Embedding(config, VOCAB_SIZE)
    nn.init.normal_(embedding.weight)
    ids = torch.full((1, 700), 5)
    with torch.no_grad():
        added = embedding(ids) - embedding.weight[5] * math.sqrt(config.d_model)
    torch.testing.assert_close(added[0], sinusoids(0, 700, config.d_model, "interleaved"), atol=1e-5, rtol=0)


# --- embedding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{}, {"positions": "learned", "max_positions": 12}, {"positions": "rotary"}])
def test_embedding_at_given_positions_is_that_of_a_whole_row(kind):
    embedding = tiny_model(**kind).source_embedding
    ids = torch.tensor([[5, 6, 7, 8, 9], [9, 8, 7, 6, 5]])
    with torch.no_grad():
        whole = embedding(ids)
        at = torch.tensor([[3], [1]])
        assert torch.equal(embedding(ids.gather(1, at), at, 3), whole[torch.arange(2), at[:, 0]].unsqueeze(1))


@pytest.mark.parametrize("scale", [True, False])
def test_embedding_scale(scale):
    embedding = tiny_model(embedding_scale=scale, positions="rotary").source_embedding
    factor = 4.0 if scale else 1.0  # sqrt of a width of 16
    torch.testing.assert_close(embedding(torch.tensor([[7]]))[0, 0], embedding.weight[7] * factor)


def test_a_position_beyond_a_learned_table_is_refused_with_both_numbers():
    embedding = tiny_model(positions="learned", max_positions=12).source_embedding
    with pytest.raises(PositionTooLarge, match=r"position 12 .* 12 rows \(0 to 11\)"):
        embedding(torch.full((1, 13), 5))
    with pytest.raises(PositionTooLarge, match="position 40 .* 12 rows"):
        embedding(torch.tensor([[5]]), torch.tensor([[40]]), 40)


# --- rotary ---------------------------------------------------------------------------------------------------------


def test_rotation_keeps_norms_and_leaves_position_0_alone():
    vectors = randn(2, 3, 6, 8)
    turned = Rotary(8).rotate(vectors, None, 5)
    torch.testing.assert_close(turned.norm(dim=-1), vectors.norm(dim=-1))
    assert torch.equal(turned[:, :, 0], vectors[:, :, 0])
    assert (turned[:, :, 1:] - vectors[:, :, 1:]).abs().amax(-1).min() > 1e-2


def test_products_of_rotated_vectors_depend_on_their_distance_alone():
    rotary, query, key = Rotary(8), randn(1, 1, 1, 8), randn(1, 1, 1, 8, seed=1)

    def product(query_position, key_position):
        at_query, at_key = torch.tensor([[query_position]]), torch.tensor([[key_position]])
        return (rotary.rotate(query, at_query, query_position) * rotary.rotate(key, at_key, key_position)).sum()

    for start in (1, 50, 300):
        torch.testing.assert_close(product(start + 7, start), product(7, 0), atol=1e-4, rtol=0)
    assert (product(8, 0) - product(7, 0)).abs() > 1e-2
    assert (product(0, 7) - product(7, 0)).abs() > 1e-2  # and on who comes first


def test_rotation_at_given_positions_is_that_of_a_whole_row():
    rotary, vectors = Rotary(8), randn(2, 3, 6, 8)
    at = torch.tensor([[4], [2]])
    whole = rotary.rotate(vectors, None, 5)
    picked = torch.stack((vectors[0, :, 4:5], vectors[1, :, 2:3]))
    assert torch.equal(rotary.rotate(picked, at, 4), torch.stack((whole[0, :, 4:5], whole[1, :, 2:3])))


# --- feed-forward, norm, residual -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "activate"),
    [
        ({"activation": "relu"}, lambda x: x.clamp(min=0)),
        ({"activation": "swish"}, lambda x: x * torch.sigmoid(x)),
        ({"activation": "gelu"}, lambda x: x * torch.special.ndtr(x)),
        ({"activation": "gelu", "gelu_approximation": "tanh"}, lambda x: functional.gelu(x, approximate="tanh")),
    ],
    ids=["relu", "swish", "gelu", "tanh"],
)
def test_feed_forward_is_two_matrices_with_the_activation_between(options, activate):
    ffn = FeedForward(tiny_config(**options))
    for index, weight in enumerate(ffn.parameters()):
        nn.init.normal_(weight, generator=torch.Generator().manual_seed(index))
    hidden = randn(2, 5, 16)
    inner = activate(hidden @ ffn.inner.weight.T + ffn.inner.bias)
    torch.testing.assert_close(ffn(hidden), inner @ ffn.outer.weight.T + ffn.outer.bias, atol=2e-5, rtol=1e-5)


def test_layer_norm_is_its_formula():
    norm = LayerNorm(6, eps=0.5)
    with torch.no_grad():
        norm.weight.copy_(randn(6))
        norm.bias.copy_(randn(6, seed=1))
    hidden = 3 * randn(4, 6, seed=2) + 1
    scale = (hidden.var(-1, correction=0, keepdim=True) + 0.5).sqrt()
    expected = norm.weight * (hidden - hidden.mean(-1, keepdim=True)) / scale + norm.bias
    torch.testing.assert_close(norm(hidden), expected)


def run_residual(placement, hidden, sublayer):
    residual = Residual(tiny_config(norm=placement))
    return residual.after(hidden, sublayer(residual.before(hidden)))


def test_post_norms_the_sum_and_pre_norms_what_the_sublayer_reads():
    hidden = 3 * randn(2, 4, 16) + 1

    def norm(x):
        return functional.layer_norm(x, (16,))

    torch.testing.assert_close(run_residual("post", hidden, torch.exp), norm(hidden + hidden.exp()))
    torch.testing.assert_close(run_residual("pre", hidden, torch.exp), hidden + norm(hidden).exp())


def test_dropout_falls_on_the_update_and_never_on_the_stream():
    residual = Residual(tiny_config(norm="pre", dropout=0.5)).train()
    hidden, update = torch.full((1, 1, 4096), 10.0), torch.ones(1, 1, 4096)
    torch.manual_seed(0)
    values = residual.after(hidden, update).flatten().tolist()
    assert set(values) == {10.0, 12.0}  # dropped, or kept and doubled
    assert 0.4 < values.count(10.0) / 4096 < 0.6
