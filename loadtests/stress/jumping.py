"""`gossamer`, with a wall clock that jumps whenever it is read: by hours, days and years, ahead and back."""

import itertools
import time

from service.cli import app

_HOUR = 3600.0
_JUMPS = itertools.cycle((0.0, 24 * _HOUR, -2 * _HOUR, 87_600 * _HOUR, -24 * _HOUR, 0.5))
_real = time.time


def _jumping() -> float:
    return _real() + next(_JUMPS)


if __name__ == "__main__":
    time.time = _jumping
    app()
