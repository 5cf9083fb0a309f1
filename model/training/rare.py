"""Everyday pairs that hold a rare word, to be seen more often.

    python -m model.training.rare ../shared/data/train.en-fr.tsv.gz runs/rare.en-fr.tsv.gz

Most sentences of a small corpus teach the same few hundred words again; what a small model lacks is the rest. Given a
weight of their own, these pairs are seen once more an epoch.

With ``--read fr`` it is the French words that count, for a model that reads French.

With ``--tokenizer runs/en-fr/tokenizer.model`` only those rare words count that start with the piece of another,
common word ("plan|t"): the ones that a model reads wrongly most easily.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from model.tokenizer import Tokenizer
from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.names import BASE

SOURCE = "tatoeba-rare"
SPLIT_SOURCE = "tatoeba-split"
_WORD = re.compile(r"[^\W\d_]+")


def rare_pairs(pairs: list[SentencePair], lowest: int, highest: int, side: str = "first") -> Iterator[SentencePair]:
    """The pairs with a word on ``side`` ("first", "second") that stands in ``lowest`` to ``highest`` of all pairs.

    Names do not count: a word must also occur in small letters. Words below ``lowest`` are noise as often as not.
    """
    words = [set(_WORD.findall(getattr(pair, side))) for pair in pairs]
    counts = Counter(word for found in words for word in found if word.islower())
    for pair, found in zip(pairs, words, strict=True):
        if any(lowest <= counts[word] <= highest for word in found):
            yield SentencePair(SOURCE, pair.first, pair.second)


def misleading_pairs(
    pairs: list[SentencePair], tokenizer: Tokenizer, lowest: int, highest: int, common: int = 100
) -> Iterator[SentencePair]:
    """Of the rare pairs, those whose rare word begins with a piece that is a word in ``common`` pairs or more."""
    words = [{word for word in _WORD.findall(pair.first) if word.islower()} for pair in pairs]
    counts = Counter(word for found in words for word in found)
    misleading = set()
    for word, count in counts.items():
        if lowest <= count <= highest:
            ids = tokenizer.encode_ids(word, "en")
            first = tokenizer.decode(ids[:1])
            if len(ids) > 1 and counts[first] >= common:
                misleading.add(word)
    for pair, found in zip(pairs, words, strict=True):
        if not misleading.isdisjoint(found):
            yield SentencePair(SPLIT_SOURCE, pair.first, pair.second)


def main() -> None:
    """Read the corpus, write the chosen pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--lowest", type=int, default=4)
    parser.add_argument("--highest", type=int, default=60)
    parser.add_argument("--read", choices=("en", "fr"), default="en", help="the language that the model reads")
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    if arguments.tokenizer is not None and arguments.read != "en":
        parser.error("--tokenizer knows the endings of English only: leave --read out")
    pairs = [pair for pair in read_pairs(arguments.corpus) if pair.source_name == BASE]
    bounds = arguments.lowest, arguments.highest
    chosen = (
        rare_pairs(pairs, *bounds, side="first" if arguments.read == "en" else "second")
        if arguments.tokenizer is None
        else misleading_pairs(pairs, Tokenizer(arguments.tokenizer), *bounds)
    )
    write_pairs(arguments.output, chosen)


if __name__ == "__main__":
    main()
