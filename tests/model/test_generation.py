import json

import pytest
import torch

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.generation import forbidden_outputs, generate, target_limit, translate_texts
from model.layers import PositionTooLarge
from tests.data.make_tiny_checkpoint import FOLDER, OUTPUT, SEARCHES
from tests.model.tiny import EOS, VOCAB_SIZE, forward, random_sources, tiny_config, tiny_model

LENGTHS = (5, 12, 1, 3, 3, 8, 20, 2)
SEARCHERS = {
    "greedy": DecodingOptions(max_target_tokens=14),
    "beam": DecodingOptions(beam_size=4, num_hypotheses=3, max_target_tokens=14),
    "sampling": DecodingOptions(temperature=1.0, seed=3, max_target_tokens=14),
}


def ending_model(**changes):
    """A model whose targets vary and now and then end by themselves: rows leave at different steps."""
    model = tiny_model(
        **{"output_bias": True, "tie_output": False, "norm": "pre", "final_norm": True, "embedding_scale": False},
        **changes,
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "embedding" not in name:
                weight *= 2.0
        model.output.bias[EOS] += 1.0
    return model


@pytest.fixture(scope="module")
def checkpoint():
    return load_checkpoint(FOLDER)


def naive_greedy(model, source, max_tokens, forbidden=(0, 2)):
    """Greedy search by whole passes: no cache, no batch."""
    tokens = []
    while len(tokens) < max_tokens and EOS not in tokens:
        logits = forward(model, source, [model.config.decoder_start_id, *tokens])[-1]
        logits[list(forbidden)] = float("-inf")
        tokens.append(int(logits.argmax()))
    return tuple(tokens)


def score_alone(model, source, tokens):
    """Log-probability of a target by one whole pass."""
    logits = forward(model, source, [model.config.decoder_start_id, *tokens[:-1]])
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum().item()


def test_greedy_is_the_argmax_of_whole_passes():
    model = ending_model()
    sources = random_sources(LENGTHS)
    results = generate(model, sources, SEARCHERS["greedy"])
    assert [one.tokens for [one] in results] == [naive_greedy(model, source, 14) for source in sources]
    assert len({len(one.tokens) for [one] in results}) > 2  # rows did leave at different steps
    assert {one.finish_reason for [one] in results} == {"stop", "length"}


@pytest.mark.parametrize("kind", SEARCHERS)
def test_neighbours_and_batch_size_change_nothing(kind):
    model, options = ending_model(), SEARCHERS[kind]
    sources = random_sources(LENGTHS)
    alone = [generate(model, [source], options)[0] for source in sources]
    for max_batch_rows in (1, 9, 64):
        together = generate(model, sources, options, max_batch_rows=max_batch_rows)
        for hypotheses, expected in zip(together, alone, strict=True):
            assert [one.tokens for one in hypotheses] == [one.tokens for one in expected]
            for one, other in zip(hypotheses, expected, strict=True):
                assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_log_probs_of_beams_are_those_of_their_own_tokens():
    """A beam whose cache came from another beam would still score well, but not as itself."""
    model, sources = ending_model(), random_sources(LENGTHS)
    for source, hypotheses in zip(sources, generate(model, sources, SEARCHERS["beam"]), strict=True):
        assert len(hypotheses) == 3
        for one in hypotheses:
            assert one.log_prob == pytest.approx(score_alone(model, source, one.tokens), abs=1e-3)


def test_beam_of_one_is_greedy():
    model, sources = ending_model(), random_sources(LENGTHS)
    greedy = generate(model, sources, SEARCHERS["greedy"])
    # A beam of 1 is searched by GreedySearch; the least penalty makes a real beam search of it.
    almost_none = DecodingOptions(beam_size=1, repetition_penalty=1.0 + 1e-9, max_target_tokens=14)
    beam = generate(model, sources, almost_none)
    assert [one.tokens for [one] in beam] == [one.tokens for [one] in greedy]


def test_beams_score_no_worse_than_greedy_on_the_whole():
    model, sources = ending_model(), random_sources(LENGTHS)
    greedy = generate(model, sources, SEARCHERS["greedy"])
    beam = generate(model, sources, SEARCHERS["beam"])
    assert sum(hypotheses[0].score for hypotheses in beam) > sum(one.score for [one] in greedy)


def test_special_ids_are_never_written():
    model = tiny_model(output_bias=True)
    with torch.no_grad():
        model.output.bias[:3] += 100.0
        model.output.bias[7] += 100.0
    for options in SEARCHERS.values():
        for hypotheses in generate(model, random_sources(LENGTHS), options, forbidden_ids=[1, 7]):
            for one in hypotheses:
                assert {0, 1, 2, 7}.isdisjoint(one.tokens)


def test_forbidden_outputs_are_all_special_ids_but_eos(checkpoint):
    assert forbidden_outputs(checkpoint.config, checkpoint.tokenizer) == (0, 1, 2)


def test_without_a_limit_a_loop_ends_and_a_learned_table_is_not_left():
    model = tiny_model(output_bias=True)
    with torch.no_grad():
        model.output.bias[EOS] -= 100.0
    [[one]] = generate(model, random_sources([5]), DecodingOptions())
    assert (len(one.tokens), one.finish_reason) == (target_limit(model.config, 5), "length")
    learned = tiny_config(positions="learned", max_positions=20)
    assert (target_limit(learned, 1), target_limit(learned, 5)) == (19, 20)
    short_table = tiny_model(positions="learned", max_positions=9, output_bias=True)
    with torch.no_grad():
        short_table.output.bias[EOS] -= 100.0
    [[one]] = generate(short_table, random_sources([9]), DecodingOptions())
    assert len(one.tokens) == 9
    with pytest.raises(PositionTooLarge, match="position 9 .* 9 rows"):
        generate(short_table, random_sources([10]), DecodingOptions())


def test_a_model_in_training_is_used_without_dropout_and_goes_on_training():
    model, sources = ending_model(dropout=0.5), random_sources(LENGTHS)
    expected = generate(model, sources, SEARCHERS["greedy"])
    model.train()
    assert generate(model, sources, SEARCHERS["greedy"]) == expected
    assert model.training
    with pytest.raises(ValueError, match="no ids"):
        generate(model, [[]], SEARCHERS["greedy"])
    assert model.training


def test_what_cannot_be_decoded_is_refused():
    model = tiny_model()
    assert generate(model, [], DecodingOptions()) == []
    with pytest.raises(ValueError, match="source 1 has no ids"):
        generate(model, [[5, 3], []], DecodingOptions())
    with pytest.raises(ValueError, match="max_batch_rows is 0"):
        generate(model, [[5, 3]], DecodingOptions(), max_batch_rows=0)


def test_no_more_rows_are_decoded_together_than_allowed(monkeypatch):
    model = ending_model()
    seen = []
    step = type(model).decode_step_summarized
    monkeypatch.setattr(
        type(model),
        "decode_step_summarized",
        lambda self, tokens, state, reads: seen.append(len(tokens)) or step(self, tokens, state, reads),
    )
    generate(model, random_sources([4] * 10), DecodingOptions(beam_size=3, max_target_tokens=6), max_batch_rows=10)
    assert max(seen) == 9
    assert min(seen) < 9  # finished rows leave at once


# --- the frozen checkpoint ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frozen():
    return json.loads(OUTPUT.read_text(encoding="utf-8"))


def test_the_frozen_checkpoint_and_its_tokenizer_are_as_they_were(checkpoint, frozen):
    assert checkpoint.revision == frozen["revision"]
    encoded = [list(checkpoint.tokenizer.encode(text, "en", add_eos=True).ids) for text in frozen["sources"]]
    assert encoded == frozen["source_ids"]


@pytest.mark.parametrize("kind", SEARCHES)
def test_the_frozen_checkpoint_keeps_its_output(checkpoint, frozen, kind):
    forbidden = forbidden_outputs(checkpoint.config, checkpoint.tokenizer)
    generated = generate(checkpoint.model, frozen["source_ids"], SEARCHES[kind], forbidden_ids=forbidden)
    assert [[list(one.tokens) for one in hypotheses] for hypotheses in generated] == frozen[kind]
    assert translate_texts(checkpoint, frozen["sources"], SEARCHES[kind]) == frozen[f"{kind}_text"]


def test_texts_without_a_visible_character_come_back_as_they_are(checkpoint, frozen):
    texts = ["", frozen["sources"][0], " \n\t", frozen["sources"][1], "\u200b"]
    expected = ["", frozen["greedy_text"][0], " \n\t", frozen["greedy_text"][1], "\u200b"]
    assert translate_texts(checkpoint, texts, DecodingOptions()) == expected
    assert translate_texts(checkpoint, [], DecodingOptions()) == []


def test_vocabulary_of_the_tiny_models_holds_the_ids_used_here():
    assert EOS < 7 < VOCAB_SIZE
