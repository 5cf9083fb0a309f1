"""Which words of its source a model's training data copied, and which it translated: two lists beside the weights.

    lexicon = open_lexicon("model/pretrained/en-fr")
    lexicon.is_name("Chicago"), lexicon.is_translated("Monday")    # (True, True)

A name that is gone from a translation, and an ordinary word that is still in it, can be noticed by them
(service/pipeline.py). `model.training.lexicon` makes the file; a checkpoint need not have one.
"""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from model.description import CheckpointError

LEXICON_FILE = "lexicon.txt.gz"
_NAMES, _TRANSLATED = "[names]", "[translated]"


@dataclass(frozen=True)
class Lexicon:
    """Words in small letters.

    Attributes:
        names: Of those with a capital inside a sentence, the ones that stand in the translation as they are.
        translated: The ones that do not, and other words of the source language that its translations do not share.
    """

    names: frozenset[str]
    translated: frozenset[str]

    def is_name(self, word: str) -> bool:
        """Whether a word is known to stay as it is."""
        return word.casefold() in self.names

    def is_translated(self, word: str) -> bool:
        """Whether a word is known to become another."""
        return word.casefold() in self.translated

    def dump(self, comment: str) -> bytes:
        """The file's content; the same for the same words."""
        lines = [f"# {line}" for line in comment.splitlines()]
        text = "\n".join([*lines, _NAMES, *sorted(self.names), _TRANSLATED, *sorted(self.translated), ""])
        output = io.BytesIO()
        with gzip.GzipFile(fileobj=output, mode="wb", mtime=0) as packed:
            packed.write(text.encode())
        return output.getvalue()


def parse_lexicon(content: bytes, path: Path) -> Lexicon:
    """Reads a file's content.

    Raises:
        CheckpointError: Naming the file, if it is something else.
    """
    try:
        lines = gzip.decompress(content).decode().splitlines()
        words = [line for line in lines if line and not line.startswith("#")]
        middle = words.index(_TRANSLATED)
        if words[0] != _NAMES:
            raise ValueError(f"begins with {words[0]!r}")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise CheckpointError(
            f"{path}: is no lexicon (lists under {_NAMES} and {_TRANSLATED}, gzip): {error}"
        ) from None
    return Lexicon(frozenset(words[1:middle]), frozenset(words[middle + 1 :]))


def open_lexicon(folder: str | Path) -> Lexicon | None:
    """The lexicon of a checkpoint; None if it has none.

    Raises:
        CheckpointError: If the file is damaged.
    """
    path = Path(folder) / LEXICON_FILE
    return parse_lexicon(path.read_bytes(), path) if path.is_file() else None
