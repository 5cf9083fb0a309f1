"""Which language a text is in, as far as the loaded models can read it, by the library py3langid.

    detection = detect("Where is the station?", ["en", "de"])
    detection.language, detection.confidence        # "en", 0.98; or UNKNOWN

py3langid weighs the text against all the languages it knows (139), not only those that are asked for: text in another
language is noticed instead of being taken for the nearest one there is. docs/experiments.md compares libraries.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

UNKNOWN = "unknown"
"""What `Detection.language` says where no readable language was recognised."""

READABLE_WEIGHT = 5.0
"""How much likelier a readable language is, before the text is looked at, than any other one."""

_EVIDENCE = 0.15
"""A language that cannot be read must be at least this probable to count: one or two words say little, and are taken
for a readable language. Of two-word beginnings of English sentences 1.5 % are refused with both numbers, without them
41 %; of whole French sentences 99 % are still told from English where only English can be read."""

_CLEAR_LEAD = 1.25
"""Two readable languages of which neither is this much likelier than the other are a tie: unknown."""

_MAX_CHARACTERS = 3_000
"""Longer texts are judged by their beginning, their middle and their end."""

_MAX_CHARACTERS_WITH_ADDRESSES = 12_000
"""Likewise, before what has no language is taken out."""

_LETTER = re.compile(r"[^\W\d_]")
# Addresses, handles, tags and template fields: the same in every language.
_NO_LANGUAGE = re.compile(
    r"(?:https?|ftp)://\S+|www\.\S+|(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++|[@#]\w++"
    r"|\{++[^{}]{0,80}\}++|`[^`]{0,200}`"
)

_loading = threading.Lock()

# What a model may call a language, and what py3langid calls it.
_LABELS = {"nb": "no", "iw": "he", "in": "id", "ji": "yi", "fil": "tl", "sh": "sr", "mo": "ro", "cmn": "zh"}
# OPUS names some models with codes of three letters.
_LABELS |= {"eng": "en", "fra": "fr", "deu": "de", "spa": "es", "ita": "it", "por": "pt", "nld": "nl", "swe": "sv"}
_LABELS |= {"zho": "zh", "jpn": "ja", "kor": "ko", "rus": "ru", "ukr": "uk", "pol": "pl", "ara": "ar", "tur": "tr"}


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found out about one text.

    Attributes:
        language: One of the codes that were asked for, or `UNKNOWN`.
        confidence: Its probability, 0 to 1, among all languages the library knows; 0 where it is unknown.
        candidates: The codes that were asked for, each with its probability, best first.
        looks_like: The most probable of all languages, in the library's code (ISO 639), whether it was asked for or
            not; None for a text without a letter.
    """

    language: str
    confidence: float
    candidates: tuple[tuple[str, float], ...]
    looks_like: str | None

    @property
    def is_known(self) -> bool:
        """Whether a readable language was recognised."""
        return self.language != UNKNOWN


def detect(text: str, languages: Collection[str]) -> Detection:
    """Finds the language of a text.

    Args:
        text: Any text; markup is to be taken out before.
        languages: Codes of the languages that can be read, as the models say them (`en`, `en-GB`, `zh_Hans`); of
            several with the same main language the first is meant.

    Returns:
        What was found. Unknown are texts without a letter, in another language, or as likely in one readable language
        as in another. Takes about 1 microsecond for each of at most 3,000 characters, and 1 second more when first
        called (see `warm_up`).

    Raises:
        ValueError: If there are no languages.
    """
    if not languages:
        raise ValueError("languages is empty; it must name at least one")
    text = _sample(text, _MAX_CHARACTERS_WITH_ADDRESSES)
    sample = _sample(_NO_LANGUAGE.sub(" ", text), _MAX_CHARACTERS) or _sample(text, _MAX_CHARACTERS)
    if not _LETTER.search(sample):
        return Detection(UNKNOWN, 0.0, tuple((language, 0.0) for language in languages), None)
    codes: dict[str, str] = {}
    for language in languages:
        codes.setdefault(_label(language), language)
    weighed = {
        label: score * (READABLE_WEIGHT if label in codes else 1.0) for label, score in _identifier().rank(sample)
    }
    total = sum(weighed.values())
    found = {code: weighed.get(label, 0.0) / total for label, code in codes.items()}
    candidates = tuple(sorted(found.items(), key=lambda pair: -pair[1]))
    looks_like = max(weighed, key=lambda label: weighed[label])
    is_other = looks_like not in codes and weighed[looks_like] >= _EVIDENCE * total
    if is_other or (len(candidates) > 1 and candidates[0][1] < _CLEAR_LEAD * candidates[1][1]):
        return Detection(UNKNOWN, 0.0, candidates, looks_like)
    return Detection(*candidates[0], candidates, looks_like)


def warm_up() -> None:
    """Loads the library's model (80 MB of memory), which the first call of `detect` would wait for."""
    _identifier()


def is_warm() -> bool:
    """Whether that has been done."""
    return _load.cache_info().currsize > 0


def _identifier() -> LanguageIdentifier:
    with _loading:  # two threads would load it twice
        return _load()


@cache
def _load() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _label(language: str) -> str:
    main = re.split("[-_]", language, maxsplit=1)[0].lower()
    return _LABELS.get(main, main)


def _sample(text: str, max_characters: int) -> str:
    if len(text) <= max_characters:
        return text
    part = max_characters // 3
    middle = (len(text) - part) // 2
    return " ".join((text[:part], text[middle : middle + part], text[-part:]))
