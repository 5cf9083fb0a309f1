"""Pairs as people also type them, and with dates and places that everyday pairs lack, all made from the corpus.

    python -m model.training.noise ../shared/data/train.en-fr.tsv.gz runs/noise.en-fr.tsv.gz
    python -m model.training.noise ../shared/data/train.en-fr.tsv.gz runs/noise.fr-en.tsv.gz --read fr

Each kind is a source of its own, so that each has its own weight:

- ``noise-apostrophes``: the side that is read without apostrophes ("I cant swim"), the other one whole;
- ``noise-capitals``: both sides in capitals;
- ``noise-dots``: "..." for the final stop of short sentences, on both sides;
- ``noise-short``: pairs of up to three words, also of interfaces, with and without their final stop;
- ``noise-dates``: "on Monday" and "lundi" become a date in the forms of both languages;
- ``noise-days``: a day of the week or a month becomes another one, on both sides: but for "lundi" they are rare;
- ``noise-places``: "Boston" becomes another place, of one or more words, real (written alike in both languages) or not;
- ``noise-full-names``: "Tom" gets a family name.

What the normaliser mends (typographic apostrophes and quotes, doubled spaces, "…") needs no pairs.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.names import BASE, invented_name, shared_names

_WORD = re.compile(r"\w+(?:'\w+)*")
_STOP = re.compile(r"(?<=\w)\.$")
_ENGLISH_DAY = re.compile(r"\bon (Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day(?=[.,?!])")
_FRENCH_DAY = re.compile(r"(?<!\ble )(?<!\bce )\b(lun|mar|mercre|jeu|vendre|same|diman)(?:di|che)(?= ?[.,?!])")
_DAYS = {
    "Mon": "lun",
    "Tues": "mar",
    "Wednes": "mercre",
    "Thurs": "jeu",
    "Fri": "vendre",
    "Satur": "same",
    "Sun": "diman",
}
_ENGLISH_MONTHS = "January February March April May June July August September October November December".split()
_FRENCH_MONTHS = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()
_ENGLISH_WEEKDAY = re.compile(rf"\b({'|'.join(_DAYS)})day\b")
_FRENCH_WEEKDAY = re.compile(rf"\b({'|'.join(_DAYS.values())})(?:di|che)\b")
_ENGLISH_MONTH = re.compile(rf"\b({'|'.join(_ENGLISH_MONTHS)})\b")
_FRENCH_MONTH = re.compile(rf"\b({'|'.join(_FRENCH_MONTHS)})\b")
_PLACE = re.compile(r"\bBoston\b")
_IN_PLACE = re.compile(r"\b(?:in|to|from) ((?:[BCDFGJKLMNPQRSTVWXZ][a-z]+)(?: [A-Z][a-z]+)*)")
_NEW = ("New", "Port", "San", "Santa", "Mount", "Fort")
_TOM = re.compile(r"\bTom\b(?!'| [A-Z])")
_MAX_SHORT_WORDS = 3
_INTERFACE = ("canada-digital", "django-docs", "react-docs", "bitcoin-org")


def without_apostrophes(pairs: Sequence[SentencePair], side: str) -> Iterator[SentencePair]:
    """The pairs with an apostrophe on ``side`` ("first", "second"), without it there.

    Not where another word would come of it ("we're", "it's", "l'a"): only where the corpus does not have that word.
    """
    seen = Counter(word.lower() for pair in pairs for word in set(_WORD.findall(getattr(pair, side))))

    def bare(match: re.Match[str]) -> str:
        without = match[0].replace("'", "")
        return match[0] if seen[without.lower()] else without

    for pair in pairs:
        text: str = getattr(pair, side)
        changed = _WORD.sub(bare, text)
        if changed != text:
            first, second = (changed, pair.second) if side == "first" else (pair.first, changed)
            yield SentencePair("noise-apostrophes", first, second)


def in_capitals(pairs: Sequence[SentencePair]) -> Iterator[SentencePair]:
    """Both sides in capitals; French ones keep their accents."""
    for pair in pairs:
        first, second = pair.first.upper(), pair.second.upper()
        if (first, second) != (pair.first, pair.second):
            yield SentencePair("noise-capitals", first, second)


def with_dots(pairs: Sequence[SentencePair], words: int = 5) -> Iterator[SentencePair]:
    """Pairs of up to so many words whose full stop becomes three, on both sides."""
    for pair in pairs:
        if len(pair.first.split()) <= words and _STOP.search(pair.first) and _STOP.search(pair.second):
            yield SentencePair("noise-dots", f"{pair.first}..", f"{pair.second}..")


def short_pairs(pairs: Sequence[SentencePair]) -> Iterator[SentencePair]:
    """Pairs of up to three words a side, each once as it is and once with the stop taken off or put there."""
    for pair in pairs:
        if max(len(_WORD.findall(text)) for text in (pair.first, pair.second)) > _MAX_SHORT_WORDS:
            continue
        yield SentencePair("noise-short", pair.first, pair.second)
        if _STOP.search(pair.first) and _STOP.search(pair.second):
            yield SentencePair("noise-short", pair.first[:-1], pair.second[:-1])
        elif pair.first[-1].isalpha() and pair.second[-1].isalpha():
            yield SentencePair("noise-short", f"{pair.first}.", f"{pair.second}.")


def random_date(generator: random.Random) -> tuple[str, str]:
    """A date as English and French write it."""
    day, month = generator.randint(1, 28), generator.randrange(12)
    ending = "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    english_month = _ENGLISH_MONTHS[month]
    english = generator.choice(
        (
            f"the {day}{ending} of {english_month}", f"{english_month} {day}{ending}", f"{english_month} {day}",
            f"{english_month} the {day}{ending}", f"{day} {english_month}",
        )
    )  # fmt: skip
    french = f"le {'1er' if day == 1 else day} {_FRENCH_MONTHS[month]}"
    if generator.random() < 0.3:
        year = generator.randint(1800, 2040)
        # "May 5, 2012", but "5 May 2012".
        english = f"{english} {year}" if english.endswith(english_month) else f"{english}, {year}"
        french = f"{french} {year}"
    return english, french


def dated_pairs(pairs: Sequence[SentencePair], generator: random.Random, each: int = 20) -> Iterator[SentencePair]:
    """The pairs with one day of the week on both sides, ``each`` times with a date in its place."""
    for pair in pairs:
        first, second = list(_ENGLISH_DAY.finditer(pair.first)), list(_FRENCH_DAY.finditer(pair.second))
        if len(first) != 1 or len(second) != 1 or _DAYS[first[0][1]] != second[0][1]:
            continue
        for _ in range(each):
            english, french = random_date(generator)
            yield SentencePair(
                "noise-dates", _ENGLISH_DAY.sub(f"on {english}", pair.first), _FRENCH_DAY.sub(french, pair.second)
            )


def renamed_days(pairs: Sequence[SentencePair], generator: random.Random, each: int = 3) -> Iterator[SentencePair]:
    """The pairs with the same one day of the week, or one month, on both sides, ``each`` times with others instead."""
    days = {f"{english}day": french + ("che" if french == "diman" else "di") for english, french in _DAYS.items()}
    months = dict(zip(_ENGLISH_MONTHS, _FRENCH_MONTHS, strict=True))
    kinds = (days, _ENGLISH_WEEKDAY, _FRENCH_WEEKDAY), (months, _ENGLISH_MONTH, _FRENCH_MONTH)
    for pair in pairs:
        for names, english, french in kinds:
            first, second = list(english.finditer(pair.first)), list(french.finditer(pair.second))
            if len(first) != 1 or len(second) != 1 or names[first[0][0]] != second[0][0]:
                continue
            for new in generator.sample(sorted(set(names) - {first[0][0]}), each):
                yield SentencePair("noise-days", english.sub(new, pair.first), french.sub(names[new], pair.second))


def shared_places(pairs: Sequence[SentencePair]) -> list[str]:
    """Names that follow "in", "to" or "from" and, in French, "à" or "de": mostly towns, of one word or several."""
    found = set()
    for pair in pairs:
        for name in _IN_PLACE.findall(pair.first):
            if re.search(rf"\b(?:à|de) {name}\b", pair.second):
                found.add(name)
    return sorted(found)


def replaced_names(
    pairs: Sequence[SentencePair], pattern: re.Pattern[str], source_name: str, make: Callable[[], str]
) -> Iterator[SentencePair]:
    """The pairs with one match of ``pattern`` on both sides, with what ``make`` gives in its place."""
    for pair in pairs:
        if len(pattern.findall(pair.first)) == len(pattern.findall(pair.second)) == 1:
            name = make()
            yield SentencePair(source_name, pattern.sub(name, pair.first), pattern.sub(name, pair.second))


def placed_pairs(pairs: Sequence[SentencePair], generator: random.Random, each: int = 8) -> Iterator[SentencePair]:
    """Pairs with "Boston" under other names: two thirds real ones, the rest invented, some of two words."""
    places = [place for place in shared_places(pairs) if place not in ("Tom", "Mary", "Boston")]

    def place() -> str:
        if generator.random() < 0.67 and places:
            return generator.choice(places)
        name = invented_name(generator)
        return f"{generator.choice(_NEW)} {name}" if generator.random() < 0.5 else name

    for _ in range(each):
        yield from replaced_names(pairs, _PLACE, "noise-places", place)


def fully_named_pairs(pairs: Sequence[SentencePair], generator: random.Random) -> Iterator[SentencePair]:
    """Pairs with "Tom" as someone with a family name; both names are shared ones or invented."""
    names = shared_names(pairs)

    def name() -> str:
        first, last = (
            generator.choice(names) if names and generator.random() < 0.6 else invented_name(generator)
            for _ in range(2)
        )
        return f"{first} {last}"

    return replaced_names(pairs, _TOM, "noise-full-names", name)


def noisy_pairs(
    everyday: Sequence[SentencePair], interface: Sequence[SentencePair], read: str, share: float, seed: int
) -> Iterator[SentencePair]:
    """All kinds, one after the other.

    Args:
        everyday: What most kinds are made from.
        interface: More pairs for ``noise-short`` and ``noise-dots``.
        read: "first" or "second": the side that a model reads.
        share: Of the everyday pairs, how many are made anew where nearly all could be.
        seed: The same seed, the same pairs.
    """
    generator = random.Random(seed)

    def some() -> list[SentencePair]:
        return [pair for pair in everyday if generator.random() < share]

    yield from (made for made in without_apostrophes(everyday, read) if generator.random() < share)
    yield from in_capitals(some())
    yield from with_dots([*some(), *interface])
    yield from short_pairs([*everyday, *interface])
    yield from dated_pairs(everyday, generator)
    yield from placed_pairs(everyday, generator)
    yield from fully_named_pairs(some(), generator)
    yield from renamed_days(everyday, generator)


def main() -> None:
    """Read the corpus, write the new pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--read", choices=("en", "fr"), default="en", help="the language that the model reads")
    parser.add_argument("--interface", nargs="*", default=_INTERFACE, help="sources whose short pairs are taken too")
    parser.add_argument("--share", type=float, default=0.05, help="of the everyday pairs, for kinds that fit all")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pairs = list(read_pairs(arguments.corpus))
    everyday = [pair for pair in pairs if pair.source_name == BASE]
    interface = [pair for pair in pairs if pair.source_name in arguments.interface]
    read = "first" if arguments.read == "en" else "second"
    made = list(noisy_pairs(everyday, interface, read, arguments.share, arguments.seed))
    write_pairs(arguments.output, made)
    for name, count in sorted(Counter(pair.source_name for pair in made).items()):
        print(f"{name}: {count:,}")  # noqa: T201


if __name__ == "__main__":
    main()
