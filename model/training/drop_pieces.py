"""A trained model without the last pieces of its vocabulary: what `extend_vocabulary` added, taken back.

python -m model.training.drop_pieces runs/c/checkpoint runs/shorter --keep 8340
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from sentencepiece import sentencepiece_model_pb2 as protocol

from model.checkpoint import load_checkpoint
from model.description import describe
from model.training.extend_vocabulary import save_with_vocabulary
from model.transformer import Transformer


def drop_pieces(folder: Path, output: Path, keep: int) -> None:
    """Write the checkpoint of ``folder`` with the first ``keep`` pieces of its vocabulary alone.

    Raises:
        CheckpointError: When ``folder`` cannot be read.
    """
    checkpoint = load_checkpoint(folder)
    proto = protocol.ModelProto.FromString((folder / describe(folder).tokenizer_file).read_bytes())  # type: ignore[attr-defined]
    del proto.pieces[keep:]
    proto.trainer_spec.vocab_size = keep
    shorter = Transformer(dataclasses.replace(checkpoint.config, source_vocab_size=keep, target_vocab_size=keep))
    weights = checkpoint.model.state_dict()
    with torch.no_grad():
        for name, weight in shorter.state_dict().items():
            weight.copy_(weights[name][: len(weight)])
    save_with_vocabulary(output, checkpoint, shorter, proto.SerializeToString())


def main() -> None:
    """Read the arguments and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--keep", type=int, required=True)
    arguments = parser.parse_args()
    drop_pieces(arguments.checkpoint, arguments.output, arguments.keep)


if __name__ == "__main__":
    main()
