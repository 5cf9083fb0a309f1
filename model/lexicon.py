"""What a model's training data did with words: lists beside the weights.

    lexicon = open_lexicon("model/pretrained/en-fr")
    lexicon.is_name("Chicago"), lexicon.is_translated("Monday")    # (True, True)
    lexicon.translations["mushroom"], lexicon.spellings["neighbour"]    # (("champignon",), "neighbor")

A name that is gone from a translation, an ordinary word that is still in it, and a word in it that nobody ever wrote
can be noticed by them (service/pipeline.py). `model.training.lexicon` makes the file; a checkpoint need not have one.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model.description import CheckpointError

LEXICON_FILE = "lexicon.txt.gz"
_NAMES, _TRANSLATED, *_ = _SECTIONS = ("[names]", "[translated]", "[written]", "[translations]", "[spellings]")
_WORD_PART = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Lexicon:
    """Words in small letters.

    Attributes:
        names: Of those with a capital inside a sentence, the ones that stand in the translation as they are.
        translated: The ones that do not, and other words of the source language that its translations do not share.
        written: All words of the target language that the data has, those between apostrophes and hyphens one by one;
            none if that is not known.
        translations: Of words of the source language that are mostly translated by one other: these, the most frequent
            first.
        spellings: Of words of the source language that the data writes otherwise far more often: the other spelling.
    """

    names: frozenset[str]
    translated: frozenset[str]
    written: frozenset[str] = frozenset()
    translations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spellings: Mapping[str, str] = field(default_factory=dict)

    def is_name(self, word: str) -> bool:
        """Whether a word is known to stay as it is."""
        return word.casefold() in self.names

    def is_translated(self, word: str) -> bool:
        """Whether a word is known to become another."""
        return word.casefold() in self.translated

    def dump(self, comment: str) -> bytes:
        """The file's content; the same for the same words."""
        sections = (
            sorted(self.names),
            sorted(self.translated),
            sorted(self.written),
            [" ".join((word, *found)) for word, found in sorted(self.translations.items())],
            [" ".join(found) for found in sorted(self.spellings.items())],
        )
        lines = [f"# {line}" for line in comment.splitlines()]
        for name, section in zip(_SECTIONS, sections, strict=True):
            lines += [name, *section]
        text = "\n".join([*lines, ""])
        output = io.BytesIO()
        with gzip.GzipFile(fileobj=output, mode="wb", mtime=0) as packed:
            packed.write(text.encode())
        return output.getvalue()


def parts_of_words(text: str) -> list[str]:
    """The words of a text in small letters, in order; *don't* and *well-known* are two each."""
    return _WORD_PART.findall(text.casefold())


def parse_lexicon(content: bytes, path: Path) -> Lexicon:
    """Reads a file's content.

    Raises:
        CheckpointError: Naming the file, if it is something else.
    """
    try:
        lines = gzip.decompress(content).decode().splitlines()
        lines = [line for line in lines if line and not line.startswith("#")]
        if lines[:1] != [_NAMES] or _TRANSLATED not in lines:
            raise ValueError(f"begins with {lines[:1]}")
        sections: dict[str, list[str]] = {name: [] for name in _SECTIONS}  # older files have the first two
        for line in lines:
            if line in sections:
                section = sections[line]
            else:
                section.append(line)
        names, translated, written, translations, spellings = sections.values()
        rows = [line.split(" ") for line in translations]
        return Lexicon(
            frozenset(names),
            frozenset(translated),
            frozenset(written),
            {word: tuple(others) for word, *others in rows},
            dict(line.split(" ") for line in spellings),
        )
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise CheckpointError(
            f"{path}: is no lexicon (lists under {_NAMES} and {_TRANSLATED}, gzip): {error}"
        ) from None


def open_lexicon(folder: str | Path) -> Lexicon | None:
    """The lexicon of a checkpoint; None if it has none.

    Raises:
        CheckpointError: If the file is damaged.
    """
    path = Path(folder) / LEXICON_FILE
    return parse_lexicon(path.read_bytes(), path) if path.is_file() else None
