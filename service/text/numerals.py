"""Numbers in words: a model that takes *twenty-three* for *twenty* is noticed, and shown 23.

    found = numerals("I have twenty-three cats.", "en")     # (Numeral(7, 19, "twenty-three", 23),)
    lost_numerals(found, "J'ai vingt chats.", "fr")         # found
    lost_numerals(found, "J'ai 23 chats.", "fr")            # ()

Read by the library text2num, of which two habits are put right: it parts a year (*nineteen eighty-four*), and it takes
plural forms and what is no number alone (*tens*, *cents*, *flambant neuf*) for one. What becomes another word too
often is no numeral here: *one*, *two* (*both*, *twice*), *third* and *fourth* (*un quart*), a million and more. Of the
references of thirteen test sets (24,122 pairs, 850 of them with numerals) 0.2 % are flagged in either direction, and
two of five of those are pairs that do not belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import regex
from text_to_num import alpha2digit, find_numbers

_LANGUAGES = frozenset({"en", "fr"})
_SMALLEST, _SMALLEST_ORDINAL, _LARGEST = 3, 5, 999_999

_TOKEN = regex.compile(r"\p{L}++|[^\s\p{L}]")
_NO_NUMERAL = frozenset(
    "hundred hundreds thousand thousands tens fours fives sixes sevens eights nines".split()
    + "cent cents mille milles neuf".split()
)
_NUMBER = regex.compile(r"\d{1,3}(?:[ ,.\u00a0\u202f]\d{3}(?!\d))+|\d+")
_NOT_DIGITS = regex.compile(r"\D")
_COLLECTIVES = {
    "dix": 10, "douz": 12, "quinz": 15, "vingt": 20, "trent": 30, "quarant": 40, "cinquant": 50, "soixant": 60,
    "cent": 100,
}  # fmt: skip
_COLLECTIVE = regex.compile(rf"(?i)\b({'|'.join(_COLLECTIVES)})aines?\b|\b(dozen)s?\b")


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number in words.

    Attributes:
        start: Where it begins in the text, in code points.
        end: One past its end.
        text: The words.
        value: What it says.
        is_ordinal: Whether it is one of a row: *fifth*.
    """

    start: int
    end: int
    text: str
    value: int
    is_ordinal: bool = False


class _Token:
    """A word, as the library wants to have it."""

    __slots__ = ("span", "word")

    def __init__(self, match: regex.Match[str]) -> None:
        self.word = match[0]
        self.span = match.span()

    def text(self) -> str:
        return self.word

    def nt_separated(self, _: _Token) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return False


def numerals(text: str, language: str) -> tuple[Numeral, ...]:
    """The numbers in words that a translation should have, in order; none in languages other than English and French.

    Args:
        text: A segment.
        language: Code of its language.
    """
    language = _main(language)
    # The library's other function says in a few microseconds whether there are any, which is seldom so.
    if language not in _LANGUAGES or alpha2digit(text, language) == text:
        return ()
    return tuple(filter(_counts, _joined(text, _all(text, language))))


def lost_numerals(found: Sequence[Numeral], target: str, language: str) -> tuple[Numeral, ...]:
    """Those of the numerals of a source that a translation has neither in words of either language nor in digits.

    Args:
        found: Of the source.
        target: Its translation.
        language: Code of the translation's language.
    """
    language = _main(language)
    if not found or language not in _LANGUAGES:
        return ()
    values = set(_values(target, language))
    folded = target.casefold()
    return tuple(each for each in found if each.value not in values and each.text.casefold() not in folded)


def _main(language: str) -> str:
    return language.partition("-")[0].lower()


def _all(text: str, language: str) -> Iterator[Numeral]:
    tokens = [_Token(match) for match in _TOKEN.finditer(text)]
    for found in find_numbers(tokens, language, threshold=0):
        if found.value == int(found.value):
            start, end = tokens[found.start].span[0], tokens[found.end - 1].span[1]
            yield Numeral(start, end, text[start:end], int(found.value), found.is_ordinal)


def _joined(text: str, found: Iterator[Numeral]) -> list[Numeral]:
    """With years as one."""
    result: list[Numeral] = []
    for numeral in found:
        last = result[-1] if result else None
        is_century = last is not None and 11 <= last.value <= 20 and not last.is_ordinal
        if last and is_century and 10 <= numeral.value <= 99 and text[last.end : numeral.start] in (" ", "-"):
            words, value = text[last.start : numeral.end], last.value * 100 + numeral.value
            result[-1] = Numeral(last.start, numeral.end, words, value, numeral.is_ordinal)
        else:
            result.append(numeral)
    return result


def _counts(numeral: Numeral) -> bool:
    smallest = _SMALLEST_ORDINAL if numeral.is_ordinal else _SMALLEST
    return smallest <= numeral.value <= _LARGEST and numeral.text.casefold() not in _NO_NUMERAL


def _values(text: str, language: str) -> Iterator[int]:
    found = list(_all(text, language))
    yield from (numeral.value for numeral in found)
    yield from (numeral.value for numeral in _joined(text, iter(found)))
    for match in _NUMBER.finditer(text):
        yield int(_NOT_DIGITS.sub("", match[0]))
    for match in _COLLECTIVE.finditer(text):
        yield _COLLECTIVES[match[1].lower()] if match[1] else 12
