"""Word alignments of sentence pairs, learned from the pairs alone: what guided alignment trains towards.

    python -m model.training.aligner model/training/en-fr-next.toml --gold tests/data/alignment_gold.jsonl

Each side in turn explains the other: IBM Model 1 (Brown et al. 1993), then with a prior for the diagonal (Dyer et al.
2013, fast_align), then a hidden Markov model of the jumps (Vogel et al. 1996; words without a partner as in Och and Ney
2003). Both directions are then joined, by grow-diag-final-and (Koehn et al. 2005) or by the product of their
probabilities (Liang et al. 2006). Pairs of one shape (number of words on both sides) are computed together in numpy.

Letters in shape notes: P pairs, I words of the side that is explained, J words of the side that explains, K distinct
pairs of words.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.alignment import GoldAlignment, Pairs, alignment_error_rate
from model.training.beside import write_beside
from model.training.data import SentencePair, read_pairs
from model.training.links import KIND, format_links, word_spans
from model.training.settings import load_settings
from model.training.tune_alignment import read_gold

Floats = NDArray[np.float32]

_NO_PARTNER = 0.08  # share of words that nothing explains; fast_align's value
_DIAGONAL = 4.0  # how sharply fast_align prefers the diagonal
_SPARSITY = 0.01  # Dirichlet prior of translation tables: few partners a word
_ALIKE = 0.5  # more for a pair of words that are written alike
_LEAST = 1e-9  # probability of a pair of words
_MAX_JUMP = 12
_ROWS = 2048  # pairs of one shape that are computed together


def _forms(text: str, letters: int) -> list[str]:
    # The first letters stand for the word: a small corpus sees few inflected forms often enough (Och and Ney 2003).
    return [text[start:end][:letters].lower() for start, end in word_spans(text)]


@dataclass(frozen=True)
class _Shape:
    """All pairs of one shape.

    Attributes:
        pairs: (P,) their indices.
        cells: By direction, (P, I, J + 1) int32: which pair of words stands in each cell; the last column is "nothing".
    """

    pairs: NDArray[np.int64]
    cells: tuple[NDArray[np.int32], NDArray[np.int32]]

    def part(self, share: float) -> _Shape:
        """The first pairs."""
        count = math.ceil(share * len(self.pairs))
        return _Shape(self.pairs[:count], (self.cells[0][:count], self.cells[1][:count]))


class _Direction:
    """One side explaining the other: a probability for each distinct pair of words, and for each jump."""

    def __init__(self, index: int, explainers: NDArray[np.int64], alike: NDArray[np.bool_]) -> None:
        self.index = index
        self._explainers = explainers  # (K,) which word explains
        self._prior = np.where(alike, _ALIKE, 0.0) + _SPARSITY
        self.table: Floats = np.where(alike, 10.0, 1.0).astype(np.float32)
        self.jumps = np.ones(2 * _MAX_JUMP + 1)

    def update(self, shapes: Sequence[_Shape], model: str) -> float:
        """One round of expectation and maximisation; returns the mean log-probability of a word."""
        counts = np.zeros(len(self.table))
        jumps = np.full(len(self.jumps), 1e-3)
        total, words = 0.0, 0
        for shape in shapes:
            for start in range(0, len(shape.pairs), _ROWS):
                cells = shape.cells[self.index][start : start + _ROWS]
                posterior, log_prob = self.posterior(cells, model, jumps)
                counts += np.bincount(cells.ravel(), weights=posterior.ravel(), minlength=len(counts))
                total += float(log_prob.sum())
                words += cells.shape[0] * cells.shape[1]
        sums = np.maximum(np.bincount(self._explainers, weights=counts + self._prior), _SPARSITY)
        # Variational Bayes (as in fast_align): counts far below one vanish, which keeps rare words from explaining all.
        table = np.exp(_digamma(counts + self._prior) - _digamma(sums)[self._explainers])
        # A word that was never counted gets its place from its neighbours then, and no product becomes 0.
        self.table = np.maximum(table, _LEAST).astype(np.float32)
        if model == "hmm":
            self.jumps = jumps / jumps.sum()
        return total / max(words, 1)

    def posterior(
        self, cells: NDArray[np.int32], model: str, jumps: NDArray[np.float64] | None = None
    ) -> tuple[Floats, Floats]:
        """Probability of each link, (P, I, J + 1), rows summing to 1, and the pairs' log-probability (P,).

        Args:
            cells: As in `_Shape`.
            model: ``uniform`` (IBM Model 1), ``diagonal`` or ``hmm``.
            jumps: Where the HMM counts its jumps.
        """
        emission = self.table[cells]
        if model == "hmm":
            return self._forward_backward(emission, jumps)
        joint = emission * _position_prior(cells.shape[1], cells.shape[2] - 1, _DIAGONAL * (model == "diagonal"))
        sums = joint.sum(axis=2, keepdims=True)
        return joint / sums, np.log(sums[:, :, 0]).sum(axis=1)

    def _forward_backward(self, emission: Floats, jumps: NDArray[np.float64] | None) -> tuple[Floats, Floats]:
        num_pairs, num_words, width = emission.shape
        num_states = width - 1
        offsets = np.subtract.outer(np.arange(num_states), np.arange(num_states)).T  # [from, to] = to - from
        offsets = np.clip(offsets, -_MAX_JUMP, _MAX_JUMP) + _MAX_JUMP
        moves = self.jumps[offsets].astype(np.float32)
        moves *= (1 - _NO_PARTNER) / moves.sum(axis=1, keepdims=True)
        some, nothing = emission[:, :, :-1], emission[:, :, -1:] * np.float32(_NO_PARTNER)
        # A word without a partner stays where the last one was: state j with and without a link.
        linked = np.empty((num_words, num_pairs, num_states), np.float32)
        unlinked = np.empty_like(linked)
        scales = np.empty((num_words, num_pairs, 1), np.float32)
        before = np.full((num_pairs, num_states), 1 / num_states, np.float32)
        for i in range(num_words):
            came = before * (1 - _NO_PARTNER) if i == 0 else before @ moves
            linked[i], unlinked[i] = some[:, i] * came, nothing[:, i] * before
            before = linked[i] + unlinked[i]
            scales[i] = np.maximum(before.sum(axis=1, keepdims=True), 1e-30)
            linked[i] /= scales[i]
            unlinked[i] /= scales[i]
            before /= scales[i]
        posterior = np.empty_like(emission)
        after = np.ones((num_pairs, num_states), np.float32)
        for i in reversed(range(num_words)):
            posterior[:, i, :-1] = linked[i] * after
            posterior[:, i, -1] = (unlinked[i] * after).sum(axis=1)
            reached = some[:, i] * after / scales[i]
            if i and jumps is not None:
                found = moves * ((linked[i - 1] + unlinked[i - 1]).T @ reached)
                jumps += np.bincount(offsets.ravel(), weights=found.ravel(), minlength=len(jumps))
            after = reached @ moves.T + nothing[:, i] * after / scales[i]
        posterior /= np.maximum(posterior.sum(axis=2, keepdims=True), 1e-30)
        return posterior, np.log(scales[:, :, 0]).sum(axis=0)


def _position_prior(num_words: int, num_states: int, sharpness: float) -> Floats:
    """(I, J + 1): where a partner is looked for before any word is known."""
    rows = (np.arange(num_words)[:, None] + 0.5) / num_words
    columns = (np.arange(num_states)[None] + 0.5) / num_states
    prior = np.exp(-sharpness * np.abs(rows - columns))
    prior *= (1 - _NO_PARTNER) / prior.sum(axis=1, keepdims=True)
    return np.concatenate((prior, np.full((num_words, 1), _NO_PARTNER)), axis=1).astype(np.float32)


def _digamma(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """By its asymptotic series, after three steps up: good to 1e-4 for the positive numbers here."""
    shifted = values + 3
    series = np.log(shifted) - 1 / (2 * shifted) - 1 / (12 * shifted**2)
    result: NDArray[np.float64] = series - 1 / values - 1 / (values + 1) - 1 / (values + 2)
    return result


@dataclass(frozen=True)
class Rounds:
    """How often each model is trained, one after the other."""

    uniform: int = 4
    diagonal: int = 4
    hmm: int = 5


class Aligner:
    """Learns from pairs of texts, and then aligns these pairs."""

    def __init__(self, pairs: Sequence[tuple[str, str]], *, letters: int = 5, longest: int = 100) -> None:
        """Sort the pairs by shape.

        Args:
            pairs: The texts.
            letters: A word's first letters that count.
            longest: Pairs with more words on a side, or with none, stay without links.
        """
        self.num_pairs = len(pairs)
        vocabularies: tuple[dict[str, int], dict[str, int]] = ({}, {})
        by_shape: dict[tuple[int, int], list[tuple[int, list[int], list[int]]]] = defaultdict(list)
        for number, texts in enumerate(pairs):
            first, second = (
                [words.setdefault(form, len(words)) for form in _forms(text, letters)]
                for text, words in zip(texts, vocabularies, strict=True)
            )
            if first and second and max(len(first), len(second)) <= longest:
                by_shape[len(first), len(second)].append((number, first, second))
        sizes = [len(words) for words in vocabularies]
        rows = {
            shape: tuple(np.array(column, dtype=np.int64) for column in zip(*items, strict=True))
            for shape, items in by_shape.items()
        }
        keys = [_keys(rows.values(), direction, sizes[direction]) for direction in (0, 1)]
        distinct = [np.unique(np.concatenate([np.unique(key) for key in found])) for found in keys]
        self._shapes = [
            _Shape(
                numbers,
                (
                    np.searchsorted(distinct[0], keys[0][index]).astype(np.int32),
                    np.searchsorted(distinct[1], keys[1][index]).astype(np.int32),
                ),
            )
            for index, (numbers, _, _) in enumerate(rows.values())
        ]
        names = [list(words) for words in vocabularies]
        self._directions = []
        for direction in (0, 1):
            # Direction 0: the first side explains the second. The word after the last stands for nothing.
            explained, explaining = names[1 - direction], [*names[direction], ""]
            pair_of = np.divmod(distinct[direction], sizes[direction] + 1)
            alike = np.fromiter(
                (explained[a] == explaining[b] for a, b in zip(*pair_of, strict=True)), bool, len(pair_of[0])
            )
            self._directions.append(_Direction(direction, pair_of[1], alike))

    def train(self, rounds: Rounds, learn_from: int | None = None, say: bool = False) -> None:
        """Learn in both directions.

        Args:
            rounds: How often.
            learn_from: Look at about so many pairs only, of each shape as large a share; None looks at all.
            say: Print a line a round.
        """
        share = 1.0 if learn_from is None else min(1.0, learn_from / max(self.num_pairs, 1))
        shapes = [shape.part(share) for shape in self._shapes]
        for model, count in (("uniform", rounds.uniform), ("diagonal", rounds.diagonal), ("hmm", rounds.hmm)):
            for _ in range(count):
                rates = [direction.update(shapes, model) for direction in self._directions]
                if say:
                    print(f"{model}: log-probability of a word {rates[0]:.3f} / {rates[1]:.3f}")  # noqa: T201
        self._model = "hmm" if rounds.hmm else "diagonal"

    def posteriors(self) -> Iterator[tuple[int, Floats, Floats]]:
        """Each pair's number and its links' probabilities, (J, I) both: by the first side and by the second."""
        for shape in self._shapes:
            for start in range(0, len(shape.pairs), _ROWS):
                first, second = (
                    direction.posterior(shape.cells[direction.index][start : start + _ROWS], self._model)[0]
                    for direction in self._directions
                )
                for row, number in enumerate(shape.pairs[start : start + _ROWS].tolist()):
                    yield number, first[row].T, second[row]

    def links(self, join: str = "product", threshold: float = 0.3) -> list[Pairs]:
        """The links of every pair, (word of the first text, word of the second).

        Args:
            join: ``product``, or ``grow-diag-final-and``.
            threshold: Least root of the product of both probabilities.
        """
        found: list[Pairs] = [set() for _ in range(self.num_pairs)]
        for number, by_first, by_second in self.posteriors():
            if join == "product":
                kept = np.sqrt(by_first[:-1] * by_second[:, :-1]) >= threshold
                found[number] = set(zip(*map(np.ndarray.tolist, np.nonzero(kept)), strict=True))
            else:
                found[number] = grow_diag_final_and(
                    {(j, i) for i, j in enumerate(by_first.argmax(axis=0).tolist()) if j < len(by_first) - 1},
                    {(j, i) for j, i in enumerate(by_second.argmax(axis=1).tolist()) if i < by_second.shape[1] - 1},
                )
        return found


def _keys(rows: object, direction: int, size: int) -> list[NDArray[np.int64]]:
    """For each shape (P, I, J + 1): the pair of words as one number."""
    keys = []
    for _, first, second in rows:  # type: ignore[attr-defined]
        explaining, explained = (first, second) if direction == 0 else (second, first)
        nothing = np.full((len(explaining), 1), size, dtype=np.int64)
        keys.append(explained[:, :, None] * (size + 1) + np.concatenate((explaining, nothing), axis=1)[:, None, :])
    return keys


def grow_diag_final_and(first: Pairs, second: Pairs) -> Pairs:
    """Join the links of two directions (Koehn et al. 2005): what both have, neighbours, the rest of free words.

    Args:
        first: Links, (first word, second word).
        second: Links of the other direction, written the same way round.
    """
    links = first & second
    union = first | second
    free_first, free_second = {j for j, _ in union - links}, {i for _, i in union - links}
    free_first -= {j for j, _ in links}
    free_second -= {i for _, i in links}

    def add(link: tuple[int, int]) -> None:
        links.add(link)
        free_first.discard(link[0])
        free_second.discard(link[1])

    grown = True
    while grown:
        grown = False
        for j, i in sorted(links):
            for dj, di in itertools.product((-1, 0, 1), repeat=2):
                link = (j + dj, i + di)
                if link in union and link not in links and (link[0] in free_first or link[1] in free_second):
                    add(link)
                    grown = True
    for direction in (first, second):
        for link in sorted(direction):
            if link[0] in free_first and link[1] in free_second:
                add(link)
    return links


def in_words_of(gold: GoldAlignment, links: Pairs) -> Pairs:
    """Links in terms of the words of a gold alignment of the same texts."""
    sides = []
    for text, words in ((gold.source, gold.source_words), (gold.target, gold.target_words)):
        sides.append(
            [
                [index for index, (start, end) in enumerate(words) if start < span[1] and span[0] < end]
                for span in word_spans(text)
            ]
        )
    return {pair for j, i in links for pair in itertools.product(sides[0][j], sides[1][i])}


def main() -> None:
    """Align all training pairs of a run, and judge the alignment on a gold set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=Path, help="a training file with a table [guided_alignment]")
    parser.add_argument("--gold", type=Path, help="pairs aligned by hand, which are aligned too, and judged")
    parser.add_argument("--letters", type=int, default=5, help="first letters of a word that count")
    parser.add_argument("--longest", type=int, default=60, help="words of a side; longer pairs get no links")
    parser.add_argument("--learn-from", type=int, help="learn from about so many pairs; all are aligned")
    parser.add_argument("--join", choices=("product", "grow-diag-final-and"), default="product")
    parser.add_argument("--threshold", type=float, default=0.25, help="of the product's root")
    arguments = parser.parse_args()
    settings = load_settings(arguments.settings)
    if settings.guided_alignment is None:
        parser.error(f"{arguments.settings} has no table [guided_alignment]")
    files = {Path(path): list(read_pairs(Path(path))) for path in settings.data.train}
    gold = read_gold(arguments.gold) if arguments.gold else []
    # A pair that stands in several files (the rare ones do) is aligned, and counted, once.
    wanted = [pair for pairs in files.values() for pair in pairs if settings.data.sources.get(pair.source_name, 0) > 0]
    texts = list(dict.fromkeys([*((item.source, item.target) for item in gold), *map(_texts, wanted)]))
    aligner = Aligner(texts, letters=arguments.letters, longest=arguments.longest)
    aligner.train(Rounds(), arguments.learn_from, say=True)
    links = dict(zip(texts, aligner.links(arguments.join, arguments.threshold), strict=True))
    for path, pairs in files.items():
        lines = (format_links(links.get(_texts(pair), ())) for pair in pairs)
        print(write_beside(Path(settings.guided_alignment.links), path, KIND, lines))  # noqa: T201
    if gold:
        judged = ((in_words_of(item, links[item.source, item.target]), item) for item in gold)
        print(f"AER of {len(gold)} pairs: {100 * alignment_error_rate(judged):.1f} %")  # noqa: T201


def _texts(pair: SentencePair) -> tuple[str, str]:
    return pair.first, pair.second


if __name__ == "__main__":
    main()
