"""How fast the engine is, and what follows from that for those who wait."""

from __future__ import annotations

import math

from service.engine.interface import SHARE_TOKENS

WORK_MARGIN = 1.2
"""How much longer work takes than its first round: some is tried again, and the last sentences do not fill a batch."""

_SETTLED_AFTER_SECONDS = 5.0
"""A speed by which work is refused for good has been looked at for so long."""

_SURE_AFTER_SHARE = 1 / 8
_SURE_AFTER_SECONDS = 3.0
"""The speed is known after so much of what is remembered, or after so long: a full batch may take that to end."""


class Speed:
    """Source tokens that are done in a second while more wait, of late.

    Moments in which nothing waits do not count: then it is the clients who are slow. What is known stays known until
    some wait again, so that a rush is met with the speed of the last one. What is tried again counts as it comes: it is
    work as any other. Sequences count when they end: a batch that fills would count much too fast by its beginnings.

    Args:
        memory_tokens: How many tokens back it looks; some batches full, so that it does not matter that they end in
            swarms.
    """

    def __init__(self, memory_tokens: float) -> None:
        self._memory_tokens = memory_tokens
        self._tokens = 0.0
        self._seconds = 0.0

    def note(self, num_tokens: float, seconds: float) -> None:
        """Some time in which more waited, and the tokens of what ended in it."""
        kept = math.exp(-num_tokens / self._memory_tokens)
        self._tokens = kept * self._tokens + num_tokens
        self._seconds = kept * self._seconds + seconds

    @property
    def tokens_per_second(self) -> float:
        """The speed; 0 while it is not known."""
        is_sure = self._tokens >= _SURE_AFTER_SHARE * self._memory_tokens or self._seconds >= _SURE_AFTER_SECONDS
        return max(1.0, self._tokens) / self._seconds if is_sure and self._seconds else 0.0

    @property
    def settled(self) -> float:
        """The speed, by so long a look that what cannot be done at it may be refused for good; 0 before that.

        A machine so fast that its memory holds less time than that has no need to refuse for want of it.
        """
        return self._tokens / self._seconds if self._seconds >= _SETTLED_AFTER_SECONDS else 0.0


def work_seconds(row_tokens: float, row_tokens_per_second: float) -> float:
    """How long a piece of work takes if nothing else is done; 0 while nobody knows.

    Args:
        row_tokens: See `SequenceRequest.row_tokens`.
        row_tokens_per_second: As `Speed.settled`.
    """
    return WORK_MARGIN * row_tokens / row_tokens_per_second if row_tokens_per_second else 0.0


def wait_seconds(tokens_ahead: float, num_tokens: float, tokens_per_second: float) -> float:
    """How long until all of a request that comes now has been started; 0 if it waits for nothing, or nobody knows.

    What is small has its turn long before all others are done, and never waits longer than for what is ahead of it.
    What is large shares the turns with what comes after it, too; that is what the factor is for, up to two.

    Args:
        tokens_ahead: Source tokens that wait now: of each request no more than its first `SHARE_TOKENS` or so.
        num_tokens: Of the request. What is larger than that was never going to be quick: its first part counts.
        tokens_per_second: See `Speed`.
    """
    if not tokens_ahead or not tokens_per_second:
        return 0.0
    tokens = min(num_tokens, SHARE_TOKENS)
    return (tokens_ahead + tokens) * (1 + tokens / SHARE_TOKENS) / tokens_per_second
