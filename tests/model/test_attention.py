import math

import pytest
import torch

from model.attention import (
    CrossAttention,
    SelfAttention,
    causal_mask,
    explicit_attention,
    fused_attention,
    head_log_weights,
    merge_heads,
    split_heads,
)

B, H, Q, K, D = 3, 4, 5, 7, 6


def make_inputs(queries=Q, keys=K):
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, H, queries, D), (B, H, keys, D), (B, H, keys, D))
    return [2 * torch.randn(shape, generator=generator) for shape in shapes]


def key_mask():
    mask = torch.ones(B, 1, 1, K, dtype=torch.bool)
    mask[0, ..., 3:] = False
    mask[2, ..., :-1] = False  # one key is left
    return mask


def test_equation_1_by_hand():
    # Two keys whose products with the query are 0 and 2, at width 4: softmax(0 / 2, 2 / 2).
    queries = torch.tensor([[[[1.0, 1.0, 0.0, 0.0]]]])
    keys = torch.tensor([[[[1.0, -1.0, 5.0, 5.0], [1.0, 1.0, 7.0, -3.0]]]])
    values = torch.tensor([[[[10.0, 0.0, 0.0, 0.0], [0.0, 20.0, 0.0, 0.0]]]])
    second = math.e / (1 + math.e)
    mixed, weights = explicit_attention(queries, keys, values, None)
    torch.testing.assert_close(weights.flatten(), torch.tensor([1 - second, second]))
    torch.testing.assert_close(mixed.flatten(), torch.tensor([10 * (1 - second), 20 * second, 0.0, 0.0]))
    torch.testing.assert_close(fused_attention(queries, keys, values, None), mixed)


@pytest.mark.parametrize("mask", [None, key_mask()], ids=["all", "padded"])
def test_fused_and_explicit_agree(mask):
    inputs = make_inputs()
    mixed, weights = explicit_attention(*inputs, mask)
    assert mixed.shape == (B, H, Q, D)
    assert weights.shape == (B, H, Q, K)
    torch.testing.assert_close(fused_attention(*inputs, mask), mixed, atol=1e-5, rtol=1e-5)


def test_fused_and_explicit_agree_when_causal():
    inputs = make_inputs(Q, Q)
    mixed, weights = explicit_attention(*inputs, None, causal=True)
    torch.testing.assert_close(fused_attention(*inputs, None, causal=True), mixed, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fused_attention(*inputs, causal_mask(Q)), mixed, atol=1e-5, rtol=1e-5)
    assert (weights[..., torch.ones(Q, Q).triu(1) == 1] == 0).all()
    assert (weights[..., 0, 0] == 1).all()


@pytest.mark.parametrize("causal", [False, True])
def test_bfloat16_is_computed_exactly_enough_and_comes_back_as_bfloat16(causal):
    inputs = [tensor.bfloat16() for tensor in make_inputs(Q, Q)]
    mask = None if causal else key_mask()[..., -Q:]
    expected, _ = explicit_attention(*[tensor.float() for tensor in inputs], mask, causal)
    mixed = fused_attention(*inputs, mask, causal)
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), expected, atol=0.0, rtol=2**-8)  # rounded once, at the end


def test_weights_sum_to_one_and_forbidden_keys_get_exactly_nothing():
    _, weights = explicit_attention(*make_inputs(), key_mask())
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, Q))
    forbidden = (~key_mask()).expand_as(weights)
    assert (weights[forbidden] == 0).all()
    assert (weights[~forbidden] > 0).all()
    assert (weights[2, ..., -1] == 1).all()


def test_forbidden_keys_and_values_may_hold_anything_finite():
    queries, keys, values = make_inputs()
    mask = key_mask()
    place = ~mask.squeeze(2).unsqueeze(-1)
    other_keys, other_values = keys.masked_fill(place, 1e9), values.masked_fill(place, -1e9)
    for attend in (fused_attention, lambda *inputs: explicit_attention(*inputs)[0]):
        assert torch.equal(attend(queries, keys, values, mask), attend(queries, other_keys, other_values, mask))


def test_causal_mask_is_true_on_and_below_the_diagonal():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_heads_are_neighbouring_slices_of_the_width():
    flat = torch.arange(2 * 3 * 8).reshape(2, 3, 8)
    split = split_heads(flat, 4)
    assert split.shape == (2, 4, 3, 2)
    assert torch.equal(split[1, 2, 0], flat[1, 0, 4:6])
    assert torch.equal(merge_heads(split), flat)


@pytest.mark.parametrize("bias", [True, False])
def test_projections_stand_in_the_matrix_in_the_order_the_docs_say(bias):
    attention, cross = SelfAttention(8, 2, bias), CrossAttention(8, 2, bias)
    assert (attention.qkv.bias is not None) == (cross.kv.bias is not None) == bias
    hidden = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for weight in (*attention.parameters(), *cross.parameters()):
            weight.zero_()
        for index, weight in enumerate(
            (attention.qkv.weight[:8], attention.qkv.weight[8:16], attention.qkv.weight[16:])
        ):
            weight.fill_diagonal_(index + 1.0)
        for index, weight in enumerate((cross.query.weight, cross.kv.weight[:8], cross.kv.weight[8:])):
            weight.fill_diagonal_(index + 1.0)
        results = (*attention.project(hidden), cross.project_query(hidden), *cross.project_memory(hidden))
    for factor, result in zip((1, 2, 3, 1, 2, 3), results, strict=True):
        torch.testing.assert_close(merge_heads(result), factor * hidden)


def test_one_heads_log_weights_are_those_of_the_explicit_path():
    queries, keys, values = make_inputs()
    _, weights = explicit_attention(queries, keys, values, key_mask())
    found = head_log_weights(queries, keys, key_mask(), head=2)
    torch.testing.assert_close(found.exp(), weights[:, 2])
    _, weights = explicit_attention(queries, keys, values, None)
    torch.testing.assert_close(head_log_weights(queries, keys, None, head=1).exp(), weights[:, 1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = head_log_weights(queries.bfloat16(), keys.bfloat16(), None, head=1)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.exp(), weights[:, 1], atol=0.05, rtol=0)
