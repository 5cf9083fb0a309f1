"""Sentence pairs from TSV files, encoded once, and sampled by source for every epoch."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.tokenizer import Encoding, Tokenizer


class DataError(ValueError):
    """A data file that cannot be read as sentence pairs; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class SentencePair:
    """One line of a data file.

    Attributes:
        source_name: Where it comes from.
        first: The side that stands first.
        second: The other one.
        links: Word alignment, (word of ``first``, word of ``second``), words as `model.training.links` cuts them;
            empty where none was asked for or is known.
    """

    source_name: str
    first: str
    second: str
    links: tuple[tuple[int, int], ...] = ()

    def as_read(self, source_language: str) -> tuple[str, str]:
        """What a model of this source language reads, and what it is to write; English stands first."""
        return (self.first, self.second) if source_language == "en" else (self.second, self.first)


def read_pairs(path: Path) -> Iterator[SentencePair]:
    """Read ``source name <tab> first side <tab> second side`` lines, gzipped when the name ends in .gz.

    Raises:
        DataError: With the file and line number, for a line that is damaged.
    """
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                yield _parse(raw, path, number)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        raise DataError(f"{path}: unreadable after line {number}: {error}") from error


def write_pairs(path: Path, pairs: Iterable[SentencePair]) -> None:
    """Write pairs, gzipped, as `read_pairs` reads them."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for pair in pairs:
            file.write(f"{pair.source_name}\t{pair.first}\t{pair.second}\n")


def _parse(raw: bytes, path: Path, number: int) -> SentencePair:
    try:
        line = raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: not UTF-8 at byte {error.start}") from None
    fields = line.split("\t")
    if len(fields) != 3:
        raise DataError(f"{path}, line {number}: {len(fields)} columns separated by tabs; 3 are needed")
    if not all(field.strip() for field in fields):
        empty = next(index for index, field in enumerate(fields, start=1) if not field.strip())
        raise DataError(f"{path}, line {number}: column {empty} is empty")
    return SentencePair(fields[0], fields[1], fields[2])


class TokenLists:
    """Many id lists in one flat array: 20 times smaller than Python lists, and sliced without copying."""

    def __init__(self, flat: NDArray[np.uint16], offsets: NDArray[np.int64]) -> None:
        """Wrap ``flat`` so that list i is ``flat[offsets[i]:offsets[i + 1]]``; ``lengths`` are the differences."""
        self._flat = flat
        self._offsets = offsets
        self.lengths = np.diff(offsets)

    @classmethod
    def from_lists(cls, lists: list[list[int]]) -> TokenLists:
        """Pack Python lists."""
        lengths = np.fromiter((len(ids) for ids in lists), dtype=np.int64, count=len(lists))
        flat = np.fromiter((token for ids in lists for token in ids), dtype=np.uint16, count=int(lengths.sum()))
        return cls(flat, np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))))

    def __len__(self) -> int:
        """How many lists there are."""
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.uint16]:
        """The ids of list ``index``."""
        return self._flat[self._offsets[index] : self._offsets[index + 1]]

    @property
    def arrays(self) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """The flat ids and the offsets, as given to the constructor."""
        return self._flat, self._offsets


@dataclass(frozen=True)
class Corpus:
    """Encoded pairs. Sources end with ``eos``; targets neither start with ``bos`` nor end with ``eos``.

    Attributes:
        sources: Ids that the encoder reads.
        targets: Ids that the decoder learns to write.
        weights: (pairs,) how often each pair is seen in an epoch, on average.
        num_dropped: Pairs left out for their length.
        counts: Pairs kept of each source name.
        links: Of each pair, where asked for: position of a source token, position of a target token, and so on.
    """

    sources: TokenLists
    targets: TokenLists
    weights: NDArray[np.float64]
    num_dropped: int
    counts: dict[str, int]
    links: TokenLists | None = None

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.sources)

    def sample_epoch(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """The pairs of one epoch: each floor(weight) times, and once more with the remaining probability.

        Returns:
            Indices, unordered, the same for the same seed and epoch.
        """
        generator = np.random.default_rng((seed, epoch))
        whole = np.floor(self.weights)
        repeats = whole + (generator.random(len(self.weights)) < self.weights - whole)
        return np.repeat(np.arange(len(self.weights)), repeats.astype(np.int64))


def select_pairs(
    paths: list[Path],
    weights: Mapping[str, float],
    reverse: bool,
    *,
    read: Callable[[Path], Iterator[SentencePair]] = read_pairs,
    left_out: Container[tuple[str, str]] = (),
) -> Iterator[SentencePair]:
    """The pairs whose source has a weight, with ``first`` the side to read and ``second`` the side to write.

    Args:
        paths: Data files.
        weights: By source name; what has none, or 0, is left out.
        reverse: Read the second side and write the first.
        read: How to read a file; one that also knows the pairs' links, for example.
        left_out: Texts (first, second), as in the file, that are left out whatever their source.

    Raises:
        DataError: For a damaged line, or when a source that has a weight occurs in no file.
    """
    seen: set[str] = set()
    for path in paths:
        for pair in read(path):
            if weights.get(pair.source_name, 0.0) <= 0.0:
                continue
            seen.add(pair.source_name)
            if (pair.first, pair.second) not in left_out:
                yield turned(pair) if reverse else pair
    absent = sorted(name for name, weight in weights.items() if weight > 0.0 and name not in seen)
    if absent:
        raise DataError(f"no line of {', '.join(map(str, paths))} has the source {', '.join(absent)}")


def turned(pair: SentencePair) -> SentencePair:
    """The pair with its sides, and its links, the other way round."""
    links = tuple((second, first) for first, second in pair.links)
    return SentencePair(pair.source_name, pair.second, pair.first, links)


def encode_corpus(
    pairs: Iterator[SentencePair], weights: Mapping[str, float], tokenizer: Tokenizer, languages: tuple[str, str],
    max_tokens: int, token_links: Callable[[SentencePair, Encoding, Encoding], list[int]] | None = None,
) -> Corpus:  # fmt: skip
    """Tokenize all pairs.

    Args:
        pairs: From :func:`select_pairs`.
        weights: How often pairs of each source are seen in an epoch.
        tokenizer: The joint vocabulary.
        languages: Codes of the side to read and the side to write.
        max_tokens: Longer pairs (on either side, ``eos`` included) are dropped and counted.
        token_links: Turns a pair's word links into token links (`model.training.links`); None keeps none.

    Returns:
        The corpus, in the order of the files.
    """
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    pair_weights: list[float] = []
    counts: dict[str, int] = {}
    links: list[list[int]] = []
    num_dropped = 0
    for pair in pairs:
        source = tokenizer.encode_ids(pair.first, languages[0]) + [tokenizer.eos_id]
        target = tokenizer.encode_ids(pair.second, languages[1])
        if len(source) > max_tokens or len(target) >= max_tokens:
            num_dropped += 1
            continue
        sources.append(source)
        targets.append(target)
        if token_links is not None:
            encodings = (
                tokenizer.encode(text, language)
                for text, language in zip((pair.first, pair.second), languages, strict=True)
            )
            links.append(token_links(pair, *encodings) if pair.links else [])
        pair_weights.append(weights[pair.source_name])
        counts[pair.source_name] = counts.get(pair.source_name, 0) + 1
    return Corpus(
        TokenLists.from_lists(sources),
        TokenLists.from_lists(targets),
        np.array(pair_weights, dtype=np.float64),
        num_dropped,
        counts,
        TokenLists.from_lists(links) if token_links is not None else None,
    )
