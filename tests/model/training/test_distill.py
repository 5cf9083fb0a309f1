import dataclasses

import pytest

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.generation import translate_texts
from model.training import distill
from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.distill import DistillError, distilled_pairs, nearest
from tests.model.training.fixtures import sentence_pairs

CHECKPOINT = "tests/data/tiny_checkpoint"
OPTIONS = DecodingOptions(beam_size=3, num_hypotheses=3)


@pytest.fixture(scope="module")
def checkpoint():
    return load_checkpoint(CHECKPOINT)


@pytest.fixture
def hypotheses(monkeypatch):
    """The models' hypotheses by text, in the place of what they would write."""
    by_text = {"one": ["trois", "un deux"], "two": ["deux", "deux fois"], "three": []}

    def translate(_checkpoint, texts, _options):
        return [by_text[text] for text in texts]

    monkeypatch.setattr(distill, "translate_side", translate)
    return by_text


def test_the_nearest_hypothesis_is_the_one_most_like_the_reference():
    assert nearest(["un chat noir", "le chat blanc dort", "le chat noir"], "le chat noir dort") == "le chat noir"
    assert nearest(["a", "b"], "c") == "a"


def test_distillation_writes_the_second_side_and_keeps_the_first(checkpoint, hypotheses):
    pairs = [SentencePair("tatoeba", text, reference) for text, reference in
             (("one", "un"), ("two", "deux fois"), ("three", "trois"))]  # fmt: skip
    made = list(distilled_pairs([checkpoint], pairs, OPTIONS, "nearest", "d"))
    assert made == [SentencePair("d", "one", "un deux"), SentencePair("d", "two", "deux fois")]
    made = list(distilled_pairs([checkpoint], pairs, OPTIONS, "best", "d"))
    assert [pair.second for pair in made] == ["trois", "deux"]


def test_back_translation_writes_the_first_side_and_keeps_the_real_second_one(checkpoint, hypotheses):
    reader = dataclasses.replace(checkpoint, source_language="fr", target_language="en")
    made = list(distilled_pairs([reader], [SentencePair("tatoeba", "ein", "one")], OPTIONS, "best", "back"))
    assert made == [SentencePair("back", "trois", "one")]


def test_several_models_are_looked_at_together(checkpoint, monkeypatch):
    found = iter([[["le chat"]], [["un chat"]]])
    monkeypatch.setattr(distill, "translate_side", lambda *_: next(found))
    pairs = [SentencePair("t", "a cat", "un chat")]
    assert next(distilled_pairs([checkpoint] * 2, pairs, OPTIONS, "nearest", "d")).second == "un chat"


def test_an_interrupted_command_goes_on_and_writes_what_the_model_says(tmp_path, monkeypatch, checkpoint, capsys):
    corpus, output = tmp_path / "corpus.tsv.gz", tmp_path / "out.tsv.gz"
    texts = sentence_pairs()[:7]
    write_pairs(corpus, [SentencePair("a", *texts[0]), *(SentencePair("b", *pair) for pair in texts[1:])])
    arguments = [str(output), str(corpus), "--models", CHECKPOINT, "--sources", "b", "--part", "4", "--keep", "best",
                 "--beam-size", "2", "--precision", "float32"]  # fmt: skip
    calls = []

    def once(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)

    real = distill.translate_side
    monkeypatch.setattr(distill, "translate_side", once)
    with pytest.raises(KeyboardInterrupt):
        distill.main(arguments)
    assert not output.exists()
    with pytest.raises(DistillError, match="another beam_size"):
        distill.main([*arguments[:-4], "--beam-size", "3", "--precision", "float32"])
    distill.main(arguments)
    assert len(calls) == 3  # the first part was not made again
    assert "6 of 6 pairs" in capsys.readouterr().out
    sources = [source for source, _ in texts[1:]]
    expected = translate_texts(checkpoint, sources, DecodingOptions(beam_size=2))
    made = {pair.first: pair.second for pair in read_pairs(output)}
    assert {pair.source_name for pair in read_pairs(output)} == {"distilled"}
    assert made
    assert all(made[source] == text for source, text in zip(sources, expected, strict=True) if source in made)
    assert not list(tmp_path.glob("*.parts"))


def test_models_of_two_directions_are_refused(tmp_path, monkeypatch, checkpoint):
    turned = dataclasses.replace(checkpoint, source_language="fr", target_language="en")
    loaded = iter([checkpoint, turned])
    monkeypatch.setattr(distill, "load_checkpoint", lambda _: next(loaded))
    with pytest.raises(DistillError, match="one direction"):
        distill.main([str(tmp_path / "o"), str(tmp_path / "c"), "--models", "x", "y", "--sources", "a"])
