import pytest
import torch

from model.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from model.training.average_checkpoints import average_checkpoints
from tests.data.make_tiny_checkpoint import FOLDER as TINY


def changed(folder, factor):
    """The tiny checkpoint with all weights multiplied."""
    checkpoint = load_checkpoint(TINY)
    with torch.no_grad():
        for weight in checkpoint.model.parameters():
            weight.mul_(factor)
    languages = {"source_language": "en", "target_language": "fr"}
    tokenizer = TINY / "tokenizer.model"
    save_checkpoint(
        folder, checkpoint.model, tokenizer, name="x", training={"steps": 7}, dtype=torch.float32, **languages
    )
    return folder


def test_weights_are_the_mean_and_the_steps_are_kept(tmp_path):
    parts = [changed(tmp_path / str(factor), factor) for factor in (1, 2, 6)]
    average_checkpoints(parts, tmp_path / "mean")
    mean, one = load_checkpoint(tmp_path / "mean"), load_checkpoint(parts[0])
    for average, weight in zip(mean.model.parameters(), one.model.parameters(), strict=True):
        torch.testing.assert_close(average, (3 * weight).half().float())
    assert mean.training["averaged_steps"] == [7, 7, 7]


def test_another_shape_is_refused(tmp_path, monkeypatch):
    parts = [changed(tmp_path / "a", 1), TINY]
    config = (parts[0] / "config.json").read_text()
    (parts[0] / "config.json").write_text(config.replace('"layer_norm_eps": 1e-05', '"layer_norm_eps": 0.1'))
    with pytest.raises(CheckpointError, match="another shape or tokenizer"):
        average_checkpoints(parts, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
