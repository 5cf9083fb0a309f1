"""Keys and values in pages of 16 positions, lent to the rows of a running batch and taken back: the book-keeping.

A page can belong to several rows: beams that share their past share its pages, and copy one only when they write to
it. Here are numbers of pages and no memory; where pages lie is said by the pools of `native/translate.py` and
`graphs.py`, which also are the two that decode with them.

Letters: R rows, W pages of the row that has most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

POSITIONS = 16
"""Positions in a page; `native/kernels.c` says it again."""

NO_PAGE = 0
"""Fills tables behind a row's last page; never lent."""

Pages = NDArray[np.int32]


class PagePool(ABC):
    """Numbers of pages, and how many rows each belongs to."""

    def __init__(self, num_reserved: int) -> None:
        """Start without any page but ``num_reserved`` that are never lent, ``NO_PAGE`` first."""
        self._num_reserved = num_reserved
        self._owners = np.zeros(num_reserved, dtype=np.int32)
        self._free: list[int] = []

    @property
    def num_used(self) -> int:
        """Pages lent at the moment."""
        return len(self._owners) - self._num_reserved - len(self._free)

    @property
    def num_total(self) -> int:
        """Pages there are, reserved ones too."""
        return len(self._owners)

    @abstractmethod
    def more(self) -> int:
        """Fetch memory for more pages, numbered on from the last one; how many there are now, reserved ones too."""

    @abstractmethod
    def copy(self, pages: Sequence[tuple[int, int]]) -> None:
        """Copy what pages hold: (from, to) pairs; no page is in two of them as *to*, or as both."""

    def clear(self, pages: Sequence[int]) -> None:  # noqa: B027  # to be overridden where it is needed
        """Make pages that were just taken fit to be read where nothing was written yet."""

    def take(self, count: int) -> list[int]:
        """Pages that belong to one row each from now on; what they hold is left from their last owner."""
        while len(self._free) < count:
            first, end = len(self._owners), self.more()
            self._owners = np.concatenate([self._owners, np.zeros(end - first, dtype=np.int32)])
            self._free[:0] = range(end - 1, first - 1, -1)
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        self._owners[taken] = 1
        return taken

    def exchange(self, old: Pages, new: Pages) -> None:
        """Rows that had the pages of ``old`` have those of ``new`` instead; a page without an owner is free.

        Each counts as often as it stands there, but for ``NO_PAGE``.
        """
        before = np.bincount(old.ravel(), minlength=len(self._owners))
        after = np.bincount(new.ravel(), minlength=len(self._owners))
        before[NO_PAGE] = after[NO_PAGE] = 0
        self._owners += (after - before).astype(np.int32)
        self._free += np.flatnonzero((before > 0) & (self._owners == 0)).tolist()

    def is_shared(self, pages: Pages) -> NDArray[np.bool_]:
        """For each page whether more than one row has it."""
        return self._owners[pages] > 1

    def part(self, page: int) -> int:
        """A page of its own for one of the rows that share ``page``; the caller copies what it holds."""
        (new,) = self.take(1)
        self._owners[page] -= 1
        return new


class PagedState(ABC):
    """The rows of a running batch; what `DecoderState` is for caches that are rectangles.

    Attributes:
        positions: (R,) int32, the position that each row decodes next.
        source_lengths: (R,) int32, positions of each row's source.
        pages: (R, W) int32, pages of each row's target so far, as many as it has begun; then ``NO_PAGE``.
    """

    def __init__(self, pool: PagePool, source_lengths: Sequence[int]) -> None:
        """Rows at position 0, which hold no pages yet."""
        self._pool = pool
        self.source_lengths = np.array(source_lengths, dtype=np.int32)
        self.positions = np.zeros(len(source_lengths), dtype=np.int32)
        self.pages = np.full((len(source_lengths), 4), NO_PAGE, dtype=np.int32)

    @property
    def num_rows(self) -> int:
        """Rows in the batch."""
        return len(self.positions)

    def select(self, rows: list[int]) -> None:
        """Keep ``rows`` (any order, repeats allowed), in that order: all others leave the batch."""
        index = np.array(rows, dtype=np.intp)
        self._select_sources(index)
        self.source_lengths = self.source_lengths[index]
        self._select_targets(index)

    def reorder(self, rows: list[int]) -> None:
        """Move beams among the rows of their own sequences, which read the same source: as many rows as there are."""
        if len(rows) != self.num_rows:
            raise ValueError(f"{len(rows)} rows given to reorder a state of {self.num_rows} rows")
        if rows != list(range(self.num_rows)):
            self._select_targets(np.array(rows, dtype=np.intp))

    def join(self, other: PagedState) -> None:
        """Append the rows of ``other``, which is used up by it."""
        self._join_sources(other)
        self.source_lengths = np.concatenate([self.source_lengths, other.source_lengths])
        self.positions = np.concatenate([self.positions, other.positions])
        self.pages = stacked(self.pages, other.pages)
        other.pages = other.pages[:0]

    def __del__(self) -> None:
        """Give back all pages."""
        self._pool.exchange(self.pages, self.pages[:0])

    def prepare_step(self) -> None:
        """Give every row a place of its own to write its next position to."""
        at = self.positions // POSITIONS
        (begun,) = np.nonzero(self.positions % POSITIONS == 0)
        if len(begun):
            width = int(at.max()) + 1
            if width > self.pages.shape[1]:
                self.pages = widened(self.pages, 2 * width)
            taken = self._pool.take(len(begun))
            self._pool.clear(taken)
            self.pages[begun, at[begun]] = taken
        rows = np.arange(self.num_rows)
        (shared,) = np.nonzero(self._pool.is_shared(self.pages[rows, at]))
        if len(shared):
            self._part(shared, at)

    def advance(self) -> None:
        """Every row has decoded one position."""
        self.positions += 1

    def _part(self, rows: NDArray[np.intp], at: Pages) -> None:
        """Of the rows that share the page they write to, all but one get a copy of it."""
        copies = []
        for row in rows.tolist():
            page = int(self.pages[row, at[row]])
            if self._pool.is_shared(self.pages[row, at[row]]):
                new = self._pool.part(page)
                self.pages[row, at[row]] = new
                copies.append((page, new))
        self._pool.copy(copies)

    def _select_targets(self, index: NDArray[np.intp]) -> None:
        selected = self.pages[index]
        self._pool.exchange(self.pages, selected)
        self.pages = selected
        self.positions = self.positions[index]

    @abstractmethod
    def _select_sources(self, index: NDArray[np.intp]) -> None:
        """As ``select``, for what the rows read of their sources."""

    @abstractmethod
    def _join_sources(self, other: PagedState) -> None:
        """As ``join``, for what the rows read of their sources."""


def widened(pages: Pages, width: int) -> Pages:
    """(R, W) -> (R, width), filled with ``NO_PAGE``."""
    return np.pad(pages, ((0, 0), (0, width - pages.shape[1])), constant_values=NO_PAGE)


def stacked(first: Pages, second: Pages) -> Pages:
    """(R1, W1) on (R2, W2): (R1 + R2, the larger W), filled with ``NO_PAGE``."""
    width = max(first.shape[1], second.shape[1])
    return np.concatenate([widened(first, width), widened(second, width)])
