"""Words over pieces: where words lie in a text, and which vocabulary pieces make up each.

A vocabulary cuts text into pieces; people point at words. The rules below need no language, for a source may be in
any. They cut finer than spaces do (punctuation stands alone, a French elision is cut after its apostrophe), and a
piece that reaches over a boundary joins the words it touches: pieces are never split.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from model.tokenizer import Encoding, TextTokenizer

Span = tuple[int, int]

_SPACE_MARK = "\u2581"
_JOINER = "\u200d"
_APOSTROPHES = "'\u2019\u02bc"
_HYPHENS = "-\u2010\u2011"
_NUMBER_MARKS = ".,:/"
_ELISIONS = frozenset("c d j l m n s t qu jusqu lorsqu puisqu quoiqu quelqu presqu".split())
# Scripts written without spaces, where a dictionary would be needed to find words: there each character is one.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),  # half-width Katakana
    (0x20000, 0x3FFFF),
)


def split_words(text: str) -> tuple[Span, ...]:
    """Where the words of a text are, as ``[start, end)`` code points in order; white space belongs to none.

    - Letters, digits and ``_`` run together, with their combining marks; so do apostrophes and hyphens between two of
      them (``don't``, ``easy-to-read``) and ``. , : /`` between digits (``3.5``, ``10:30``).
    - After a French elision (``l'``, ``qu'``, ``aujourd'hui`` is none) a new word begins.
    - A character of a script without spaces (Han, Kana, Thai, ...) is a word.
    - An emoji is one word with its modifiers, joined parts and flag letters.
    - Any other mark is a word; the same repeated is one (``...``, ``!!``).
    """
    clusters = _clusters(text)
    words: list[Span] = []
    position = 0
    while position < len(clusters):
        start, end = clusters[position]
        first = text[start]
        position += 1
        if first.isspace():
            continue
        if _is_word_character(first):
            while position < len(clusters) and not _is_elision(text[start:end]):
                taken = _continues(text, start, clusters, position)
                if not taken:
                    break
                position += taken
                end = clusters[position - 1][1]
        elif _is_mark(first):
            while position < len(clusters) and text[slice(*clusters[position])] == first:
                end = clusters[position][1]
                position += 1
        words.append((start, end))
    return tuple(words)


def _continues(text: str, start: int, clusters: Sequence[Span], position: int) -> int:
    """How many clusters from ``position`` on belong to the word that began at ``start``."""
    character = text[clusters[position][0]]
    if _is_word_character(character) or _is_elision(text[start : clusters[position][1]]):
        return 1
    if position + 1 == len(clusters):
        return 0
    before, after = text[clusters[position - 1][0]], text[clusters[position + 1][0]]
    if character in _APOSTROPHES:
        return 1 if _is_word_character(after) else 0
    joins_words = character in _HYPHENS and _is_word_character(before) and _is_word_character(after)
    joins_digits = character in _NUMBER_MARKS and before.isdigit() and after.isdigit()
    return 2 if joins_words or joins_digits else 0


def _is_elision(word: str) -> bool:
    return word[-1] in _APOSTROPHES and word[:-1].lower() in _ELISIONS


def _is_word_character(character: str) -> bool:
    return (character.isalnum() or character == "_") and not _is_unspaced(character)


def _is_mark(character: str) -> bool:
    category = unicodedata.category(character)
    return category.startswith("P") or category in ("Sm", "Sc", "Sk")  # "So" would be emoji


def _is_unspaced(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _UNSPACED)


def _clusters(text: str) -> list[Span]:
    """Characters with what modifies them: a simple form of Unicode's grapheme clusters (UAX 29)."""
    clusters: list[Span] = []
    flag_letters = 0
    for index, character in enumerate(text):
        is_flag_letter = 0x1F1E6 <= ord(character) <= 0x1F1FF
        joins = bool(clusters) and (
            _extends(character)
            or (text[index - 1] == _JOINER and not character.isspace())
            or (is_flag_letter and flag_letters % 2 == 1)
        )
        if joins and not (_extends(character) and text[clusters[-1][0]].isspace()):
            clusters[-1] = (clusters[-1][0], index + 1)
        else:
            clusters.append((index, index + 1))
        flag_letters = flag_letters + 1 if is_flag_letter else 0
    return clusters


def _extends(character: str) -> bool:
    code = ord(character)
    return (
        unicodedata.category(character).startswith("M")  # combining marks, variation selectors, keycaps
        or character in (_JOINER, "\u200c")
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # the tags of a flag
    )


@dataclass(frozen=True)
class Word:
    """One word, or one special piece, and the pieces that make it up.

    Attributes:
        pieces: Indices of its pieces, in order.
        span: ``[start, end)`` in the text; empty for a special piece.
        is_special: Whether it is a control piece (end of sentence, start, padding), which stands for no text.
    """

    pieces: tuple[int, ...]
    span: Span
    is_special: bool


def group_words(text: str, spans: Sequence[Span], is_special: Sequence[bool]) -> tuple[Word, ...]:
    """Divide pieces among words; every piece is in exactly one, and words are in the order of their pieces.

    Pieces that touch the same word are together, bytes of one character too. A piece that stands for nothing but space
    (a lone ``▁``) joins the word after it, or at the end the word before it. A special piece is a word of its own.

    Args:
        text: What the spans count in.
        spans: ``[start, end)`` of each piece, in order.
        is_special: For each piece.
    """
    words_at = _words_by_character(text)
    groups: list[list[int]] = []
    touched: list[set[int]] = []  # numbers of the text's words that each group touches
    spaces: list[int] = []  # pieces of space that wait for a word
    for piece, (span, special) in enumerate(zip(spans, is_special, strict=True)):
        if special:
            _attach_spaces(groups, touched, spaces)
            groups.append([piece])
            touched.append(set())
            spaces = []
            continue
        words = {words_at[position] for position in range(*span)} - {-1}
        if not words:
            spaces.append(piece)
        elif groups and touched[-1] & words:
            groups[-1] += [*spaces, piece]
            touched[-1] |= words
            spaces = []
        else:
            groups.append([*spaces, piece])
            touched.append(words)
            spaces = []
    _attach_spaces(groups, touched, spaces)
    return tuple(_word(group, text, spans, is_special) for group in groups)


def _attach_spaces(groups: list[list[int]], touched: list[set[int]], spaces: list[int]) -> None:
    """Spaces with no word after them join the word before, if there is one."""
    if spaces and touched and touched[-1]:
        groups[-1] += spaces
    elif spaces:
        groups.append(list(spaces))
        touched.append(set())


def _word(group: list[int], text: str, spans: Sequence[Span], is_special: Sequence[bool]) -> Word:
    start, end = min(spans[piece][0] for piece in group), max(spans[piece][1] for piece in group)
    visible = text[start:end].strip()
    if visible:
        start += len(text[start:end]) - len(text[start:end].lstrip())
        end = start + len(visible)
    return Word(tuple(group), (start, end), is_special[group[0]])


def _words_by_character(text: str) -> list[int]:
    """For each character the number of its word, -1 for space."""
    numbers = [-1] * len(text)
    for number, (start, end) in enumerate(split_words(text)):
        numbers[start:end] = [number] * (end - start)
    return numbers


@dataclass(frozen=True)
class TokenText:
    """Ids as text, with the place of each.

    Attributes:
        text: Normalised source text, or what ``tokenizer.decode`` gives for a target.
        pieces: As the vocabulary writes them.
        spans: ``[start, end)`` of each id in ``text``, without the space before a word. All bytes of a character have
            the span of that character; a lone space has that of the space; a special id an empty one.
        is_special: For each id, whether it stands for no text.
    """

    text: str
    pieces: tuple[str, ...]
    spans: tuple[Span, ...]
    is_special: tuple[bool, ...]

    def words(self) -> tuple[Word, ...]:
        """See :func:`group_words`."""
        return group_words(self.text, self.spans, self.is_special)


def source_text(encoding: Encoding) -> TokenText:
    """What the tokenizer said about a source (or about any text that it encoded)."""
    special = (
        start == end and bool(piece.strip(_SPACE_MARK))
        for (start, end), piece in zip(encoding.spans, encoding.pieces, strict=True)
    )
    return TokenText(encoding.normalized.text, encoding.pieces, encoding.spans, tuple(special))


def decode_with_spans(tokenizer: TextTokenizer, ids: Sequence[int]) -> TokenText:
    """The text of target ids and where each stands in it: for what a model wrote, which no ``encode`` has seen."""
    stream = tokenizer.decode_stream()
    text = ""
    spans: list[Span] = []
    waiting = 0  # bytes of a character that is not whole yet
    pieces = tuple(tokenizer.piece(token_id) for token_id in ids)
    special = tuple(tokenizer.is_special(token_id) for token_id in ids)
    for token_id, piece, is_special in zip(ids, pieces, special, strict=True):
        written = stream.push(token_id)
        start, end = len(text), len(text) + len(written)
        text += written
        if not written and not is_special and piece.strip(_SPACE_MARK):
            waiting += 1
            spans.append((start, start))
            continue
        start += len(written) - len(written.lstrip()) if written.strip() else 0
        spans.append((start, end))
        if written and waiting:
            spans[-1 - waiting : -1] = [(start, end)] * waiting
            waiting = 0
    rest = stream.finish()
    if rest:
        spans[len(spans) - waiting :] = [(len(text), len(text) + len(rest))] * waiting
    return TokenText(text + rest, pieces, tuple(spans), special)
