import dataclasses
import random
import sys

import pytest

from model.checkpoint import load_checkpoint
from model.scoring import score
from model.training import scores
from model.training.beside import read_beside, write_beside
from model.training.data import DataError, read_pairs, select_pairs
from model.training.scores import KIND, score_pairs, worst_pairs
from model.training.settings import ConfigError
from tests.model.training.fixtures import sentence_pairs, tiny_settings

CHECKPOINT = "tests/data/tiny_checkpoint"


def test_scores_are_those_of_each_pair_alone():
    checkpoint = load_checkpoint(CHECKPOINT)
    checkpoint.model.eval()
    pairs = random.Random(1).sample(sentence_pairs(), 9) + [("A", "Un"), ("word " * 300, "mot")]
    found = dict(score_pairs(checkpoint, pairs, batch_tokens=90))
    assert sorted(found) == list(range(10))  # the last is too long
    for index, value in found.items():
        source, target = (
            [*checkpoint.tokenizer.encode(text, language).ids, checkpoint.config.eos_id]
            for text, language in zip(pairs[index], ("en", "fr"), strict=True)
        )
        assert value == pytest.approx(score(checkpoint.model, source, target).total_nats / len(target), rel=1e-4)


@pytest.fixture
def scored(tmp_path):
    """Ten pairs with the scores 0 to 9, and the worst of them once more in a file without scores."""
    data, more = tmp_path / "train.tsv", tmp_path / "rare.tsv"
    data.write_text("".join(f"{'a' if n < 8 else 'b'}\tpair {n}\tpaire {n}\n" for n in range(10)), "utf-8")
    more.write_text("rare\tpair 7\tpaire 7\nrare\tpair 1\tpaire 1\n", "utf-8")
    write_beside(tmp_path, data, KIND, [str(float(n)) if n != 3 else "" for n in range(10)])
    return data, more


def test_the_worst_share_of_a_source_is_left_out_wherever_the_pair_stands(scored):
    worst = worst_pairs(scored, scored[0].parent, {"a": 0.3})
    assert worst == {("pair 7", "paire 7"), ("pair 6", "paire 6")}  # 0.3 of the 7 scored ones
    kept = select_pairs(list(scored), {"a": 1, "b": 1, "rare": 1}, reverse=True, left_out=worst)
    assert [pair.second for pair in kept] == [f"pair {n}" for n in (0, 1, 2, 3, 4, 5, 8, 9, 1)]


def test_a_source_without_scores_cannot_be_cleaned(scored):
    with pytest.raises(DataError, match=r"rare.*no such file"):
        worst_pairs(scored, scored[0].parent, {"rare": 0.3})
    with pytest.raises(DataError, match="no score of the source c"):
        worst_pairs(scored, scored[0].parent, {"c": 0.3})


def test_a_share_that_makes_no_sense_is_refused_by_name(tmp_path):
    data = dataclasses.asdict(tiny_settings(tmp_path).data) | {"scores": "x"}
    for change, message in (
        ({"leave_out": {"tatoeba": 1.0}}, "data.leave_out.tatoeba is 1.0"),
        ({"leave_out": {"other": 0.1}}, "data.leave_out.other"),
        ({"leave_out": {"tatoeba": 0.1}, "scores": None}, "data.scores is missing"),
    ):
        with pytest.raises(ConfigError, match=message):
            type(tiny_settings(tmp_path).data)(**(data | change))


def test_the_command_scores_a_sample_and_leaves_other_lines_empty(tmp_path, monkeypatch, capsys):
    data = tmp_path / "train.tsv"
    data.write_text("".join(f"{'a' if n < 8 else 'b'}\tpair {n}\tpaire {n}\n" for n in range(10)), "utf-8")
    arguments = ["scores", CHECKPOINT, str(data), str(tmp_path / "out"), "--sources", "a", "--sample", "5"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--show", "3", "--precision", "float32"])
    scores.main()
    lines = list(read_beside(tmp_path / "out", data, KIND))
    assert len(lines) == 10
    assert sum(map(bool, lines[:8])) == 5
    assert not any(lines[8:])
    shown = max((line for line in lines if line), key=float)
    assert f"{shown} {list(read_pairs(data))[lines.index(shown)].first} ||| paire" in capsys.readouterr().out
