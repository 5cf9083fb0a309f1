import dataclasses

import numpy as np
import pytest
import torch

from model.decoding import DecodingOptions
from model.generation import generate
from model.linear import Int8Unavailable
from model.search import advance_batch, start_search
from model.selection import KINDS, Selection, SelectionError, TraceError, select_indices
from model.trace import (
    Tracer,
    decoder_layers,
    encoder_layers,
    replay,
    replay_batch,
    trace_cross_attention,
    trace_encoder_layer,
)
from model.transformer import pad_sequences
from tests.model import numpy_reference
from tests.model.tiny import EOS, VARIATIONS, forward, random_sources, tiny_model

SHAPES = {
    "6+2 post-norm": {"num_encoder_layers": 6, "num_decoder_layers": 2},
    "2+6 pre-norm": {"num_encoder_layers": 2, "num_decoder_layers": 6, "norm": "pre", "final_norm": True},
    "Marian-shaped": VARIATIONS["Marian"] | {"share_embeddings": False, "source_vocab_size": 37},
    "rotary": {"positions": "rotary", "norm": "pre", "final_norm": True},
    "learned positions": VARIATIONS["learned positions"],
}
TARGET = [5, 9, 21, 7, EOS]


def make_model(shape, precision):
    model = tiny_model(**SHAPES[shape])
    if precision == "int8":
        try:
            model.quantize()
        except Int8Unavailable as error:
            pytest.skip(str(error))
    return model


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param


@pytest.fixture(params=["float32", "int8"])
def model(request, shape):
    return make_model(shape, request.param)


def source_for(model, length=8, seed=0):
    return random_sources([length], model.config.source_vocab_size, seed)[0]


def tolerance(model, value):
    """In int8 a last bit can round an activation to its neighbouring step."""
    return 0.05 if model.output.is_quantized else value


# --- I1, I4, I8: the same numbers as the model's -----------------------------------------------------------------


def test_replay_gives_the_logits_of_the_fused_path(model):
    source = source_for(model)
    found = replay(model, source, TARGET)
    expected = forward(model, source, [model.config.decoder_start_id, *TARGET[:-1]])
    assert found.input_ids == (model.config.decoder_start_id, *TARGET[:-1])
    np.testing.assert_allclose(found.logits, expected, atol=tolerance(model, 1e-4))
    assert found.precision == ("int8" if model.output.is_quantized else "float32")


def test_replay_gives_the_maps_of_the_models_explicit_path(model):
    source = source_for(model)
    found = replay(model, source, TARGET)
    with torch.no_grad():
        logits, maps = model.attentions(torch.tensor([source]), None, torch.tensor([found.input_ids]))
    np.testing.assert_array_equal(found.logits, logits[0])
    for kind in KINDS:
        np.testing.assert_array_equal(found.maps(kind), getattr(maps, kind)[:, 0])
    with torch.no_grad():
        np.testing.assert_array_equal(found.memory, replay_memory(model, source))


def replay_memory(model, source):
    hidden = model.source_embedding(torch.tensor([source]))
    return model.encoder(hidden, None, return_weights=True)[0][0]


def test_int8_replay_computes_in_int8(shape):
    exact, rounded = make_model(shape, "float32"), make_model(shape, "int8")
    source = source_for(exact)
    difference = np.abs(replay(exact, source, TARGET).logits - replay(rounded, source, TARGET).logits).max()
    assert 1e-3 < difference


@pytest.mark.parametrize("variation", VARIATIONS)
def test_numpy_from_the_weights_alone_gives_the_maps_memory_and_logits(variation):
    model = tiny_model(**VARIATIONS[variation])
    source = source_for(model, length=9)
    found = replay(model, source, TARGET)
    logits, maps = numpy_reference.transformer(source, list(found.input_ids), model.state_dict(), model.config)
    np.testing.assert_allclose(found.logits, logits, atol=1e-4)
    for kind, expected in zip(KINDS, maps, strict=True):
        np.testing.assert_allclose(found.maps(kind), expected, atol=1e-5)


def test_a_replay_leaves_no_trace_on_the_model(model):
    source = source_for(model)
    options = DecodingOptions(beam_size=3, num_hypotheses=3, max_target_tokens=12)
    before = generate(model, [source], options)
    kept = {name: set(vars(module)) for name, module in model.named_modules()}
    replay(model, source, TARGET)
    Tracer(model, source, TARGET).layer("decoder", 0)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == kept
    assert generate(model, [source], options) == before


# --- I2: row t is decode step t -------------------------------------------------------------------------------------


def decoded_rows(model, source, options, monkeypatch):
    """What the cached decoder computed for every prefix that the search visited: logits and attention rows."""
    captured = []

    def recording(queries, keys, values, mask, causal=False):
        from model.attention import explicit_attention

        mixed, weights = explicit_attention(queries, keys, values, mask)
        captured.append(weights)
        return mixed

    monkeypatch.setattr(model, "_native", None)  # the kernels hand out no weights: see the test after the next
    with torch.no_grad():
        state = model.prefill([source])
    monkeypatch.setattr("model.decoder.fused_attention", recording)
    search = start_search(options, eos_id=EOS, max_tokens=10, forbidden_ids=(0,))
    tokens, rows = [model.config.decoder_start_id], {}
    while not search.finished:
        captured.clear()
        with torch.no_grad():
            logits = model.decode_step(torch.tensor(tokens), state)
        for row, (_, written) in enumerate(search.rows):
            own = [weights[row, :, 0] for weights in captured[0::2]]
            across = [weights[row, :, 0] for weights in captured[1::2]]
            rows[tuple(written)] = logits[row], torch.stack(own), torch.stack(across)
        step = advance_batch([search], logits)[0]
        if not search.finished:
            state.select(step.parents)
            tokens = step.tokens
    monkeypatch.undo()
    return search.hypotheses(), rows


@pytest.mark.parametrize("beam_size", [1, 4])
def test_replay_rows_are_those_of_the_cached_decoder_for_every_hypothesis(model, beam_size, monkeypatch):
    source = source_for(model)
    options = DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size)
    hypotheses, rows = decoded_rows(model, source, options, monkeypatch)
    assert len(hypotheses) == beam_size
    assert len({hypothesis.tokens for hypothesis in hypotheses}) == beam_size
    for hypothesis in hypotheses:
        found = replay(model, source, hypothesis.tokens)
        for step in range(len(hypothesis.tokens)):
            logits, own, across = rows[hypothesis.tokens[:step]]
            np.testing.assert_allclose(found.logits[step], logits, atol=tolerance(model, 1e-5))
            np.testing.assert_allclose(
                found.decoder[:, :, step, : step + 1], own[..., : step + 1], atol=tolerance(model, 1e-5)
            )
            np.testing.assert_allclose(found.cross[:, :, step], across, atol=tolerance(model, 1e-5))


def test_replayed_logits_are_those_of_the_compiled_kernels(model):
    if model._native is None:
        pytest.skip("float32, rotary positions, or no kernels")
    source = source_for(model)
    found = replay(model, source, TARGET)
    with torch.no_grad():
        state = model.prefill([source])
        for step, token in enumerate(found.input_ids):
            logits = model.decode_step(torch.tensor([token]), state)[0]
            np.testing.assert_allclose(found.logits[step], logits, atol=tolerance(model, 1e-5))


def test_an_open_end_adds_the_row_after_the_last_token(model):
    source = source_for(model)
    closed, opened = replay(model, source, TARGET), replay(model, source, TARGET, open_end=True)
    assert opened.input_ids == (*closed.input_ids, TARGET[-1])
    np.testing.assert_allclose(opened.cross[:, :, :-1], closed.cross, atol=tolerance(model, 1e-5))
    longer = replay(model, source, [*TARGET, 8])
    np.testing.assert_allclose(opened.logits[-1], longer.logits[-1], atol=tolerance(model, 1e-5))
    assert replay(model, source, [], open_end=True).cross.shape[2] == 1


# --- I3: batches ------------------------------------------------------------------------------------------------------


def test_a_batch_of_mixed_lengths_gives_what_single_pairs_give(model):
    lengths, targets = (9, 4, 12, 1), ([5, 6, EOS], [7, EOS], [9, 8, 7, 6, 5, EOS], [EOS])
    sources = [source_for(model, length, seed) for seed, length in enumerate(lengths)]
    together = replay_batch(model, list(zip(sources, targets, strict=True)))
    for source, target, found in zip(sources, targets, together, strict=True):
        alone = replay(model, source, target)
        for name in (*KINDS, "logits", "memory"):
            assert getattr(found, name).shape == getattr(alone, name).shape
            np.testing.assert_allclose(getattr(found, name), getattr(alone, name), atol=tolerance(model, 1e-5))
        np.testing.assert_allclose(found.cross.sum(-1), 1, atol=1e-6)


def test_padded_columns_get_weight_exactly_zero(model):
    ids, mask = pad_sequences([source_for(model, 9), source_for(model, 4)], 0)
    mask = mask[:, None, None]
    with torch.no_grad():
        hidden = model.source_embedding(ids)
        encoded = trace_encoder_layer(encoder_layers(model)[0], hidden, mask)
        layer = decoder_layers(model)[0]
        crossed = trace_cross_attention(layer.cross_attention, layer.cross_residual, hidden, encoded.output, mask)
    for weights in (encoded.attention.weights, crossed.weights):
        assert (weights[1, :, :, 4:] == 0).all()
        assert (weights[1, :, :, :4] > 0).all()


# --- I5: shapes and labels --------------------------------------------------------------------------------------------


def test_maps_have_layers_heads_queries_and_keys_in_this_order(model):
    config, n, m = model.config, 8, len(TARGET)
    found = replay(model, source_for(model, n), TARGET)
    assert found.encoder.shape == (config.num_encoder_layers, 4, n, n)
    assert found.decoder.shape == (config.num_decoder_layers, 4, m, m)
    assert found.cross.shape == (config.num_decoder_layers, 4, m, n)
    for kind in KINDS:
        assert found.maps(kind).dtype == np.float32
        np.testing.assert_allclose(found.maps(kind).sum(-1), 1, atol=1e-6)


def test_the_decoder_sees_no_future_at_all(model):
    maps = replay(model, source_for(model), TARGET).decoder
    assert (maps[:, :, *np.triu_indices(len(TARGET), 1)] == 0).all()
    assert (maps[:, :, *np.tril_indices(len(TARGET))] > 0).all()
    np.testing.assert_array_equal(maps[:, :, 0, 0], 1)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_selection_holds_the_slices_of_the_whole(model):
    source = source_for(model)
    whole = replay(model, source, TARGET)
    selection = Selection.of(model.config, ["cross", "encoder"], layers="-1,0", heads=[2, "0-1"])
    part = replay(model, source, TARGET, selection=selection, logits=False, memory=False)
    assert (part.decoder, part.logits, part.memory) == (None, None, None)
    last = {"encoder": model.config.num_encoder_layers - 1, "cross": model.config.num_decoder_layers - 1}
    for kind in ("encoder", "cross"):
        assert selection.layers[kind] == (last[kind], 0)
        np.testing.assert_array_equal(part.maps(kind), whole.maps(kind)[[last[kind], 0]][:, [2, 0, 1]])
    with pytest.raises(TraceError, match="decoder maps were not captured; captured are encoder, cross"):
        part.maps("decoder")


def count_calls(monkeypatch, layers):
    calls = []
    for layer in layers:
        monkeypatch.setattr(layer.ffn, "inner", Counting(layer.ffn.inner, calls))
    return calls


class Counting(torch.nn.Module):
    def __init__(self, inner, calls):
        super().__init__()
        self.inner, self.calls = inner, calls

    def forward(self, hidden):
        self.calls.append(1)
        return self.inner(hidden)


def test_what_nobody_asked_for_does_not_run(monkeypatch):
    model = make_model("2+6 pre-norm", "float32")
    source = source_for(model)
    encoder_calls, decoder_calls = (
        count_calls(monkeypatch, layers) for layers in (encoder_layers(model), decoder_layers(model))
    )
    little = {"logits": False, "memory": False}
    replay(model, source, TARGET, selection=Selection.of(model.config, ["encoder"], layers=0), **little)
    assert (len(encoder_calls), len(decoder_calls)) == (1, 0)
    encoder_calls.clear()
    replay(model, source, TARGET, selection=Selection.of(model.config, ["cross"], layers=2), **little)
    assert (len(encoder_calls), len(decoder_calls)) == (2, 3)
    decoder_calls.clear()
    replay(model, source, TARGET, selection=Selection.of(model.config, ["cross"], layers=2))
    assert len(decoder_calls) == 6


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, (0, 1, 2, 3)),
        ("all", (0, 1, 2, 3)),
        (2, (2,)),
        (-1, (3,)),
        ("1-3", (1, 2, 3)),
        ("-2--1", (2, 3)),
        ("3, 0-1, 1", (3, 0, 1)),
        ([1, "-1"], (1, 3)),
    ],
)
def test_indices_are_read_as_requests_write_them(wanted, expected):
    assert select_indices(wanted, 4, "head") == expected


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (4, "head 4 does not exist; there are 4 \\(0 to 3, or -1 to -4\\)"),
        ("-5", "head -5 does not exist"),
        ("3-1", "head range 3-1 runs backwards"),
        ("x", "head 'x' is neither an index nor a range"),
        ("1.5", "neither an index"),
        ("1" * 5_000, "neither an index"),
        ("0-" + "1" * 5_000, "neither an index"),
        (True, "neither an index"),
        ("", "neither an index"),
        ([], "no head is chosen"),
    ],
)
def test_an_impossible_index_is_named(wanted, message):
    with pytest.raises(SelectionError, match=message):
        select_indices(wanted, 4, "head")


def test_an_unknown_kind_or_measure_is_named():
    model = make_model("6+2 post-norm", "float32")
    with pytest.raises(SelectionError, match="kind 'self' does not exist; kinds are encoder, decoder, cross"):
        Selection.of(model.config, ["self"])
    with pytest.raises(SelectionError, match="cross layer 5 does not exist; there are 2"):
        Selection.of(model.config, ["cross"], layers=5)
    with pytest.raises(SelectionError, match="measure 'norms' does not exist"):
        replay(model, [EOS], [EOS], measure="norms")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([], [EOS], "the source has no ids"),
        ([EOS], [], "the target has no ids"),
        ([29, EOS], [EOS], "source id 29 is not in the vocabulary \\(0 to 28\\)"),
        ([EOS], [-1], "target id -1 is not in the vocabulary"),
    ],
)
def test_an_impossible_pair_is_named(source, target, message):
    model = make_model("6+2 post-norm", "float32")
    for read in (replay, Tracer):
        with pytest.raises(TraceError, match=message):
            read(model, source, target)


def test_a_model_in_training_is_refused():
    with pytest.raises(TraceError, match="training mode"):
        replay(tiny_model().train(), [EOS], [EOS])


# --- measures ---------------------------------------------------------------------------------------------------------


def test_the_softmax_of_the_scores_is_the_weights(model):
    source = source_for(model)
    weights, scores = replay(model, source, TARGET), replay(model, source, TARGET, measure="scores")
    for kind in KINDS:
        np.testing.assert_allclose(torch.tensor(scores.maps(kind)).softmax(-1), weights.maps(kind), atol=1e-6)
    assert (scores.decoder[:, :, *np.triu_indices(len(TARGET), 1)] == -np.inf).all()
    assert np.isfinite(scores.cross).all()


def test_value_norms_are_the_lengths_of_what_each_key_adds(model):
    source = source_for(model)
    found = replay(model, source, TARGET, measure="value_norm")
    tracer, width = Tracer(model, source, TARGET), model.config.head_width
    for kind, layer in (("encoder", 1), ("decoder", 0), ("cross", 1)):
        trace = tracer.attention(kind, layer)
        weight = tracer.attention_module(kind, layer).out.effective_weight().detach().numpy()
        for head, query, key in ((0, 2, 1), (3, 4, 4), (1, 0, 0)):
            added = weight[:, head * width : (head + 1) * width] @ trace.values[0, head, key].numpy()
            expected = float(trace.weights[0, head, query, key]) * np.linalg.norm(added)
            assert found.maps(kind)[layer, head, query, key] == pytest.approx(expected, abs=1e-5)


# --- the tracer -------------------------------------------------------------------------------------------------------


def test_a_tracers_layers_chain_from_the_embedding_to_the_logits(model):
    source = source_for(model)
    tracer, found = Tracer(model, source, TARGET), replay(model, source, TARGET)
    for side, layers in (("encoder", encoder_layers(model)), ("decoder", decoder_layers(model))):
        streams = tracer.streams(side)
        assert len(streams) == len(layers) + 1
        for index in range(len(layers)):
            trace = tracer.layer(side, index)
            assert torch.equal(trace.output, streams[index + 1])
            assert torch.equal(trace.attention.residual.stream, streams[index])
            np.testing.assert_array_equal(found.maps(side)[index], trace.attention.weights[0])
            assert (trace.cross is None) == (side == "encoder")
    np.testing.assert_array_equal(tracer.logits[0], found.logits)
    np.testing.assert_array_equal(tracer.memory[0], found.memory)
    assert torch.equal(tracer.layer("decoder", -1).output, tracer.decoder_streams[-1])
    with pytest.raises(SelectionError, match="decoder layer"):
        tracer.layer("decoder", len(decoder_layers(model)))


def test_another_memory_reaches_cross_attention_through_keys_and_values_alone(model):
    tracer = Tracer(model, source_for(model), TARGET)
    layer = decoder_layers(model)[-1]
    trace = tracer.attention("cross", -1)
    other = Tracer(model, source_for(model, 8, seed=7), TARGET).memory
    with torch.inference_mode():
        swapped = trace_cross_attention(layer.cross_attention, layer.cross_residual, trace.residual.stream, other, None)
        keys, values = layer.cross_attention.project_memory(other)
    assert torch.equal(swapped.queries, trace.queries)
    assert torch.equal(swapped.keys, keys)
    assert torch.equal(swapped.values, values)
    assert (swapped.weights - trace.weights).abs().max() > 1e-3
    restored = dataclasses.replace(trace, keys=swapped.keys)
    assert torch.equal(restored.raw_scores(), swapped.raw_scores())


def test_the_stages_name_what_they_read():
    model = make_model("2+6 pre-norm", "float32")
    stages = {stage.name: stage for stage in Tracer(model, source_for(model, 7), TARGET).stages}
    assert list(stages)[:4] == ["source embedding", "encoder layer 0", "encoder layer 1", "encoder norm"]
    assert stages["decoder layer 3"].reads == ("decoder layer 2", "encoder norm")
    assert stages["decoder layer 3"].input_shapes == ((5, 16), (7, 16))
    assert stages["logits"].output_shape == (5, 29)
    assert all(stage.seconds >= 0 for stage in stages.values())
