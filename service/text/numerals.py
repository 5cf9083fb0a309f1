"""Numbers in words, months and days: a model that takes *twenty-three* for *twenty* is noticed, and shown 23.

    found = numerals("I have twenty-three cats.", "en")     # (Numeral(7, 19, "twenty-three", 23, ((7, 19, "23"),)),)
    lost_numerals(found, "J'ai vingt chats.", "fr")         # found
    lost_numerals(found, "J'ai 23 chats.", "fr")            # ()

Read by the library text2num, of which two habits are put right: it parts a year (*nineteen eighty-four*), and it takes
plural forms and what is no number alone (*tens*, *cents*, *flambant neuf*) for one. What becomes another word too
often is no numeral here: *one*, *two* (*both*, *twice*), *third* and *fourth* (*un quart*), a million and more. Of the
references of thirteen test sets (24,122 pairs, 850 of them with numerals) 0.2 % are flagged in either direction, and
two of five of those are pairs that do not belong together. Months count beside the number of a day or a year, and days
of the week with their capital in English; an English date is shown again with its day first, as the French one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import regex
from text_to_num import alpha2digit, find_numbers

from service.text.languages import base_language

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
_MONTHS: dict[str, str] = {
    "en": "january february march april may june july august september october november december",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
_SHORT_MONTHS: dict[str, str] = {
    "en": "jan feb mar apr may jun jul aug sep oct nov dec",
    "fr": "janv févr mars avr mai juin juil août sept oct nov déc",
}
_DAYS: dict[str, str] = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
}
_MONTH, _DAY = -100, -200
"""Less than any number: the first month, the first day."""
_COLLECTIVE = regex.compile(rf"(?i)\b({'|'.join(_COLLECTIVES)})aines?\b|\b(dozen)s?\b")


_SMALL_WORD = regex.compile(r"\p{Ll}++")


def _numbered(*lists: str) -> dict[str, int]:
    return {word.casefold(): place for words in lists for place, word in enumerate(words.split())}


_MONTH_OF = {language: _numbered(_MONTHS[language], _SHORT_MONTHS[language]) for language in _LANGUAGES}
_DAY_OF = {language: _numbered(_DAYS[language]) for language in _LANGUAGES}
_CALENDAR = {language: _MONTH_OF[language].keys() | _DAY_OF[language].keys() for language in _LANGUAGES}


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_CAPITAL_MONTHS = _any(word.capitalize() for word in _MONTH_OF["en"])
_DATED = {
    "en": regex.compile(
        rf"""(?<!\p{{L}})(?P<month>{_CAPITAL_MONTHS})(?:
              \.?[ ](?P<day>\d{{1,2}})(?:st|nd|rd|th)?
              (?:(?P<comma>,[ ])(?=\d{{4}}(?!\d))|(?![\w:/-]|[.,]\d|[ ](?:people|men|women|miles|percent|per|%)))
            | (?=,?[ ]\d{{4}}(?!\d)) )
        | (?<=(?<!\d)\d{{1,2}}(?:st|nd|rd|th)?(?:[ ]of)?[ ])(?P<month>{_CAPITAL_MONTHS})(?!\p{{L}})""",
        regex.VERBOSE,
    ),
    "fr": regex.compile(
        rf"""(?<=(?<!\d)\d{{1,2}}(?:er)?[ ])(?P<month>{_any(_MONTH_OF["fr"])})(?!\p{{L}})
        | (?<!\p{{L}})(?P<month>{_any(_MONTH_OF["fr"])})\.?(?=[ ]\d{{4}}(?!\d))""",
        regex.VERBOSE | regex.IGNORECASE,
    ),
}
_WEEKDAY = {
    "en": regex.compile(rf"(?<!\p{{L}})(?:{_DAYS['en'].replace(' ', '|')})(?!\p{{L}})"),
    "fr": regex.compile(rf"(?i)(?<!\p{{L}})(?:{_DAYS['fr'].replace(' ', '|')})(?!\p{{L}})"),
}


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number in words.

    Attributes:
        start: Where it begins in the text, in code points.
        end: One past its end.
        text: The words.
        value: What it says.
        changes: How else it can be shown: `[start, end)` of the text, and what instead; none of one in a row: *fifth*.
    """

    start: int
    end: int
    text: str
    value: int
    changes: tuple[tuple[int, int, str], ...] = ()


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
    """The numbers in words, months and days that a translation should have; none in others than English and French.

    Args:
        text: A segment.
        language: Code of its language.
    """
    language = base_language(language)
    if language not in _LANGUAGES:
        return ()
    found: list[Numeral] = []
    # The library's other function says in a few microseconds whether there are any, which is seldom so.
    if alpha2digit(text, language) != text:
        found += filter(_counts, _joined(text, _all(text, language)))
    if not _CALENDAR[language].isdisjoint(_SMALL_WORD.findall(text.lower())):
        found += _dates(text, language)
    return tuple(found)


def lost_numerals(found: Sequence[Numeral], target: str, language: str) -> tuple[Numeral, ...]:
    """Those of the numerals of a source that a translation has neither in words of either language nor in digits.

    Args:
        found: Of the source.
        target: Its translation.
        language: Code of the translation's language.
    """
    language = base_language(language)
    if not found or language not in _LANGUAGES:
        return ()
    values = set(_values(target, language))
    folded = target.casefold()
    # A title may stay as it is (Ocean's Eleven), but no date.
    return tuple(
        each for each in found if each.value not in values and (each.value < 0 or each.text.casefold() not in folded)
    )


def _all(text: str, language: str) -> Iterator[Numeral]:
    tokens = [_Token(match) for match in _TOKEN.finditer(text)]
    for found in find_numbers(tokens, language, threshold=0):
        if found.value == int(found.value):
            start, end = tokens[found.start].span[0], tokens[found.end - 1].span[1]
            value = int(found.value)
            changes = () if found.is_ordinal else ((start, end, str(value)),)
            yield Numeral(start, end, text[start:end], value, changes)


def _joined(text: str, found: Iterable[Numeral]) -> list[Numeral]:
    """With years as one."""
    result: list[Numeral] = []
    for numeral in found:
        last = result[-1] if result else None
        is_century = last is not None and 11 <= last.value <= 20 and last.changes
        if last and is_century and 10 <= numeral.value <= 99 and text[last.end : numeral.start] in (" ", "-"):
            start, end, value = last.start, numeral.end, last.value * 100 + numeral.value
            changes = ((start, end, str(value)),) if numeral.changes else ()
            result[-1] = Numeral(start, end, text[start:end], value, changes)
        else:
            result.append(numeral)
    return result


def _dates(text: str, language: str) -> Iterator[Numeral]:
    for match in _DATED[language].finditer(text):
        name = match["month"]
        value = _MONTH + _MONTH_OF[language][name.casefold()]
        groups = match.groupdict()
        changes: tuple[tuple[int, int, str], ...] = ()
        if groups.get("day"):
            full = _MONTHS[language].split()[_MONTH_OF[language][name.casefold()]].capitalize()
            has_comma = bool(groups["comma"])
            start, end = match.end("day"), match.end("comma" if has_comma else "day")
            changes = (
                (match.start("month"), match.start("day"), ""),
                (start, end, f" {full} " if has_comma else f" {full}"),
            )
        yield Numeral(*match.span("month"), name, value, changes)
    for match in _WEEKDAY[language].finditer(text):
        yield Numeral(*match.span(), match[0], _DAY + _DAY_OF[language][match[0].casefold()])


def _counts(numeral: Numeral) -> bool:
    smallest = _SMALLEST if numeral.changes else _SMALLEST_ORDINAL
    return smallest <= numeral.value <= _LARGEST and numeral.text.casefold() not in _NO_NUMERAL


def _values(text: str, language: str) -> Iterator[int]:
    found = list(_all(text, language))
    yield from (numeral.value for numeral in found)
    yield from (numeral.value for numeral in _joined(text, found))
    for word in _SMALL_WORD.findall(text.casefold()):
        if word in _MONTH_OF[language]:
            yield _MONTH + _MONTH_OF[language][word]
        if word in _DAY_OF[language]:
            yield _DAY + _DAY_OF[language][word]
    for match in _NUMBER.finditer(text):
        yield int(_NOT_DIGITS.sub("", match[0]))
    for match in _COLLECTIVE.finditer(text):
        yield _COLLECTIVES[match[1].lower()] if match[1] else 12
