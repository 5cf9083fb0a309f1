import torch
from torch.nn import functional

from model.decoder import Decoder
from tests.model.tiny import prefill, random_sources, tiny_config, tiny_model


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_stack_has_as_many_layers_and_maps_as_configured():
    decoder = tiny_model(num_decoder_layers=4).decoder
    hidden, memory = randn(2, 5, 16), randn(2, 7, 16, seed=1)
    result, self_maps, cross_maps = decoder(hidden, memory, None, return_weights=True)
    assert result.shape == hidden.shape
    assert [weights.shape for weights in self_maps] == [(2, 4, 5, 5)] * 4
    assert [weights.shape for weights in cross_maps] == [(2, 4, 5, 7)] * 4
    assert all((weights[..., torch.ones(5, 5).triu(1) == 1] == 0).all() for weights in self_maps)
    same_result, *no_maps = decoder(hidden, memory, None)
    assert no_maps == [[], []]
    torch.testing.assert_close(same_result, result, atol=1e-5, rtol=1e-5)


def test_the_memory_is_read_and_what_is_masked_of_it_is_not():
    decoder = tiny_model().decoder
    hidden, memory = randn(1, 5, 16), randn(1, 7, 16, seed=1)
    mask = torch.tensor([True] * 5 + [False] * 2)[None, None, None]
    masked_changed, read_changed = memory.clone(), memory.clone()
    masked_changed[:, 5:] += 5
    read_changed[:, :5] += 5
    result = decoder(hidden, memory, mask)[0]
    assert torch.equal(result, decoder(hidden, masked_changed, mask)[0])
    assert (result - decoder(hidden, read_changed, mask)[0]).abs().max() > 1e-2


def test_the_last_norm_stands_where_the_configuration_says():
    assert Decoder(tiny_config(norm="pre")).norm is None
    model = tiny_model(norm="pre", final_norm=True)
    hidden, memory = randn(1, 5, 16), randn(1, 7, 16, seed=1)
    result = model.decoder(hidden, memory, None)[0]
    norm, model.decoder.norm = model.decoder.norm, None
    raw = model.decoder(hidden, memory, None)[0]
    torch.testing.assert_close(result, functional.layer_norm(raw, (16,), norm.weight, norm.bias))


def test_keys_and_values_of_the_memory_are_written_once_and_only_read_by_steps():
    model = tiny_model()
    state = prefill(model, random_sources([6, 3]))
    before = [(cache.keys, cache.values) for cache in state.cross_caches]
    copies = [(keys.clone(), values.clone()) for keys, values in before]
    assert len(copies) == model.config.num_decoder_layers
    for _ in range(3):
        with torch.no_grad():
            model.decode_step(torch.tensor([2, 2]), state)
    for cache, (keys, values), (old_keys, old_values) in zip(state.cross_caches, before, copies, strict=True):
        assert cache.keys is keys
        assert cache.values is values
        assert torch.equal(keys, old_keys)
        assert torch.equal(values, old_values)
