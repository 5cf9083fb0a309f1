r"""Names of people and places in a text, by their capitals and by what a model's training data did with each word.

    missing_names("I live in Chicago.", "Je vis à David.", spans, lexicon)    # (KeptSpan(10, 17, "Chicago", "name"),)

Inside a sentence every word with a capital counts that the lexicon does not have as one that is translated (*Monday*,
*London*); at a beginning only known names do. What the lexicon does not know at all may well become another word: it
is missing only if no word of the translation begins like it (*Somali*, *somalien*).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import regex

from model.lexicon import Lexicon
from service.text.kept import KeptSpan

_CAPITALISED = regex.compile(
    r"(?<![\p{L}\p{N}\p{M}@#_/.'’-])(?:\p{Lu}['’](?=\p{Lu}))?+\p{Lu}\p{Ll}{2,}+(?:-\p{Lu}\p{Ll}++)*+"
    r"(?![\p{L}\p{N}\p{M}_/@-]|['’](?!s\b)|\.\w)"
)
_SURNAME = regex.compile(r"\p{Lu}['’]\p{Lu}")
"""*O'Neil*, *D'Angelo*: a name wherever it stands, unless an article stands before a word (*L'Italie*)."""
_INSIDE = regex.compile(r"(?<=[\p{L}\p{N},][)\"”']?\s[(\"“']?)")
_WORD = regex.compile(r"[\p{L}\p{M}]++")
_CLUSTER = regex.compile(r"(?s:.)\p{M}*+")
_LONGEST_CLUSTER = 64
"""`unicodedata` takes quadratic time for longer ones."""
_MIN_COMMON = 3
"""Letters that a word and its translation begin with, if they are akin."""


def missing_names(text: str, target: str, spans: Sequence[KeptSpan], lexicon: Lexicon) -> tuple[KeptSpan, ...]:
    """The names that a translation lacks, in order.

    Args:
        text: A segment.
        target: Its translation.
        spans: Kept spans of the segment; there are no names in them.
        lexicon: Of the model.
    """
    missing = []
    words: set[str] | None = None
    for span in names(text, spans, lexicon):
        name = unicodedata.normalize("NFC", span.text)
        if target.count(name) + (name != span.text) * target.count(span.text) >= text.count(span.text):
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
    words = _WORD.findall(source)
    ordinary = [word for word in words if not lexicon.is_name(word)]
    is_ordinary = bool(ordinary) and all(len(word) > 1 and lexicon.is_translated(word) for word in ordinary)
    return is_ordinary and list(map(str.casefold, words)) == list(map(str.casefold, _WORD.findall(target)))


def names(text: str, spans: Sequence[KeptSpan], lexicon: Lexicon) -> Iterator[KeptSpan]:
    """The names of a text that its translation should have, in order."""
    shown, places = _composed(text)
    found = list(_CAPITALISED.finditer(shown))
    if not found:
        return
    # A heading gives every word a capital, which says nothing then.
    num_small = sum(word[0].islower() for word in _WORD.findall(shown))
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
