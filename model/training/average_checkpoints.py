"""The mean of several checkpoints of one run, often a little better than each (Vaswani et al. 2017, section 6.1).

python -m model.training.average_checkpoints OUTPUT CHECKPOINT CHECKPOINT ...
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from model.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from model.description import describe


def average_checkpoints(folders: list[Path], output: Path) -> None:
    """Write a checkpoint whose weights are the mean of those of ``folders``; all else is the last one's.

    Raises:
        CheckpointError: When one cannot be read, or they differ in shape or tokenizer.
    """
    checkpoints = [load_checkpoint(folder) for folder in folders]
    last = checkpoints[-1]
    for folder, checkpoint in zip(folders, checkpoints, strict=True):
        if checkpoint.config != last.config or checkpoint.tokenizer.revision != last.tokenizer.revision:
            raise CheckpointError(f"{folder}: another shape or tokenizer than {folders[-1]}; no mean can be taken")
    weights = [dict(checkpoint.model.named_parameters()) for checkpoint in checkpoints]
    with torch.no_grad():
        for name, weight in last.model.named_parameters():
            weight.copy_(torch.stack([one[name] for one in weights]).mean(dim=0))
    save_checkpoint(
        output,
        last.model,
        folders[-1] / describe(folders[-1]).tokenizer_file,
        name=last.name,
        source_language=last.source_language,
        target_language=last.target_language,
        training={**last.training, "averaged_steps": [one.training.get("steps") for one in checkpoints]},
    )


def main() -> None:
    """Read the arguments and write the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    arguments = parser.parse_args()
    average_checkpoints(arguments.checkpoints, arguments.output)


if __name__ == "__main__":
    main()
