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
        if target.count(span.text) >= text.count(span.text):
            continue
        if words is None:
            words = {_folded(word)[:_MIN_COMMON] for word in _WORD.findall(target)}
        if all(map(lexicon.is_name, span.text.split("-"))) or _folded(span.text)[:_MIN_COMMON] not in words:
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
    found = list(_CAPITALISED.finditer(text))
    if not found:
        return
    # A heading gives every word a capital, which says nothing then.
    num_small = sum(word[0].islower() for word in _WORD.findall(text))
    is_heading = sum(match.start() > 0 for match in found) > num_small
    for match in found:
        is_surname = bool(_SURNAME.match(match[0]))
        parts = match[0][2 if is_surname else 0 :].split("-")
        is_word = any(map(lexicon.is_translated, parts))
        is_known = all(map(lexicon.is_name, parts)) or (is_surname and not is_word)
        is_guess = not (is_heading or is_word) and _INSIDE.match(text, match.start())
        if (is_known or is_guess) and not any(span.start < match.end() and match.start() < span.end for span in spans):
            yield KeptSpan(*match.span(), match[0], "name")


def _folded(word: str) -> str:
    """Without accents and capitals."""
    decomposed = unicodedata.normalize("NFD", word.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))
