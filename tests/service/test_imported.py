"""What is kept, and how, on an imported model with random weights: nothing that it writes makes sense."""

import json
from pathlib import Path

import pytest

from loadtests.quality.local import translate_text
from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.importers.marian import import_marian
from service.text.kept import kept_spans
from tests.model.importers.marian_folders import make_model, write_folder

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/cases.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    write_folder(folder / "theirs", make_model())
    import_marian(folder / "theirs", folder / "ours", name="marian", source_language="en", target_language="fr")
    return load_checkpoint(folder / "ours")


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["format"] == "text" and "keep" in case["must"] and len(case["text"]) < 300],
    ids=lambda case: case["id"],
)
@pytest.mark.parametrize("beam_size", [1, 2])
def test_an_imported_model_keeps_what_must_be_kept(imported, case, beam_size):
    text = case["text"]
    translated = translate_text(imported, text, DecodingOptions(beam_size=beam_size), max_segment_tokens=60)
    for part in [*case["must"]["keep"], *(span.text for span in kept_spans(text))]:
        assert translated.count(part) == text.count(part), (part, translated)
