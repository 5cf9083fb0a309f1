"""More sentence pairs for copying names: "Tom" in everyday pairs becomes a rarer or an invented name on both sides.

    python -m model.training.names ../shared/data/train.en-fr.tsv.gz runs/names.en-fr.tsv.gz

A small corpus knows few names, most of them in thousands of sentences; a model that learned from it replaces a name
that it never saw by one that it did. Only "Tom" is replaced, and only by names that start with a consonant: nothing
else in either sentence depends on it then (no gender, no elision).
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from model.training.data import SentencePair, read_pairs, write_pairs

SOURCE = "tatoeba-names"
BASE = "tatoeba"
_REPLACED = re.compile(r"\bTom\b")
_CAPITALISED = re.compile(r"\b[BCDFGJKLMNPQRSTVWXZ][a-zà-ÿ]{2,}\b")
_ONSETS = ("b", "bl", "br", "c", "ch", "d", "dr", "f", "g", "gr", "j", "k", "kr", "l", "m", "n", "p", "r", "s", "sh",
           "st", "t", "tr", "v", "w", "y", "z")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ee", "ou")
_CODAS = ("", "", "", "n", "r", "s", "l", "x", "ck", "rd", "m")


def shared_names(pairs: Iterable[SentencePair], max_count: int = 60) -> list[str]:
    """Capitalised words that stand on both sides of a pair, but are not common: names, as good as always."""
    counts: Counter[str] = Counter()
    for pair in pairs:
        # A first word has a capital whatever it is.
        first = set(_CAPITALISED.findall(pair.first.partition(" ")[2]))
        counts.update(first.intersection(_CAPITALISED.findall(pair.second.partition(" ")[2])))
    return sorted(name for name, count in counts.items() if count <= max_count)


def invented_name(generator: random.Random) -> str:
    """Two or three syllables that no list holds."""
    syllables = [
        generator.choice(_ONSETS) + generator.choice(_VOWELS) + generator.choice(_CODAS)
        for _ in range(generator.choice((1, 2, 2, 3)))
    ]
    return "".join(syllables).capitalize()


def renamed_pairs(pairs: Iterable[SentencePair], names: list[str], seed: int) -> Iterator[SentencePair]:
    """Each everyday pair with one "Tom" on both sides, under another name: from the list and invented by turns."""
    generator = random.Random(seed)
    for pair in pairs:
        if len(_REPLACED.findall(pair.first)) == len(_REPLACED.findall(pair.second)) == 1:
            name = generator.choice(names) if generator.random() < 0.5 and names else invented_name(generator)
            yield SentencePair(SOURCE, _REPLACED.sub(name, pair.first), _REPLACED.sub(name, pair.second))


def main() -> None:
    """Read the corpus, write the new pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pairs = [pair for pair in read_pairs(arguments.corpus) if pair.source_name == BASE]
    write_pairs(arguments.output, renamed_pairs(pairs, shared_names(pairs), arguments.seed))


if __name__ == "__main__":
    main()
