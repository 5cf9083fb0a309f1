"""Lists of words in a row: a translation has as many of them, and says none twice.

    lacks_items("red, green, blue", "rouge, bleu", "en", "fr")       # True
    lacks_items("spoon; fork; knife", "cuillère ; couteau ; couteau", "en", "fr")        # True
    lacks_items("We sell nails, screws and glue.", "Nous vendons des clous et de la colle.", "en", "fr")     # True
    says_twice("second and third", "troisième et troisième", "en", "fr")     # True
    lacks_counted("two of 3 birds, and 7 fish", "deux de 3 oiseaux et 7", "en", "fr")     # True

A text that is nothing but such a list (`middle`) can be translated in two halves.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import regex

from service.text.languages import base_language

_AND: dict[str, str] = {"en": "and|or|nor", "fr": "et|ou|ni"}

_MIN_ITEMS = 3
_WORD = r"[\p{L}\p{M}\p{N}'’-]++"
_WORDS = regex.compile(_WORD)
_DIGIT = regex.compile(r"\d")
_END = regex.compile(r"[\s.!?…:,;]*+\Z")
_COMMA = regex.compile(r"\s*+(?:(?:,|(?<!&\w{1,12});)\s++|[、，،]\s*+)")
_ITEM = r"\p{L}[\p{L}\p{M}'’-]*+(?:[ ]\p{L}[\p{L}\p{M}'’-]*+){0,2}+"
_GLUED = regex.compile(
    rf"{_ITEM}(?:(?P<sign>[,;/]|[ ]/[ ]){_ITEM}(?:(?P=sign){_ITEM})++"
    rf"|(?P<sign>[|¦>→»•·]){_ITEM}(?:(?P=sign){_ITEM})*+)[.!?…]*+"
)
"""Of three items or more; of two, where the sign stands in no sentence."""
_UNEVEN = regex.compile(rf"{_ITEM}(?:,[ ]?{_ITEM}){{2,}}+[.!?…]*+")
_GLUED_COMMA = regex.compile(r",(?=\p{L})")
_ARTICLE = regex.compile(r"(?:(?:the|an?|some|les?|la|une?|des|du|de la)\s+|de l['’]|l['’]|d['’])+", regex.IGNORECASE)


# Behind a number, what is not counted by it.
_NOT_COUNTED: dict[str, str] = {
    "en": "and|or|nor|but|to|in|on|at|by|for|from|with|as|of|than|is|are|was|were|be|has|have|had|do|does|did|will"
    "|would|can|could|may|must|i|we|he|she|it|they|you|who|which|that|there|this|if|when|because|so|am|pm|percent|each"
    "|more|less|times|plus|minus|equals|only|again|not|too|also|years?|ago|o|a|the",
    "fr": "et|ou|ni|mais|à|au|aux|en|dans|par|pour|sur|avec|de|du|des|que|qui|est|sont|était|étaient|a|ont|avait"
    "|avaient|je|nous|il|elle|ils|elles|on|vous|tu|ce|si|quand|car|donc|h|heures?|fois|plus|moins|chacun|chacune|ne|se|y"
    "|le|la|les|ans?|aussi",
}
_AFTER_NUMBER = regex.compile(r"[\s-]*+(?=(\p{L}++))")


@dataclass(frozen=True, slots=True)
class _Language:
    """How one language joins.

    Attributes:
        words: What stands before a list's last item, or between any two.
        joint: A comma, a word that joins, or both.
        run: Three items or more, a word that joins before the last one; those inside have two words at most.
        counted: A number with what it counts.
        twice: The same word on both sides of what joins.
    """

    words: tuple[str, ...]
    joint: regex.Pattern[str]
    run: regex.Pattern[str]
    counted: regex.Pattern[str]
    twice: regex.Pattern[str]


def _language(code: str) -> _Language | None:
    words = _AND.get(base_language(code))
    return None if words is None else _LANGUAGES[words]


def _two_languages(source: str, target: str) -> tuple[_Language, _Language] | None:
    """What is known of the languages of these codes; None unless that are two, and something is known of both."""
    there, here = _language(source), _language(target)
    return None if there is None or here is None or there is here else (there, here)


def _compiled(words: str, not_counted: str) -> _Language:
    joint = rf"(?:\s*+(?:,|(?<!&\w{{1,12}});)(?:\s++(?:{words})\b|(?=\s))|\s++(?:{words})\b)"
    item = rf"(?!\s++(?:{words})\b)(?:\s++(?!(?:{words})\b){_WORD}){{1,2}}+"
    return _Language(
        tuple(words.split("|")),
        regex.compile(joint, regex.IGNORECASE),
        regex.compile(rf"{_WORD}(?:\s*+[,;]{item})++(?:\s*+[,;])?+\s++(?:{words})\s++{_WORD}", regex.IGNORECASE),
        regex.compile(
            rf"(?<![\w.,:/$€£-])(\d++(?:[.,]\d++)*+)[ \u00a0](?!(?:{not_counted})(?!\p{{L}}))\p{{Ll}}{{2,}}+"
        ),
        regex.compile(
            rf"(?<![\p{{L}}\p{{M}}'’-])(\p{{L}}[\p{{L}}\p{{M}}]{{2,}}+)(?:\s*+,|\s++(?:{words})\b)\s++\1(?![\p{{L}}\p{{M}}'’-])",
            regex.IGNORECASE,
        ),
    )


_LANGUAGES = {words: _compiled(words, _NOT_COUNTED[code]) for code, words in _AND.items()}


def lacks_items(
    source: str, target: str, source_language: str, target_language: str, min_items: int = _MIN_ITEMS
) -> bool:
    """Whether a translation has fewer items than a list of its source, or one of them again.

    Args:
        source: A segment.
        target: Its translation.
        source_language: Code of its language.
        target_language: Code of the translation's.
        min_items: Shorter lists are none.
    """
    if source.count(",") + source.count(";") < min_items - 1 - (min_items > 2):
        return False
    wanted = items(source, min_items)
    there, here = _language(source_language), _language(target_language)
    if wanted:
        found = _parted(target)
        if there and here:
            wanted, found = _joined(there, source), _joined(here, target)
        return len(found) < len(wanted) or _num_repeated(found) > _num_repeated(wanted)
    if there is None or here is None or not any(f" {word} " in source for word in there.words):
        return False
    num_wanted = sum(_num_joints(there, match[0]) for match in there.run.finditer(source))
    return num_wanted > 0 and _num_joints(here, target) < num_wanted


def says_twice(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether a translation says *third and third* of *second and third*.

    Of 24,122 reference pairs 5 are flagged from English (docs/experiments.md).

    Args:
        source: A segment.
        target: Its translation.
        source_language: Code of its language.
        target_language: Code of the translation's.
    """
    known = _two_languages(source_language, target_language)
    if known is None or not known[1].twice.search(target):
        return False
    there, _ = known
    return there.joint.search(source) is not None and not there.twice.search(source)


def lacks_counted(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether of several things that a text counts, as in *17 birds and 3 fish*, one has left nothing but its number.

    Args:
        source: A segment.
        target: Its translation.
        source_language: Code of its language.
        target_language: Code of the translation's.
    """
    known = _two_languages(source_language, target_language)
    if known is None or not _DIGIT.search(source):
        return False
    there, here = known
    found = list(there.counted.finditer(source))
    joined = [
        pair for pair in itertools.pairwise(found) if there.joint.search(source, pair[0].end(), pair[1].start() + 1)
    ]
    return any(_is_bare(number[1], target, here) for number in {each for pair in joined for each in pair})


def _is_bare(number: str, target: str, language: _Language) -> bool:
    """Whether a number stands in a translation, and nowhere before a word but one that joins."""
    places = list(regex.finditer(rf"(?<![\d.,]){regex.escape(number)}(?![\d]|[.,]\d)", target))
    following = (_AFTER_NUMBER.match(target, place.end()) for place in places)
    return bool(places) and not any(match and match[1].casefold() not in language.words for match in following)


def has_item(text: str, language: str) -> bool:
    """Whether a text has a word that does more than join others."""
    known = _language(language)
    joining = known.words if known else ()
    return any(word.casefold() not in joining for word in _WORDS.findall(text))


def glue(text: str) -> list[int]:
    """Where the signs stand of a text that is nothing but a list like *red,green, blue*, *dog|cat*; else nowhere."""
    match = _GLUED.fullmatch(text)
    sign = match["sign"].strip() if match else ","
    if match is None and not (_GLUED_COMMA.search(text) and _UNEVEN.fullmatch(text)):
        return []
    return [place for place, char in enumerate(text) if char == sign]


def items(text: str, min_items: int = _MIN_ITEMS) -> list[str]:
    """The items of a text that is nothing but a list, each of three words at most; none for other texts."""
    if text.count(" ") > 3 * (text.count(",") + text.count(";") + 1):  # nearly always
        return []
    found = _parted(text)
    is_list = len(found) >= min_items and all(1 <= len(_WORDS.findall(item)) <= 3 for item in found)
    return found if is_list and not any(mark in item for item in found for mark in ".!?:") else []


def middle(text: str) -> tuple[int, int] | None:
    """Where the sign stands that parts a list into two halves; None for other texts."""
    num_items = len(items(text, 2))
    if not num_items:
        return None
    places = [match.span() for match in _COMMA.finditer(text, 0, _end(text))]
    return places[(num_items - 1) // 2]


def _end(text: str) -> int:
    match = _END.search(text)
    assert match is not None  # it may be empty
    return match.start()


def _parted(text: str) -> list[str]:
    found: list[str] = _COMMA.split(text[: _end(text)].lstrip())
    return found


def _joined(language: _Language, text: str) -> list[str]:
    """What stands between all that joins."""
    parts = (part.strip() for part in language.joint.split(text[: _end(text)]))
    return [part for part in parts if part]


def _num_repeated(found: list[str]) -> int:
    return len(found) - len({*map(_plain, found)})


def _plain(item: str) -> str:
    return _ARTICLE.sub("", item.casefold(), count=1)


def _num_joints(language: _Language, text: str) -> int:
    return sum(1 for _ in language.joint.finditer(text))
