"""Greedy, beam and sampling search as pure steps over log-probabilities.

There is no model and no cache in this file. One `Search` holds one sequence; it occupies `num_rows` rows of a running
batch and is told, once a step, what the decoder said about them:

    searches = [start_search(options, eos_id=0, max_tokens=128) for options in ...]
    while searches:
        logits = ...  # (R, V), the rows of all searches, one search after the other
        for search, step in zip(searches, advance_batch(searches, logits)):
            ...  # step.parents: which cache rows go on; step.tokens: their next input
        searches = [search for search in searches if not search.finished]

A step has three parts, so that what is expensive is done once for a batch of mixed settings:
    (a) `Constraints` say what a row may not choose; `apply_constraints` writes that into its log-probabilities;
    (b) `best_tokens` and `candidates` reduce (R, V) to the few best tokens of each row;
    (c) the `select` of each kind of search decides on plain Python numbers, and knows nothing of V.

Letters: R rows of the batch, V vocabulary, k candidates of a row, b beam size.

A hypothesis is everything the decoder wrote after its start token: a forced prefix and the end-of-sentence token (eos)
belong to it, and count in its length, its log-probability and its score.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.decoding import DecodingOptions, Hypothesis

ARGMAX_BLOCK_SIZE = 256
TOP_K_BLOCK_SIZE = 64
"""Tokens whose maximum is taken first: `amax` is vectorized, `argmax` and `topk` are not. Sizes by measurement."""

NUM_SAMPLING_CANDIDATES = 64
"""Tokens fetched to sample from at first; the whole row is sorted only where they do not suffice."""

MIN_TEMPERATURE = 1e-20
"""Lower ones are raised to this, which is as good as greedy: log_probs / temperature must stay within float32."""

MIN_LOG_PROB = -1e9
"""Stands for -inf where a token is forced that the model excludes, so that sums and scores stay numbers."""


class NonFiniteLogits(ArithmeticError):
    """The model gave NaN, +inf, or nothing but -inf for a row. No search was advanced.

    Attributes:
        rows: The rows of the batch concerned.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(f"logits of rows {list(rows)} hold NaN, +inf, or no finite value at all")
        self.rows = list(rows)


class SearchStep(NamedTuple):
    """What the batch does with a search's rows before the next model call; both empty when the search has finished.

    Attributes:
        parents: For each next row, which of the search's present rows (0 to num_rows - 1) it continues. Not a
            permutation: a row may go on twice, or not at all.
        tokens: For each next row, the token chosen, which is the decoder's next input.
    """

    parents: list[int]
    tokens: list[int]


# --- (a) what a row may not choose -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constraints:
    """What the tokens of one sequence must or must not be, whatever the model prefers.

    Attributes:
        eos_id: The end-of-sentence token.
        forbidden_ids: Never chosen (padding, start token, unknown token).
        forced_prefix: The first tokens; while they last, nothing else counts.
        min_target_tokens: eos is not chosen before that many tokens.
        no_repeat_ngram_size: No n-gram of this size occurs twice; 0 is off.
        repetition_penalty: Factor on the log-probability of tokens already written; 1 is off.
    """

    eos_id: int
    forbidden_ids: tuple[int, ...] = ()
    forced_prefix: tuple[int, ...] = ()
    min_target_tokens: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    _never: frozenset[int] = field(init=False, repr=False, compare=False)
    _not_yet: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepares the two sets that nearly every row of every step asks for."""
        object.__setattr__(self, "_never", frozenset(self.forbidden_ids))
        object.__setattr__(self, "_not_yet", self._never | {self.eos_id})

    @property
    def only_bans(self) -> bool:
        """Whether `banned_ids` is all there is to it, once the forced prefix is over."""
        return self.repetition_penalty == 1.0

    def forced_id(self, tokens: Sequence[int]) -> int | None:
        """The only token that may follow `tokens`, or None outside the forced prefix."""
        return self.forced_prefix[len(tokens)] if len(tokens) < len(self.forced_prefix) else None

    def banned_ids(self, tokens: Sequence[int]) -> frozenset[int]:
        """All tokens that may not follow `tokens`, outside the forced prefix."""
        banned = self._not_yet if len(tokens) < self.min_target_tokens else self._never
        size = self.no_repeat_ngram_size
        if 0 < size <= len(tokens):
            num_ngrams = len(tokens) - size + 1
            start = tokens[num_ngrams:]
            banned |= {tokens[i + size - 1] for i in range(num_ngrams) if tokens[i : i + size - 1] == start}
        return banned

    def permits(self, tokens: Sequence[int], token: int) -> bool:
        """Whether `token` may follow `tokens`."""
        forced = self.forced_id(tokens)
        if forced is not None:
            return token == forced
        if self.no_repeat_ngram_size:
            return token not in self.banned_ids(tokens)
        return token not in self._never and (token != self.eos_id or len(tokens) >= self.min_target_tokens)

    def penalty(self, tokens: Sequence[int], token: int) -> float:
        """The factor that `token`'s log-probability gets after `tokens`."""
        is_free = self.repetition_penalty == 1.0 or self.forced_id(tokens) is not None
        return self.repetition_penalty if not is_free and token in tokens else 1.0


def apply_constraints(log_probs: Tensor, rows: Sequence[tuple[Constraints, Sequence[int]]]) -> None:
    """Writes the constraints of each row into its log-probabilities, in place.

    What may not be chosen gets -inf; the mass is not distributed among the rest, so that scores remain the model's own
    (Hugging Face does the same in beam search). Two rules keep a row from ending in nothing: a forced token is never
    -inf, and where every token is excluded eos is allowed again.

    Args:
        log_probs: (R, V) float32, overwritten. Logits will do where no row has a repetition penalty.
        rows: For each row its constraints and the tokens written so far.
    """
    banned_rows: list[int] = []
    banned_cols: list[int] = []
    forced_rows: list[int] = []
    forced_cols: list[int] = []
    for row, (constraints, tokens) in enumerate(rows):
        forced = constraints.forced_id(tokens)
        if forced is not None:
            forced_rows.append(row)
            forced_cols.append(forced)
            continue
        if constraints.repetition_penalty != 1.0 and tokens:
            seen = torch.tensor(sorted(set(tokens)), device=log_probs.device)
            log_probs[row, seen] *= constraints.repetition_penalty
        banned = constraints.banned_ids(tokens)
        banned_rows += [row] * len(banned)
        banned_cols += banned
    if forced_rows:
        at = torch.tensor(forced_rows, device=log_probs.device), torch.tensor(forced_cols, device=log_probs.device)
        values = log_probs[at].clamp(min=MIN_LOG_PROB)
        log_probs[at[0]] = -math.inf
        log_probs[at] = values
    if banned_rows:
        _ban(log_probs, banned_rows, banned_cols, [constraints.eos_id for constraints, _ in rows])


def _ban(log_probs: Tensor, banned_rows: list[int], banned_cols: list[int], eos_ids: list[int]) -> None:
    """Sets the given places of (R, V) to -inf, and gives eos back to rows where nothing is left."""
    at_eos = torch.arange(len(eos_ids), device=log_probs.device), torch.tensor(eos_ids, device=log_probs.device)
    eos_values = log_probs[at_eos]
    at = torch.tensor(banned_rows, device=log_probs.device), torch.tensor(banned_cols, device=log_probs.device)
    log_probs[at] = -math.inf
    # A row that had nothing from the start is all NaN after log_softmax, and stays so.
    is_dead_end = log_probs.amax(-1) == -math.inf
    log_probs[at_eos] = torch.where(is_dead_end, eos_values.clamp(min=MIN_LOG_PROB), log_probs[at_eos])


# --- (b) from (R, V) to a few candidates -----------------------------------------------------------------------------


def block_maxima(scores: Tensor, block_size: int) -> Tensor:
    """Maximum of each `block_size` neighbouring tokens: (R, V) to (R, ceil(V / block_size)). NaN wins."""
    num_rows, vocabulary_size = scores.shape
    num_whole = vocabulary_size // block_size
    split = num_whole * block_size
    maxima = scores[:, :split].view(num_rows, num_whole, block_size).amax(-1)
    if split == vocabulary_size:
        return maxima
    return torch.cat([maxima, scores[:, split:].amax(-1, keepdim=True)], dim=1)


def gather_blocks(scores: Tensor, blocks: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Values and ids of the tokens in `blocks` (R, n): two tensors (R, n * block_size); -inf beyond the vocabulary."""
    ids = (blocks[:, :, None] * block_size + torch.arange(block_size, device=scores.device)).flatten(1)
    vocabulary_size = scores.shape[1]
    values = scores.gather(1, ids.clamp(max=vocabulary_size - 1))
    return values.masked_fill_(ids >= vocabulary_size, -math.inf), ids


def best_tokens(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The best token of each row, of equals the lowest id: `scores.max(-1)`, made fast.

    `argmax` over 59,514 tokens is not vectorized on CPU: 2.4 ms for 32 rows and one thread, against 0.3 ms when the
    maxima of blocks are taken first.

    Args:
        scores: (R, V) logits or log-probabilities.

    Returns:
        Values (R,) and ids (R,) int64. A row with NaN has the value NaN.
    """
    if scores.shape[1] < 2 * ARGMAX_BLOCK_SIZE:
        best = scores.max(-1)
        return best.values, best.indices
    values, blocks = block_maxima(scores, ARGMAX_BLOCK_SIZE).max(-1)
    block_values, ids = gather_blocks(scores, blocks[:, None], ARGMAX_BLOCK_SIZE)
    return values, ids.gather(1, block_values.argmax(-1, keepdim=True)).squeeze(1)


def candidates(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best tokens of each row, best first; of equals the lowest ids, in order of id.

    Args:
        scores: (R, V) log-probabilities or logits.
        k: How many; V if it is more.

    Returns:
        Values (R, k) and ids (R, k) int64. A row with NaN has NaN as its first value.
    """
    vocabulary_size = scores.shape[1]
    if k >= vocabulary_size:
        whole = scores.sort(dim=-1, descending=True, stable=True)
        return whole.values, whole.indices
    # One more than asked for shows whether the last place is tied: which of equals topk takes is not defined.
    if (k + 1) * TOP_K_BLOCK_SIZE < vocabulary_size:
        # The best k + 1 tokens lie in the k + 1 blocks with the best maxima.
        blocks = block_maxima(scores, TOP_K_BLOCK_SIZE).topk(k + 1).indices
        values, ids = gather_blocks(scores, blocks, TOP_K_BLOCK_SIZE)
        values, places = values.topk(k + 1)
        ids = ids.gather(1, places)
    else:
        values, ids = scores.topk(k + 1)
    is_last_tied = (values[:, k - 1] == values[:, k]) & (values[:, k] > -math.inf)
    ids, order = ids[:, :k].sort(dim=-1)
    values = values[:, :k].gather(1, order)
    values, order = values.sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(1, order)
    for row in is_last_tied.nonzero().flatten().tolist():
        row_values, row_ids = scores[row].sort(descending=True, stable=True)
        values[row], ids[row] = row_values[:k], row_ids[:k]
    return values, ids


class Logits(Protocol):
    """(R, V) float: a tensor, or what gives one when it is asked."""

    @property
    def shape(self) -> torch.Size:
        """(R, V)."""

    @property
    def device(self) -> torch.device:
        """Where they are."""

    def __getitem__(self, index: Tensor, /) -> Tensor:
        """The logits of some rows; `index` int64."""

    def float(self) -> Tensor:
        """All of them, in float32."""


class Reads(NamedTuple):
    """What of a step's results is going to be read; the rest need not be made where that saves time.

    Attributes:
        logits: The logits themselves; without, they cost more when they are asked for all the same.
        sums: The sums behind log-probabilities; likewise.
    """

    logits: bool = True
    sums: bool = True


def reads_of(searches: Iterable[Search]) -> Reads:
    """What `advance_batch` is going to read. Greedy search knows the best token from the summary alone."""
    sums = False
    for search in searches:
        if not isinstance(search, GreedySearch):
            return Reads()
        sums |= search.with_log_probs
    return Reads(logits=False, sums=sums)


class LogitsSummary(ABC):
    """What is known of the logits of a step besides them, so that a search need not read them all.

    Whoever computed them makes it: a kernel (`native/translate.py`), or a captured step on a GPU (`graphs.py`).
    """

    @abstractmethod
    def rows(self, index: Tensor) -> LogitsSummary:
        """The summary of some rows; `index` (int64) lies in the processor's memory."""

    @abstractmethod
    def best_tokens(self) -> tuple[Tensor, Tensor]:
        """As the function `best_tokens`, but that a row's value may be NaN where it is +inf or -inf."""

    @abstractmethod
    def candidates(self, k: int, banned: Sequence[AbstractSet[int]]) -> tuple[Tensor, Tensor] | None:
        """As the function `candidates` of log-probabilities whose `banned` tokens were set to -inf.

        Args:
            k: How many.
            banned: For each row.

        Returns:
            Values (R, k) and ids (R, k); None where only the whole rows can tell, as for one without k permitted
            tokens.
        """

    @abstractmethod
    def log_probs(self, tokens: Tensor) -> Tensor:
        """(R,) the log-probability of one token a row; `tokens` (int64) lies in the processor's memory."""


# --- (c) the choice, one sequence at a time --------------------------------------------------------------------------


@dataclass(slots=True)
class _Beam:
    """One row: the tokens written so far, and what they cost."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    total: float = 0.0
    """Sum the search ranks by: log-probabilities, times repetition penalty where there is one."""

    def extended(self, token: int, value: float, penalty: float) -> _Beam:
        """A copy with one more token; `value` is its log-probability times `penalty`."""
        return _Beam([*self.tokens, token], [*self.log_probs, value / penalty], self.total + value)


class Search(ABC):
    """The search of one sequence. It holds `num_rows` rows of the batch, and is moved on by `advance_batch`.

    Args:
        options: How to search.
        constraints: What may not be chosen.
        max_tokens: Most tokens of a hypothesis, eos included.
    """

    def __init__(self, options: DecodingOptions, constraints: Constraints, max_tokens: int) -> None:
        self.options = options
        self.constraints = constraints
        self.max_tokens = max_tokens
        self._beams = [_Beam()]
        self._done: list[Hypothesis] = []

    @property
    def num_rows(self) -> int:
        """Rows the search holds now: 1 at first, later up to `max_rows`, 0 when finished."""
        return len(self._beams)

    @property
    def max_rows(self) -> int:
        """Most rows it will ever hold."""
        return self.options.beam_size

    @property
    @abstractmethod
    def num_candidates(self) -> int:
        """Best tokens of each row that the choice needs to see."""

    @property
    def finished(self) -> bool:
        """Whether the hypotheses are final. The search then takes part in no further step."""
        return not self._beams

    @property
    def rows(self) -> list[tuple[Constraints, Sequence[int]]]:
        """For each row its constraints and the tokens written so far."""
        return [(self.constraints, beam.tokens) for beam in self._beams]

    def banned_ids(self) -> list[frozenset[int]] | None:
        """For each row what it may not choose; None while there is more to it: a forced token, or a penalty."""
        constraints = self.constraints
        length = len(self._beams[0].tokens)  # of every row
        if not constraints.only_bans or length < len(constraints.forced_prefix):
            return None
        if not constraints.no_repeat_ngram_size:
            return [constraints.banned_ids(self._beams[0].tokens)] * len(self._beams)
        return [constraints.banned_ids(beam.tokens) for beam in self._beams]

    def hypotheses(self) -> list[Hypothesis]:
        """The `num_hypotheses` best, best first, all different; fewer if the vocabulary does not give that many.

        Raises:
            RuntimeError: The search has not finished.
        """
        if not self.finished:
            raise RuntimeError(f"search still has {self.num_rows} running rows")
        return self._done[: self.options.num_hypotheses]

    def advance(self, logits: Tensor) -> SearchStep:
        """`advance_batch` for this search alone; `logits` (num_rows, V)."""
        return advance_batch([self], logits)[0]

    def _finish(self, beam: _Beam) -> Hypothesis:
        is_stop = beam.tokens[-1] == self.constraints.eos_id
        return Hypothesis(
            tokens=tuple(beam.tokens),
            finish_reason="stop" if is_stop else "length",
            token_log_probs=tuple(beam.log_probs),
            log_prob=sum(beam.log_probs),
            score=beam.total / len(beam.tokens) ** self.options.length_penalty,
        )


class GreedySearch(Search):
    """The most probable permitted token at each step, of equals the lowest id.

    Args:
        options: How to search; no repetition penalty.
        constraints: What may not be chosen.
        max_tokens: Most tokens of the hypothesis, eos included.
        with_log_probs: Whether the hypothesis has log-probabilities, which cost a softmax of the row at each step.
    """

    def __init__(
        self, options: DecodingOptions, constraints: Constraints, max_tokens: int, with_log_probs: bool = True
    ) -> None:
        super().__init__(options, constraints, max_tokens)
        self.with_log_probs = with_log_probs

    @property
    def num_candidates(self) -> int:
        """Only the best."""
        return 1

    def select(self, token: int, log_prob: float) -> SearchStep:
        """Takes `token`; `log_prob` counts only if the search keeps log-probabilities."""
        beam = self._beams[0]
        beam.tokens.append(token)
        if self.with_log_probs:
            beam.log_probs.append(log_prob)
            beam.total += log_prob
        if token != self.constraints.eos_id and len(beam.tokens) < self.max_tokens:
            return SearchStep([0], [token])
        self._done = [self._finish(beam)]
        self._beams = []
        return SearchStep([], [])

    def _finish(self, beam: _Beam) -> Hypothesis:
        hypothesis = super()._finish(beam)
        if self.with_log_probs:
            return hypothesis
        return Hypothesis(tokens=hypothesis.tokens, finish_reason=hypothesis.finish_reason)


class SamplingSearch(Search):
    """Draws each token from the model's distribution, shaped by `temperature`, `top_k` and `top_p`.

    The random numbers are the sequence's own, one a step, so that its neighbours in the batch do not matter.
    """

    def __init__(self, options: DecodingOptions, constraints: Constraints, max_tokens: int) -> None:
        super().__init__(options, constraints, max_tokens)
        self._generator = np.random.default_rng(options.seed)

    @property
    def num_candidates(self) -> int:
        """Most probable tokens that `pick` is given at first."""
        return self.options.top_k or NUM_SAMPLING_CANDIDATES

    def next_uniform(self) -> float:
        """The random number of this step, from [0, 1)."""
        return float(self._generator.random())

    def pick(self, log_probs: NDArray[np.float32], uniform: float, *, is_whole: bool) -> int | None:
        """The place of the token drawn among the most probable ones, by inverting the cumulative distribution.

        Args:
            log_probs: (k,) the most probable tokens' log-probabilities at the wanted temperature, best first.
            uniform: Number from [0, 1).
            is_whole: Whether these are all tokens of the vocabulary.

        Returns:
            The place in `log_probs`; None if the draw falls on a token beyond them, or they do not hold the top_p mass.
        """
        top_k, top_p = self.options.top_k, self.options.top_p
        cumulative = np.cumsum(np.exp(log_probs[:top_k], dtype=np.float64))
        is_whole = is_whole or top_k is not None
        mass = float(cumulative[-1]) if is_whole else 1.0
        if top_p is not None:
            if not is_whole and cumulative[-1] < top_p:
                return None
            # A token stays if the better ones alone do not hold the mass: the smallest set that does.
            mass = float(cumulative[np.count_nonzero(cumulative[:-1] < top_p * mass)])
        # uniform < 1, so uniform * mass < mass in floating point too: the place is always within what was kept, and
        # never on a token of probability 0.
        place = int(np.searchsorted(cumulative, uniform * mass, side="right"))
        return place if place < len(cumulative) else None

    def select(self, token: int, value: float) -> SearchStep:
        """Takes the token drawn; `value` is its log-probability with penalties, at temperature 1."""
        penalty = self.constraints.penalty(self._beams[0].tokens, token)
        beam = self._beams[0].extended(token, value, penalty)
        if token != self.constraints.eos_id and len(beam.tokens) < self.max_tokens:
            self._beams = [beam]
            return SearchStep([0], [token])
        self._done = [self._finish(beam)]
        self._beams = []
        return SearchStep([], [])


_Candidate = tuple[float, int, int, float]
"""A row's continuation by one token: the total, negative, so that the best comes first; row; token; value."""


class BeamSearch(Search):
    """Beam search with the rules of Hugging Face `generate` (transformers 5.24, `_beam_search`).

    Of all continuations of the running hypotheses the best 2b are looked at, by summed log-probability. Those that end
    (in eos, or at the length limit) count as finished only if they are among the first b; the best b that do not end
    run on. The best b finished ones are kept, by score. The search stops when b are finished and the best running one,
    were it to end now, would not score above the worst of them: with length_penalty above 0 that is a heuristic, for a
    running hypothesis may still improve its score by growing.

    Different from there: candidates of probability 0 are dropped, so fewer than b hypotheses may run or finish where
    the vocabulary does not give more; sums are in double precision; a forced prefix counts in length and score; a
    hypothesis cut at the limit does not get eos forced upon it (Marian's `forced_eos_token_id`).
    """

    @property
    def num_candidates(self) -> int:
        """Best tokens of each row that `select` needs: as at most b of 2b continuations end, b are left to run on."""
        return 2 * self.options.beam_size

    def select(self, values: Sequence[Sequence[float]], ids: Sequence[Sequence[int]]) -> SearchStep:
        """Chooses the rows that go on.

        Args:
            values: (num_rows, k) log-probabilities after constraints, best first; k at least `num_candidates`, or V.
            ids: (num_rows, k) their tokens.
        """
        beam_size = self.options.beam_size
        length = len(self._beams[0].tokens) + 1
        eos_id, is_last = self.constraints.eos_id, length >= self.max_tokens
        running: list[_Candidate] = []
        ranked = self._ranked(values, ids)
        for rank, candidate in enumerate(ranked):
            if candidate[2] == eos_id or is_last:
                if rank < beam_size:
                    self._done.append(self._finish(self._extended(candidate)))
            elif len(running) < beam_size:
                running.append(candidate)
        self._done.sort(key=self._score, reverse=True)  # Stable: of equals the one that finished first.
        del self._done[beam_size:]
        running = self._promising(running, ranked[0], length)
        if self._is_decided(running, length):
            self._beams = []
            return SearchStep([], [])
        self._beams = [self._extended(candidate) for candidate in running]
        return SearchStep([parent for _, parent, _, _ in running], [token for _, _, token, _ in running])

    def _ranked(self, values: Sequence[Sequence[float]], ids: Sequence[Sequence[int]]) -> list[_Candidate]:
        """The best `num_candidates` continuations of all rows, best first; of equals the lowest row, then token."""
        count = self.num_candidates
        pool: list[_Candidate] = []
        for parent, beam in enumerate(self._beams):
            # A row's candidates come best first. Once there are enough, those of a later row that are not better than
            # the last of them can be left out, with all behind them: of equals the lower row counts.
            least = -pool[-1][0] if len(pool) == count else -math.inf
            total = beam.total
            for value, token in zip(values[parent][:count], ids[parent], strict=False):
                if total + value <= least or value == -math.inf:
                    break
                pool.append((-(total + value), parent, token, value))
            pool.sort()  # by total, row and token; no two are equal in all three
            del pool[count:]
        return pool

    def _extended(self, candidate: _Candidate) -> _Beam:
        _, parent, token, value = candidate
        beam = self._beams[parent]
        penalty = 1.0 if self.constraints.only_bans else self.constraints.penalty(beam.tokens, token)
        return beam.extended(token, value, penalty)

    def _promising(self, running: list[_Candidate], best: _Candidate, length: int) -> list[_Candidate]:
        """Those within the threshold of the best; one at least, while none has finished."""
        if self.options.beam_threshold is None:
            return running
        reference = -best[0]
        if self._done:
            reference = max(reference, self._score(self._done[0]) * length**self.options.length_penalty)
        least = reference - self.options.beam_threshold
        return [each for rank, each in enumerate(running) if -each[0] >= least or (rank == 0 and not self._done)]

    def _is_decided(self, running: Sequence[_Candidate], length: int) -> bool:
        if not running:
            return True
        if len(self._done) < self.options.beam_size:
            return False
        best_running_score = -running[0][0] / length**self.options.length_penalty
        return self.options.early_stopping or best_running_score <= self._score(self._done[-1])

    @staticmethod
    def _score(hypothesis: Hypothesis) -> float:
        assert hypothesis.score is not None
        return hypothesis.score


def start_search(
    options: DecodingOptions,
    *,
    eos_id: int,
    max_tokens: int,
    forbidden_ids: Iterable[int] = (),
    forced_prefix: Sequence[int] = (),
    with_log_probs: bool = True,
) -> Search:
    """The search that `options` ask for, before its first step: one row, whose input is the start token.

    Args:
        options: How to search.
        eos_id: The end-of-sentence token.
        max_tokens: Most tokens of a hypothesis, eos included; `options.max_target_tokens` may lower it.
        forbidden_ids: Tokens never chosen, such as padding and the start token.
        forced_prefix: Tokens every hypothesis begins with, even if forbidden. They are chosen one a step.
        with_log_probs: False lets a greedy search skip log-probabilities; its hypothesis then has None for them.

    Raises:
        ValueError: eos is forbidden or in the prefix, or the prefix leaves no room for another token.
    """
    if options.max_target_tokens is not None:
        max_tokens = min(max_tokens, options.max_target_tokens)
    forbidden, prefix = tuple(forbidden_ids), tuple(forced_prefix)
    if eos_id in forbidden:
        raise ValueError(f"eos_id={eos_id} is among forbidden_ids={forbidden}: no hypothesis could end")
    if eos_id in prefix:
        raise ValueError(f"eos_id={eos_id} is in forced_prefix={prefix}: nothing could follow it")
    if len(prefix) >= max_tokens:
        raise ValueError(f"forced_prefix has {len(prefix)} tokens, and must have fewer than the limit of {max_tokens}")
    constraints = Constraints(
        eos_id=eos_id,
        forbidden_ids=forbidden,
        forced_prefix=prefix,
        min_target_tokens=options.min_target_tokens,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        repetition_penalty=options.repetition_penalty,
    )
    if options.temperature > 0:
        return SamplingSearch(options, constraints, max_tokens)
    # The penalty needs log-probabilities before the choice, which GreedySearch avoids; a beam of 1 chooses the same.
    if options.beam_size > 1 or options.repetition_penalty != 1.0:
        return BeamSearch(options, constraints, max_tokens)
    return GreedySearch(options, constraints, max_tokens, with_log_probs)


# --- one step of a batch ---------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Search)


def advance_batch(searches: Sequence[Search], logits: Logits, summary: LogitsSummary | None = None) -> list[SearchStep]:
    """Advances searches of any kinds and settings by one token, each as if it were alone.

    The work on (R, V) is done once for all rows of a kind: a maximum for greedy search, log_softmax and top-k for the
    others.

    Args:
        searches: Unfinished searches.
        logits: (R, V) for the next token, R the sum of their `num_rows`: the rows of the first search in the order of
            its last `SearchStep`, then those of the second, and so on. Computed with in float32, and left unchanged.
        summary: Of the same logits, from the kernel that computed them; None where there is none.

    Returns:
        A step for each search. Its hypotheses are final where the step is empty.

    Raises:
        ValueError: The number of rows does not fit, or a search has finished.
        NonFiniteLogits: A row holds NaN, +inf or no finite value. No search was advanced: the caller may drop those
            concerned and repeat the step (there may be others, of another kind).
    """
    greedy: list[_Placed[GreedySearch]] = []
    beams: list[_Placed[BeamSearch]] = []
    sampling: list[_Placed[SamplingSearch]] = []
    first_row = 0
    for index, search in enumerate(searches):
        if search.finished:
            raise ValueError(f"search {index} of the batch has finished")
        rows = range(first_row, first_row + search.num_rows)
        first_row = rows.stop
        match search:
            case BeamSearch():
                beams.append(_Placed(search, index, rows))
            case GreedySearch():
                greedy.append(_Placed(search, index, rows))
            case SamplingSearch():
                sampling.append(_Placed(search, index, rows))
    if first_row != logits.shape[0]:
        raise ValueError(f"logits have {logits.shape[0]} rows, but the searches hold {first_row}")

    # All that can fail comes before the first search is touched.
    greedy_choices = _greedy_choices(greedy, logits, summary)
    beam_candidates = _beam_candidates(beams, logits, summary)
    distributions = _distributions(sampling, logits)

    steps: dict[int, SearchStep] = {}
    for one, (token, log_prob) in zip(greedy, greedy_choices, strict=True):
        steps[one.index] = one.search.select(token, log_prob)
    for beam, (values, ids) in zip(beams, beam_candidates, strict=True):
        steps[beam.index] = beam.search.select(values, ids)
    if distributions is not None:
        for sample, (token, log_prob) in zip(sampling, _draw(sampling, *distributions), strict=True):
            steps[sample.index] = sample.search.select(token, log_prob)
    return [steps[index] for index in range(len(searches))]


@dataclass(frozen=True, slots=True)
class _Placed(Generic[S]):
    """A search, its place among the searches of the batch, and its rows."""

    search: S
    index: int
    rows: range


def _rows_of(placed: Sequence[_Placed[S]], logits: Logits) -> Tensor:
    """The logits of these searches in float32: a copy, or `logits` itself if all rows are theirs."""
    rows = [row for place in placed for row in place.rows]
    if len(rows) < logits.shape[0]:
        logits = logits[torch.tensor(rows, device=logits.device)]
    return logits.float()


def _summary_of(placed: Sequence[_Placed[S]], logits: Logits, summary: LogitsSummary | None) -> LogitsSummary | None:
    """The summary of the rows of these searches."""
    rows = [row for place in placed for row in place.rows]
    if summary is None or len(rows) == logits.shape[0]:
        return summary
    return summary.rows(torch.tensor(rows))


def _summarized_candidates(
    summary: LogitsSummary | None, searches: Iterable[Search], k: int
) -> tuple[Tensor, Tensor] | None:
    """The k best permitted tokens, and their log-probabilities; None where only all logits can tell."""
    if summary is None:
        return None
    banned: list[frozenset[int]] = []
    for search in searches:
        ids = search.banned_ids()
        if ids is None:
            return None
        banned += ids
    return summary.candidates(k, banned)


def _raise_if_not_finite(placed: Sequence[_Placed[S]], is_finite: Sequence[bool]) -> None:
    rows = [row for place in placed for row in place.rows]
    bad = [row for row, good in zip(rows, is_finite, strict=True) if not good]
    if bad:
        raise NonFiniteLogits(bad)


def _greedy_choices(
    placed: Sequence[_Placed[GreedySearch]], logits: Logits, summary: LogitsSummary | None
) -> list[tuple[int, float]]:
    """Token and log-probability (NaN where not kept) for each greedy search.

    The best token is nearly always permitted. So it is looked at afterwards, and only rows where it is not are masked.
    """
    if not placed:
        return []
    summary = _summary_of(placed, logits, summary)
    values, ids = best_tokens(_rows_of(placed, logits)) if summary is None else summary.best_tokens()
    tokens: list[int] = torch.where(values.isfinite(), ids, -1).tolist()  # One transfer for both.
    _raise_if_not_finite(placed, [token >= 0 for token in tokens])
    rows = [row for place in placed for row in place.search.rows]
    wrong = [i for i, (constraints, written) in enumerate(rows) if not constraints.permits(written, tokens[i])]
    if wrong:
        some = None if summary is None else summary.rows(torch.tensor(wrong))
        best = _summarized_candidates(some, (placed[i].search for i in wrong), 1)
        if best is None:
            masked = _rows_of([placed[i] for i in wrong], logits).clone()
            apply_constraints(masked, [rows[i] for i in wrong])
            permitted = best_tokens(masked)[1]
        else:
            permitted = best[1].squeeze(1)
        for i, token in zip(wrong, permitted.tolist(), strict=True):
            tokens[i] = token
    log_probs = [math.nan] * len(placed)
    kept = [i for i, place in enumerate(placed) if place.search.with_log_probs]
    if kept:
        chosen = torch.tensor([tokens[i] for i in kept])
        if summary is None:
            wanted = _rows_of([placed[i] for i in kept], logits)
            kept_log_probs = wanted.log_softmax(-1).gather(1, chosen.to(logits.device)[:, None]).squeeze(1)
        else:
            kept_log_probs = (summary if len(kept) == len(placed) else summary.rows(torch.tensor(kept))).log_probs(
                chosen
            )
        for i, log_prob in zip(kept, kept_log_probs.clamp(min=MIN_LOG_PROB).tolist(), strict=True):
            log_probs[i] = log_prob
    return list(zip(tokens, log_probs, strict=True))


def _constrained_log_probs(placed: Sequence[_Placed[S]], logits: Logits) -> Tensor:
    """Log-probabilities (rows of these searches, V) with the constraints written in."""
    log_probs = _rows_of(placed, logits).log_softmax(-1)
    apply_constraints(log_probs, [row for place in placed for row in place.search.rows])
    return log_probs


def _beam_candidates(
    placed: Sequence[_Placed[BeamSearch]], logits: Logits, summary: LogitsSummary | None
) -> list[tuple[list[list[float]], list[list[int]]]]:
    """What `BeamSearch.select` is given, for each search."""
    if not placed:
        return []
    k = max(place.search.num_candidates for place in placed)
    best = _summarized_candidates(_summary_of(placed, logits, summary), (place.search for place in placed), k)
    if best is None:
        best = candidates(_constrained_log_probs(placed, logits), k)
    values, ids = best[0].tolist(), best[1].tolist()
    _raise_if_not_finite(placed, [math.isfinite(row[0]) for row in values])
    pairs = []
    start = 0
    for place in placed:
        end = start + len(place.rows)
        pairs.append((values[start:end], ids[start:end]))
        start = end
    return pairs


def _distributions(placed: Sequence[_Placed[SamplingSearch]], logits: Logits) -> tuple[Tensor, Tensor] | None:
    """Constrained log-probabilities (rows, V), and the same at the temperature of each row; None without any row."""
    if not placed:
        return None
    log_probs = _constrained_log_probs(placed, logits)
    _raise_if_not_finite(placed, log_probs.amax(-1).isfinite().tolist())
    temperatures = torch.tensor(
        [[max(place.search.options.temperature, MIN_TEMPERATURE)] for place in placed], device=logits.device
    )
    return log_probs, (log_probs / temperatures).log_softmax(-1)


def _draw(placed: Sequence[_Placed[SamplingSearch]], log_probs: Tensor, tempered: Tensor) -> list[tuple[int, float]]:
    """Draws a token for each search: the token, and its log-probability at temperature 1."""
    value_tensor, id_tensor = candidates(tempered, max(place.search.num_candidates for place in placed))
    values, ids = value_tensor.cpu().numpy(), id_tensor.cpu().numpy()
    vocabulary_size = tempered.shape[1]
    tokens: list[int] = []
    for row, place in enumerate(placed):
        uniform = place.search.next_uniform()
        spot = place.search.pick(values[row], uniform, is_whole=ids.shape[1] == vocabulary_size)
        if spot is not None:
            tokens.append(int(ids[row, spot]))
            continue
        all_values, all_ids = candidates(tempered[row : row + 1], vocabulary_size)
        spot = place.search.pick(all_values[0].cpu().numpy(), uniform, is_whole=True)
        assert spot is not None  # A whole row holds every draw.
        tokens.append(int(all_ids[0, spot]))
    chosen = torch.tensor(tokens, device=log_probs.device)
    return list(zip(tokens, log_probs.gather(1, chosen[:, None]).squeeze(1).tolist(), strict=True))
