r"""The lexicon of a model: which words of its training data are copied into the other language, and which translated.

    python -m model.training.lexicon model/training/en-fr-more.toml ../shared/data/train.en-fr.tsv.gz \
        model/pretrained/en-fr

A word with a capital inside a sentence is copied in a pair if the other side has it, too. Names are the words that are
copied in four of five pairs or more, in two at least, and that hardly ever stand there in small letters (*Will*).
Translated are the others, and words in small letters that fewer than half of the pairs share.

What each is translated by comes from the word alignment of the pairs (`model.training.aligner`): words linked one to
one, a pair counted by the weight that the settings give its source, in sources that have one.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from model.alignment import Pairs
from model.lexicon import LEXICON_FILE, Lexicon, parts_of_words
from model.training.aligner import Aligner, Rounds
from model.training.data import SentencePair, read_pairs
from model.training.links import one_to_one, word_spans
from model.training.settings import load_settings
from model.training.spelling import other_spellings

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_POSSESSIVE = re.compile(r"['’]s$")
_PARTS = re.compile(r"['’-]")
_BEHIND_A_WORD = re.compile(r"[^.!?:\"]\s\Z")
_MIN_NAMES, _NAME_SHARE = 2, 0.8
_COPY_SHARE = 0.5
_LETTERS, _LONGEST, _SURE_LINK = 12, 40, 0.5
_LEAST_WEIGHT = 0.2
"""Of a pair, whatever its source has: rare words stand in one source or two."""
_MIN_LINKS, _LINK_SHARE, _MAX_TRANSLATIONS = 0.4, 0.12, 4


def make_lexicon(pairs: Iterable[SentencePair], *, reverse: bool = False, min_count: int = 4) -> Lexicon:
    """Counts words.

    Args:
        pairs: Of the training.
        reverse: Whether the second side is the source.
        min_count: Words in small letters that stand in fewer pairs are left out: they are mistakes as often as not.
    """
    capital, copied, shared, small = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    small_shared = Counter[str]()
    for pair in pairs:
        source, target = (pair.second, pair.first) if reverse else (pair.first, pair.second)
        there = {part for word in _WORD.findall(target) for part in (word, *_PARTS.split(word))}
        there_small = {word.lower() for word in there}
        for word in {_POSSESSIVE.sub("", match[0]) for match in _WORD.finditer(source) if _is_inside(source, match)}:
            capital[word] += 1
            copied[word] += word in there
            shared[word] += word.lower() in there_small
        for word in {word for word in _WORD.findall(source) if word.islower()}:
            small[word] += 1
            small_shared[word] += word in there_small
    translated = {word for word in small if small[word] >= min_count and small_shared[word] < _COPY_SHARE * small[word]}
    names = set()
    for word, count in capital.items():
        if shared[word] < _COPY_SHARE * count:
            translated.add(word.lower())
        elif copied[word] >= _NAME_SHARE * count and count >= _MIN_NAMES and small[word.lower()] < _MIN_NAMES:
            names.add(word.lower())
    return Lexicon(frozenset(names - translated), frozenset(translated))


def _is_inside(text: str, match: re.Match[str]) -> bool:
    """Whether a word has a capital for its own sake."""
    word = match[0]
    is_capitalised = len(word) > 1 and word[0].isupper() and word[1:].islower()
    return is_capitalised and _BEHIND_A_WORD.search(text[max(0, match.start() - 2) : match.start()]) is not None


def linked_words(pairs: Sequence[SentencePair]) -> list[Pairs]:
    """The sure links of each pair's words, as `model.training.links.word_spans` cuts them."""
    aligner = Aligner([(pair.first.lower(), pair.second.lower()) for pair in pairs], letters=_LETTERS, longest=_LONGEST)
    aligner.train(Rounds(3, 3, 4), say=True)
    return aligner.links(threshold=_SURE_LINK)


def word_translations(
    pairs: Sequence[SentencePair], links: Sequence[Pairs], weights: Mapping[str, float], *, reverse: bool = False
) -> dict[str, tuple[str, ...]]:
    """What each word is translated by, the most frequent first.

    Args:
        pairs: Of the training.
        links: Of their words.
        weights: Of their sources.
        reverse: Whether the second side is the source.
    """
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pair, linked in zip(pairs, links, strict=True):
        words = [
            [text[start:end].lower().replace("’", "'") for start, end in word_spans(text)]
            for text in (pair.first, pair.second)
        ]
        for first, second in one_to_one(linked):
            both = words[0][first], words[1][second]
            if all(map(_WORD.fullmatch, both)):
                source, target = reversed(both) if reverse else both
                found[source][target] += max(weights[pair.source_name], _LEAST_WEIGHT)  # type: ignore[assignment]
    result = {}
    for word, counts in found.items():
        least = max(_MIN_LINKS, _LINK_SHARE * counts.total())
        others = tuple(other for other, count in counts.most_common(_MAX_TRANSLATIONS) if count >= least)
        if others and others != (word,):
            result[word] = others
    return result


def main() -> None:
    """Read the corpus, write the file into the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=Path, help="of the training: the weights of sources, and which side is read")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--min-count", type=int, default=4)
    arguments = parser.parse_args()
    data = load_settings(arguments.settings).data
    corpus = list(read_pairs(arguments.corpus))
    pairs = [pair for pair in corpus if data.sources.get(pair.source_name, 0) > 0]
    lexicon = make_lexicon(corpus, reverse=data.reverse, min_count=arguments.min_count)
    weighed: defaultdict[str, float] = defaultdict(float)
    for pair in pairs:
        for word in set(parts_of_words(pair.first)):
            weighed[word] += data.sources[pair.source_name]
    lexicon = replace(
        lexicon,
        written=frozenset(
            word for pair in corpus for word in parts_of_words(pair.first if data.reverse else pair.second)
        ),
        translations=word_translations(pairs, linked_words(pairs), data.sources, reverse=data.reverse),
        spellings={} if data.reverse else other_spellings(weighed),
    )
    comment = (
        f"Words of {arguments.corpus.name}, by model.training.lexicon.\n"
        "Sources and their licences: the table in MODEL_CARD.md."
    )
    (arguments.checkpoint / LEXICON_FILE).write_bytes(lexicon.dump(comment))


if __name__ == "__main__":
    main()
