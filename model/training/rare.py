"""Everyday pairs that hold a rare word, to be seen more often.

    python -m model.training.rare ../shared/data/train.en-fr.tsv.gz runs/rare.en-fr.tsv.gz

Most sentences of a small corpus teach the same few hundred words again; what a small model lacks is the rest. Given a
weight of their own, these pairs are seen once more an epoch.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from model.training.data import SentencePair, read_pairs
from model.training.names import BASE

SOURCE = "tatoeba-rare"
_WORD = re.compile(r"[^\W\d_]+")


def rare_pairs(pairs: list[SentencePair], lowest: int, highest: int) -> Iterator[SentencePair]:
    """The pairs with a word on the first side that stands in ``lowest`` to ``highest`` of all pairs.

    Names do not count: a word must also occur in small letters. Words below ``lowest`` are noise as often as not.
    """
    words = [set(_WORD.findall(pair.first)) for pair in pairs]
    counts = Counter(word for found in words for word in found if word.islower())
    for pair, found in zip(pairs, words, strict=True):
        if any(lowest <= counts[word] <= highest for word in found):
            yield SentencePair(SOURCE, pair.first, pair.second)


def main() -> None:
    """Read the corpus, write the chosen pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--lowest", type=int, default=4)
    parser.add_argument("--highest", type=int, default=60)
    arguments = parser.parse_args()
    pairs = [pair for pair in read_pairs(arguments.corpus) if pair.source_name == BASE]
    with gzip.open(arguments.output, "wt", encoding="utf-8") as file:
        for pair in rare_pairs(pairs, arguments.lowest, arguments.highest):
            file.write(f"{pair.source_name}\t{pair.first}\t{pair.second}\n")


if __name__ == "__main__":
    main()
