"""Pairs in which "it" stands for a thing that French calls "elle", to be seen more often.

    python -m model.training.pronouns ../shared/data/train.en-fr.tsv.gz runs/pronouns.en-fr.tsv.gz

Everyday sentences are full of an "il" that stands for nothing ("il pleut", "il faut"), and the noun that decides lies
further back than most of what a small model learns to look at. With a weight of their own these few pairs are seen more
often.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from model.training.data import SentencePair, read_pairs, write_pairs

SOURCE = "pronouns"
_IT = re.compile(r"\bit\b", re.IGNORECASE)
_ELLE = re.compile(r"\belle\b", re.IGNORECASE)
# Someone else whom "elle" may stand for: a person, or a name (a capital letter inside the sentence).
_SOMEONE = re.compile(
    r"\b(she|her|hers|herself|they|them|woman|girl|lady|mother|sister|daughter|wife|aunt)\b", re.IGNORECASE
)
_NAME = re.compile(r"(?<=[\w,;:] )(?!I\b)[A-Z]\w")
_FIRST_NAME = re.compile(r"\A\w+ (says?|said|did|does|has|had|told|knows?|knew|made|likes?|liked|put|took|left|gave)\b")


def feminine_things(pairs: Iterable[SentencePair]) -> Iterator[SentencePair]:
    """The pairs whose "it" is "elle", as far as words can tell."""
    for pair in pairs:
        if not (_IT.search(pair.first) and _ELLE.search(pair.second)):
            continue
        if not any(other.search(pair.first) for other in (_SOMEONE, _NAME, _FIRST_NAME)):
            yield SentencePair(SOURCE, pair.first, pair.second)


def main() -> None:
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--sources", nargs="+", required=True, help="source names to take pairs from")
    arguments = parser.parse_args()
    pairs = (pair for pair in read_pairs(arguments.corpus) if pair.source_name in arguments.sources)
    write_pairs(arguments.output, feminine_things(pairs))


if __name__ == "__main__":
    main()
