"""`gossamer`, for weights that were never trained: the server does not try itself out before it is ready.

    python -m loadtests.untrained serve --model runs/peers/gossamer

A model with random weights translates nothing, so the server's self-translation rightly ends it. All else is as it is.
"""

from collections.abc import Sequence
from unittest.mock import patch

from service.cli import app
from service.engine.interface import ModelInfo
from service.translator import Translator


async def _pass(_translator: Translator, _models: Sequence[ModelInfo]) -> None:
    """Instead of `check_models`."""


if __name__ == "__main__":
    with patch("service.self_check.check_models", _pass):
        app()
