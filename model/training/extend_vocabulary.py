r"""More pieces for a trained model's vocabulary, so that training can go on with them.

    python -m model.training.extend_vocabulary model/pretrained/en-fr runs/extended \
        ../shared/data/train.en-fr.tsv.gz --sources tatoeba

Two kinds of pieces are put behind the old ones, whose ids stay as they are:

- **Mask pieces**: the private-use characters U+E000 to U+E009, one piece each. A span that must come through a
  translation unchanged (an address, a placeholder, an emoji) travels as one of them; ``model.training.kept`` makes the
  pairs that teach a model to copy them.
- **Misleading words**: "plant" as one piece, where the vocabulary had "plan" and "t", and a small model reads *plan*.
  Only words are taken whose first piece is another, common word, and not those whose rest is an ending ("plan|s").

A new embedding starts as the mean of the embeddings of the pieces that the word was made of.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch
from sentencepiece import sentencepiece_model_pb2 as protocol
from torch import Tensor

from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from model.description import describe
from model.tokenizer import MASK_CHARACTERS, Tokenizer
from model.training.data import read_pairs
from model.transformer import Transformer

_ModelProto = protocol.ModelProto  # type: ignore[attr-defined]  # made by protobuf at import
_WORD = re.compile(r"[^\W\d_]+")
_ENDINGS = {
    "en": frozenset(
        "s es ed d ing er ers r ly y n en est st ness ful less ment ments able al ally ity ish ship ism ist ists ic "
        "ical ion ions ation ations ance ence ive ize ized ise ised or ors man men body thing one where times self "
        "ever".split()
    ),
    "fr": frozenset(
        "s e es x t nt ent er ez ons ai as a ont ais ait aient iez ions é ée és ées i ie is ies it ir rai ras ra rons "
        "rez ront rais rait raient r re ant ants ante antes ement ment le les ne nes ge ges ce ces que ques eur eurs "
        "euse euses eux trice isme iste istes able ables ible ibles ition ation ations tion ité ités al ale aux if ive "
        "ur ure ures age ages ette ettes ment ments lle lles tte ttes sse sses de des se ses é è ère ères ier iers "
        "ière ières".split()
    ),
}
_MARGIN = 0.1  # how much likelier a new word's piece is than its parts, in nats


class WordPieces(Protocol):
    """What `misleading_words` asks of a tokenizer."""

    def encode_ids(self, text: str, language: str) -> list[int]:
        """The ids of a word."""

    def decode(self, ids: list[int]) -> str:
        """What ids stand for."""


def misleading_words(texts: Iterable[str], language: str, tokenizer: WordPieces, least: int, common: int) -> list[str]:
    """Words in ``least`` texts or more that begin with the piece of a word in ``common`` or more."""
    counts = Counter(word for text in texts for word in set(_WORD.findall(text)) if word.islower())
    words = []
    for word, count in sorted(counts.items()):
        if count < least:
            continue
        ids = tokenizer.encode_ids(word, language)
        first = tokenizer.decode(ids[:1])
        rest = word.removeprefix(first)
        if len(ids) > 1 and len(first) > 2 and counts[first] >= common and rest not in _ENDINGS[language]:
            words.append(word)
    return words


def extended_model(model: bytes, tokenizer: Tokenizer, words: list[str]) -> tuple[bytes, list[list[int]]]:
    """A SentencePiece model with more pieces.

    Args:
        model: The serialized model of ``tokenizer``.
        tokenizer: What it is now.
        words: Words to become one piece each, with the space before them.

    Returns:
        The new serialized model, and for every new piece, in order of ids, the old ids that spelled it.
    """
    proto = _ModelProto.FromString(model)
    scores = [piece.score for piece in proto.pieces]
    present = {piece.piece for piece in proto.pieces}
    parts: list[list[int]] = []
    for character in MASK_CHARACTERS:
        if character not in present:
            proto.pieces.add(piece=character, score=0.0, type=_ModelProto.SentencePiece.USER_DEFINED)
            parts.append(tokenizer.encode_ids(character, "en"))
    for word in words:
        ids = tokenizer.encode_ids(word, "en")  # of words alone, the same in every language
        score = sum(scores[token_id] for token_id in ids) + _MARGIN
        proto.pieces.add(piece="\u2581" + word, score=score, type=_ModelProto.SentencePiece.NORMAL)
        parts.append(ids)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString(), parts


def extend_vocabulary(folder: Path, output: Path, words: list[str]) -> None:
    """Write the checkpoint of ``folder`` with the mask pieces and ``words`` in its vocabulary.

    Raises:
        CheckpointError: When ``folder`` cannot be read.
    """
    checkpoint = load_checkpoint(folder)
    model_file = folder / describe(folder).tokenizer_file
    serialized, parts = extended_model(model_file.read_bytes(), Tokenizer(model_file), words)
    old_size = checkpoint.config.source_vocab_size
    new_size = old_size + len(parts)
    larger = Transformer(dataclasses.replace(checkpoint.config, source_vocab_size=new_size, target_vocab_size=new_size))
    weights = checkpoint.model.state_dict()
    with torch.no_grad():
        for name, weight in larger.state_dict().items():
            weight.copy_(_with_rows(weights[name], parts) if weight.shape != weights[name].shape else weights[name])
            if weight.shape != weights[name].shape and len(weights[name]) != old_size:
                raise ValueError(f"{name} has {len(weights[name])} rows, the vocabulary {old_size}")
    save_with_vocabulary(output, checkpoint, larger, serialized)


def save_with_vocabulary(output: Path, checkpoint: Checkpoint, model: Transformer, serialized: bytes) -> None:
    """Write ``checkpoint`` with another model and, of the same number of pieces, another SentencePiece model."""
    with tempfile.TemporaryDirectory() as temporary:
        tokenizer_file = Path(temporary) / "tokenizer.model"
        tokenizer_file.write_bytes(serialized)
        save_checkpoint(
            output, model, tokenizer_file, name=checkpoint.name, source_language=checkpoint.source_language,
            target_language=checkpoint.target_language, training=checkpoint.training,
        )  # fmt: skip


def _with_rows(weight: Tensor, parts: list[list[int]]) -> Tensor:
    return torch.cat([weight, torch.stack([weight[ids].mean(dim=0) for ids in parts])])


def main() -> None:
    """Read the arguments and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("corpus", type=Path, help="sentence pairs that are searched for misleading words")
    parser.add_argument("--sources", nargs="+", default=["tatoeba"], help="sources to read of it")
    parser.add_argument("--language", choices=sorted(_ENDINGS), default="en", help="whose words")
    parser.add_argument("--least", type=int, default=8, help="pairs that a word must stand in")
    parser.add_argument("--common", type=int, default=60, help="pairs that the word it begins with stands in")
    arguments = parser.parse_args()
    tokenizer = Tokenizer(arguments.checkpoint / describe(arguments.checkpoint).tokenizer_file)
    texts = [
        pair.first if arguments.language == "en" else pair.second
        for pair in read_pairs(arguments.corpus)
        if pair.source_name in arguments.sources
    ]
    words = misleading_words(texts, arguments.language, tokenizer, arguments.least, arguments.common)
    sys.stdout.write(f"{len(words)} words: {', '.join(words)}\n")
    extend_vocabulary(arguments.checkpoint, arguments.output, words)


if __name__ == "__main__":
    main()
