"""The bundled models: what a newcomer gets."""

import csv
from pathlib import Path

import pytest

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.description import CARD_FILE
from model.generation import translate_texts
from model.training.settings import load_settings

FOLDER = Path(__file__).resolve().parents[2] / "model" / "pretrained"
SOURCES = FOLDER.parents[2] / "shared" / "data" / "sources.tsv"
SEEDS_SENTENCE = "Ninja moved the plant near the window because it needed more sunlight."


@pytest.fixture(scope="module")
def checkpoint():
    checkpoint = load_checkpoint(FOLDER / "en-fr")
    checkpoint.model.set_precision("auto")
    return checkpoint


def test_it_is_small():
    assert sum(path.stat().st_size for path in (FOLDER / "en-fr").iterdir()) <= 25_000_000


def test_the_seeds_sentence_keeps_its_plant_and_its_window(checkpoint):
    (translation,) = translate_texts(checkpoint, [SEEDS_SENTENCE], DecodingOptions(beam_size=4))  # the server's default
    assert translation.startswith("Ninja a ")
    assert "la plante" in translation
    assert "la fenêtre" in translation
    assert translation.endswith("parce qu'elle avait besoin de plus de soleil.")  # the plant, not Ninja


@pytest.mark.parametrize(
    ("english", "french"),
    [
        (
            "I would like a cup of coffee, please.",
            {"J'aimerais une tasse de café, s'il vous plaît.", "Je voudrais une tasse de café, s'il vous plaît."},
        ),
        ("Where is the train station?", {"Où se trouve la gare ?"}),
        ("My sister bought a new car yesterday.", {"Ma sœur a acheté une nouvelle voiture hier."}),
    ],
)
def test_everyday_sentences_are_right(checkpoint, english, french):
    for beam_size in (1, 4):
        assert translate_texts(checkpoint, [english], DecodingOptions(beam_size))[0] in french


def test_of_100_fresh_everyday_sentences_85_keep_their_meaning(checkpoint):
    path = FOLDER.parents[1] / "tests" / "data" / "everyday_judged.en-fr.tsv"
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    assert len({row[0] for row in rows}) == 100
    assert {row[2] for row in rows} == {"right", "form", "meaning"}
    assert sum(row[2] != "meaning" for row in rows) >= 85
    # The judgement is about this model: what was judged is what it says, but for the rounding of another processor.
    translations = translate_texts(checkpoint, [row[0] for row in rows], DecodingOptions(beam_size=4))
    assert sum(row[1] == translation for row, translation in zip(rows, translations, strict=True)) >= 95


def test_the_card_names_every_source_and_what_was_measured(checkpoint):
    card = (FOLDER / "en-fr" / CARD_FILE).read_text(encoding="utf-8")
    settings = load_settings(FOLDER.parent / "training" / "en-fr-last.toml")
    for source in settings.data.sources:
        assert f"| {source} |" in card
    for test_set in ("tatoeba", "flores200-dev", "newstest2014", "multi30k-2016-flickr"):
        assert f"| {test_set} |" in card
    assert checkpoint.revision in card
    assert "tatoeba.org" in card


@pytest.mark.skipif(not SOURCES.exists(), reason="the shared corpus is not beside this checkout")
def test_no_source_forbids_shipping_the_model():
    settings = load_settings(FOLDER.parent / "training" / "en-fr-last.toml")
    with SOURCES.open(encoding="utf-8", newline="") as file:
        licences = {row["source_name"]: row["licence"] for row in csv.DictReader(file, delimiter="\t", quoting=3)}
    for source in settings.data.sources:
        licence = licences[source.removesuffix("-names").removesuffix("-rare").removesuffix("-split")].replace(
            "CC BY-NC stories left out", ""
        )
        for word in ("GPL", "GFDL", "SA", "MPL", "NC"):
            assert word not in licence.replace("-", " ").split(), (source, licence)
