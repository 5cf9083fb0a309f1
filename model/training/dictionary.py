"""Everyday pairs with the words of a dictionary in them: what a small corpus never or hardly says.

    cd ../shared/data
    python -m model.training.dictionary train.en-fr.tsv.gz dictionary.en-fr.tsv.gz dictionary.fr-en.tsv.gz --read fr

A word that stands in three pairs is not learned from them. Here a common word of an everyday pair, whose translation
the dictionary finds on the other side, gives way to a rare one of the same kind, on both sides: "The cat is on the
table." becomes "The scarf is on the table." (data augmentation for low-resource translation, Fadaee, Bisazza and Monz
2017, section 3; they choose contexts with a language model, here the kind of word has to do). What is made makes
little sense, but its translation is right. Two sources, each with a weight of its own:

- ``dictionary``: the entries themselves, words and terms, with and without an article;
- ``dictionary-sentences``: pairs with a rare word for a common one.

French words of a kind agree in gender and in how they begin, so that articles and elisions around them stay right:
the gender is what the corpus's articles say, and for a word that it has not, what most words of that ending have.
Verbs are those of the first group, in the forms that English tells apart too.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.names import BASE

ENTRIES = "dictionary"
SENTENCES = "dictionary-sentences"

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_PLAIN_WORD = re.compile(r"[a-zà-öø-ÿœ]+(?:-[a-zà-öø-ÿœ]+)*")
_VOWELS = "aeiouyàâäéèêëîïôöùûüœh"
_MASCULINE = frozenset(("le", "un", "du", "au", "ce", "cet"))
_FEMININE = frozenset(("la", "une", "cette"))
_OWN = frozenset(("mon", "ton", "son", "ma", "ta", "sa", "notre", "votre", "leur", "chaque"))
_MANY = frozenset(("les", "des", "ces", "mes", "tes", "ses", "nos", "vos", "leurs", "deux", "trois"))
_ARTICLES = _MASCULINE | _FEMININE | _OWN | _MANY
_ENGLISH_ARTICLES = frozenset(
    "the a an this that these those my your his her our their its some any no every each two three".split()
)
_NOT_NOUNS = re.compile(r"(?:ous|ful|less|able|ible|ive|al|ic|ish|ly|ed|ing|ant|ent|y)$")
_BEFORE_ADJECTIVES = frozenset("is are was were am be been very so too really 's 'm 're".split())
_ADJECTIVES = re.compile(r"(?:ous|ful|less|able|ible|ive|al|ic|ish|ed|ant|ent|y)$")
_DOUBLED = re.compile(r"^[^aeiou]*[aeiou][bdgklmnprt]$")
_NO_FORMS = frozenset(
    """
be become begin bend bet bind bite bleed blow break breed bring build burst buy cast catch choose cling come cost creep
cut deal dig do draw drink drive eat fall feed feel fight find flee fly forbid forget forgive freeze get give go grind
grow hang have hear hide hit hold hurt keep kneel know lay lead leave lend let lie light lose make mean meet pay put
quit read ride ring rise run say see seek sell send set sew shake shed shine shoot show shrink shut sing sink sit sleep
slide smell speak spell spend spill spin spit split spread spring stand steal stick sting stink strike swear sweep swell
swim swing take teach tear tell think throw understand undo upset wake wear weave weep win wind withdraw write
""".split()
)
"""Verbs whose past is no "-ed"; of a rare verb the corpus itself cannot tell."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A word of the dictionary with its translation, in one form.

    Attributes:
        kind: What may take the place of what: part of speech, number or tense, gender, and whether it begins with a
            vowel (or h).
        english: The form in English.
        french: The form in French.
    """

    kind: tuple[str, ...]
    english: str
    french: str


def english_plural(noun: str) -> str:
    """From "box" to "boxes", from "city" to "cities"."""
    if re.search(r"(?:s|x|z|ch|sh)$", noun):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"


def french_plural(noun: str) -> str:
    """From "gâteau" to "gâteaux", from "cheval" to "chevaux"; "bras" as it is."""
    if re.search(r"[sxz]$", noun):
        return noun
    if noun.endswith("al"):
        return f"{noun[:-2]}aux"
    return f"{noun}x" if re.search(r"(?:eau|eu)$", noun) else f"{noun}s"


def verb_forms(english: str, french: str) -> dict[str, tuple[str, str]]:
    """Forms of a regular English verb and a French one in -er, by the name of the tense; empty for other verbs."""
    if english in _NO_FORMS or not french.endswith("er") or len(french) < 4 or re.search(r"(?:y|[eé].)er$", french):
        return {}
    stem = french[:-2]
    soft = {"c": f"{stem[:-1]}ç", "g": f"{stem}e"}.get(stem[-1], stem)
    bare = english[:-1] if english.endswith("e") and not english.endswith("ee") else english
    if _DOUBLED.match(english):
        bare = f"{english}{english[-1]}"
    past = f"{english[:-1]}ied" if re.search(r"[^aeiou]y$", english) else f"{bare.removesuffix('e')}ed"
    going = f"{english}ing" if english.endswith("ee") else f"{bare}ing"
    return {
        "infinitive": (english, french),
        "past": (past, f"{stem}é"),
        "going": (going, f"{soft}ant"),
        "third person": (english_plural(english), f"{stem}e"),
        "you": (english, f"{stem}ez"),
        "they": (english, f"{stem}ent"),
        "was doing": (going, f"{soft}ait"),
    }


class Grammar:
    """What the corpus tells of French words: gender, whether they are nouns, how often they occur."""

    def __init__(self, pairs: Iterable[SentencePair]) -> None:
        """Count words and the articles before them."""
        self.counts: Counter[str] = Counter()
        self.english_counts: Counter[str] = Counter()
        self._articles: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._endings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for pair in pairs:
            self.english_counts.update(set(_WORD.findall(pair.first.lower())))
            words = _WORD.findall(pair.second.lower())
            self.counts.update(set(words))
            for article, word in zip(words, words[1:], strict=False):
                if article in _ARTICLES:
                    group = "m" if article in _MASCULINE else "f" if article in _FEMININE else "other"
                    self._articles[word][group] += 1
        for word, counts in self._articles.items():
            if counts["m"] != counts["f"]:
                gender = "m" if counts["m"] > counts["f"] else "f"
                for length in (4, 3, 2, 1):
                    self._endings[word[-length:]][gender] += 1

    def is_noun(self, english: str, french: str) -> bool:
        """Whether articles stand before the French word in a fifth of its pairs; of a word hardly seen, by its look."""
        if self.counts[french] >= 5:
            return sum(self._articles[french].values()) >= self.counts[french] / 5
        return not _NOT_NOUNS.search(english)

    def gender(self, french: str) -> str:
        """Of a noun: "m" or "f"."""
        counts = self._articles.get(french, Counter())
        for length in (0, 4, 3, 2, 1):
            found = self._endings[french[-length:]] if length else counts
            if found["m"] != found["f"] and (not length or found.total() >= 3):
                return "m" if found["m"] > found["f"] else "f"
        return "m"


def entries(words: Iterable[tuple[str, str]], grammar: Grammar) -> Iterator[Entry]:
    """All forms of the single words of a dictionary, (English, French) each; verbs are "to eat" in English."""
    for english, french in words:
        vowel = "vowel" if french[0] in _VOWELS else "consonant"
        verb = english.removeprefix("to ")
        if not _PLAIN_WORD.fullmatch(verb) or not _PLAIN_WORD.fullmatch(french) or len(french) < 3:
            continue
        if verb != english:
            for tense, (first, second) in verb_forms(verb, french).items():
                yield Entry(("verb", tense, vowel), first, second)
        elif grammar.is_noun(english, french):
            gender = grammar.gender(french)
            yield Entry(("noun", "one", gender, vowel), english, french)
            if not english.endswith("s") and not french.endswith("s"):
                yield Entry(("noun", "many", gender, vowel), english_plural(english), french_plural(french))
        elif _ADJECTIVES.search(english):
            yield Entry(("adjective", vowel), english, french)


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a word of a pair may give way: spans of characters on both sides."""

    pair: SentencePair
    first: tuple[int, int]
    second: tuple[int, int]


def find_slots(
    pairs: Iterable[SentencePair], known: Mapping[str, Sequence[Entry]]
) -> Iterator[tuple[tuple[str, ...], _Slot]]:
    """Words of the pairs that stand once on each side as a dictionary's entry, in a place that fits their kind.

    Args:
        pairs: Everyday pairs.
        known: Entries by their French form.

    Yields:
        The kind that may stand there, and the place.
    """
    for pair in pairs:
        first = [(match[0].lower(), match.span()) for match in _WORD.finditer(pair.first)]
        second = [(match[0].lower(), match.span()) for match in _WORD.finditer(pair.second)]
        places: defaultdict[str, list[int]] = defaultdict(list)
        for index, (word, _) in enumerate(first):
            places[word].append(index)
        times = Counter(word for word, _ in second)
        for index, (word, span) in enumerate(second):
            if times[word] != 1 or not pair.second[span[0]].islower():
                continue
            found = {
                (entry.kind, places[entry.english][0])
                for entry in known.get(word, ())
                if len(places.get(entry.english, ())) == 1
            }
            if len(found) != 1:
                continue  # Of two kinds at once nobody knows which it is here.
            ((kind, place),) = found
            before = second[index - 1][0] if index else ""
            before_english = first[place - 1][0] if place else ""
            fits = {
                "noun": (before in _ARTICLES or pair.second[span[0] - 1] == "'")
                and before_english in _ENGLISH_ARTICLES,
                "verb": before not in _ARTICLES - {"la", "le", "les", "leur"}
                and before_english not in _ENGLISH_ARTICLES,
                "adjective": before_english in _BEFORE_ADJECTIVES and before not in _ARTICLES,
            }
            if fits[kind[0]] and pair.first[first[place][1][0]].islower():
                yield kind, _Slot(pair, first[place][1], span)


def substituted(slot: _Slot, entry: Entry) -> SentencePair:
    """The slot's pair with the entry in it, and "a" or "an" before it as it begins."""
    before = slot.pair.first[: slot.first[0]]
    article = re.search(r"\b([Aa])n? $", before)
    if article:
        before = f"{before[: article.start()]}{article[1]}{'n' if entry.english[0] in 'aeiou' else ''} "
    return SentencePair(
        SENTENCES,
        f"{before}{entry.english}{slot.pair.first[slot.first[1] :]}",
        f"{slot.pair.second[: slot.second[0]]}{entry.french}{slot.pair.second[slot.second[1] :]}",
    )


def substituted_pairs(
    pairs: Sequence[SentencePair], words: Sequence[tuple[str, str]], read: str, highest: int, each: int, seed: int
) -> Iterator[SentencePair]:
    """Pairs in which a rare word of the dictionary stands for a common one.

    Args:
        pairs: Everyday pairs, English first.
        words: The dictionary, (English, French).
        read: "en" or "fr": the side whose words are to be rare.
        highest: Words in more pairs than these are not rare.
        each: How many pairs each form gets, where there are as many slots.
        seed: The same seed, the same pairs.
    """
    generator = random.Random(seed)
    grammar = Grammar(pairs)
    counts = grammar.counts if read == "fr" else grammar.english_counts
    forms = list(dict.fromkeys(entries(words, grammar)))
    known: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in forms:
        known[entry.french].append(entry)
    slots: defaultdict[tuple[str, ...], list[_Slot]] = defaultdict(list)
    for kind, slot in find_slots(pairs, known):
        slots[kind].append(slot)
    for entry in forms:
        if counts[entry.french if read == "fr" else entry.english] <= highest and slots[entry.kind]:
            places = slots[entry.kind]
            for slot in generator.sample(places, min(each, len(places))):
                yield substituted(slot, entry)


def entry_pairs(words: Iterable[tuple[str, str]], grammar: Grammar) -> Iterator[SentencePair]:
    """The dictionary's lines, and its nouns with an article, as labels: as they are, some with a capital and a stop."""
    for english, french in words:
        yield SentencePair(ENTRIES, english, french)
        if (
            not _PLAIN_WORD.fullmatch(english)
            or not _PLAIN_WORD.fullmatch(french)
            or not grammar.is_noun(english, french)
        ):
            continue
        masculine = grammar.gender(french) == "m"
        article = "an" if english[0] in "aeiou" else "a"
        yield SentencePair(ENTRIES, f"{article} {english}", f"{'un' if masculine else 'une'} {french}")
        definite = "l'" if french[0] in _VOWELS else "le " if masculine else "la "
        yield SentencePair(ENTRIES, f"The {english}.", f"{definite.capitalize()}{french}.")


def main() -> None:
    """Read the corpus and the dictionary, write the new pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("dictionary", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--read", choices=("en", "fr"), default="en", help="the language that the model reads")
    parser.add_argument("--highest", type=int, default=30, help="in how many pairs a rare word may stand")
    parser.add_argument("--each", type=int, default=6, help="pairs for each form of a rare word")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pairs = [pair for pair in read_pairs(arguments.corpus) if pair.source_name == BASE]
    words = [(pair.first, pair.second) for pair in read_pairs(arguments.dictionary)]
    made = [
        *entry_pairs(words, Grammar(pairs)),
        *substituted_pairs(pairs, words, arguments.read, arguments.highest, arguments.each, arguments.seed),
    ]
    write_pairs(arguments.output, made)
    for name, count in sorted(Counter(pair.source_name for pair in made).items()):
        print(f"{name}: {count:,}")  # noqa: T201


if __name__ == "__main__":
    main()
