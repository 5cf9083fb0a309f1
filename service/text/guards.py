"""Notices translations that cannot be right: loops, absurd lengths, copies of the source.

faults("I like it.", "J'aime ça ça ça ça ça ça ça.")    # ("repetition",)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import regex

from service.text.languages import base_language
from service.text.quotes import misplaced

Fault = Literal["repetition", "too_long", "too_short", "untranslated", "signs", "quotes", "marks"]

MINOR_FAULTS: frozenset[Fault] = frozenset({"marks"})
"""What a reader forgives: a hypothesis without them is better, but nothing is tried again for them."""

MAX_RATIO = 3.0
"""A translation has at most so many characters for each of its source."""

_ALWAYS_ALLOWED_CHARACTERS = 12
"""However short a source with a capital: *OK* is *D'accord*, *UK* is *Royaume-Uni*; *re* is the rest of a word."""

_MIN_RATIO = 0.4
_MIN_IDEOGRAPHIC_RATIO = 0.1
_MIN_RATIO_CHARACTERS = 24
"""Shorter sources may well become much shorter."""

_LONG = 150
"""Characters of a source from which on the two languages have about the same share in nearly every pair."""

_MIN_RATIO_OF_LONG = {("en", "fr"): 0.75, ("fr", "en"): 0.55}
"""Of sound reference pairs 6 of 2,970 from English are below, 5 of 4,175 from French (docs/experiments.md)."""

_MIN_COPIED_WORDS = 3

_MAX_PERIOD_WORDS = 12
_MAX_PERIOD_CHARACTERS = 16

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:['’-][\p{L}\p{M}\p{N}]+)*|[^\s\p{L}\p{M}\p{N}]+")
_LETTER_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]+")
_IDEOGRAPH = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")
# What a translation has as often as its source; of slashes those between words (and/or), not w/o.
_SIGNS = tuple(
    (regex.compile(there), regex.compile(here))
    for there, here in ((r"[(（]", r"[(（]"), (r"[)）]", r"[)）]"), (r"/(?=\s?\p{L}{2})", r"/(?=\s?\w)"))
)
_SIGN = re.compile(r"[(（)）/]")
_QUOTES = re.compile(r"[\"“”„«»「」『』]")
_QUESTION_MARKS = "?？؟⁇"
_QUESTION = regex.compile(rf"[{_QUESTION_MARKS}]\W*\Z")
_RUN = regex.compile(r"(\S{1,16}?)\1{4,}+")


def faults(source: str, target: str) -> tuple[Fault, ...]:
    """What is wrong with a translation.

    Args:
        source: One segment.
        target: Its translation.

    Returns:
        The faults, none if it looks right. Takes time linear in the lengths.
    """
    return tuple(_faults(source.strip(), target.strip()))


def _faults(source: str, target: str) -> Iterator[Fault]:
    if is_loop(source, target):
        yield "repetition"
    if is_too_long(source, target):
        yield "too_long"
    is_short = len(source) >= _MIN_RATIO_CHARACTERS and len(target) < _MIN_RATIO * len(source)
    if is_short and len(target) < _min_ratio(target) * len(source):
        yield "too_short"
    if is_copy(source, target):
        yield "untranslated"
    has_signs = _SIGN.search(source) or _SIGN.search(target)
    if has_signs and any(len(there.findall(source)) != len(here.findall(target)) for there, here in _SIGNS):
        yield "signs"
    if misplaced(source, target):
        yield "quotes"
    if len(_QUOTES.findall(source)) != len(_QUOTES.findall(target)) or _asks(source) != _asks(target):
        yield "marks"


def is_too_long(source: str, target: str) -> bool:
    """Whether a translation cannot be right by its length alone; both without white space at their ends."""
    return len(target) > max(MAX_RATIO * len(source), _ALWAYS_ALLOWED_CHARACTERS * source[:1].isupper())


def loses_much(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether the translation of a long sentence is so short that a clause must be missing.

    Args:
        source: One segment.
        target: Its translation.
        source_language: Code of its language.
        target_language: Code of the translation's.
    """
    languages = base_language(source_language), base_language(target_language)
    return len(source) >= _LONG and len(target) < _MIN_RATIO_OF_LONG.get(languages, 0.0) * len(source)


def _min_ratio(target: str) -> float:
    return _MIN_IDEOGRAPHIC_RATIO if _IDEOGRAPH.search(target) else _MIN_RATIO


def _asks(text: str) -> bool:
    last = max(map(text.rfind, _QUESTION_MARKS))
    return last >= 0 and _QUESTION.match(text, last) is not None


def is_loop(source: str, target: str) -> bool:
    """Whether the target repeats something many times at once that the source does not.

    A block of 1 to 12 words that comes 4 times in a row (3 times, if it has 3 words or more), or one of 1 to 16
    characters within a word that comes 5 times in a row.
    """
    loops = [times for period, times in _repetitions(_words(target)) if times >= (4 if period < 3 else 3)]
    if loops and max(loops) > _longest_repetition(_words(source)) + 1:
        return True
    if not _may_have_runs(target.casefold()):
        return False
    source_run = max((_run_times(match) for match in _RUN.finditer(source.casefold())), default=0)
    # Dashes and dots in a row are lines, not loops.
    runs = (match for match in _RUN.finditer(target.casefold()) if regex.search(r"\w", match[1]))
    return any(_run_times(match) > max(4, source_run + 1) for match in runs)


def is_copy(source: str, target: str) -> bool:
    """Whether the target is the source again, in words that could have been translated."""
    source, target = _small_first(source), _small_first(target)
    first, first_written = _LETTER_WORD.search(source), _LETTER_WORD.search(target)
    if first is None or first_written is None or first[0] != first_written[0]:
        return False
    words = _LETTER_WORD.findall(source)
    return len(words) >= _MIN_COPIED_WORDS and words == _LETTER_WORD.findall(target)


def _small_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _words(text: str) -> list[str]:
    found: list[str] = _WORD.findall(text.casefold())
    return found


def _repetitions(words: list[str]) -> Iterator[tuple[int, int]]:
    """For each period the most times that a block of so many words comes in a row."""
    if len(set(words)) == len(words):  # nearly always
        return
    longest_period = min(_MAX_PERIOD_WORDS, len(words) // 2)
    for period in sorted(_distances(words, longest_period)):
        run = longest = 0
        for index in range(period, len(words)):
            run = run + 1 if words[index] == words[index - period] else 0
            longest = max(longest, run)
        if longest >= period:
            yield period, longest // period + 1


def _distances(words: list[str], longest: int) -> set[int]:
    """How far apart the same words stand, up to so far: no block comes twice in a row with another length."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    return {
        here - there
        for found in places.values()
        for number, here in enumerate(found)
        for there in found[max(0, number - longest) : number]
        if here - there <= longest
    }


def _longest_repetition(words: list[str]) -> int:
    return max((times for _, times in _repetitions(words)), default=1)


def _may_have_runs(text: str) -> bool:
    """Whether a character comes five times in a word."""
    return any(len(word) - len(set(word)) >= 4 and max(map(word.count, set(word))) >= 5 for word in text.split(" "))


def _run_times(match: regex.Match[str]) -> int:
    return len(match[0]) // len(match[1])
