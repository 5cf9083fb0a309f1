r"""Names of people and places in a text, by their capitals and by what a model's training data did with each word.

    found = names("I live in Chicago.", spans, lexicon)    # KeptSpan(10, 17, "Chicago", "name")
    missing_names("I live in Chicago.", "Je vis à David.", found, lexicon)    # the same

Inside a sentence every word with a capital counts that the lexicon does not have as one that is translated (*Monday*,
*London*); at a beginning only known names do. What the lexicon does not know at all may well become another word: it
is missing only if no word of the translation begins like it (*Somali*, *somalien*).
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import regex

from model.lexicon import Lexicon
from service.text.kept import KeptSpan
from service.text.languages import base_language

_CAPITALISED = regex.compile(
    r"(?<![\p{L}\p{N}\p{M}@#_/.'’-])(?:\p{Lu}['’](?=\p{Lu}))?+\p{Lu}\p{Ll}{2,}+(?:-\p{Lu}\p{Ll}++)*+"
    r"(?![\p{L}\p{N}\p{M}_/@-]|['’](?!s\b)|\.\w)"
)
_CAPITAL = re.compile("[A-Z]")
_SHOUTED = regex.compile(r"(?<![\p{L}\p{N}\p{M}@#_/.'’-])\p{Lu}{5,40}+(?![\p{L}\p{N}\p{M}_/@'’-]|\.\w)")
"""All in capitals, and too long for most abbreviations that have another form in another language."""
_SURNAME = regex.compile(r"\p{Lu}['’]\p{Lu}")
"""*O'Neil*, *D'Angelo*: a name wherever it stands, unless an article stands before a word (*L'Italie*)."""
_INSIDE = regex.compile(r"(?<=[\p{L}\p{N},][)\"”']?\s[(\"“']?)")
_WORD = regex.compile(r"[\p{L}\p{M}]++")
_CLUSTER = regex.compile(r"(?s:.)\p{M}*+")
_LONGEST_CLUSTER = 64
"""`unicodedata` takes quadratic time for longer ones."""
_QUOTED_OR_WORD = regex.compile(r"""[\"“«][^\"”»\n]{1,200}[\"”»]|(?<![\w@/.'’-])[\p{L}\p{M}]++(?![\w@/'’-])""")
_MAX_WORDS_COPIED = 3
_MIN_COPIED = 4
"""Letters of a word that is surely no French one, or part of a name."""
_TITLES = {
    "en": regex.compile(r"(?<!\w)(?:Mr|(?P<her>Mrs|Ms|Miss)|Dr|Prof|Messrs)(?:\.|(?=\s))(?=\s(?:\p{Lu}|and\b|or\b))"),
    "fr": regex.compile(
        r"(?<!\w)(?:MM|Drs|[Mm]essieurs|M|Mr|Dr|Pr|Prof|[Mm]onsieur|[Dd]octeure?|[Pp]rofesseure?|Me"
        r"|(?P<her>Mmes?|Mlles?|[Mm]adame|[Mm]esdames|[Mm](?:ademoi|esdemoi)selles?|Mrs|Miss|Ms))(?![\p{L}\p{M}'’-])"
    ),
}
_INITIALS = {"en": ("M", "D", "P"), "fr": ("M", "m", "D", "d", "P", "p")}
"""Of the titles of each language."""
_ENGLISH_TITLE = regex.compile(r"(?<![\w'’-])(?:(Mr\.?|Mister)|(?:Mrs|Ms)\.?)(?=[ ](?:\p{Lu}|et\b|ou\b))")
_MIN_TITLES = 2
_MIN_COMMON = 3
"""Letters that a word and its translation begin with, if they are akin."""


def missing_names(text: str, target: str, found: Iterable[KeptSpan], lexicon: Lexicon) -> tuple[KeptSpan, ...]:
    """The names that a translation lacks, in order.

    Args:
        text: A segment.
        target: Its translation.
        found: The `names` of the segment.
        lexicon: Of the model.
    """
    missing = []
    words: set[str] | None = None
    for span in found:
        name = unicodedata.normalize("NFC", span.text)
        if target.count(name) + (name != span.text) * target.count(span.text) >= text.count(span.text):
            continue
        if name.isupper():
            if text.casefold().count(name.casefold()) > target.casefold().count(name.casefold()):
                missing.append(span)
            continue
        if words is None:
            words = {_folded(word)[:_MIN_COMMON] for word in _WORD.findall(target)}
        if all(map(lexicon.is_name, name.split("-"))) or _folded(span.text)[:_MIN_COMMON] not in words:
            missing.append(span)
    return tuple(missing)


def is_copied_word(source: str, target: str, lexicon: Lexicon) -> bool:
    """Whether a translation is its source again, and all of it but names is words that the model's data translates.

    For a sentence `service.text.guards.is_copy` needs no lexicon; *Hello* may be a name, and *table* is French.
    """
    first, first_written = _WORD.search(source), _WORD.search(target)
    if first is None or first_written is None or first[0].casefold() != first_written[0].casefold():
        return False
    words = _WORD.findall(source)
    ordinary = [word for word in words if not lexicon.is_name(word)]
    is_ordinary = bool(ordinary) and all(len(word) > 1 and lexicon.is_translated(word) for word in ordinary)
    return is_ordinary and list(map(str.casefold, words)) == list(map(str.casefold, _WORD.findall(target)))


def copied_words(source: str, target: str, lexicon: Lexicon) -> list[str]:
    """The words of a translation that are its source's, though the model's data translates them.

    Only of a few words: in sentences of everyday every 25th has one that both languages have (*film*). Not those with a
    capital inside the source, or in quotation marks: they may be a title.
    """
    num_words = sum(1 for _ in itertools.islice(_WORD.finditer(source), _MAX_WORDS_COPIED + 1))
    if num_words > _MAX_WORDS_COPIED or source.casefold() == target.casefold():
        return []
    theirs = {
        match[0].casefold()
        for match in _QUOTED_OR_WORD.finditer(source)
        if match[0][0].isalpha() and (match[0].islower() or not source[: match.start()].strip())
    }
    return [
        word
        for word in _WORD.findall(target)
        if len(word) >= _MIN_COPIED and word.casefold() in theirs and lexicon.is_translated(word)
    ]


def loses_title(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether a translation has fewer titles of people than its source, as *M. Brown* for *Mr. and Mrs. Brown*."""
    there = _TITLES.get(base_language(source_language))
    here = _TITLES.get(base_language(target_language))
    if there is None or here is None or there is here:
        return False
    if not any(initial in source for initial in _INITIALS[base_language(source_language)]):
        return False
    wanted = list(there.finditer(source))
    if len(wanted) < _MIN_TITLES:
        return False
    found = list(here.finditer(target))
    may_be_one = any(match[0] in ("MM", "Mmes", "Mlles", "Drs") or match[0][0].islower() for match in found)
    hers, hers_wanted = (sum(match["her"] is not None for match in each) for each in (found, wanted))
    return not may_be_one and (len(found) < len(wanted) or hers < hers_wanted)


def has_titles(source: str, source_language: str, target_language: str) -> bool:
    """Whether there are English titles of people in a segment that becomes French."""
    languages = base_language(source_language), base_language(target_language)
    return "M" in source and languages == ("en", "fr") and _TITLES["en"].search(source) is not None


def translated_titles(
    source: str, target: str, source_language: str, target_language: str
) -> dict[int, tuple[int, str]]:
    """English titles of people that a French translation still has, as changes of it (`service.text.forms.exchanged`).

    None where the source has no English title: *Mrs. Dalloway* is a book then.

    Args:
        source: A segment.
        target: Its translation.
        source_language: Code of its language.
        target_language: Code of the translation's.
    """
    if "M" not in target or not has_titles(source, source_language, target_language):
        return {}
    return {match.start(): (match.end(), "M." if match[1] else "Mme") for match in _ENGLISH_TITLE.finditer(target)}


def names(text: str, spans: Sequence[KeptSpan], lexicon: Lexicon) -> Iterator[KeptSpan]:
    """The names of a text that its translation should have; in order, those all in capitals first."""
    if text.isascii() and not _CAPITAL.search(text, 1):  # most sentences: it is their first word, or nothing
        match = _CAPITALISED.match(text)
        if match and lexicon.is_name(match[0]) and not any(span.start < match.end() for span in spans):
            yield KeptSpan(0, match.end(), match[0], "name")
        return
    shown, places = _composed(text)
    found, shouted = list(_CAPITALISED.finditer(shown)), list(_SHOUTED.finditer(shown))
    if not (found or shouted):
        return
    num_small = sum(word[0].islower() for word in _WORD.findall(shown))
    for match in shouted:
        start, end = places[match.start()], places[match.end()]
        is_free = not any(span.start < end and start < span.end for span in spans)
        if num_small and is_free and not lexicon.is_translated(match[0]):
            yield KeptSpan(start, end, text[start:end], "name")
    # A heading gives every word a capital, which says nothing then.
    is_heading = sum(match.start() > 0 for match in found) > num_small
    for match in found:
        is_surname = bool(_SURNAME.match(match[0]))
        parts = match[0][2 if is_surname else 0 :].split("-")
        is_word = any(map(lexicon.is_translated, parts))
        is_known = all(map(lexicon.is_name, parts)) or (is_surname and not is_word)
        is_guess = not (is_heading or is_word) and _INSIDE.match(shown, match.start())
        start, end = places[match.start()], places[match.end()]
        if (is_known or is_guess) and not any(span.start < end and start < span.end for span in spans):
            yield KeptSpan(start, end, text[start:end], "name")


def _composed(text: str) -> tuple[str, Sequence[int]]:
    """The text with each letter and its accents as one character, and where each begins; one place more for the end."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text, range(len(text) + 1)
    shown: list[str] = []
    places: list[int] = []
    for match in _CLUSTER.finditer(text):
        cluster = unicodedata.normalize("NFC", match[0]) if len(match[0]) <= _LONGEST_CLUSTER else match[0]
        shown.append(cluster)
        places += [match.start()] * len(cluster)
    return "".join(shown), [*places, len(text)]


def _folded(word: str) -> str:
    """Without accents and capitals."""
    decomposed = unicodedata.normalize("NFD", word.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))
