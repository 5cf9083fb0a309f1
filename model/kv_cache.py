"""What a running batch remembers: keys and values of both attentions of every decoder layer.

Letters: R rows (one a sequence being decoded, or one a beam of it), H heads, T target positions,
S source positions, D head width.

A running batch needs two verbs: :meth:`DecoderState.select` (rows finish, beams change places) and
:meth:`DecoderState.join` (new sequences arrive). Rows may stand at different positions: a late joiner
starts at 0 while its neighbours are far along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

_INITIAL_POSITIONS = 16


class SelfAttentionCache:
    """Keys and values of the target so far, of one layer; grows in place by doubling."""

    def __init__(self, rows: int, num_heads: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        """Allocate room for the first few positions of ``rows`` rows."""
        shape = (rows, num_heads, _INITIAL_POSITIONS, width)
        # Zeros, not empty: a masked key still enters the product, and 0 * NaN would be NaN.
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)

    def write(self, keys: Tensor, values: Tensor, positions: Tensor, max_position: int) -> tuple[Tensor, Tensor]:
        """Store one position a row and return all that the rows may look at.

        Args:
            keys: (R, H, 1, D) of the position that is decoded now.
            values: (R, H, 1, D).
            positions: (R,) int64, where each row writes.
            max_position: The largest of them, or more where more columns are wanted.

        Returns:
            Keys and values, each (R, H, max_position + 1, D). What lies behind a row's own
            position is stale or zero and must be masked.
        """
        capacity = self.keys.shape[2]
        if max_position >= capacity:
            extra = max(max_position + 1, 2 * capacity) - capacity
            self.keys = functional.pad(self.keys, (0, 0, 0, extra))
            self.values = functional.pad(self.values, (0, 0, 0, extra))
        rows = torch.arange(keys.shape[0], device=keys.device)
        self.keys[rows, :, positions] = keys.squeeze(2)
        self.values[rows, :, positions] = values.squeeze(2)
        return self.keys[:, :, : max_position + 1], self.values[:, :, : max_position + 1]

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` (int64, any order, repeats allowed), in that order."""
        self.keys, self.values = self.keys[rows], self.values[rows]

    def join(self, other: SelfAttentionCache) -> None:
        """Append the rows of ``other``."""
        self.keys = _append_rows(self.keys, other.keys)
        self.values = _append_rows(self.values, other.values)


@dataclass
class CrossAttentionCache:
    """Keys and values of the memory, of one layer: written once a sequence, read at every step.

    Attributes:
        keys: (R, H, S, D).
        values: (R, H, S, D).
    """

    keys: Tensor
    values: Tensor

    def select(self, rows: Tensor) -> None:
        """Keep ``rows``, in that order."""
        self.keys, self.values = self.keys[rows], self.values[rows]

    def join(self, other: CrossAttentionCache) -> None:
        """Append the rows of ``other``."""
        self.keys = _append_rows(self.keys, other.keys)
        self.values = _append_rows(self.values, other.values)


class SelfCache(Protocol):
    """What a decoder layer's self-attention writes and reads; see `SelfAttentionCache`."""

    def write(self, keys: Tensor, values: Tensor, positions: Tensor, max_position: int) -> tuple[Tensor, Tensor]:
        """Store one position a row and return all that the rows may look at."""


class CrossCache(Protocol):
    """What a decoder layer's cross-attention reads; see `CrossAttentionCache`."""

    @property
    def keys(self) -> Tensor:
        """(R, H, S, D)."""

    @property
    def values(self) -> Tensor:
        """(R, H, S, D)."""


class StepState(Protocol):
    """What a decode step needs of the rows of a batch; see `DecoderState`."""

    @property
    def self_caches(self) -> Sequence[SelfCache]:
        """One a decoder layer."""

    @property
    def cross_caches(self) -> Sequence[CrossCache]:
        """One a decoder layer."""

    @property
    def source_mask(self) -> Tensor:
        """(R, S) boolean, True = may attend."""

    @property
    def positions(self) -> Tensor:
        """(R,) int64, the position that each row decodes."""

    @property
    def num_columns(self) -> int:
        """Positions of the target that are read."""


@dataclass
class DecoderState:
    """All that decoding the rows of a batch needs besides the weights.

    Attributes:
        self_caches: One a decoder layer.
        cross_caches: One a decoder layer.
        source_mask: (R, S) boolean, True = may attend.
        positions: (R,) int64, the position that each row decodes next.
        max_position: The largest of ``positions``, held as a plain number so that no step has to
            read it back from the device.
        key_block: Keys are read in multiples of this many, of the source too: attention over more keys than a row has
            sums in the same order as over just enough, if both are multiples of what the processor adds at once.
    """

    self_caches: list[SelfAttentionCache]
    cross_caches: list[CrossAttentionCache]
    source_mask: Tensor
    positions: Tensor
    max_position: int
    key_block: int = 1

    @property
    def num_columns(self) -> int:
        """Columns of the self-attention caches that a step reads."""
        return round_up(self.max_position + 1, self.key_block)

    @property
    def num_rows(self) -> int:
        """Rows in the batch."""
        return self.positions.shape[0]

    def select(self, rows: list[int]) -> None:
        """Keep ``rows`` (any order, repeats allowed), in that order: all others leave the batch."""
        index = torch.tensor(rows, dtype=torch.int64, device=self.positions.device)
        for self_cache, cross_cache in zip(self.self_caches, self.cross_caches, strict=True):
            self_cache.select(index)
            cross_cache.select(index)
        self.source_mask = self.source_mask[index]
        self.positions = self.positions[index]
        self._trim()

    def reorder(self, rows: list[int]) -> None:
        """Move beams among the rows of their own sequences.

        Rows of one sequence read the same source, so the cross-attention caches stay as they are.

        Args:
            rows: As many as there are rows; row i becomes a copy of row ``rows[i]``, which must
                belong to the same sequence.
        """
        if len(rows) != self.num_rows:
            raise ValueError(f"{len(rows)} rows given to reorder a state of {self.num_rows} rows")
        if rows == list(range(self.num_rows)):
            return
        index = torch.tensor(rows, dtype=torch.int64, device=self.positions.device)
        for cache in self.self_caches:
            cache.select(index)

    def join(self, other: DecoderState) -> None:
        """Append the rows of ``other``, which is used up by it."""
        for mine, theirs in zip(self.self_caches, other.self_caches, strict=True):
            mine.join(theirs)
        for my_cross, their_cross in zip(self.cross_caches, other.cross_caches, strict=True):
            my_cross.join(their_cross)
        width = max(self.source_mask.shape[1], other.source_mask.shape[1])
        self.source_mask = torch.cat([_pad_columns(mask, width) for mask in (self.source_mask, other.source_mask)])
        self.positions = torch.cat((self.positions, other.positions))
        self.max_position = max(self.max_position, other.max_position)

    def widen_source(self) -> None:
        """Fill the source up to a multiple of ``key_block`` columns that nobody may look at."""
        extra = round_up(self.source_mask.shape[1], self.key_block) - self.source_mask.shape[1]
        self.source_mask = functional.pad(self.source_mask, (0, extra))
        for cache in self.cross_caches:
            cache.keys = functional.pad(cache.keys, (0, 0, 0, extra))
            cache.values = functional.pad(cache.values, (0, 0, 0, extra))

    def advance(self) -> None:
        """Every row has decoded one position."""
        self.positions = self.positions + 1
        self.max_position += 1

    def _trim(self) -> None:
        """Give back the columns that only departed rows needed: nobody pays for a neighbour that left."""
        if self.num_rows == 0:
            self.max_position = 0
            return
        self.max_position = int(self.positions.max())
        longest = round_up(int(self.source_mask.sum(dim=1).max()), self.key_block)
        if longest < self.source_mask.shape[1]:
            self.source_mask = self.source_mask[:, :longest]
            for cache in self.cross_caches:
                cache.keys, cache.values = cache.keys[:, :, :longest], cache.values[:, :, :longest]


def round_up(count: int, block: int) -> int:
    """The next multiple of ``block``, or ``count`` if it is one."""
    return -(-count // block) * block


def _pad_columns(mask: Tensor, width: int) -> Tensor:
    return functional.pad(mask, (0, width - mask.shape[1]))


def _append_rows(first: Tensor, second: Tensor) -> Tensor:
    """Stack (R1, H, P1, D) on (R2, H, P2, D), the shorter of P1 and P2 filled with zeros."""
    width = max(first.shape[2], second.shape[2])
    return torch.cat([functional.pad(rows, (0, 0, 0, width - rows.shape[2])) for rows in (first, second)])
