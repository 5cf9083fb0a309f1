"""A running batch whose search is done by the kernels, too: greedy and beam search, many steps in one call.

    batch = NativeBatch(translator, book, forbidden_ids=...)
    batch.join([Wanted(key, source_ids, options, ...)])
    while batch.num_rows:
        advance = batch.advance(max_steps=16)       # returns when a sequence ends, or earlier
        for ended in advance.ended: ...

`model/search.py` says what the searches do, and does it for what these cannot: sampling, and penalties of what was
written before. Hypotheses are the same; between two steps there is no Python.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from model.decoding import MAX_BEAM_SIZE, DecodingOptions, FinishReason, Hypothesis
from model.native.library import DoneStruct, SequenceStruct, kernels

if TYPE_CHECKING:
    from torch import Tensor

    from model.native.translate import NativeTranslator

_NOT_FINITE = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sequence that joins.

    Attributes:
        key: Names it in what comes back.
        source_ids: The source, ended by eos.
        options: How to search, such that `NativeBatch.can_search` it.
        max_tokens: Most tokens of a hypothesis, eos included; `options.max_target_tokens` may lower it.
        forced_prefix: Tokens every hypothesis begins with.
        with_log_probs: Whether a greedy hypothesis carries log-probabilities; others always do.
    """

    key: int
    source_ids: Sequence[int]
    options: DecodingOptions
    max_tokens: int
    forced_prefix: Sequence[int] = ()
    with_log_probs: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """A sequence that has left.

    Attributes:
        key: Which one.
        hypotheses: Best first; empty if the search found none.
        new_tokens: If it was greedy, what it wrote since `NativeBatch.new_tokens` was last asked, without eos.
        is_finite: False if the model gave no finite number for a next token: there are no hypotheses then.
    """

    key: int
    hypotheses: tuple[Hypothesis, ...]
    new_tokens: tuple[int, ...]
    is_finite: bool = True


@dataclass(frozen=True, slots=True)
class Advance:
    """What `NativeBatch.advance` did.

    Attributes:
        num_steps: Positions that were decoded of each row that was there so long.
        num_rows: Rows that were decoded, over all steps.
        ended: Sequences that have left.
    """

    num_steps: int
    num_rows: int
    ended: tuple[Ended, ...]


class NativeBook:
    """The pages that the batches of one model share. Used by one thread."""

    def __init__(self, page_bytes: int) -> None:
        """No pages yet; they are fetched as they are needed, and kept."""
        library = kernels()
        assert library is not None
        self._library = library
        self.page_bytes = page_bytes
        self.address: int | None = library.gs_pool_new(page_bytes)
        if self.address is None:
            raise MemoryError("no memory for a book of pages")

    @property
    def num_used(self) -> int:
        """Pages that rows hold; what they share counts once."""
        return int(self._library.gs_pool_used(self.address))

    def __del__(self) -> None:
        """Give the memory back."""
        if getattr(self, "address", None) is not None:
            self._library.gs_pool_free(self.address)


class _Sequence:
    """One sequence in the kernels' memory."""

    def __init__(
        self, book: NativeBook, wanted: Wanted, memory: Tensor, forbidden: np.ndarray, eos: int, start: int
    ) -> None:
        options = wanted.options
        self.key = wanted.key
        self.num_told = 0
        self.is_greedy = options.beam_size == 1
        self.with_log_probs = wanted.with_log_probs or not self.is_greedy
        self.num_hypotheses = options.num_hypotheses
        self.memory = memory
        self._book = book
        self._prefix = np.array(wanted.forced_prefix, dtype=np.int32)
        limit = options.max_target_tokens
        self.max_tokens = wanted.max_tokens if limit is None else min(wanted.max_tokens, limit)
        shown = SequenceStruct(
            beam_size=options.beam_size, is_greedy=self.is_greedy, keeps_log_probs=self.with_log_probs,
            early_stopping=options.early_stopping, max_tokens=self.max_tokens, min_tokens=options.min_target_tokens,
            # No n-gram is longer than what may be written.
            ngram=min(options.no_repeat_ngram_size, self.max_tokens + 1), source_length=len(wanted.source_ids),
            prefix_length=len(self._prefix), num_forbidden=len(forbidden), eos=eos, start=start,
            length_penalty=options.length_penalty,
            beam_threshold=math.inf if options.beam_threshold is None else options.beam_threshold,
            source=memory.data_ptr(), prefix=self._prefix.ctypes.data,
            forbidden=forbidden.ctypes.data,
        )  # fmt: skip
        address = book._library.gs_sequence_new(ctypes.byref(shown))
        if address is None:
            raise MemoryError("no memory for a sequence")
        self.address: int = address
        self.shown = SequenceStruct.from_address(address)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._book._library.gs_sequence_free(self._book.address, self.address)

    def new_tokens(self) -> tuple[int, ...]:
        """What a greedy sequence that goes on has written since this was last asked."""
        tokens = tuple(self.shown.tokens[self.num_told : self.shown.length])
        self.num_told += len(tokens)
        return tokens

    def ended(self) -> Ended:
        """What became of a sequence that has ended."""
        if self.shown.status == _NOT_FINITE:
            return Ended(self.key, (), (), is_finite=False)
        count = min(self.shown.num_done, self.num_hypotheses)
        hypotheses = tuple(self._hypothesis(self.shown.done[rank]) for rank in range(count))
        return Ended(self.key, hypotheses, hypotheses[0].tokens_without_eos[self.num_told :] if self.is_greedy else ())

    def _hypothesis(self, done: DoneStruct) -> Hypothesis:
        tokens = tuple(done.tokens[: done.length])
        reason: FinishReason = "stop" if done.is_stop else "length"
        if not self.with_log_probs:
            return Hypothesis(tokens, reason)
        log_probs = tuple(done.log_probs[: done.length])
        return Hypothesis(tokens, reason, log_probs, sum(log_probs), done.score)


class NativeBatch:
    """Sequences of one model that are decoded together."""

    def __init__(self, translator: NativeTranslator, book: NativeBook, forbidden_ids: Sequence[int]) -> None:
        """An empty batch.

        Args:
            translator: The model.
            book: Where the rows' pages come from.
            forbidden_ids: Tokens never written, such as padding and the start token; not eos.
        """
        self._translator = translator
        self._book = book
        self._forbidden = np.array(sorted(forbidden_ids), dtype=np.int32)
        self._sequences: list[_Sequence] = []

    @staticmethod
    def can_search(options: DecodingOptions, vocabulary_size: int) -> bool:
        """Whether the kernels know this search."""
        is_beam_or_greedy = options.temperature == 0 and options.repetition_penalty == 1.0
        return is_beam_or_greedy and options.beam_size <= MAX_BEAM_SIZE and 2 * options.beam_size < vocabulary_size

    @property
    def num_rows(self) -> int:
        """Rows of the next step."""
        return sum(sequence.shown.rows for sequence in self._sequences)

    @property
    def num_held_bytes(self) -> int:
        """Keys and values of the sources of this batch, and of the targets of all batches of the book."""
        return self._book.num_used * self._book.page_bytes + sum(each.memory.nbytes for each in self._sequences)

    def join(self, newcomers: Sequence[Wanted]) -> None:
        """Encode sources together; each has one row at first."""
        config = self._translator.config
        memories = self._translator.encode([newcomer.source_ids for newcomer in newcomers])
        self._sequences += [
            _Sequence(self._book, newcomer, memory, self._forbidden, config.eos_id, config.decoder_start_id)
            for newcomer, memory in zip(newcomers, memories, strict=True)
        ]

    def drop(self, keys: set[int]) -> None:
        """Take sequences out; those that are not here do not matter."""
        self._sequences = [sequence for sequence in self._sequences if sequence.key not in keys]

    def advance(
        self, max_steps: int = 1, max_seconds: float = 3600.0, is_wanted: ctypes.c_int32 | None = None
    ) -> Advance:
        """Decode one position of every row, and go on until a sequence ends.

        Args:
            max_steps: Most steps.
            max_seconds: No step begins after so long, but the first.
            is_wanted: No step but the first begins while this is not 0; other threads may set it.
        """
        running = self._sequences
        if not running:
            return Advance(0, 0, ())
        addresses = (ctypes.c_void_p * len(running))(*[sequence.address for sequence in running])
        furthest = max(min(sequence.shown.length + max_steps, sequence.max_tokens) for sequence in running)
        if is_wanted is None:  # one that is 0 counts as false
            is_wanted = ctypes.c_int32()
        num_rows = ctypes.c_int64()
        num_steps = self._translator.advance(
            self._book, addresses, furthest, max_steps, max_seconds, is_wanted, num_rows
        )
        ended = [sequence for sequence in running if sequence.shown.status]
        if ended:
            self._sequences = [sequence for sequence in running if not sequence.shown.status]
        return Advance(
            num_steps,
            num_rows.value,
            tuple(each.ended() for each in ended),
        )

    def new_tokens(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each greedy sequence what it has written since this was last asked; hypotheses hold all of it."""
        found = ((each.key, each.new_tokens()) for each in self._sequences if each.is_greedy)
        return [(key, tokens) for key, tokens in found if tokens]
