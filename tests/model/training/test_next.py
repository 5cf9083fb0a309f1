"""The training files that can be started with one command."""

import subprocess
from pathlib import Path

import pytest

from model.training.settings import load_settings

FOLDER = Path("model/training")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_training_file_of_the_repository_can_be_read(path):
    assert load_settings(path).name in path.stem


@pytest.mark.parametrize("name", ["en-fr", "fr-en"])
def test_the_command_makes_all_that_its_training_file_reads(name, tmp_path):
    settings = load_settings(FOLDER / f"{name}-next.toml")
    assert (settings.source_language, settings.data.reverse) == (name[:2], name == "fr-en")
    corpus = tmp_path / "train.en-fr.tsv.gz"
    corpus.touch()
    command = ["make", "-n", "-B", "-f", str(FOLDER / "next.mk"), f"{name}-next", f"CORPUS={corpus}"]
    steps = subprocess.run(command, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ").splitlines()
    made = [Path(path).name for path in settings.data.train[1:]]
    for file in made:
        assert sum(f"{corpus} runs/{file}" in step for step in steps) == 1, file
    train = next(index for index, step in enumerate(steps) if f"service train model/training/{name}-next.toml" in step)
    assert f"--start-from model/pretrained/{name}" in steps[train]
    align = next(index for index, step in enumerate(steps) if f"aligner model/training/{name}-next.toml" in step)
    score = next(index for index, step in enumerate(steps) if "model.training.scores" in step)
    assert max(align, score) < train
    assert all(max(i for i, step in enumerate(steps) if f"runs/{file}" in step) < align for file in made)
    assert Path(settings.data.scores).name == "scores"
    assert set(settings.data.leave_out) <= set(steps[score].split())
    assert f"runs/{Path(settings.guided_alignment.links).name}/" in "\n".join(steps)
