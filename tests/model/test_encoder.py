import torch
from torch.nn import functional

from model.encoder import Encoder
from tests.model.tiny import tiny_config, tiny_model


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_the_stack_has_as_many_layers_and_maps_as_configured():
    encoder = tiny_model(num_encoder_layers=5).encoder
    hidden = randn(2, 6, 16)
    memory, maps = encoder(hidden, None, return_weights=True)
    assert memory.shape == hidden.shape
    assert [weights.shape for weights in maps] == [(2, 4, 6, 6)] * 5
    same_memory, no_maps = encoder(hidden, None)
    assert no_maps == []
    torch.testing.assert_close(same_memory, memory, atol=1e-5, rtol=1e-5)


def test_a_masked_position_is_seen_by_no_other():
    encoder = tiny_model().encoder
    hidden, mask = randn(1, 6, 16), torch.tensor([True] * 4 + [False] * 2)[None, None, None]
    changed = hidden.clone()
    changed[:, 4:] += 5
    assert torch.equal(encoder(hidden, mask)[0][:, :4], encoder(changed, mask)[0][:, :4])
    # and what is left is as it would be without it
    torch.testing.assert_close(encoder(hidden, mask)[0][:, :4], encoder(hidden[:, :4], None)[0], atol=1e-5, rtol=1e-5)


def test_the_last_norm_stands_where_the_configuration_says():
    assert Encoder(tiny_config(norm="pre")).norm is None
    model = tiny_model(norm="pre", final_norm=True)
    hidden = randn(1, 6, 16)
    memory, _ = model.encoder(hidden, None)
    norm, model.encoder.norm = model.encoder.norm, None
    raw, _ = model.encoder(hidden, None)
    torch.testing.assert_close(memory, functional.layer_norm(raw, (16,), norm.weight, norm.bias))
