"""Cuts a text that is too long for the model where it hurts least."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

CHARACTERS_PER_TOKEN = 8
"""A window holds at most this many characters for each token, so that text which makes no tokens is bounded too."""

_CLAUSE_END = re.compile(r"[,;:.!?…)\]}»”]+[\"'’»”)]*\s+|\s+[—–-]\s+|[、。，；：！？،؛]+\s*")
_SPACE = re.compile(r"\s+")
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")


def window_spans(text: str, max_tokens: int, count_tokens: Callable[[str], int]) -> list[tuple[int, int]]:
    """Splits a text into windows that the model can take.

    Breaks are put behind clause punctuation if there is any in the second half of what fits, else behind white space,
    else between two characters; the last two windows are made about equally long.

    Args:
        text: What is too long.
        max_tokens: The most that `count_tokens` may say about a window. A window of one character is made even if it
            has more.
        count_tokens: The length of a text for the model.

    Returns:
        `[start, end)` spans in code points that cover the text without gap or overlap. Takes time linear in the length
        of the text.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = _fitting_end(text, start, max_tokens, count_tokens)
        if end < len(text):
            end = _best_break(text, start, end)
        spans.append((start, end))
        start = end
    return spans


def _fitting_end(text: str, start: int, max_tokens: int, count_tokens: Callable[[str], int]) -> int:
    """The end of about the longest window from `start` that fits."""
    size = min(max_tokens * CHARACTERS_PER_TOKEN, len(text) - start)
    while size > 1:
        tokens = count_tokens(text[start : start + size].strip())
        if tokens <= max_tokens:
            break
        size = max(min(int(size * max_tokens / tokens), size - 1), 1)
    return start + size


def _best_break(text: str, start: int, end: int) -> int:
    """Where to end the window that begins at `start` and may reach to `end`."""
    rest = len(text) - end
    # With one more window to come, aim at the middle of what is left; otherwise at the end of what fits.
    goal = (start + len(text)) // 2 if rest < end - start else end
    middle = (start + end) // 2
    # One character more is looked at, so that white space right behind the window counts as a break.
    for pattern in (_CLAUSE_END, _SPACE):
        breaks = (min(match.end(), end) for match in pattern.finditer(text, middle, end + 1))
        best = min((place for place in breaks if place > middle), key=lambda place: abs(place - goal), default=None)
        if best is not None:
            return best
    return _between_characters(text, start, goal)


def _between_characters(text: str, start: int, goal: int) -> int:
    """The last place up to `goal` that does not part a character from its marks, if one is near."""
    for place in range(goal, max(goal - 32, start), -1):
        if not _continues(text, place):
            return place
    return max(goal, start + 1)


def _continues(text: str, place: int) -> bool:
    joined = text[place] in _JOINERS or text[place - 1] == "\u200d" or "\U0001f3fb" <= text[place] <= "\U0001f3ff"
    return joined or unicodedata.category(text[place])[0] == "M"
