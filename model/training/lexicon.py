"""The lexicon of a model: which words of its training data are copied into the other language, and which translated.

    python -m model.training.lexicon ../shared/data/train.en-fr.tsv.gz model/pretrained/en-fr

A word with a capital inside a sentence is copied in a pair if the other side has it, too. Names are the words that are
copied in four of five pairs or more, in two at least, and that hardly ever stand there in small letters (*Will*).
Translated are the others, and words in small letters that fewer than half of the pairs share.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from model.lexicon import LEXICON_FILE, Lexicon
from model.training.data import SentencePair, read_pairs

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_POSSESSIVE = re.compile(r"['’]s$")
_PARTS = re.compile(r"['’-]")
_BEHIND_A_WORD = re.compile(r"[^.!?:\"]\s\Z")
_MIN_NAMES, _NAME_SHARE = 2, 0.8
_COPY_SHARE = 0.5


def make_lexicon(pairs: Iterable[SentencePair], *, reverse: bool = False, min_count: int = 4) -> Lexicon:
    """Counts words.

    Args:
        pairs: Of the training.
        reverse: Whether the second side is the source.
        min_count: Words in small letters that stand in fewer pairs are left out: they are mistakes as often as not.
    """
    capital, copied, shared, small = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    small_shared = Counter[str]()
    for pair in pairs:
        source, target = (pair.second, pair.first) if reverse else (pair.first, pair.second)
        there = {part for word in _WORD.findall(target) for part in (word, *_PARTS.split(word))}
        there_small = {word.lower() for word in there}
        for word in {_POSSESSIVE.sub("", match[0]) for match in _WORD.finditer(source) if _is_inside(source, match)}:
            capital[word] += 1
            copied[word] += word in there
            shared[word] += word.lower() in there_small
        for word in {word for word in _WORD.findall(source) if word.islower()}:
            small[word] += 1
            small_shared[word] += word in there_small
    translated = {word for word in small if small[word] >= min_count and small_shared[word] < _COPY_SHARE * small[word]}
    names = set()
    for word, count in capital.items():
        if shared[word] < _COPY_SHARE * count:
            translated.add(word.lower())
        elif copied[word] >= _NAME_SHARE * count and count >= _MIN_NAMES and small[word.lower()] < _MIN_NAMES:
            names.add(word.lower())
    return Lexicon(frozenset(names - translated), frozenset(translated))


def _is_inside(text: str, match: re.Match[str]) -> bool:
    """Whether a word has a capital for its own sake."""
    word = match[0]
    is_capitalised = len(word) > 1 and word[0].isupper() and word[1:].islower()
    return is_capitalised and _BEHIND_A_WORD.search(text[max(0, match.start() - 2) : match.start()]) is not None


def main() -> None:
    """Read the corpus, write the file into the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--reverse", action="store_true", help="the model reads the second side")
    parser.add_argument("--min-count", type=int, default=4)
    arguments = parser.parse_args()
    lexicon = make_lexicon(read_pairs(arguments.corpus), reverse=arguments.reverse, min_count=arguments.min_count)
    comment = (
        f"Words of {arguments.corpus.name}, by model.training.lexicon.\n"
        "Sources and their licences: the table in MODEL_CARD.md."
    )
    (arguments.checkpoint / LEXICON_FILE).write_bytes(lexicon.dump(comment))


if __name__ == "__main__":
    main()
