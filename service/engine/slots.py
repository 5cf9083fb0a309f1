"""Who holds how much of the batch: rows, and bytes of cache. Integers only.

A sequence reserves once all that it may ever need, and gives it back once. So nothing that was let in can run out.
"""

from __future__ import annotations

from typing import NamedTuple


class Reservation(NamedTuple):
    """What one sequence may need at most.

    Attributes:
        rows: Rows of the batch: its beam size.
        cache_bytes: Keys and values of these rows at their longest.
    """

    rows: int
    cache_bytes: int


class Slots:
    """The rows and the cache there are, and the reservations on them.

    Args:
        max_rows: Rows there are.
        max_cache_bytes: Bytes of cache there are.
    """

    def __init__(self, max_rows: int, max_cache_bytes: int) -> None:
        self.max_rows = max_rows
        self.max_cache_bytes = max_cache_bytes
        self.free_rows = max_rows
        self.free_cache_bytes = max_cache_bytes
        self._held: dict[int, Reservation] = {}

    def __len__(self) -> int:
        """Sequences that hold something."""
        return len(self._held)

    @property
    def used_rows(self) -> int:
        """Rows that sequences hold."""
        return self.max_rows - self.free_rows

    @property
    def used_cache_bytes(self) -> int:
        """Bytes that sequences hold."""
        return self.max_cache_bytes - self.free_cache_bytes

    def fits(self, wanted: Reservation) -> bool:
        """Whether `wanted` can be reserved now."""
        return wanted.rows <= self.free_rows and wanted.cache_bytes <= self.free_cache_bytes

    def reserve(self, sequence_id: int, wanted: Reservation) -> None:
        """Sets `wanted` apart for a sequence.

        Raises:
            ValueError: It does not fit (ask `fits` first), is empty, or the sequence holds something already.
        """
        if sequence_id in self._held:
            raise ValueError(f"sequence {sequence_id} holds {self._held[sequence_id]} already")
        if wanted.rows < 1 or wanted.cache_bytes < 0:
            raise ValueError(f"{wanted} is nothing to reserve")
        if not self.fits(wanted):
            raise ValueError(f"{wanted} asked for, {self.free_rows} rows and {self.free_cache_bytes} bytes are free")
        self._held[sequence_id] = wanted
        self.free_rows -= wanted.rows
        self.free_cache_bytes -= wanted.cache_bytes

    def release(self, sequence_id: int) -> None:
        """Takes back all that a sequence holds.

        Raises:
            KeyError: It holds nothing.
        """
        held = self._held.pop(sequence_id)
        self.free_rows += held.rows
        self.free_cache_bytes += held.cache_bytes

    def check_integrity(self) -> None:
        """Asserts that free + used = total."""
        rows = sum(held.rows for held in self._held.values())
        cache_bytes = sum(held.cache_bytes for held in self._held.values())
        assert self.free_rows + rows == self.max_rows, f"{self.free_rows} free + {rows} used rows != {self.max_rows}"
        assert self.free_cache_bytes + cache_bytes == self.max_cache_bytes, (
            f"{self.free_cache_bytes} free + {cache_bytes} used bytes != {self.max_cache_bytes}"
        )
        assert self.free_rows >= 0 and self.free_cache_bytes >= 0, "more was reserved than there is"
