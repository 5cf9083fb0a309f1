"""Words that no text has: a small model spells out piece by piece what it does not know (*neignager*, *neighbour*).

    found = invented("Mon voisin jardine.", "My neighvor gardens.", lexicon)     # ("neighvor",)
    known_words("Mon voisin jardine.", (), "My neighvor gardens.", lexicon)      # ((4, 10, "neighbor"),)

What stands in neither the source nor any translation that the model was trained on is invented, or very rare. It may
come from the words of the source that are not translated by anything the training data has for them: shown to the
model in the target language, as the data translates them, they are copied (Song et al. 2019, "Code-Switching for
Enhancing NMT with Pre-Specified Translation"; a lexicon for rare words: Luong et al. 2015, "Addressing the Rare Word
Problem in Neural Machine Translation", section 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import regex

from model.lexicon import Lexicon, parts_of_words
from service.text.kept import KeptSpan
from service.text.wording import Change

_WORD = regex.compile(r"(?<![\p{L}\p{M}\p{N}@#_/.-])\p{L}[\p{L}\p{M}]++(?![\p{N}@_/-]|\.\w)")
_MIN_LETTERS = 4
_STEM = 4
"""Letters at least by which two forms of a word are told to be one."""


def invented(source: str, target: str, lexicon: Lexicon) -> tuple[str, ...]:
    """The words of a translation that nobody wrote, in order.

    Args:
        source: A segment.
        target: The model's own words for it.
        lexicon: Of the model; without a list of written words nothing is found.
    """
    if not lexicon.written:
        return ()
    found = [
        match[0]
        for match in _WORD.finditer(target)
        if len(match[0]) >= _MIN_LETTERS
        and (match[0].islower() or not target[: match.start()].strip())
        and match[0].casefold() not in lexicon.written
    ]
    if not found:  # nearly always
        return ()
    theirs = {word for word in parts_of_words(source) if not lexicon.is_translated(word)}
    return tuple(word for word in found if word.casefold() not in theirs)


def known_words(source: str, spans: Iterable[KeptSpan], target: str, lexicon: Lexicon) -> tuple[Change, ...]:
    """Words of a source that a translation with invented words lacks, and what the data translates them by.

    Of each invented word the one that stands nearest to it, by its place in the sentence.

    Args:
        source: A segment.
        spans: What is kept of it.
        target: The translation.
        lexicon: Of the model.
    """
    words = invented(source, target, lexicon)
    if not words:
        return ()
    taken = [(span.start, span.end) for span in spans]
    theirs = parts_of_words(target)
    free: list[tuple[float, Change]] = []
    for match in _WORD.finditer(source):
        word = match[0].casefold()
        translations = lexicon.translations.get(word, ())
        if len(word) < _MIN_LETTERS or not translations or any(_same(a, b) for a in translations for b in theirs):
            continue
        if not (match[0].islower() or not source[: match.start()].strip()):
            continue
        if not any(start < match.end() and match.start() < end for start, end in taken):
            free.append((match.start() / len(source), (match.start(), match.end(), translations[0])))
    chosen: list[Change] = []
    for word in words:
        place = target.index(word) / len(target)
        nearest = min(free, key=lambda item: abs(item[0] - place), default=None)
        if nearest is not None:
            free.remove(nearest)
            chosen.append(nearest[1])
    return tuple(sorted(chosen))


def lacks_shown(target: str, shown: Sequence[Change]) -> bool:
    """Whether a translation lacks a word that the model was shown in the target language."""
    theirs = parts_of_words(target)
    return not all(
        any(_same(word, other) for other in theirs) for _, _, instead in shown for word in parts_of_words(instead)
    )


def _same(word: str, other: str) -> bool:
    """Whether two words are forms of one, as far as their beginnings tell."""
    size = max(_STEM, min(len(word), len(other)) - 2)
    return word == other or (len(word) >= _STEM and word[:size] == other[:size])
