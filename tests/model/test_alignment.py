import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from model import alignment
from model.alignment import (
    Alignment,
    AlignmentRecipe,
    GoldAlignment,
    Link,
    RecipeError,
    align,
    align_replay,
    align_text,
    alignment_error_rate,
    decide,
    default_recipe,
    links_between,
    replay_for,
    stored_recipe,
)
from model.checkpoint import load_checkpoint
from model.normalizer import normalize
from model.selection import Selection, SelectionError, TraceError
from model.trace import Replay, replay
from model.training import tune_alignment
from model.words import TokenText, Word, decode_with_spans, source_text, split_words
from tests.model.test_trace import TARGET, make_model, source_for
from tests.model.tiny import EOS, tiny_config

DATA = Path(__file__).parents[1] / "data"
GOLD = DATA / "alignment_gold.jsonl"
BUNDLED = sorted(path.parent for path in (Path(__file__).parents[2] / "model" / "pretrained").glob("*/config.json"))


@pytest.fixture(scope="module")
def checkpoint():
    return load_checkpoint(DATA / "tiny_checkpoint")


@pytest.fixture(scope="module")
def gold():
    return tune_alignment.read_gold(GOLD)


# --- deciding ---------------------------------------------------------------------------------------------------------

MATRIX = np.array([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4], [0.2, 0.2, 0.6]], dtype=np.float32)


@pytest.mark.parametrize(
    ("method", "threshold", "expected"),
    [
        ("argmax", 0.0, {(0, 0), (1, 0), (2, 2)}),
        ("argmax", 0.55, {(0, 0), (2, 2)}),
        ("threshold", 0.4, {(0, 0), (1, 0), (1, 2), (2, 2)}),
        ("threshold", 0.7, set()),
        ("intersection", 0.0, {(0, 0), (2, 2)}),
        ("intersection", 0.6, {(0, 0), (2, 2)}),
    ],
)
def test_each_method_links_what_it_says(method, threshold, expected):
    assert {tuple(pair) for pair in np.argwhere(decide(MATRIX, method, threshold)).tolist()} == expected


def test_a_cell_of_zero_is_never_a_link():
    for method in ("argmax", "threshold", "intersection"):
        assert not decide(np.zeros((2, 3), np.float32), method).any()
        assert decide(np.zeros((0, 3), np.float32), method).shape == (0, 3)


# --- from maps to words -----------------------------------------------------------------------------------------------

# Source "a bc d": the pieces a, b, c, d and eos. Target "x yz": x, y, z and eos.
SOURCE = TokenText(
    "a bc d", ("a", "b", "c", "d", "</s>"), ((0, 1), (2, 3), (3, 4), (5, 6), (6, 6)), (False,) * 4 + (True,)
)
TARGET_TEXT = TokenText("x yz", ("x", "y", "z", "</s>"), ((0, 1), (2, 3), (3, 4), (4, 4)), (False,) * 3 + (True,))
ROWS = np.array(
    [
        [0.10, 0.10, 0.10, 0.10, 0.60],  # has read the start, predicts x
        [0.10, 0.00, 0.10, 0.70, 0.10],  # has read x, predicts y
        [0.50, 0.20, 0.20, 0.05, 0.05],  # has read y, predicts z
        [0.10, 0.40, 0.40, 0.05, 0.05],  # has read z, predicts eos
        [0.00, 0.00, 0.00, 0.00, 1.00],  # has read eos
    ],
    dtype=np.float32,
)


def made_replay(maps, heads=(0,), layers=(0,), measure="weights"):
    """A replay with these cross maps, (layers, heads, 5, 5)."""
    return Replay(
        source_ids=(4, 5, 6, 7, EOS),
        input_ids=(2, 8, 9, 10, EOS),
        target_ids=(8, 9, 10, EOS),
        selection=Selection({"cross": layers}, heads),
        measure=measure,
        encoder=None,
        decoder=None,
        cross=np.asarray(maps, dtype=np.float32),
        logits=None,
        memory=None,
        precision="float32",
    )


def linked(recipe, maps=ROWS[None, None], **options):
    found = align_replay(made_replay(maps, **options), SOURCE, TARGET_TEXT, recipe)
    sources, targets = (
        [text.text[slice(*word.span)] for word in words]
        for text, words in ((SOURCE, found.source_words), (TARGET_TEXT, found.target_words))
    )
    texts = {(sources[link.source], targets[link.target]) for link in found.links}
    return texts, found


def test_the_row_that_has_read_a_word_aligns_it():
    texts, found = linked(AlignmentRecipe(heads=((0, 0),), row="input"))
    assert texts == {("d", "x"), ("bc", "yz")}
    assert [word.span for word in found.target_words] == [(0, 1), (2, 4)]
    assert (found.unaligned_source, found.unaligned_target) == ((0,), ())


def test_the_row_that_predicted_a_word_can_align_it_too():
    texts, found = linked(AlignmentRecipe(heads=((0, 0),), row="predicted"))
    assert texts == {("bc", "x"), ("d", "yz")}
    # x's row: a 0.1, bc 0.1 + 0.1, d 0.1 of the 0.4 that are not on eos.
    np.testing.assert_allclose(found.matrix[0], [0.25, 0.5, 0.25], atol=1e-6)
    assert [link.score for link in found.links if link.target == 0] == [pytest.approx(0.5, abs=1e-6)]


def test_a_word_that_rests_on_the_end_of_the_sentence_is_unaligned_if_that_is_kept():
    texts, found = linked(AlignmentRecipe(heads=((0, 0),), row="predicted", special="keep"))
    assert texts == {("d", "yz")}
    assert found.unaligned_target == (0,)


def test_pieces_of_a_word_are_summed_on_the_source_and_averaged_on_the_target():
    _, found = linked(AlignmentRecipe(heads=((0, 0),), row="input", special="keep"))
    np.testing.assert_allclose(found.matrix[1], [(0.5 + 0.1) / 2, (0.4 + 0.8) / 2, 0.0], atol=1e-6)
    whole = linked(AlignmentRecipe(heads=((0, 0),)))[1].matrix
    np.testing.assert_allclose(whole.sum(-1), 1, atol=1e-6)


def test_the_recipes_heads_are_averaged_and_no_others():
    other = np.full((5, 5), 0.2)
    maps = np.stack([np.stack([other, ROWS]), np.stack([np.eye(5), other])])
    recipe = AlignmentRecipe(heads=((4, 3), (2, 5)), row="input")
    found = linked(recipe, maps, heads=(3, 5), layers=(2, 4))[1]
    a, b, c, d, eos = (np.eye(5)[1] + ROWS[1]) / 2
    np.testing.assert_allclose(found.matrix[0], np.array([a, b + c, d]) / (1 - eos), atol=1e-6)
    with pytest.raises(SelectionError, match="not all of the recipe's"):
        linked(AlignmentRecipe(heads=((0, 0),)), maps, heads=(3, 5), layers=(2, 4))


def test_maps_that_do_not_fit_are_refused():
    recipe = AlignmentRecipe(heads=((0, 0),))
    with pytest.raises(TraceError, match="the maps hold value_norm; the recipe asks for weights"):
        linked(recipe, measure="value_norm")
    with pytest.raises(TraceError, match="5 source ids, but a text of 4 pieces"):
        align_replay(made_replay(ROWS[None, None]), TARGET_TEXT, TARGET_TEXT, recipe)
    model = make_model("6+2 post-norm", "float32")
    closed = replay(model, source_for(model, 5), TARGET[:3] + [EOS])
    with pytest.raises(TraceError, match="without open_end"):
        align_replay(closed, SOURCE, TARGET_TEXT, recipe)


@pytest.mark.parametrize("measure", ["weights", "value_norm"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_real_model_aligns_every_pair(checkpoint, precision, measure):
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    if precision == "int8":
        model = load_checkpoint(DATA / "tiny_checkpoint").model
        model.quantize()
    recipe = AlignmentRecipe(heads=default_recipe(checkpoint.config).heads, measure=measure)
    for text, target in (("The spider moves.", "L'araignée bouge."), ("a", "東京 😀 !"), ("", "x"), ("x", "")):
        encoding = tokenizer.encode(text, "en", add_eos=True)
        ids = tokenizer.encode(target, "fr", add_eos=True).ids
        found = align_text(model, tokenizer, encoding.ids, source_text(encoding), ids, recipe)
        words = [encoding.normalized.text[slice(*word.span)] for word in found.source_words]
        assert "".join(words) == "".join(encoding.normalized.text.split())
        assert found.matrix.shape == (len(found.target_words), len(found.source_words))
        if found.matrix.size:
            np.testing.assert_allclose(found.matrix.sum(-1), 1, atol=1e-5)
            assert len({link.target for link in found.links}) == len(found.target_words)
        for link in found.links:
            assert link.score == pytest.approx(found.matrix[link.target, link.source])
        linked_words = {link.source for link in found.links}
        assert set(found.unaligned_source) == set(range(len(found.source_words))) - linked_words


def test_only_the_recipes_layers_are_captured(checkpoint):
    recipe = AlignmentRecipe(heads=((0, 1),))
    found = replay_for(checkpoint.model, [5, EOS], [6, EOS], recipe)
    assert found.selection.layers == {"cross": (0,)}
    assert (found.encoder, found.decoder, found.logits, found.memory) == (None, None, None, None)
    with pytest.raises(RecipeError, match="heads names \\(9, 0\\)"):
        replay_for(checkpoint.model, [5, EOS], [6, EOS], AlignmentRecipe(heads=((9, 0),)))


# --- recipes ----------------------------------------------------------------------------------------------------------


def test_a_recipe_survives_json():
    recipe = AlignmentRecipe(((1, 2), (0, 3)), "predicted", "threshold", 0.25, "keep", "value_norm")
    assert AlignmentRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "heads is missing"),
        ({"heads": []}, "heads is empty"),
        ({"heads": [[1]]}, "not an alignment recipe"),
        ({"heads": 3}, "not an alignment recipe"),
        ({"heads": [[0, 0]], "row": "next"}, "row is 'next'; it must be one of predicted, input"),
        ({"heads": [[0, 0]], "method": "grow"}, "method is 'grow'"),
        ({"heads": [[0, 0]], "measure": "scores"}, "measure is 'scores'"),
        ({"heads": [[0, 0]], "threshold": 1.5}, "threshold is 1.5"),
        ({"heads": [[0, 0]], "layers": 2}, "unknown field\\(s\\) layers"),
    ],
)
def test_an_impossible_recipe_is_named(values, message):
    with pytest.raises(RecipeError, match=message):
        AlignmentRecipe.from_dict(values)


def test_a_model_without_a_recipe_takes_the_default_one():
    config = tiny_config(num_decoder_layers=6)
    assert stored_recipe({}, config) == default_recipe(config)
    assert default_recipe(config).heads == tuple((layer, head) for layer in range(6) for head in range(4))
    assert default_recipe(config).method == "intersection"
    recipe = AlignmentRecipe(heads=((5, 1),))
    assert stored_recipe({alignment.TRAINING_KEY: recipe.to_dict()}, config) == recipe
    with pytest.raises(RecipeError, match="the model has decoder layers 0 to 2"):
        stored_recipe({alignment.TRAINING_KEY: recipe.to_dict()}, tiny_config())


# --- judging ----------------------------------------------------------------------------------------------------------


def gold_pair(sure, possible):
    return GoldAlignment("", "", (), (), frozenset(sure), frozenset(sure) | frozenset(possible))


def test_the_error_rate_is_that_of_och_and_ney():
    pair = gold_pair({(0, 0), (1, 1)}, {(2, 1)})
    assert alignment_error_rate([({(0, 0), (1, 1)}, pair)]) == 0
    assert alignment_error_rate([({(0, 0), (1, 1), (2, 1)}, pair)]) == 0  # a possible link costs nothing
    assert alignment_error_rate([({(0, 0)}, pair)]) == pytest.approx(1 - 2 / 3)
    assert alignment_error_rate([({(0, 1)}, pair)]) == 1
    assert alignment_error_rate([(set(), pair)]) == 1
    # Two pairs are counted together: A = 2 + 1, S = 2 + 2, A & S = 2 + 0, A & P = 2 + 1.
    both = [({(0, 0), (1, 1)}, pair), ({(2, 1)}, pair)]
    assert alignment_error_rate(both) == pytest.approx(1 - (2 + 3) / (3 + 4))
    assert alignment_error_rate([]) == 0


def test_links_count_for_every_word_they_touch():
    words = (Word((0,), (0, 5), False), Word((1,), (6, 7), False))
    found = Alignment(
        words, words, (Link(0, 1, 0.9),), (), (), np.zeros((2, 2), np.float32), AlignmentRecipe(((0, 0),))
    )
    assert links_between(found, [(0, 2), (2, 5), (6, 7)], [(0, 5), (6, 7)]) == {(0, 1), (1, 1)}


def test_the_gold_set_is_whole(gold):
    assert len(gold) == 60
    assert len({item.source for item in gold}) == 60
    for item, line in zip(gold, GOLD.read_text(encoding="utf-8").splitlines(), strict=True):
        raw = json.loads(line)
        for text, words, side in (
            (item.source, item.source_words, "source"),
            (item.target, item.target_words, "target"),
        ):
            assert words == split_words(text)
            assert [text[start:end] for start, end in words] == raw[f"{side}_tokens"]
        assert (normalize(item.source, "en").text, normalize(item.target, "fr").text) == (item.source, item.target)
        assert item.sure <= item.possible
        assert len(raw["sure"]) + len(raw["possible"]) == len(item.possible)
        assert all(s < len(item.source_words) and t < len(item.target_words) for s, t in item.possible)
        assert 8 <= len(item.source_words) <= 18


def test_perfect_links_have_no_errors_and_the_diagonal_has_some(gold):
    assert alignment_error_rate((set(item.sure), item) for item in gold) == 0
    rate = alignment_error_rate((tune_alignment.diagonal(item), item) for item in gold)
    assert 0.3 < rate < 0.5


# --- tuning -----------------------------------------------------------------------------------------------------------


def test_tuning_finds_the_head_that_aligns(checkpoint, gold, monkeypatch):
    """The tiny model was not trained to align; here one of its heads is made to, and must be found."""
    aligning, noise = (1, 2), np.random.default_rng(0)
    pairs = gold[:6]
    checkpoint_config = checkpoint.config
    assert aligning[0] < checkpoint_config.num_decoder_layers and aligning[1] < checkpoint_config.num_heads

    def prepared(_, item):
        shape = (checkpoint_config.num_decoder_layers, checkpoint_config.num_heads)
        sizes = (len(item.target_words), len(item.source_words))
        matrix = noise.random((*shape, *sizes)).astype(np.float32)
        matrix[aligning] = 0.01
        for source, target in item.sure:
            matrix[(*aligning, target, source)] = 1
        matrix /= matrix.sum(-1, keepdims=True)

        def as_words(spans):
            return tuple(Word((index,), span, False) for index, span in enumerate(spans))

        shuffled = noise.permuted(matrix, axis=-2)
        return tune_alignment._Prepared(
            item,
            as_words(item.source_words),
            as_words(item.target_words),
            {("weights", "input"): matrix, ("weights", "predicted"): shuffled},
        )

    monkeypatch.setattr(tune_alignment, "_prepare", prepared)
    recipe, rate = tune_alignment.tune(checkpoint, pairs)
    assert aligning in recipe.heads
    assert (recipe.row, recipe.measure) == ("input", "weights")
    assert rate < 0.1


def test_tuning_rates_recipes_as_serving_does(checkpoint, gold):
    prepared = [tune_alignment._prepare(checkpoint, item) for item in gold[:3]]
    for recipe in (
        AlignmentRecipe(heads=((0, 0), (1, 1)), row="input"),
        AlignmentRecipe(heads=((1, 0),), row="predicted", special="keep", measure="value_norm"),
    ):
        for pair, item in zip(prepared, gold[:3], strict=True):
            ids = tune_alignment._encode(checkpoint, item)
            served = align(checkpoint.model, ids.source, ids.source_text, ids.target, ids.target_text, recipe)
            assert pair.links(recipe) == links_between(served, item.source_words, item.target_words)


def test_the_report_compares_with_what_other_tools_take(checkpoint, gold, monkeypatch):
    monkeypatch.setattr(tune_alignment, "_THRESHOLDS", (0.3,))
    monkeypatch.setattr(tune_alignment, "_STARTS", 1)
    found = tune_alignment.report(checkpoint, gold[:4])
    assert list(found["aer"]) == [
        *("tuned recipe", "last layer, head 0", "last layer, mean of heads", "all layers, mean of heads"),
        "diagonal",
    ]
    best = found["aer"]["tuned recipe"]["tuned_on"]
    assert all(best <= rates["tuned_on"] for name, rates in found["aer"].items() if name != "diagonal")
    recipe = AlignmentRecipe.from_dict(found["recipe"])
    assert tune_alignment.judge(checkpoint, gold[0:4:2], recipe) == best


def test_a_stored_recipe_is_read_with_the_checkpoint(checkpoint, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(DATA / "tiny_checkpoint", folder)
    recipe = AlignmentRecipe(heads=((1, 1),), method="intersection")
    tune_alignment.write_recipe(folder, recipe)
    loaded = load_checkpoint(folder)
    assert stored_recipe(loaded.training, loaded.config) == recipe
    assert loaded.revision != checkpoint.revision


def test_gold_pairs_hold_in_the_other_direction(checkpoint, gold):
    back = tune_alignment.read_gold(DATA / "alignment_gold.jsonl", reverse=True)
    assert [pair.reversed() for pair in back] == gold
    for pair, other in zip(back, gold, strict=True):
        assert (pair.source, pair.target_words) == (other.target, other.source_words)
        assert {(target, source) for source, target in pair.sure} == other.sure
    # Turned links fit turned pairs.
    straight, turned = ([(set(pair.sure), pair) for pair in pairs] for pairs in (gold, back))
    assert alignment_error_rate(turned) == alignment_error_rate(straight) == 0


@pytest.mark.parametrize("folder", BUNDLED, ids=lambda folder: folder.name)
def test_the_bundled_models_recipe_beats_what_other_tools_take(folder):
    bundled = load_checkpoint(folder)
    gold = tune_alignment.read_gold(DATA / "alignment_gold.jsonl", reverse=bundled.source_language == "fr")
    _, judging = tune_alignment.halves(gold)
    recipe = stored_recipe(bundled.training, bundled.config)
    others = tune_alignment.baselines(bundled.config.num_decoder_layers, bundled.config.num_heads)
    best = tune_alignment.judge(bundled, judging, recipe)
    for name in ("last layer, head 0", "last layer, mean of heads"):
        assert best < tune_alignment.judge(bundled, judging, others[name])
    assert best < alignment_error_rate((tune_alignment.diagonal(item), item) for item in judging)


def test_a_target_without_its_end_is_aligned_too(checkpoint):
    tokenizer = checkpoint.tokenizer
    encoding = tokenizer.encode("The spider moves.", "en", add_eos=True)
    ids = tokenizer.encode("L'araignée", "fr").ids
    target = decode_with_spans(tokenizer, ids)
    found = align(checkpoint.model, encoding.ids, source_text(encoding), ids, target, default_recipe(checkpoint.config))
    assert [target.text[slice(*word.span)] for word in found.target_words] == ["L'", "araignée"]
