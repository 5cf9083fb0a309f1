import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from model.linear import Int8Unavailable
from model.transformer import Transformer, choose_precision, pad_sequences
from tests.model import numpy_reference
from tests.model.tiny import (
    VARIATIONS,
    VOCAB_SIZE,
    forward,
    random_sources,
    random_targets,
    tiny_config,
    tiny_model,
)

LENGTHS = (9, 4, 12, 1)  # of the sources in a batch
TARGET_LENGTH = 7
FUTURE = torch.ones(TARGET_LENGTH, TARGET_LENGTH, dtype=torch.bool).triu(1)


@pytest.fixture(params=VARIATIONS)
def model(request):
    return tiny_model(**VARIATIONS[request.param])


def make_batch(config):
    sources = random_sources(LENGTHS, config.source_vocab_size)
    targets = random_targets(len(sources), TARGET_LENGTH, config.decoder_start_id)
    return sources, targets


# --- against other implementations ----------------------------------------------------------------------------------


def test_logits_and_maps_are_those_of_the_numpy_reference(model):
    sources, targets = make_batch(model.config)
    with torch.no_grad():
        logits = model(*pad_sequences(sources, 0), targets)
        _, maps = model.attentions(*pad_sequences(sources, 0), targets)
    for row, source in enumerate(sources):
        expected, expected_maps = numpy_reference.transformer(
            source, targets[row].tolist(), model.state_dict(), model.config
        )
        torch.testing.assert_close(logits[row].double(), torch.tensor(expected), atol=1e-4, rtol=0)
        length = len(source)
        got_maps = (maps.encoder[:, row, :, :length, :length], maps.decoder[:, row], maps.cross[:, row, :, :, :length])
        for got_map, expected_map in zip(got_maps, expected_maps, strict=True):
            torch.testing.assert_close(got_map.double(), torch.tensor(expected_map), atol=1e-5, rtol=0)


def copy_linear(ours, theirs):
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def copy_self_attention(ours, theirs):
    theirs.in_proj_weight.copy_(ours.qkv.weight)
    theirs.in_proj_bias.copy_(ours.qkv.bias)
    copy_linear(ours.out, theirs.out_proj)


def copy_cross_attention(ours, theirs):
    theirs.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.kv.weight)))
    theirs.in_proj_bias.copy_(torch.cat((ours.query.bias, ours.kv.bias)))
    copy_linear(ours.out, theirs.out_proj)


def torch_transformer(model):
    """torch's own Transformer with the weights of ours."""
    config = model.config
    options = {
        **{"d_model": config.d_model, "nhead": config.num_heads, "dim_feedforward": config.d_ff, "dropout": 0.0},
        **{"batch_first": True, "norm_first": config.norm == "pre", "activation": config.activation},
    }

    def last_norm():
        return nn.LayerNorm(config.d_model) if config.final_norm else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**options), config.num_encoder_layers, last_norm(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), config.num_decoder_layers, last_norm())
    theirs = nn.Transformer(**options, custom_encoder=encoder, custom_decoder=decoder).eval()
    with torch.no_grad():
        for ours, layer in zip(model.encoder.layers, theirs.encoder.layers, strict=True):
            copy_self_attention(ours.attention, layer.self_attn)
            copy_linear(ours.attention_residual.norm, layer.norm1)
            copy_linear(ours.ffn_residual.norm, layer.norm2)
        for ours, layer in zip(model.decoder.layers, theirs.decoder.layers, strict=True):
            copy_self_attention(ours.attention, layer.self_attn)
            copy_cross_attention(ours.cross_attention, layer.multihead_attn)
            copy_linear(ours.attention_residual.norm, layer.norm1)
            copy_linear(ours.cross_residual.norm, layer.norm2)
            copy_linear(ours.ffn_residual.norm, layer.norm3)
        for ours, layer in (
            *zip(model.encoder.layers, theirs.encoder.layers, strict=True),
            *zip(model.decoder.layers, theirs.decoder.layers, strict=True),
        ):
            copy_linear(ours.ffn.inner, layer.linear1)
            copy_linear(ours.ffn.outer, layer.linear2)
        if config.final_norm:
            copy_linear(model.encoder.norm, theirs.encoder.norm)
            copy_linear(model.decoder.norm, theirs.decoder.norm)
    return theirs


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_outputs_are_those_of_torch_nn_transformer(norm, final_norm, activation):
    model = tiny_model(norm=norm, final_norm=final_norm, activation=activation, num_encoder_layers=4)
    theirs = torch_transformer(model)
    sources, targets = make_batch(model.config)
    ids, mask = pad_sequences(sources, 0)
    with torch.no_grad():
        hidden = model.decode(targets, model.encode(ids, mask), mask)
        # Its masks are ours upside down: True = may not attend.
        expected = theirs(
            model.source_embedding(ids),
            model.target_embedding(targets),
            tgt_mask=FUTURE,
            src_key_padding_mask=~mask,
            memory_key_padding_mask=~mask,
        )
    torch.testing.assert_close(hidden, expected, atol=1e-4, rtol=0)


# --- what a row may depend on ---------------------------------------------------------------------------------------


def test_a_row_in_a_batch_gives_the_logits_it_gives_alone(model):
    sources, targets = make_batch(model.config)
    with torch.no_grad():
        logits = model(*pad_sequences(sources, 0), targets)
    for row, source in enumerate(sources):
        torch.testing.assert_close(logits[row], forward(model, source, targets[row].tolist()), atol=2e-5, rtol=1e-5)


def test_ids_under_padding_change_nothing_at_all(model):
    sources, targets = make_batch(model.config)
    ids, mask = pad_sequences(sources, 0)
    other_ids = ids.masked_fill(~mask, 11)
    with torch.no_grad():
        assert torch.equal(model(ids, mask, targets), model(other_ids, mask, targets))


def test_a_later_target_token_changes_no_earlier_logits(model):
    sources, targets = make_batch(model.config)
    ids, mask = pad_sequences(sources, 0)
    changed = targets.clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCAB_SIZE
    with torch.no_grad():
        before, after = model(ids, mask, targets), model(ids, mask, changed)
    torch.testing.assert_close(before[:, :4], after[:, :4], atol=1e-6, rtol=1e-6)
    assert (before[:, 4:] - after[:, 4:]).abs().amax(-1).min() > 1e-3


def test_the_order_of_the_source_matters(model):
    source = [5, 6, 7, 8, 3]
    target = random_targets(1, TARGET_LENGTH)[0].tolist()
    assert (forward(model, source, target) - forward(model, [6, 5, 7, 8, 3], target)).abs().max() > 1e-3


# --- attention maps -------------------------------------------------------------------------------------------------


def test_the_explicit_path_gives_the_logits_of_the_fused_path(model):
    sources, targets = make_batch(model.config)
    batch = (*pad_sequences(sources, 0), targets)
    with torch.no_grad():
        explicit, _ = model.attentions(*batch)
        torch.testing.assert_close(explicit, model(*batch), atol=2e-5, rtol=1e-5)


def test_maps_sum_to_one_and_give_exactly_nothing_to_padding_and_future(model):
    sources, targets = make_batch(model.config)
    ids, mask = pad_sequences(sources, 0)
    with torch.no_grad():
        _, maps = model.attentions(ids, mask, targets)
    config, batch, longest = model.config, len(sources), max(LENGTHS)
    assert maps.encoder.shape == (config.num_encoder_layers, batch, config.num_heads, longest, longest)
    assert maps.decoder.shape == (config.num_decoder_layers, batch, config.num_heads, TARGET_LENGTH, TARGET_LENGTH)
    assert maps.cross.shape == (config.num_decoder_layers, batch, config.num_heads, TARGET_LENGTH, longest)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-6, rtol=0)
    for row, length in enumerate(LENGTHS):
        for weights in (maps.encoder, maps.cross):
            assert (weights[:, row, :, :, length:] == 0).all()
            assert (weights[:, row, :, :, :length] > 0).all()
    assert (maps.decoder[..., FUTURE] == 0).all()
    assert (maps.decoder[..., ~FUTURE] > 0).all()


# --- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [{"norm": "post"}, {"norm": "pre", "final_norm": True}], ids=["post", "pre"])
@pytest.mark.parametrize("tie_output", [True, False])
def test_the_first_loss_is_near_that_of_guessing(norm, tie_output):
    vocab_size = 1000
    config = tiny_config(
        source_vocab_size=vocab_size, target_vocab_size=vocab_size, d_model=128, d_ff=256, tie_output=tie_output, **norm
    )
    model = Transformer(config, seed=0)
    generator = torch.Generator().manual_seed(1)
    source, target = torch.randint(4, vocab_size, (2, 16, 20), generator=generator)
    with torch.no_grad():
        logits = model(source, None, target[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
    assert abs(loss.item() - math.log(vocab_size)) < 0.75


def test_all_weights_are_initialised_and_get_a_gradient(model):
    fresh = Transformer(model.config, seed=3)
    for weight in fresh.parameters():
        assert weight.isfinite().all()
        assert weight.abs().max() < 3
    sources, targets = make_batch(model.config)
    fresh(*pad_sequences(sources, 0), targets).square().sum().backward()
    without = [name for name, weight in fresh.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert without == []


def test_a_seed_repeats_the_weights_and_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second = Transformer(tiny_config(), seed=5), Transformer(tiny_config(), seed=5)
    assert torch.equal(torch.rand(1), expected)
    other = Transformer(tiny_config(), seed=6)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
    assert not torch.equal(first.encoder.layers[0].ffn.inner.weight, other.encoder.layers[0].ffn.inner.weight)


def test_projections_that_share_a_matrix_start_as_if_they_had_their_own():
    layer = Transformer(tiny_config(d_model=64, num_heads=4), seed=0).decoder.layers[0]
    bound = math.sqrt(6 / (64 + 64))
    for weight in (layer.attention.qkv.weight, layer.cross_attention.kv.weight, layer.cross_attention.query.weight):
        assert 0.99 * bound < weight.abs().max() <= bound


def test_tied_weights_are_one_tensor_and_are_counted_once():
    tied = tiny_model()
    assert tied.source_embedding.weight is tied.target_embedding.weight is tied.output.weight
    positions = tiny_model(positions="learned", max_positions=10)
    assert positions.source_embedding.positions is positions.target_embedding.positions
    two = tiny_model(share_embeddings=False)
    assert two.source_embedding.weight is not two.target_embedding.weight
    assert two.target_embedding.weight is two.output.weight
    three = tiny_model(share_embeddings=False, tie_output=False)
    assert three.target_embedding.weight is not three.output.weight
    table = VOCAB_SIZE * tied.config.d_model
    assert two.num_parameters() - tied.num_parameters() == table
    assert three.num_parameters() - tied.num_parameters() == 2 * table


def test_tied_weights_stay_one_tensor_through_a_step_of_training():
    model = tiny_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.output.weight.clone()
    sources, targets = make_batch(model.config)
    model(*pad_sequences(sources, 0), targets).square().mean().backward()
    optimizer.step()
    assert torch.equal(model.output.weight, model.source_embedding.weight)
    assert not torch.equal(model.output.weight, before)


def test_dropout_acts_in_training_only():
    model = tiny_model(dropout=0.5)
    sources, targets = make_batch(model.config)
    batch = (*pad_sequences(sources, 0), targets)
    assert torch.equal(model(*batch), model(*batch))
    assert torch.equal(model(*batch), tiny_model()(*batch))
    model.train()
    assert not torch.equal(model(*batch), model(*batch))


def test_num_parameters_of_the_papers_base_model():
    config = tiny_config(
        **{"source_vocab_size": 37_000, "target_vocab_size": 37_000, "d_model": 512, "num_heads": 8, "d_ff": 2048},
        **{"num_encoder_layers": 6, "num_decoder_layers": 6},
    )
    with torch.device("meta"):
        model = Transformer(config)
    # Table 3 of the paper says 65 million.
    attention, ffn, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
    layers = 6 * (attention + ffn + 2 * norm) + 6 * (2 * attention + ffn + 3 * norm)
    assert model.num_parameters() == 37_000 * 512 + layers


def test_a_source_beyond_a_learned_table_is_refused_with_both_numbers():
    model = tiny_model(positions="learned", max_positions=10)
    [source] = random_sources([11])
    with pytest.raises(ValueError, match=r"position 10 .* 10 rows \(0 to 9\)"):
        forward(model, source, [2])
    with pytest.raises(ValueError, match=r"position 11 .* 10 rows"):
        forward(model, source[:10], [2] * 12)
    forward(model, source[:10], [2] * 10)


def test_pad_sequences_makes_a_rectangle_and_its_mask():
    ids, mask = pad_sequences([[5, 3], [6, 7, 8, 3], [3]], pad_id=0)
    assert ids.tolist() == [[5, 3, 0, 0], [6, 7, 8, 3], [3, 0, 0, 0]]
    assert mask.tolist() == [[True, True, False, False], [True] * 4, [True, False, False, False]]
    assert ids.dtype == torch.int64


# --- number formats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.2), ("float16", 0.03)])
@pytest.mark.parametrize("variation", ["paper", "Marian", "learned positions", "rotary positions"])
def test_every_float_format_translates_nearly_as_float64_does(variation, precision, tolerance):
    model = tiny_model(**VARIATIONS[variation])
    sources, targets = make_batch(model.config)
    with torch.no_grad():
        expected = model.double()(*pad_sequences(sources, 0), targets)
        model.set_precision(precision)
        state = model.prefill(sources)
        stepwise = torch.stack([model.decode_step(targets[:, t], state) for t in range(TARGET_LENGTH)], dim=1)
    assert model.precision == precision
    assert {weight.dtype for weight in model.parameters()} == {getattr(torch, precision)}
    assert stepwise.dtype == getattr(torch, precision)
    torch.testing.assert_close(stepwise.double(), expected, atol=tolerance * expected.abs().max().item(), rtol=0)


def test_tied_weights_stay_tied_in_another_format():
    model = tiny_model()
    model.set_precision("bfloat16")
    assert model.output.weight is model.target_embedding.weight is model.source_embedding.weight


@pytest.mark.parametrize(
    ("device", "has_kernels", "is_new", "expected"),
    [("cpu", True, True, "int8"), ("cpu", False, True, "float32"), ("cuda", True, True, "bfloat16")]
    + [("cuda", True, False, "float16")],
)
def test_auto_is_the_fastest_format_of_the_device(monkeypatch, device, has_kernels, is_new, expected):
    monkeypatch.setattr("model.transformer.has_int8_kernels", lambda: has_kernels)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: is_new)
    assert choose_precision("auto", torch.device(device)) == expected


def test_int8_is_refused_where_no_processor_computes():
    with torch.device("meta"):
        model = Transformer(tiny_config())
    with pytest.raises(Int8Unavailable, match="by a processor, not by meta"):
        model.set_precision("int8")
