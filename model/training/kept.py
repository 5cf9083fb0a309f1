"""Sentence pairs for copying mask pieces: a span that both sides share becomes a private-use character in both.

    python -m model.training.kept ../shared/data/train.en-fr.tsv.gz runs/kept.en-fr.tsv.gz --sources tatoeba php-manual

A service puts a mask piece where an address, a placeholder or an emoji stands, and the span back into the translation.
For that a model must have seen them: in the place of a word that both languages write alike (a name, a number, an
identifier), and beside whole sentences, where emoji and handles stand.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from model.tokenizer import MASK_CHARACTERS
from model.training.data import SentencePair, read_pairs, write_pairs

SOURCE = "kept"
_TOKEN = re.compile(r"(?:[^\s,;!?\"'«»():]|:(?=\w))+(?:\(\))?")
_NAME = re.compile(r"[A-Z][a-z]{2,}")
_TECHNICAL = re.compile(
    r"[\w./:@#%$&={}<>\[\]()\\+*~^|`-]*(?:\d|[_/@#%${}<>=\\`]|\w\(\)|\w\.\w)[\w./:@#%$&={}<>\[\]()\\+*~^|`-]*"
)
_MAX_MASKS = 3
_FINAL = re.compile(r"\s?[.!?]+$")


def shared_spans(pair: SentencePair) -> list[str]:
    """Tokens that stand exactly once on both sides and are a name inside the sentence, a number or an identifier."""
    spans = []
    first, second = _TOKEN.findall(pair.first), _TOKEN.findall(pair.second)
    for index, token in enumerate(first):
        token = token.rstrip(".")
        same = pair.first.count(token) == pair.second.count(token) == 1
        keepable = _TECHNICAL.fullmatch(token) or (index and _NAME.fullmatch(token))
        if token and same and keepable and any(other.rstrip(".") == token for other in second):
            spans.append(token)
    return spans


def masked_pairs(pairs: Iterable[SentencePair], share: float, seed: int) -> Iterator[SentencePair]:
    """Of the pairs with shared spans, all with one to three of them masked; of the others ``share``, with a mask added.

    An added mask stands at the start, at the end or before the final stop, on both sides in the same place.
    """
    generator = random.Random(seed)
    for pair in pairs:
        spans = shared_spans(pair)
        if spans:
            generator.shuffle(spans)
            first, second = pair.first, pair.second
            masks = generator.sample(MASK_CHARACTERS, min(_MAX_MASKS, len(spans)))
            for mask, span in zip(masks[: generator.randint(1, len(masks))], spans, strict=False):
                first, second = first.replace(span, mask), second.replace(span, mask)
            yield SentencePair(SOURCE, first, second)
        elif generator.random() < share:
            yield _with_added_masks(pair, generator)


def _with_added_masks(pair: SentencePair, generator: random.Random) -> SentencePair:
    masks = " ".join(generator.sample(MASK_CHARACTERS, generator.choice((1, 1, 1, 2, 3))))
    match generator.choice(("start", "start,", "end", "end", "before stop")):
        case "start":
            return SentencePair(SOURCE, f"{masks} {pair.first}", f"{masks} {pair.second}")
        case "start,":
            return SentencePair(SOURCE, f"{masks}, {_lower_first(pair.first)}", f"{masks}, {_lower_first(pair.second)}")
        case "before stop":
            first, second = _FINAL.search(pair.first), _FINAL.search(pair.second)
            if first and second:
                return SentencePair(
                    SOURCE,
                    f"{pair.first[: first.start()]} {masks}{first[0]}",
                    f"{pair.second[: second.start()]} {masks}{second[0]}",
                )
    return SentencePair(SOURCE, f"{pair.first} {masks}", f"{pair.second} {masks}")


def _lower_first(text: str) -> str:
    # "I" and names keep their capital: they are one letter, or were not looked at.
    word = text.partition(" ")[0]
    return text[0].lower() + text[1:] if word in _PLAIN_OPENERS else text


_PLAIN_OPENERS = frozenset(
    "The A An This That These Those He She We You They It My Your His Her Our Their What Where When Why How Who Which "
    "Do Does Did Is Are Was Were Can Could Will Would Have Has There Please Don't Let's "
    "Le La Les Un Une Ce Cette Ces Il Elle Nous Vous Tu Ils Elles On Mon Ma Mes Ton Ta Tes Son Sa Ses Notre Votre Leur "
    "Que Qu'est-ce Où Quand Pourquoi Comment Qui Quel Quelle Est-ce Ne C'est Je Veuillez".split()
)


def main() -> None:
    """Read the corpus, write the new pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--sources", nargs="+", default=["tatoeba"])
    parser.add_argument("--share", type=float, default=0.08, help="of the pairs without a shared span")
    parser.add_argument("--longest", type=int, default=200, help="characters of a side")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pairs = (
        pair
        for pair in read_pairs(arguments.corpus)
        if pair.source_name in arguments.sources and max(len(pair.first), len(pair.second)) <= arguments.longest
    )
    write_pairs(arguments.output, masked_pairs(pairs, arguments.share, arguments.seed))


if __name__ == "__main__":
    main()
