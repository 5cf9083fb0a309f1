import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from model.decoding import DecodingOptions
from model.generation import generate
from model.scoring import Score
from model.search import Constraints
from model.selection import Selection, SelectionError, TraceError
from model.stations import attention, block, inputs, output
from model.stations.base import Affine
from model.stations.registry import STATIONS, Options, take
from model.trace import Tracer, decoder_layers, encoder_layers, replay
from model.words import TokenText
from tests.model.test_trace import SHAPES, TARGET, make_model, source_for, tolerance
from tests.model.tiny import EOS, VARIATIONS, tiny_model

PRE, POST = "2+6 pre-norm", "6+2 post-norm"


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param


@pytest.fixture(params=["float32", "int8"])
def model(request, shape):
    return make_model(shape, request.param)


@pytest.fixture
def tracer(model):
    return Tracer(model, source_for(model), TARGET)


def tracer_of(shape=POST, source_length=8, target=TARGET, **options):
    model = make_model(shape, "float32")
    return Tracer(model, source_for(model, source_length), target, **options)


def failed(station):
    return {item.name for item in station.checks if not item.passed}


def value(station, name):
    return next(item.value for item in station.checks if item.name == name)


# --- every station, every model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_every_check_of_every_station_passes(tracer, kind):
    for number, name in enumerate(STATIONS, start=1):
        for layer, head, position in ((0, 0, 0), (-1, -1, -1)):
            station = take(name, tracer, Options(kind=kind, layer=layer, head=head, position=position))
            assert (station.number, station.name) == (number, name)
            assert station.checks
            assert station.passed, failed(station)


@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_variation_of_the_model_passes(variation):
    model = tiny_model(**VARIATIONS[variation])
    tracer = Tracer(model, source_for(model), TARGET)
    for name in STATIONS:
        station = take(name, tracer, Options(layer=1, head=0, position=2))
        assert station.passed, failed(station)


def test_the_shortest_pair_goes_through_every_station():
    tracer = tracer_of(source_length=1, target=[EOS])
    for name in STATIONS:
        station = take(name, tracer)
        assert station.passed, failed(station)


def test_an_unknown_station_layer_head_or_position_is_named():
    tracer = tracer_of()
    for name, options, message in (
        ("softmaxx", Options(), "station 'softmaxx' does not exist; there are route, tokens"),
        ("heads", Options(layer=6), "encoder layer 6 does not exist; there are 6"),
        ("cross", Options(layer=2), "cross layer 2 does not exist; there are 2"),
        ("attention", Options(head=4), "head 4 does not exist"),
        ("softmax", Options(position=8), "query 8 does not exist"),
        ("residual", Options(sublayer="cross"), "an encoder layer has no cross-attention"),
        ("residual", Options(sublayer="both"), "sublayer 'both' does not exist"),
        ("ffn", Options(activation="tanh"), "activation 'tanh' does not exist"),
        ("positions", Options(count=0), "0 positions asked for"),
    ):
        with pytest.raises(SelectionError, match=message):
            take(name, tracer, options)
    with pytest.raises(TraceError, match="temperature is 0"):
        take("softmax", tracer, Options(temperature=0))


def test_arrays_come_out_by_name():
    arrays = take("projections", tracer_of()).arrays()
    assert arrays["queries"].shape == (8, 4)
    assert arrays["query_map.weight"].shape == (16, 4)
    assert "stages.0.output" in take("block", tracer_of()).arrays()


# --- a check that cannot fail proves nothing --------------------------------------------------------------------------


class Tampered(Tracer):
    """Hands out layers in which one value is wrong."""

    part: str
    field: str

    def layer(self, side, index):
        trace = super().layer(side, index)
        part = getattr(trace, self.part)
        if self.field == "mask":
            changed = dataclasses.replace(part, mask=None)
        elif "." in self.field:
            name = self.field.split(".")[1]
            wrong = getattr(part.residual, name) * 1.01 + 0.01
            changed = dataclasses.replace(part, residual=dataclasses.replace(part.residual, **{name: wrong}))
        else:
            changed = dataclasses.replace(part, **{self.field: getattr(part, self.field) * 1.01 + 0.01})
        return dataclasses.replace(trace, **{self.part: changed})


@pytest.mark.parametrize(
    ("shape", "station", "options", "part", "field", "expected"),
    [
        (PRE, "projections", {}, "attention", "projected_queries", {"queries_recomputed"}),
        (PRE, "projections", {}, "attention", "projected_keys", {"keys_recomputed"}),
        (PRE, "projections", {"kind": "cross"}, "cross", "values", {"values_recomputed"}),
        ("rotary", "projections", {}, "attention", "keys", {"turned"}),
        (
            POST,
            "attention",
            {},
            "attention",
            "weights",
            {"rows_sum_to_one", "softmax_recomputed", "context_recomputed"},
        ),
        (POST, "attention", {"kind": "decoder"}, "attention", "mask", {"softmax_recomputed"}),
        (POST, "attention", {"kind": "cross"}, "cross", "mixed", {"context_recomputed"}),
        (POST, "softmax", {}, "attention", "weights", {"real_settings", "by_exponentials"}),
        (PRE, "heads", {"kind": "cross"}, "cross", "residual.update", {"out_recomputed"}),
        (PRE, "heads", {}, "attention", "mixed", {"out_recomputed"}),
        (POST, "residual", {}, "attention", "residual.output", {"whole_update", "norm_recomputed"}),
        (PRE, "residual", {}, "attention", "residual.output", {"whole_update"}),
        (PRE, "residual", {}, "attention", "residual.inputs", {"norm_recomputed"}),
        (PRE, "ffn", {}, "ffn", "hidden", {"hidden_recomputed", "activation_recomputed"}),
        (PRE, "ffn", {}, "ffn", "activated", {"activation_recomputed", "output_recomputed"}),
        (PRE, "ffn", {}, "ffn", "residual.update", {"output_recomputed"}),
        (PRE, "mask", {}, "attention", "weights", {"future_is_zero", "first_sees_itself"}),
        (PRE, "mask", {}, "attention", "mask", {"future_is_blocked"}),
        (PRE, "cross", {}, "cross", "queries", {"queries_stay"}),
        (PRE, "cross", {}, "cross", "weights", {"only_through_keys_and_values", "padding_is_unseen"}),
    ],
)
def test_a_wrong_value_fails_its_check(shape, station, options, part, field, expected):
    model = make_model(shape, "float32")
    tampered = Tampered(model, source_for(model), TARGET)
    tampered.part, tampered.field = part, field
    assert expected <= failed(take(station, tampered, Options(position=2, **options)))


def test_wrong_forbidden_weights_fail_their_check():
    tampered = Tampered(make_model(POST, "float32"), source_for(make_model(POST, "float32")), TARGET)
    tampered.part, tampered.field = "attention", "weights"
    assert "forbidden_is_zero" in failed(take("attention", tampered, Options(kind="decoder")))


def test_wrong_logits_fail_the_checks_about_them():
    tracer = tracer_of()
    tracer.logits = tracer.logits + torch.linspace(0, 1, 29)
    assert failed(take("route", tracer)) == {"same_logits"}
    assert failed(take("mask", tracer)) == {"future_unseen"}
    assert failed(take("loss", tracer)) == {"padding_unseen"}


def test_a_stage_of_another_shape_fails_the_chain():
    tracer = tracer_of()
    tracer.stages[3] = dataclasses.replace(tracer.stages[3], output_shape=(8, 17))
    assert failed(take("route", tracer)) == {"shapes_chain"}


@pytest.mark.parametrize(
    ("station", "target", "broken", "expected"),
    [
        ("tokens", "model.stations.inputs.functional.embedding", lambda ids, table: table[ids] + 1, "rows_of_table"),
        ("positions", "model.stations.inputs._by_formula", lambda n, d, kind: np.ones((n, d)), "closed_form"),
        ("positions", "model.stations.inputs._table", lambda tracer, e, n: torch.ones(n, 16), "sum"),
        ("softmax", "model.stations.attention._softmax", lambda s, a: np.full(s.shape, 1 / s.size), "cold_is_argmax"),
        ("softmax", "model.stations.attention._softmax", lambda s, a: np.eye(s.size)[0], "hot_is_even"),
        ("block", "model.stations.block._add", lambda state: state, "stages_chain"),
        ("block", "model.stations.block.explicit_attention", lambda q, k, v, mask: (v, None), "others_moved"),
        ("loss", "model.stations.output.functional.cross_entropy", lambda *a, **k: 1.0, "cross_entropy"),
    ],
)
def test_a_broken_part_fails_its_check(monkeypatch, station, target, broken, expected):
    tracer = tracer_of()
    monkeypatch.setattr(target, broken)
    assert expected in failed(take(station, tracer, Options(position=2)))


def test_a_layer_that_leaks_fails_the_checks_about_positions(monkeypatch):
    tracer = tracer_of()
    ffn = encoder_layers(tracer.model)[0].ffn
    inner = ffn.inner.forward
    monkeypatch.setattr(ffn.inner, "forward", lambda x: inner(x) + inner(x).mean(dim=1, keepdim=True))
    assert "others_unmoved" in failed(take("ffn", tracer, Options(position=2)))
    assert "others_unmoved" in failed(take("block", tracer))


def test_an_encoder_that_knows_places_fails_the_shuffling_check(monkeypatch):
    tracer = tracer_of()
    first_layer = encoder_layers(tracer.model)[0]
    plain = first_layer.forward
    ramp = torch.linspace(0, 1, 8)[None, :, None]
    monkeypatch.setattr(first_layer, "forward", lambda hidden, *rest: plain(hidden + ramp, *rest))
    assert "order_unseen" in failed(take("positions", tracer))


# --- the numbers themselves -------------------------------------------------------------------------------------------


def test_tokens_shows_rows_of_the_table_and_neighbours():
    tracer = tracer_of(PRE)
    table = tracer.model.source_embedding.weight.detach()
    station = inputs.tokens(tracer, "encoder", index=3, compared_index=5, k=4)
    np.testing.assert_array_equal(station.rows, table[list(tracer.source_ids)])
    assert station.nearest_ids[0] == tracer.source_ids[3]
    row = table[tracer.source_ids[3]]
    cosines = functional.cosine_similarity(table, row[None], dim=1)
    assert station.nearest_cosines[1] == pytest.approx(float(cosines.sort(descending=True).values[1]), abs=1e-5)
    assert station.cosine == pytest.approx(float(cosines[tracer.source_ids[5]]), abs=1e-5)
    assert inputs.tokens(tracer, "decoder").ids.tolist() == [2, *TARGET[:-1]]


@pytest.mark.parametrize(
    ("text", "spans", "decoded", "expected"),
    [
        ("ab c", ((0, 2), (3, 4)), "ab c", set()),
        ("ab c", ((0, 1), (3, 4)), "ab c", {"spans_cover_text"}),
        ("ab c", ((3, 4), (0, 2)), "ab c", {"spans_cover_text"}),
        ("ab c", ((0, 2), (3, 4)), "ab", {"decodes"}),
    ],
)
def test_tokens_checks_spans_and_text(text, spans, decoded, expected):
    tokens = TokenText(text, ("x", "y"), spans, (False, False))
    assert failed(inputs.tokens(tracer_of(), text=tokens, decoded=decoded)) == expected


def test_positions_go_past_the_sentence_and_are_what_is_added():
    tracer = tracer_of("Marian-shaped")
    station = inputs.positions(tracer, "decoder", count=40)
    assert station.encodings.shape == (40, 16)
    assert station.layout == "halves"
    assert station.encodings[7, 0] == pytest.approx(math.sin(7), abs=1e-6)
    assert station.encodings[7, 9] == pytest.approx(math.cos(7 / 10000 ** (2 / 16)), abs=1e-6)
    np.testing.assert_allclose(station.embeddings + station.encodings[:5], station.sums, atol=1e-6)
    np.testing.assert_allclose(np.diag(station.cosines), 1, atol=1e-6)
    assert station.shuffled_change > 1e-2


def test_the_exported_arrays_are_enough_to_compute_attention_with_numpy(tracer):
    for kind in ("encoder", "decoder", "cross"):
        projected = attention.projections(tracer, kind, 1, 2)
        rows = attention.attention(tracer, kind, 1, 2, k=3)
        if tracer.config.positions != "rotary" or kind == "cross":
            q, k = projected.query_map.apply(projected.query_inputs), projected.key_map.apply(projected.memory)
        else:
            q, k = projected.turned_queries, projected.turned_keys
        v = projected.value_map.apply(projected.memory)
        if tracer.attention_module(kind, 1).keeps_half:
            # What is next to the border of two roundings may fall to either side: a step of 2**-10 apart.
            k, v = k.astype(np.float16).astype(k.dtype), v.astype(np.float16).astype(v.dtype)
            np.testing.assert_allclose(k, rows.keys, rtol=2**-10)
            np.testing.assert_allclose(v, rows.values, rtol=2**-10)
            k, v = rows.keys, rows.values
        scores = np.where(rows.allowed, q @ k.T / np.sqrt(k.shape[1]), -np.inf)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(rows.weights, weights, atol=1e-5)
        np.testing.assert_allclose(rows.context, weights @ v, atol=1e-4)
        assert rows.top_weights[4].tolist() == sorted(rows.weights[4].tolist(), reverse=True)[:3]
        assert rows.weights[4][rows.top_keys[4]].tolist() == rows.top_weights[4].tolist()


def test_cross_attention_reads_the_decoder_with_queries_and_the_encoder_with_keys():
    tracer = tracer_of(PRE)
    station = attention.projections(tracer, "cross", 3, 0)
    assert station.query_origin == "LayerNorm of decoder layer 3's stream after its self-attention"
    assert station.memory_origin == "encoder output"
    np.testing.assert_array_equal(station.memory, tracer.memory[0])
    own = attention.projections(tracer_of(POST), "encoder", 2, 0)
    assert own.query_origin == own.memory_origin == "output of encoder layer 1"


def test_an_affine_map_by_hand_is_the_linear_layer(model):
    for linear in (encoder_layers(model)[0].attention.qkv, decoder_layers(model)[0].ffn.outer, model.output):
        x = torch.randn(5, linear.effective_weight().shape[1], generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            np.testing.assert_allclose(Affine.of(linear).apply(x.numpy()), linear(x), atol=1e-4)
            np.testing.assert_allclose(Affine.of(linear, 3, 7).apply(x.numpy()), linear(x)[:, 3:7], atol=1e-4)


def test_softmax_shows_what_other_temperatures_would_do():
    tracer = tracer_of()
    cold, real, hot = (attention.softmax(tracer, "encoder", 1, 1, 3, temperature=t) for t in (0.1, 1.0, 50.0))
    np.testing.assert_array_equal(real.what_if_weights, real.weights)
    assert cold.what_if_entropy_nats < real.entropy_nats < hot.what_if_entropy_nats < math.log(8) + 1e-6
    assert cold.what_if_weights.max() > real.weights.max() > hot.what_if_weights.max()
    np.testing.assert_allclose(real.scaled, real.raw / 2, rtol=1e-6)
    wider = attention.softmax(tracer, "encoder", 1, 1, 3, d_k=64)
    assert wider.what_if_entropy_nats > real.entropy_nats
    np.testing.assert_allclose(wider.what_if_weights, torch.tensor(real.raw / 8).softmax(0), atol=1e-6)


def test_softmax_of_a_masked_row_leaves_the_future_out():
    station = attention.softmax(tracer_of(), "decoder", 0, 0, 1)
    assert station.allowed.tolist() == [True, True, False, False, False]
    assert np.isneginf(station.scaled[2:]).all() and (station.exponentials[2:] == 0).all()


def test_head_statistics_tell_patterns_apart():
    n = 6
    shift = np.eye(n, k=-1)
    shift[0, 0] = 1
    first = np.zeros((n, n))
    first[:, 0] = 1
    maps = np.stack([np.eye(n), shift, first, np.full((n, n), 1 / n)]).astype(np.float32)
    found = attention.head_statistics(maps, np.ones((n, n), dtype=bool))
    np.testing.assert_allclose(found["entropy_nats"], [0, 0, 0, math.log(n)], atol=1e-6)
    np.testing.assert_allclose(found["relative_entropy"], [0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(found["distance"], [0, 5 / 6, 2.5, np.abs(np.subtract.outer(range(n), range(n))).mean()])
    np.testing.assert_allclose(found["share_same"], [1, 1 / 6, 1 / 6, 1 / 6], atol=1e-6)
    np.testing.assert_allclose(found["share_previous"][1], 5 / 6)
    np.testing.assert_allclose(found["share_first"], [1 / 6, 2 / 6, 1, 1 / 6], atol=1e-6)
    assert attention._patterns(found) == ("same", "previous", "first", "broad")


def test_the_mean_of_the_heads_is_that_of_the_maps(tracer):
    station = attention.heads(tracer, "cross", -1)
    maps = replay(tracer.model, tracer.source_ids, TARGET).cross[-1]
    np.testing.assert_array_equal(station.maps, maps)
    np.testing.assert_allclose(station.mean, maps.mean(0), atol=1e-6)
    np.testing.assert_allclose(station.out_map.apply(station.contexts), station.update, atol=1e-4)
    assert len(station.patterns) == 4


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (PRE, ["norm", "attention", "add", "norm", "cross-attention", "add", "norm", "feed-forward", "add"]),
        (POST, ["attention", "add", "norm", "cross-attention", "add", "norm", "feed-forward", "add", "norm"]),
    ],
)
def test_the_block_has_its_stages_in_the_models_order(shape, expected):
    tracer = tracer_of(shape)
    station = block.block(tracer, "decoder", 1)
    assert [stage.name for stage in station.stages] == expected
    np.testing.assert_allclose(station.stages[-1].output, tracer.decoder_streams[2][0], atol=1e-5)
    roles = {stage.name: stage.role for stage in station.stages}
    assert roles["attention"] == roles["cross-attention"] == "mixes"
    assert roles["feed-forward"] == "transforms" and roles["add"] == roles["norm"] == "protects"
    for stage in station.stages:
        assert (stage.change_elsewhere > 0) == (stage.role == "mixes")
        np.testing.assert_allclose(stage.norms, np.linalg.norm(stage.output, axis=1), rtol=1e-5)


def test_half_an_update_is_half_way():
    tracer = tracer_of(PRE)
    whole, half, none = (block.residual(tracer, "encoder", 1, "ffn", alpha) for alpha in (1.0, 0.5, 0.0))
    np.testing.assert_array_equal(none.what_if_output, none.stream)
    np.testing.assert_allclose(half.what_if_output, (whole.output + none.stream) / 2, atol=1e-5)
    post = block.residual(tracer_of(POST), "decoder", 1, "cross", 0.5)
    expected = torch.nn.functional.layer_norm(
        torch.tensor(post.stream + 0.5 * post.update), (16,), torch.tensor(post.gamma), torch.tensor(post.beta), 1e-5
    )
    np.testing.assert_allclose(post.what_if_output, expected, atol=1e-5)


def test_the_feed_forward_station_counts_what_the_activation_cuts():
    tracer = tracer_of(PRE)
    station = block.ffn(tracer, "decoder", 2, 3, "gelu", k=5)
    hidden = station.inner.apply(station.inputs)
    np.testing.assert_allclose(station.hidden, hidden[3], atol=1e-5)
    np.testing.assert_allclose(station.share_negative, (hidden < 0).mean(1))
    np.testing.assert_allclose(station.share_silent, (hidden <= 0).mean(1))
    np.testing.assert_allclose(station.what_if_activated, functional.gelu(torch.tensor(hidden[3])), atol=1e-5)
    assert station.histogram.sum() == 24
    assert station.top_values.tolist() == sorted(station.activated.tolist(), reverse=True)[:5]
    real = block.ffn(tracer, "decoder", 2, 3)
    np.testing.assert_array_equal(real.what_if_output, real.outputs[3])


def test_peeking_shows_the_weights_without_the_mask():
    station = attention.causal(tracer_of(), 1, 2, step=1)
    assert station.predicted_ids.tolist() == TARGET
    np.testing.assert_allclose(station.peek_weights, torch.tensor(station.unmasked_scores).softmax(-1), atol=1e-6)
    assert station.peek_share == pytest.approx(station.peek_weights[1, 2:].sum(), abs=1e-6)
    assert 0 < station.peek_share < 1


def test_another_source_can_be_swapped_in():
    tracer = tracer_of()
    other = source_for(tracer.model, 5, seed=9)
    station = attention.cross(tracer, -1, 1, swapped_source_ids=other)
    assert station.passed, failed(station)
    assert station.weights.shape == (5, 8) and station.swapped_weights.shape == (5, 5)
    np.testing.assert_allclose(station.memory_norms, np.linalg.norm(tracer.memory[0], axis=1), rtol=1e-5)
    with pytest.raises(TraceError, match="source id 99"):
        attention.cross(tracer, -1, 1, swapped_source_ids=[99, EOS])


def test_decoding_shows_the_choice_the_search_made(model):
    source, options = source_for(model), DecodingOptions(beam_size=4, num_hypotheses=4, length_penalty=0.7)
    constraints = Constraints(eos_id=EOS, forbidden_ids=(0, 2))
    for hypothesis in generate(model, [source], options, forbidden_ids=(0, 2))[0]:
        tracer = Tracer(model, source, hypothesis.tokens)
        station = output.decoding(
            tracer, -1, constraints=constraints, length_penalty=0.7, hypothesis_score=hypothesis.score
        )
        assert station.passed, failed(station)
        np.testing.assert_allclose(station.token_log_probs, hypothesis.token_log_probs, atol=tolerance(model, 1e-4))
        assert station.chosen_id == hypothesis.tokens[-1]
        assert output.loss(tracer, hypothesis_log_prob=hypothesis.log_prob).passed
        assert "beam_score" in failed(output.decoding(tracer, hypothesis_score=hypothesis.score + 1))
        assert "hypothesis" in failed(output.loss(tracer, hypothesis_log_prob=hypothesis.log_prob + 1))


def test_decoding_forbids_by_what_was_written_before_the_row():
    tracer, constraints = tracer_of(), Constraints(eos_id=EOS, no_repeat_ngram_size=1)
    found = output.decoding(tracer, 2, k=29, constraints=constraints).next
    assert found.prefix_ids == tuple(TARGET[:2])
    assert {item.token_id for item in found.candidates if not item.is_permitted} == set(TARGET[:2])


def test_an_open_row_has_candidates_but_no_choice():
    tracer = tracer_of(open_end=True)
    station = output.decoding(tracer, 5)
    assert station.chosen_id == -1 and station.passed
    assert output.decoding(tracer_of(target=[], open_end=True)).beam_scores.size == 0
    with pytest.raises(TraceError, match="an empty target has no loss"):
        output.loss(tracer_of(target=[], open_end=True))


def test_the_loss_station_holds_the_score():
    station = output.loss(tracer_of(), label_smoothing=0.1)
    assert isinstance(station.score, Score)
    assert station.mean_nats == pytest.approx(station.score.nats.mean())
    assert station.score.total_smoothed_nats != pytest.approx(station.score.total_nats)


def test_an_estimate_is_the_size_of_the_maps_that_come(model):
    selection = Selection.of(model.config, ["cross", "encoder"], layers="0-1", heads="1,3")
    found = replay(model, source_for(model, 7), TARGET, selection=selection)
    expected = output.estimate(model.config, 7, len(TARGET), selection)
    assert expected.cells == {"encoder": found.encoder.size, "cross": found.cross.size}
    assert expected.num_bytes["f32"] == found.encoder.nbytes + found.cross.nbytes
    assert expected.num_bytes["f16"] * 2 == expected.num_bytes["u8"] * 4 == expected.num_bytes["f32"]
    config = model.config
    whole = output.estimate(config, 9, 5).total_cells
    assert whole == 4 * (config.num_encoder_layers * 81 + config.num_decoder_layers * (25 + 45))
