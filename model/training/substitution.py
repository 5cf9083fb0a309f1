"""Everyday pairs with rare words in place of common ones: more sentences for a word that the corpus has in three.

    python -m model.training.substitution ../shared/data/train.en-fr.tsv.gz runs/substituted.fr-en.tsv.gz --read fr

Three sentences do not teach a small model a word. Here a word of an everyday pair that is linked with one word of the
other side gives way, on both sides, to a rare word and its translation that stand in the same place elsewhere: "The
cat is on the table." becomes "The scarf is on the table." (data augmentation for low-resource translation, Fadaee,
Bisazza and Monz 2017, section 3; they choose contexts with a language model, here the words before have to do). What
is made makes little sense, but its translation is right.

Words and their translations are those that `model.training.aligner` links in the same corpus. A place is what stands
before the word on both sides (an article and its gender and number, "to", a form of *avoir* or *être*) and whether the
French word begins with a vowel: articles and elisions stay right then.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.alignment import Pairs
from model.training.aligner import Aligner, Rounds
from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.links import one_to_one, word_spans
from model.training.names import BASE

SOURCE = "tatoeba-substituted"
_MIN_LETTERS = 4
_LETTERS = 12  # of a word, for the aligner: rare words are not to be taken for longer ones with the same beginning
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_VOWELS = "aeiouyàâäéèêëîïôöùûüœh"


def _words(kind: str, words: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), kind)


_FRENCH_PLACES = (
    _words("masculine", "le un du au ce mon ton son")
    | _words("feminine", "la une cette ma ta sa")
    | _words("elided", "l' cet")
    | _words("plural", "les des ces mes tes ses nos vos leurs deux trois quatre plusieurs")
    | _words("have", "ai as a avons avez ont avait avais avoir")
    | _words("be", "est sont était étaient suis es êtes sommes très trop si plus")
)
_ENGLISH_PLACES = (
    _words("article", "the a an this that these those my your his her our their its some any no two three four several")
    | _words("to", "to")
    | _words("subject", "i you he she it we they tom mary")
    | _words("have", "have has had 've")
    | _words("be", "is are was were am be been very too so more")
)
_PLACES = {
    ("masculine", "article"), ("feminine", "article"), ("elided", "article"), ("plural", "article"), ("have", "have"),
    ("have", "subject"), ("be", "be"), ("infinitive", "to"),
}  # fmt: skip
_BEFORE_NOUNS = re.compile(
    r"(?:petit|grand|gros|bon|beau|bel|joli|mauvais|jeune|vieux|vieil|nouveau|nouvel|nouveaux|beaux|autre|même|premier|"
    r"dernier|seul|meilleur|pire|propre|long|haut|second|deuxième|troisième|pauvre|cher|vrai|grosse|bonne|belle|"
    r"mauvaise|vieille|nouvelle|première|dernière|meilleure|longue|chère|plus|moins|trop|très)s?|\w+ième"
)
"""French adjectives that stand between article and noun, and so would be taken for nouns."""
_INFINITIVE = re.compile(r"(?:er|ir|re)$")

Place = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Slot:
    """A word with its translation, where it stands.

    Attributes:
        pair: Of sentences.
        first: Characters ``[start, end)`` of its first side.
        second: Those of its second side.
        place: What may stand there: the kinds of word before it in French and in English, and whether it begins
            with a vowel (or h) in French.
    """

    pair: SentencePair
    first: tuple[int, int]
    second: tuple[int, int]
    place: Place

    @property
    def words(self) -> tuple[str, str]:
        """The word in English and in French."""
        return self.pair.first[slice(*self.first)], self.pair.second[slice(*self.second)]


def find_slots(pair: SentencePair, links: Pairs) -> Iterator[Slot]:
    """The words of a pair, in small letters, that are linked with one word only, in a place that is known.

    Args:
        pair: English first.
        links: Of its words, as `model.training.links.word_spans` cuts them.
    """
    spans = word_spans(pair.first), word_spans(pair.second)
    english, french = (
        [text[start:end].lower() for start, end in found]
        for text, found in zip((pair.first, pair.second), spans, strict=True)
    )
    for first, second in one_to_one(links):
        if not first or not second:
            continue
        slot = Slot(pair, spans[0][first], spans[1][second], _place(english, french, first, second))
        if slot.place[1] == "article" and _BEFORE_NOUNS.fullmatch(french[second]):
            continue
        if all(_WORD.fullmatch(word) and word.islower() for word in slot.words) and slot.place[:2] in _PLACES:
            yield slot


def _place(english: Sequence[str], french: Sequence[str], first: int, second: int) -> Place:
    before, before_english = french[second - 1].replace("’", "'"), english[first - 1]
    place_english = _ENGLISH_PLACES.get(before_english, "")
    place = _FRENCH_PLACES.get(before, "")
    if place_english == "to" and _INFINITIVE.search(french[second]):
        place = "infinitive"
    return place, place_english, french[second][0] in _VOWELS


def rare_words(slots: Iterable[Slot], read: str, lowest: int, highest: int) -> dict[tuple[str, str], set[Place]]:
    """Words and their translations that a third of their slots have, with the places where they stand.

    Args:
        slots: Of the whole corpus.
        read: "en" or "fr": the side whose words are to be rare.
        lowest: In fewer slots a word and its translation are a mistake as often as not.
        highest: A word in more slots than these is not rare.
    """
    translations: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    places: defaultdict[tuple[str, str], set[Place]] = defaultdict(set)
    for slot in slots:
        translations[slot.words[read == "fr"]][slot.words] += 1
        places[slot.words].add(slot.place)
    found = {}
    for word, counts in translations.items():
        for words, count in counts.items():
            if counts.total() <= highest and count >= max(lowest, counts.total() / 3) and len(word) >= _MIN_LETTERS:
                found[words] = places[words]
    return found


def substituted(slot: Slot, words: tuple[str, str]) -> SentencePair:
    """The slot's pair with other words in it, English and French, and "a" or "an" as the English one begins."""
    english, french = words
    before = slot.pair.first[: slot.first[0]]
    article = re.search(r"\b([Aa])n? $", before)
    if article:
        before = f"{before[: article.start()]}{article[1]}{'n' if english[0] in 'aeiou' else ''} "
    return SentencePair(
        SOURCE,
        f"{before}{english}{slot.pair.first[slot.first[1] :]}",
        f"{slot.pair.second[: slot.second[0]]}{french}{slot.pair.second[slot.second[1] :]}",
    )


def substituted_pairs(
    slots: Sequence[Slot], rare: dict[tuple[str, str], set[Place]], each: int, seed: int
) -> Iterator[SentencePair]:
    """Pairs in which rare words stand for others.

    Args:
        slots: Of everyday pairs.
        rare: Words (English, French) and their places.
        each: How many pairs each word gets, where there are as many slots.
        seed: The same seed, the same pairs.
    """
    generator = random.Random(seed)
    by_place: defaultdict[Place, list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.words not in rare:
            by_place[slot.place].append(slot)
    for words, places in rare.items():
        fitting = sorted(place for place in places if by_place[place])
        for _ in range(each if fitting else 0):
            yield substituted(generator.choice(by_place[generator.choice(fitting)]), words)


def main() -> None:
    """Align the corpus, write the new pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--read", choices=("en", "fr"), default="en", help="the language that the model reads")
    parser.add_argument("--sources", nargs="*", default=[], help="more sources that rare words are taken from")
    parser.add_argument("--lowest", type=int, default=2, help="in how many places a rare word stands at least")
    parser.add_argument("--highest", type=int, default=30, help="in how many it stands at most")
    parser.add_argument("--each", type=int, default=10, help="new pairs for each rare word")
    parser.add_argument("--longest", type=int, default=30, help="words of a side; longer pairs are left out")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pairs = [pair for pair in read_pairs(arguments.corpus) if pair.source_name in (BASE, *arguments.sources)]
    aligner = Aligner([(pair.first, pair.second) for pair in pairs], letters=_LETTERS, longest=arguments.longest)
    aligner.train(Rounds(), say=True)
    slots = [
        slot
        for pair, links in zip(pairs, aligner.links(threshold=0.5), strict=True)
        for slot in find_slots(pair, links)
    ]
    rare = rare_words(slots, arguments.read, arguments.lowest, arguments.highest)
    everyday = [slot for slot in slots if slot.pair.source_name == BASE]
    made = list(substituted_pairs(everyday, rare, arguments.each, arguments.seed))
    write_pairs(arguments.output, made)
    print(f"{SOURCE}: {len(made):,} pairs, {len(rare):,} words")  # noqa: T201


if __name__ == "__main__":
    main()
