import dataclasses
from pathlib import Path

import pytest

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.training.evaluation import evaluate_set

TINY = Path(__file__).resolve().parents[2] / "data" / "tiny_checkpoint"
PAIRS = [("Good morning.", "Bonjour."), ("Where is the station, please?", "Où est la gare ?")]


@pytest.mark.parametrize(("languages", "turned"), [(("en", "fr"), False), (("fr", "en"), True)])
def test_a_model_is_given_the_column_that_it_reads(tmp_path, languages, turned):
    path = tmp_path / "test.en-fr.tsv"
    path.write_text("".join(f"tatoeba\t{english}\t{french}\n" for english, french in PAIRS), encoding="utf-8")
    source, target = languages
    checkpoint = dataclasses.replace(load_checkpoint(TINY), source_language=source, target_language=target)
    found = evaluate_set(checkpoint, path, DecodingOptions(max_target_tokens=8))
    assert [(given, reference) for given, reference, _ in found.samples] == [
        pair[::-1] if turned else pair for pair in PAIRS
    ]
    assert found.sentences == 2
