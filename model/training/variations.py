"""Everyday pairs as people also type them: without capitals and stop, and several sentences in one line.

python -m model.training.variations ../shared/data/train.en-fr.tsv.gz runs/variations.en-fr.tsv.gz
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.names import BASE

BARE_SOURCE = "tatoeba-bare"
JOINED_SOURCE = "tatoeba-joined"
_WORD = re.compile(r"[^\W\d_]+")
_ONE_SENTENCE = re.compile(r"[^.!?]*[^.!?\s]\s?[.?]$")
_STOP = re.compile(r"\s?[.?]$")


def bare_pairs(pairs: list[SentencePair], share: float, seed: int) -> Iterator[SentencePair]:
    """``share`` of the one-sentence pairs: no final stop on both sides; half of them in small letters.

    The French side keeps the capitals of names: only its first letter changes, of a word that is also seen small.
    """
    generator = random.Random(seed)
    small = {word for pair in pairs for word in _WORD.findall(pair.second) if word.islower()}
    for pair in pairs:
        if not (_ONE_SENTENCE.match(pair.first) and _ONE_SENTENCE.match(pair.second)) or generator.random() > share:
            continue
        first, second = _STOP.sub("", pair.first), _STOP.sub("", pair.second)
        if generator.random() < 0.5:
            first = first.lower()
            opener = _WORD.match(second)
            if opener and opener[0].lower() in small:
                second = second[0].lower() + second[1:]
        yield SentencePair(BARE_SOURCE, first, second)


def joined_pairs(pairs: list[SentencePair], count: int, seed: int) -> Iterator[SentencePair]:
    """``count`` pairs of two or three everyday pairs, one after the other."""
    generator = random.Random(seed)
    whole = [pair for pair in pairs if pair.first[-1] in ".!?" and pair.second[-1] in ".!?"]
    for _ in range(count):
        some = generator.sample(whole, generator.choice((2, 2, 3)))
        yield SentencePair(JOINED_SOURCE, " ".join(p.first for p in some), " ".join(p.second for p in some))


def main() -> None:
    """Read the corpus, write the new pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--bare", type=float, default=0.1, help="share of pairs without stop")
    parser.add_argument("--joined", type=int, default=8000, help="pairs of several sentences")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pairs = [pair for pair in read_pairs(arguments.corpus) if pair.source_name == BASE]
    bare = bare_pairs(pairs, arguments.bare, arguments.seed)
    joined = joined_pairs(pairs, arguments.joined, arguments.seed)
    write_pairs(arguments.output, [*bare, *joined])


if __name__ == "__main__":
    main()
