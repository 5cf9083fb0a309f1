"""What a run says while it runs: a bar for people, JSON lines for programs, TensorBoard for curves."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich import progress as rich_progress
from rich.console import Console
from torch.utils.tensorboard import SummaryWriter

from model.training.data import Corpus
from model.training.settings import TrainingSettings
from model.transformer import Transformer

if TYPE_CHECKING:
    from model.training.loop import Position


class Progress:
    """The reports of one process; all calls do nothing where ``enabled`` is false."""

    def __init__(self, folder: Path, settings: TrainingSettings, enabled: bool = True) -> None:
        """Report into ``folder`` and to the terminal."""
        self._folder = folder
        self._settings = settings
        self._enabled = enabled

    def __enter__(self) -> Progress:
        """Open the log, the TensorBoard events and the bar."""
        if self._enabled:
            self._log = (self._folder / "log.jsonl").open("a", encoding="utf-8")
            self._board = SummaryWriter(str(self._folder / "tensorboard"))
            self._console = Console()
            self._bar = rich_progress.Progress(
                rich_progress.TextColumn("step {task.completed}/{task.total}"),
                rich_progress.BarColumn(),
                rich_progress.TextColumn("{task.description}"),
                rich_progress.TimeRemainingColumn(),
                console=self._console,
                disable=not self._console.is_terminal,
            )
            self._task = self._bar.add_task("", total=self._settings.total_steps)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close what was opened."""
        if self._enabled:
            self._bar.stop()
            self._board.close()
            self._log.close()

    def _write(self, event: str, position: Position, **values: Any) -> None:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "event": event,
            "step": position.step,
            "epoch": position.epoch,
            "target_tokens": position.target_tokens,
            "seconds": round(position.seconds, 1),
            **values,
        }
        self._log.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._log.flush()

    def start(self, position: Position, model: Transformer, corpus: Corpus, num_processes: int, resumed: bool) -> None:
        """A run (or a resumed part of one) begins."""
        if not self._enabled:
            return
        expected_tokens = int(((corpus.targets.lengths + 1) * corpus.weights).sum())
        self._write(
            "resume" if resumed else "start", position, parameters=model.num_parameters(), pairs=len(corpus),
            dropped=corpus.num_dropped, pairs_by_source=corpus.counts, target_tokens_an_epoch=expected_tokens,
            processes=num_processes,
        )  # fmt: skip
        self._say(
            f"{model.num_parameters():,} parameters, {len(corpus):,} pairs ({corpus.num_dropped:,} too long), "
            f"about {expected_tokens:,} target tokens an epoch, ln(vocabulary) = "
            f"{math.log(model.config.target_vocab_size):.2f}"
            + (f"; resumed at step {position.step}" if resumed else "")
        )

    def losses(self, position: Position, loss: float, tokens_per_second: float) -> None:
        """The mean training loss since the last call, in nats a token, and the speed."""
        if not self._enabled:
            return
        self._write("loss", position, loss=round(loss, 4), tokens_per_second=round(tokens_per_second))
        self._board.add_scalar("train/loss", loss, position.step)
        self._board.add_scalar("train/tokens_per_second", tokens_per_second, position.step)
        text = f"loss {loss:.3f}  {tokens_per_second:,.0f} target tok/s  epoch {position.epoch}"
        self._bar.update(self._task, completed=position.step, description=text)
        if not self._console.is_terminal:
            self._say(f"step {position.step}/{self._settings.total_steps}  {text}")

    def scores(self, position: Position, scores: dict[str, Any]) -> None:
        """Dev loss, BLEU and some translations."""
        if not self._enabled:
            return
        samples = scores.pop("samples")
        self._write("dev", position, **scores, samples=samples)
        for name, value in scores.items():
            self._board.add_scalar(f"dev/{name}", value, position.step)
        self._say("dev  " + "  ".join(f"{name} {value:.2f}" for name, value in scores.items()))
        for source, translation in samples:
            self._say(f"  {source}\n  -> {translation}")

    def stopped(self, position: Position, finished: bool) -> None:
        """The run ends here, complete or to be resumed."""
        if not self._enabled:
            return
        self._write("finish" if finished else "stop", position)
        self._say(
            f"finished after {position.step} steps"
            if finished
            else f"stopped at step {position.step}; resume with the same command"
        )

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)
