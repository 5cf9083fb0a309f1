import copy

import pytest
import torch
from torch.nn import functional

from model.linear import Int8Unavailable, Linear
from model.transformer import pad_sequences
from tests.model.tiny import tiny_model

SHAPES = [(256, 768), (256, 1024), (1024, 256), (64, 320), (30, 7)]


def linear(in_features, out_features, bias=True):
    torch.manual_seed(in_features + out_features)
    layer = Linear(in_features, out_features, bias).requires_grad_(False)
    layer.weight.normal_(0, in_features**-0.5)
    if bias:
        layer.bias.normal_()
    return layer


def quantized(layer, **options):
    layer = copy.deepcopy(layer)
    try:
        layer.quantize(**options)
    except Int8Unavailable as error:
        pytest.skip(str(error))
    return layer


def uneven_rows(count, width):
    """Rows whose magnitudes span six decades."""
    return torch.randn(count, width) * torch.logspace(-3, 3, count).unsqueeze(1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduce_range", [None, False, True])
def test_int8_stays_close_to_float_for_every_row(shape, reduce_range):
    if reduce_range is False and not torch.cpu._is_vnni_supported():
        pytest.skip("without VNNI torch's kernel cuts off sums of 8-bit inputs")
    layer = linear(*shape, bias=False)
    inputs = uneven_rows(33, shape[0])
    exact = functional.linear(inputs, layer.weight)
    rounded = quantized(layer, reduce_range=reduce_range)
    errors = (rounded(inputs) - exact).norm(dim=1) / exact.norm(dim=1)
    assert errors.max() < (0.035 if rounded.input_levels == 63 else 0.025)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_int8_row_has_the_same_bits_alone_and_in_any_batch(shape):
    layer = quantized(linear(*shape))
    inputs = uneven_rows(33, shape[0])
    together = layer(inputs)
    for size in (1, 2, 8, 32):
        for start in range(0, 33 - size):
            assert torch.equal(layer(inputs[start : start + size]), together[start : start + size])
    assert torch.equal(layer(inputs.flip(0)).flip(0), together)
    assert torch.equal(layer(inputs.view(3, 11, -1)).view(33, -1), together)


def test_a_row_of_zeros_gives_the_bias():
    layer = quantized(linear(64, 32))
    assert torch.equal(layer(torch.zeros(2, 64)), layer.bias.expand(2, -1))


def test_seven_bit_inputs_never_saturate_pairs_of_products():
    """Largest inputs and weights of one sign: the pair sums that a processor without VNNI cuts off."""
    layer = Linear(256, 8, bias=False).requires_grad_(False)
    layer.weight.fill_(1.0)
    reduced = quantized(layer, reduce_range=True)
    assert reduced._levels == 63  # 2 * (63 + 64) * 127 = 32258, below the 32767 that 16 bits hold
    torch.testing.assert_close(reduced(torch.ones(1, 256)), torch.full((1, 8), 256.0), rtol=1e-3, atol=0)


def test_a_quantized_model_translates_as_the_float_model_nearly_does():
    model = tiny_model(seed=1, d_model=64, d_ff=96).requires_grad_(False)
    sources, mask = pad_sequences([[5, 6, 7, 3], [8, 9, 3]], model.config.pad_id)
    targets = torch.tensor([[2, 11, 12], [2, 13, 14]])
    exact = model(sources, mask, targets)
    embedding = model.target_embedding.weight.clone()
    try:
        model.quantize()
    except Int8Unavailable as error:
        pytest.skip(str(error))
    assert torch.equal(model.target_embedding.weight, embedding)
    difference = (model(sources, mask, targets) - exact).norm() / exact.norm()
    assert 0 < difference < 0.05
