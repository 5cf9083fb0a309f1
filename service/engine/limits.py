"""How much the engine takes on at once."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, fields


class InvalidLimits(ValueError):
    """A limit that no engine can work with; the message names the field.

    Attributes:
        field: Name of the limit.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}={value!r} is not allowed: {allowed}")
        self.field = field


_MIN_ROWS_TO_SHARE = 16  # with fewer, a quarter would hold no beam


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """Sizes of the engine's queues and batch. Validates itself.

    Attributes:
        max_rows: Rows decoded in one step; a sequence with a beam of b takes b of them.
        kv_cache_bytes: Keys and values of all rows, sources and targets. Set apart at start, so that what was admitted
            never runs out of it.
        max_waiting_tokens: Source tokens that may wait to be started.
        max_wait_seconds: How long a request may wait until all of it has been started, or the first `SHARE_TOKENS` of a
            large one; what would wait longer is refused.
        max_encode_tokens_per_step: Source tokens encoded between two decode steps; a longer source is encoded alone.
        max_source_tokens: Longest source, end of sentence included.
        max_target_tokens: Longest target, end of sentence included.
        target_tokens_per_source_token: A target that no option limits may be this many times as long as its source ...
        extra_target_tokens: ... and this many tokens more; both as `model.generation.target_limit`.

    Raises:
        InvalidLimits: Names the field, its value and what is allowed.
    """

    max_rows: int = 128
    kv_cache_bytes: int = 512 * 1024**2
    max_waiting_tokens: int = 65_536
    max_wait_seconds: float = 3.0
    max_encode_tokens_per_step: int = 512
    max_source_tokens: int = 512
    max_target_tokens: int = 512
    target_tokens_per_source_token: float = 3.0
    extra_target_tokens: int = 16

    def __post_init__(self) -> None:
        """Checks each field."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("target_tokens_per_source_token", "max_wait_seconds"):
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                most = math.inf if field.name == "max_wait_seconds" else sys.float_info.max
                if not is_number or not 0 < value <= most:
                    raise InvalidLimits(field.name, value, "must be a number above 0")
            elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidLimits(field.name, value, "must be an integer of at least 1")
        if self.max_source_tokens > self.max_waiting_tokens:
            allowed = f"must be at most max_waiting_tokens, which is {self.max_waiting_tokens}"
            raise InvalidLimits("max_source_tokens", self.max_source_tokens, allowed)

    @property
    def newcomer_rows(self) -> int:
        """Of the rows, a quarter that is not for what is left of a request of which some runs and nothing was promised.

        So a request that comes after a long list starts at the next step, instead of waiting for a row of the list.
        """
        return self.max_rows // 4 if self.max_rows >= _MIN_ROWS_TO_SHARE else 0

    def default_target_tokens(self, num_source_tokens: int) -> int:
        """The longest target of a source when no option says so, before the limits of the model."""
        free = math.ceil(num_source_tokens * self.target_tokens_per_source_token) + self.extra_target_tokens
        return min(free, self.max_target_tokens)
