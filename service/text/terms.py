"""Terms that must be translated as a glossary says.

    terms = Terms({"train station": "gare routière"})
    replaced = terms.replace("Where is the train station?")
    replaced.text        # "Where is the gare routière?"
    replaced.kept        # ((13, 26),)

The term's translation is put into the text before a model sees it, as something to be kept: so it is in the
translation exactly, wherever the model finds a place for it, and no more often than the term was in the text.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import regex

# A word, a character of a script without spaces between words, or a sign.
_NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_ATOM = regex.compile(rf"[{_NO_SPACES}]\p{{M}}*+|(?:(?![{_NO_SPACES}])\w)++|[^\w\s]\p{{M}}*+")
_WORD = regex.compile(rf"(?![{_NO_SPACES}])\w")
_ENCLOSES_OR_ENDS = regex.compile(r"[\p{Ps}\p{Pe}\p{Pi}\p{Pf}\"'.!?…]")
_SAME_SIGNS = str.maketrans("\u2019\u02bc\u2010\u2011", "''--")


@dataclass(frozen=True, slots=True)
class Replaced:
    """A text with its terms translated.

    Attributes:
        text: What a model is given.
        kept: `[start, end)` of the translations in it, in code points, in order.
        starts: For each character of `text`, where it begins in the original; one more for the end.
        ends: Likewise, where it ends.
    """

    text: str
    kept: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def place(self, span: tuple[int, int]) -> tuple[int, int]:
        """Where a span of the original that no term touches stands in `text`."""
        start = bisect_left(self.starts, span[0])
        return start, start + span[1] - span[0]

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """A span of `text` as one of the original; an empty one stays empty."""
        if start >= end:
            return self.starts[start], self.starts[start]
        return self.starts[start], self.ends[end - 1]


@dataclass(frozen=True, slots=True)
class _Atom:
    """A word or a sign of a text.

    Attributes:
        text: As it stands there, composed (NFC), with one of the signs that are written alike for all of them.
        start: Its first character.
        end: One past its last.
        is_apart: Whether there is white space before it.
    """

    text: str
    start: int
    end: int
    is_apart: bool


@dataclass(frozen=True, slots=True)
class _Term:
    """A term as it is looked for.

    Attributes:
        atoms: Their texts; in small letters where capitals do not count.
        apart: For each but the first, whether there is white space before it.
        is_folded: Whether capitals do not count.
        translation: What it becomes.
    """

    atoms: tuple[str, ...]
    apart: tuple[bool, ...]
    is_folded: bool
    translation: str

    def matches(self, atoms: Sequence[_Atom], first: int) -> bool:
        """Whether the term stands where an atom of a text is."""
        last = first + len(self.atoms)
        if last > len(atoms):
            return False
        found = atoms[first:last]
        texts = tuple(atom.text.lower() if self.is_folded else atom.text for atom in found)
        if texts != self.atoms or tuple(atom.is_apart for atom in found[1:]) != self.apart:
            return False
        if not any(map(_is_word, self.atoms)):  # 100%
            return True
        before = atoms[first - 1] if first and not atoms[first].is_apart else None
        after = atoms[last] if last < len(atoms) and not atoms[last].is_apart else None
        return not (_goes_on(before, atoms[first]) or _goes_on(after, atoms[last - 1]))


class Terms:
    """A glossary, ready to be looked up in; making it takes time, using it is linear in the length of the text."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        """Takes terms and their translations.

        Args:
            entries: A term in small letters is also found with capitals, others only as they are. Only whole words
                count, where words are parted by spaces; any white space stands for any other, as do ways to write an
                accent, an apostrophe or a hyphen. A sign at a term's edge ends it, unless it goes on there: `C++` is
                in `C++.` and neither in `C+++` nor in `C++17`.
        """
        self._by_first: dict[str, list[_Term]] = {}
        for term, translation in entries.items():
            is_folded = term.lower() == term
            atoms = _atoms(term)
            if atoms:
                texts = tuple(atom.text.lower() if is_folded else atom.text for atom in atoms)
                apart = tuple(atom.is_apart for atom in atoms[1:])
                self._by_first.setdefault(texts[0], []).append(_Term(texts, apart, is_folded, translation))
        for terms in self._by_first.values():
            # The longest first; of two the one that heeds capitals.
            terms.sort(key=lambda term: (-len(term.atoms), term.is_folded))

    def replace(
        self, text: str, taken: Sequence[tuple[int, int]] = (), names: Sequence[tuple[int, int]] = ()
    ) -> Replaced:
        """Puts the translations in the places of the terms.

        Args:
            text: Any text.
            taken: `[start, end)` of what is no text, in which no term counts.
            names: Of what would be kept as it is: a term counts that is the whole of it, or more.
        """
        pieces: list[str] = []
        kept: list[tuple[int, int]] = []
        starts: list[int] = []
        ends: list[int] = []
        done = 0
        for start, end, found in self._found(text, taken, names):
            translation = _as_written(found, text, start, end)
            pieces += [text[done:start], translation]
            starts += [*range(done, start), *[start] * len(translation)]
            ends += [*range(done + 1, start + 1), *[end] * len(translation)]
            kept.append((len(starts) - len(translation), len(starts)))
            done = end
        pieces.append(text[done:])
        starts += range(done, len(text) + 1)
        ends += [*range(done + 1, len(text) + 1), len(text)]
        return Replaced("".join(pieces), tuple(kept), tuple(starts), tuple(ends))

    def _found(
        self, text: str, taken: Sequence[tuple[int, int]], names: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int, str]]:
        atoms = _atoms(text)
        index = 0
        while index < len(atoms):
            first = atoms[index].text
            candidates = self._by_first.get(first, []) + (
                self._by_first.get(first.lower(), []) if first.lower() != first else []
            )
            longest = 1
            best = None
            for term in candidates:
                if (best is None or len(term.atoms) > longest) and term.matches(atoms, index):
                    best, longest = term, len(term.atoms)
            if best is not None:
                start, end = atoms[index].start, atoms[index + longest - 1].end
                if any(start < right and left < end for left, right in taken) or any(
                    start < right and left < end and not (start <= left and right <= end) for left, right in names
                ):
                    longest = 1
                else:
                    yield start, end, best.translation
            index += longest


def _as_written(translation: str, text: str, start: int, end: int) -> str:
    """A translation in capitals if its term stands there so, with one if the text begins with the term and has one."""
    term = text[start:end]
    if term != term.lower() and term == term.upper() and sum(map(str.isalpha, term)) > 1:
        return translation.upper() if translation == translation.lower() else translation
    if term[:1].isupper() and not any(map(str.isalnum, text[:start])):
        return translation[:1].upper() + translation[1:]
    return translation


def why_never_found(term: str) -> str | None:
    """What is wrong with a term that can stand in no text; None if it can."""
    for char in term:
        if (
            unicodedata.category(char) == "Cf"
            and char not in "\u200c\u200d"
            and not "\U000e0020" <= char <= "\U000e007f"
        ):
            return f"has an invisible character in it (U+{ord(char):04X}), with which it would not be found"
    if unicodedata.category(term[0])[0] == "M":
        return "begins with an accent that belongs to no letter, with which it would not be found"
    return None


def same_term(term: str) -> str:
    """What two ways to write one term have in common."""
    return "".join(" " * atom.is_apart + atom.text for atom in _atoms(term))


def _is_word(atom: str) -> bool:
    return _WORD.match(atom) is not None


def _goes_on(neighbour: _Atom | None, edge: _Atom) -> bool:
    """Whether a term's sign at an edge is only a part of what is written there: `ASP.NET`, `C+++`."""
    if neighbour is None or edge.text[0].isalnum():
        return False
    repeats = neighbour.text == edge.text and _ENCLOSES_OR_ENDS.match(edge.text) is None
    return repeats or _is_word(neighbour.text)


def _atoms(text: str) -> list[_Atom]:
    atoms: list[_Atom] = []
    done = 0
    for match in _ATOM.finditer(text):
        shown = unicodedata.normalize("NFC", match[0]).translate(_SAME_SIGNS)
        atoms.append(_Atom(shown, match.start(), match.end(), match.start() > done))
        done = match.end()
    return atoms
