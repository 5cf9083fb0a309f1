"""Word alignments of training pairs: as words in a file beside the data, as tokens in the corpus.

Links are written as ``3-2``: word 3 of the first side belongs to word 2 of the second, both counted from 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from model.alignment import Pairs
from model.tokenizer import Encoding
from model.training.beside import read_beside
from model.training.data import DataError, SentencePair, read_pairs

KIND = "links"

_WORD = re.compile(r"\b(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu)['’]|\w+(?:['’-]\w+)*|([^\w\s])\1*", re.IGNORECASE)


def word_spans(text: str) -> list[tuple[int, int]]:
    """``[start, end)`` of each word: simpler than `model.words` and 50 times as fast, with the same elisions."""
    return [match.span() for match in _WORD.finditer(text)]


def one_to_one(links: Pairs) -> list[tuple[int, int]]:
    """The links of words that have no other, in order."""
    first, second = (Counter(link[side] for link in links) for side in (0, 1))
    return [link for link in sorted(links) if first[link[0]] == second[link[1]] == 1]


def format_links(links: Iterable[tuple[int, int]]) -> str:
    """Links as one line."""
    return " ".join(f"{first}-{second}" for first, second in sorted(links))


def read_linked_pairs(path: Path, folder: Path) -> Iterator[SentencePair]:
    """The pairs of a data file, with the links that ``folder`` has for them.

    Raises:
        DataError: For a damaged file, or links that were made from other data.
    """
    number = 0
    for number, (pair, line) in enumerate(zip(read_pairs(path), read_beside(folder, path, KIND), strict=True), start=1):
        try:
            links = tuple((int(first), int(second)) for first, second in (item.split("-") for item in line.split()))
        except ValueError:
            raise DataError(f"{path}, line {number}: its links are {line!r}, not pairs as 3-2") from None
        yield SentencePair(pair.source_name, pair.first, pair.second, links)


def token_links(pair: SentencePair, source: Encoding, target: Encoding) -> list[int]:
    """A pair's word links between the tokens of its texts.

    Every token of a target word is linked to every token of the source words that belong to it. A mask piece is a word
    like any other; the end of a sentence, and a space that is a token of its own, have no links.

    Args:
        pair: ``first`` is the source.
        source: Its tokens.
        target: Those of ``second``.

    Returns:
        Position of a source token, position of a target token, and so on.

    Raises:
        DataError: When a link names a word that is not there.
    """
    sources, targets = _tokens_of_words(pair.first, source), _tokens_of_words(pair.second, target)
    flat: list[int] = []
    for first, second in pair.links:
        if first >= len(sources) or second >= len(targets):
            raise DataError(f"link {first}-{second} of {pair.first!r} ({len(sources)} words) and {pair.second!r} "
                            f"({len(targets)} words): no such word")  # fmt: skip
        for target_token in targets[second]:
            for source_token in sources[first]:
                flat += (source_token, target_token)
    return flat


def _tokens_of_words(text: str, encoding: Encoding) -> list[list[int]]:
    words = word_spans(text)
    tokens: list[list[int]] = [[] for _ in words]
    first = 0
    for token, (start, end) in enumerate(encoding.source_spans):
        while first < len(words) and words[first][1] <= start:
            first += 1
        index = first
        while index < len(words) and words[index][0] < end:
            if start < end:
                tokens[index].append(token)
            index += 1
    return tokens
