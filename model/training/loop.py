"""The training loop: from a TOML file to a checkpoint, resumable at any step.

A run lives in a folder: ``state.pt`` (everything needed to go on), ``tokenizer.model``, ``log.jsonl``, TensorBoard
events, and ``checkpoint/``, the averaged model in the form that the server loads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from model.allocator import keep_freed_memory
from model.checkpoint import load_checkpoint, save_checkpoint
from model.tokenizer import Tokenizer, train_tokenizer
from model.training.averaging import WeightAverage
from model.training.batching import Batch, make_batch, plan_batches
from model.training.beside import beside_path
from model.training.data import Corpus, TokenLists, encode_corpus, read_pairs, select_pairs
from model.training.distributed import Processes, agree, join_processes, leave_processes, wait_for_all
from model.training.evaluation import DevSet, dev_scores
from model.training.links import KIND as LINKS
from model.training.links import read_linked_pairs, token_links
from model.training.loss import guided_alignment_loss, projected_loss
from model.training.optimizer import Optimizers
from model.training.progress import Progress
from model.training.schedule import learning_rate_factor
from model.training.scores import KIND as SCORES
from model.training.scores import worst_pairs
from model.training.settings import TrainingSettings, load_settings
from model.transformer import Transformer

logger = logging.getLogger(__name__)

_STATE_FILE = "state.pt"
_TOKENIZER_FILE = "tokenizer.model"
# Settings that may change between a stop and a resume: none of them alters what a step computes
# from its inputs, only when the run ends or reports, and what data come next.
_FREE_ON_RESUME = {
    "data",
    "total_steps", "cooldown_fraction", "log_every", "evaluate_every", "checkpoint_every_seconds", "dev_sentences",
    "threads", "compile",
}  # fmt: skip


class ResumeError(ValueError):
    """A saved run that does not fit the settings; the message names the field and both values."""


class TrainingLoss(nn.Module):
    """The model and its loss as one module, so that DDP and torch.compile see one forward call."""

    def __init__(self, model: Transformer, settings: TrainingSettings) -> None:
        """Wrap ``model``."""
        super().__init__()
        self.model = model
        self._smoothing = settings.label_smoothing
        self._bfloat16 = settings.precision == "bfloat16"
        self._guided = settings.guided_alignment

    def forward(
        self,
        source_ids: Tensor,
        source_mask: Tensor,
        target_inputs: Tensor,
        target_outputs: Tensor,
        alignment: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The summed losses of one micro-batch, two scalars: what to minimise, and the translation's part of it."""
        model = self.model
        with torch.autocast(source_ids.device.type, dtype=torch.bfloat16, enabled=self._bfloat16):
            memory = model.encode(source_ids, source_mask)
            if self._guided is None:
                hidden = model.decode(target_inputs, memory, source_mask)
            else:
                hidden, log_weights = model.decode_guided(
                    target_inputs, memory, source_mask, self._guided.layer, self._guided.head
                )
        if self._bfloat16:
            hidden = hidden.bfloat16()
        loss = projected_loss(
            hidden.flatten(0, 1), model.output.effective_weight(), model.output.bias, target_outputs.flatten(),
            model.config.pad_id, self._smoothing,
        )  # fmt: skip
        if self._guided is None:
            return loss, loss.detach()
        assert alignment is not None
        return loss + self._guided.weight * guided_alignment_loss(log_weights, alignment), loss.detach()


@dataclasses.dataclass
class Position:
    """Where a run stands.

    Attributes:
        step: Optimizer steps done.
        epoch: The epoch that the next step belongs to.
        epoch_step: Steps of that epoch done.
        target_tokens: Target tokens seen.
        seconds: Time spent in steps, over all resumed parts.
    """

    step: int = 0
    epoch: int = 0
    epoch_step: int = 0
    target_tokens: int = 0
    seconds: float = 0.0


class Trainer:
    """One training run in one process (of possibly several)."""

    def __init__(self, settings: TrainingSettings, folder: Path, processes: Processes) -> None:
        """Prepare the tokenizer, the data and the model; nothing is resumed yet."""
        self.settings = settings
        self.folder = folder
        self.processes = processes
        if settings.micro_batches % processes.world_size:
            raise ValueError(
                f"micro_batches is {settings.micro_batches}; it must be a multiple of the "
                f"{processes.world_size} processes"
            )
        if settings.threads:
            torch.set_num_threads(settings.threads)
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer = self._prepare_tokenizer()
        self.corpus = self._prepare_corpus()
        config = settings.transformer_config(
            self.tokenizer.vocab_size,
            pad_id=self.tokenizer.pad_id,
            bos_id=self.tokenizer.bos_id,
            eos_id=self.tokenizer.eos_id,
        )
        self.model = Transformer(config, seed=settings.seed).to(processes.device)
        self.optimizers = Optimizers(self.model, settings.optimizer)
        self.average = WeightAverage(self.model, settings.ema_decay, settings.ema_every) if settings.ema_decay else None
        self.position = Position()
        self._loss: Callable[..., tuple[Tensor, Tensor]] = TrainingLoss(self.model, settings)
        if processes.world_size > 1:
            self._loss = DistributedDataParallel(self._loss, gradient_as_bucket_view=True)
        self._compute: Callable[..., tuple[Tensor, Tensor]] = (
            torch.compile(self._loss) if settings.compile else self._loss
        )

    # -- preparation

    def _prepare_tokenizer(self) -> Tokenizer:
        settings = self.settings
        path = self.folder / _TOKENIZER_FILE
        if not path.exists() and self.processes.is_main:
            if settings.tokenizer.path is not None:
                path.write_bytes(Path(settings.tokenizer.path).read_bytes())
            else:
                train_tokenizer(self._tokenizer_lines(), path, vocab_size=settings.tokenizer.vocab_size)
        wait_for_all(self.processes)
        return Tokenizer(path)

    def _tokenizer_lines(self) -> Iterator[str]:
        """The lines of one sampled epoch, each at most once: the vocabulary follows the training mixture."""
        generator = np.random.default_rng(self.settings.seed)
        weights = self.settings.data.sources
        for pair in self._pairs():
            if generator.random() < weights[pair.source_name]:
                yield pair.first
                yield pair.second

    def _pairs(self) -> Iterator[Any]:
        data, guided = self.settings.data, self.settings.guided_alignment
        paths = [Path(path) for path in data.train]
        read = read_pairs if guided is None else partial(read_linked_pairs, folder=Path(guided.links))
        left_out = (
            worst_pairs(paths, Path(data.scores), data.leave_out) if data.scores and data.leave_out else frozenset()
        )
        return select_pairs(paths, data.sources, data.reverse, read=read, left_out=left_out)

    def _prepare_corpus(self) -> Corpus:
        """Encode the corpus, or load what an earlier part of this run encoded."""
        settings = self.settings
        facts = [
            [(path, Path(path).stat().st_size) for path in settings.data.train if Path(path).exists()],
            sorted(settings.data.sources.items()), settings.data.reverse, settings.data.max_tokens,
            self.tokenizer.revision,
        ]  # fmt: skip
        # Only what is in use: what an earlier version encoded still fits.
        for folder, kind in (
            (settings.guided_alignment and settings.guided_alignment.links, LINKS),
            (settings.data.leave_out and settings.data.scores, SCORES),
        ):
            if folder:
                beside = [beside_path(Path(folder), Path(path), kind) for path in settings.data.train]
                facts.append([kind, [path.stat().st_mtime_ns for path in beside if path.exists()]])
        if settings.data.leave_out:
            facts.append(sorted(settings.data.leave_out.items()))
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
        cache = self.folder / f"corpus-{digest}.npz"
        if not cache.exists() and self.processes.is_main:
            languages = (settings.source_language, settings.target_language)
            corpus = encode_corpus(
                self._pairs(), settings.data.sources, self.tokenizer, languages, settings.data.max_tokens,
                token_links if settings.guided_alignment is not None else None,
            )  # fmt: skip
            _save_corpus(corpus, cache)
        wait_for_all(self.processes)
        return _load_corpus(cache)

    # -- state

    def save(self) -> None:
        """Write everything that a resumed run needs; an interruption leaves the old file whole."""
        state = {
            "position": dataclasses.asdict(self.position),
            "settings": _comparable(self.settings),
            "model": self.model.state_dict(),
            "optimizers": self.optimizers.state_dict(),
            "averages": self.average.averages if self.average is not None else None,
        }
        temporary = self.folder / (_STATE_FILE + ".writing")
        torch.save(state, temporary)
        os.replace(temporary, self.folder / _STATE_FILE)

    def resume(self) -> bool:
        """Take up the saved state of this run's folder.

        Returns:
            False when there is none.

        Raises:
            ResumeError: When it was made with settings that do not fit.
        """
        path = self.folder / _STATE_FILE
        if not path.exists():
            return False
        state = torch.load(path, map_location=self.processes.device, weights_only=True)
        _check_same_run(state["settings"], _comparable(self.settings), path)
        self.model.load_state_dict(state["model"])
        self.optimizers.load_state_dict(state["optimizers"])
        if self.average is not None and state["averages"] is not None:
            for average, saved in zip(self.average.averages, state["averages"], strict=True):
                average.copy_(saved)
        self.position = Position(**state["position"])
        if state["settings"]["data"] != _comparable(self.settings)["data"]:
            # Another mixture has other batches: an epoch of it begins.
            self.position.epoch += 1
            self.position.epoch_step = 0
        return True

    def start_from(self, folder: Path) -> None:
        """Take the weights of a checkpoint, of the same shape and tokenizer, and train on from them.

        The optimizer starts empty and the schedule at its first step: choose a peak rate to match.

        Raises:
            CheckpointError: When it cannot be read.
            ResumeError: When its shape or its tokenizer is another.
        """
        checkpoint = load_checkpoint(folder)
        if checkpoint.tokenizer.revision != self.tokenizer.revision:
            raise ResumeError(
                f"{folder} has another tokenizer than {self.folder / _TOKENIZER_FILE}; set tokenizer.path to its own"
            )
        if checkpoint.config != dataclasses.replace(self.model.config, dropout=checkpoint.config.dropout):
            raise ResumeError(f"{folder} has the shape {checkpoint.config}, the settings say {self.model.config}")
        self.model.load_state_dict(checkpoint.model.state_dict())
        if self.average is not None:
            self.average = WeightAverage(self.model, self.settings.ema_decay, self.settings.ema_every)

    # -- steps

    def steps(self) -> Iterator[tuple[list[NDArray[np.int64]], bool]]:
        """Each coming step's micro-batches, over all processes, and whether the step ends its epoch."""
        settings = self.settings
        while True:
            epoch = self.position.epoch
            pairs = self.corpus.sample_epoch(settings.seed, epoch)
            batches = plan_batches(self.corpus, pairs, settings.batch_tokens, (settings.seed, epoch, 1))
            per_epoch = len(batches) // settings.micro_batches
            if per_epoch == 0:  # a tiny corpus: one step sees all of it
                batches = list(itertools.islice(itertools.cycle(batches), settings.micro_batches))
                per_epoch = 1
            for index in range(self.position.epoch_step, per_epoch):
                first = index * settings.micro_batches
                yield batches[first : first + settings.micro_batches], index == per_epoch - 1

    def accumulate(self, micro_batches: list[NDArray[np.int64]]) -> tuple[float, int]:
        """Add the gradient of one step: of the mean loss over all its target tokens, in all processes.

        Args:
            micro_batches: Of the whole step; this process computes its share of them.

        Returns:
            This process's loss per target token, a guided head's apart, and the target tokens of the whole step.
        """
        settings, processes = self.settings, self.processes
        config = self.model.config
        total_tokens = int(sum((self.corpus.targets.lengths[pairs] + 1).sum() for pairs in micro_batches))
        if config.dropout > 0:
            # Seeded a step, and not once: a resumed run needs no state of the generator.
            seed = np.random.SeedSequence((settings.seed, self.position.step, processes.rank)).generate_state(1)[0]
            torch.manual_seed(int(seed))
        row = settings.guided_alignment.row if settings.guided_alignment is not None else None
        mine = micro_batches[processes.rank :: processes.world_size]
        loss_sum, my_tokens = 0.0, 0
        for index, pairs in enumerate(mine):
            batch = make_batch(self.corpus, pairs, config.pad_id, config.decoder_start_id, config.eos_id, row)
            with self._exchange_at_the_end(is_last=index == len(mine) - 1):
                loss, translation_loss = self._compute(*_on_device(batch, processes.device))
                # DDP averages over processes, the loss of a step is a mean over all its tokens.
                (loss * (processes.world_size / total_tokens)).backward()  # type: ignore[no-untyped-call]
            loss_sum += float(translation_loss)
            my_tokens += batch.num_target_tokens
        return loss_sum / my_tokens, total_tokens

    def _step(self, micro_batches: list[NDArray[np.int64]], ends_epoch: bool) -> tuple[float, int]:
        """One optimizer step; returns what :meth:`accumulate` does."""
        settings, position = self.settings, self.position
        loss, total_tokens = self.accumulate(micro_batches)
        nn.utils.clip_grad_norm_(self.model.parameters(), settings.optimizer.clip_norm)
        position.step += 1
        self.optimizers.step(
            learning_rate_factor(
                position.step,
                total_steps=settings.total_steps,
                warmup_steps=settings.warmup_steps,
                decay_power=settings.decay_power,
                cooldown_fraction=settings.cooldown_fraction,
            )
        )
        if self.average is not None:
            self.average.update(position.step)
        position.target_tokens += total_tokens
        position.epoch, position.epoch_step = (
            (position.epoch + 1, 0) if ends_epoch else (position.epoch, position.epoch_step + 1)
        )
        return loss, total_tokens

    def _exchange_at_the_end(self, is_last: bool) -> AbstractContextManager[None]:
        if isinstance(self._loss, DistributedDataParallel) and not is_last:
            return self._loss.no_sync()
        return nullcontext()

    def evaluate(self, dev: DevSet) -> dict[str, Any]:
        """Loss and BLEU on dev with the averaged weights."""
        self.model.eval()
        with self.average.applied() if self.average is not None else nullcontext():
            scores = dev_scores(self.model, self.tokenizer, dev, self.settings)
        self.model.train()
        return scores

    def publish(self) -> None:
        """Write the averaged model to ``checkpoint/``, in the form that the server loads."""
        settings, position = self.settings, self.position
        facts = {
            "steps": position.step,
            "epochs": position.epoch,
            "target_tokens": position.target_tokens,
            "hours": round(position.seconds / 3600, 2),
            "settings": _comparable(settings),
        }
        with self.average.applied() if self.average is not None else nullcontext():
            save_checkpoint(
                self.folder / "checkpoint",
                self.model,
                self.folder / _TOKENIZER_FILE,
                name=settings.name,
                source_language=settings.source_language,
                target_language=settings.target_language,
                training=facts,
            )

    def run(self, progress: Progress, stop_after_seconds: float | None = None) -> bool:
        """Train until the schedule's end, the time given, or SIGTERM / SIGINT.

        Args:
            progress: Where losses, scores and samples go.
            stop_after_seconds: Save and stop after this time.

        Returns:
            True when the schedule is complete.
        """
        settings = self.settings
        dev = DevSet.read(Path(settings.data.dev), settings) if self.processes.is_main else None
        stop = _StopSignals()
        started = time.monotonic()
        last_saved = started
        self.model.train()
        window_loss, window_tokens, window_start = 0.0, 0, time.monotonic()
        steps = self.steps()
        while self.position.step < settings.total_steps:
            begin = time.monotonic()
            loss, tokens = self._step(*next(steps))
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss of step {self.position.step} is {loss}")
            self.position.seconds += time.monotonic() - begin
            window_loss += loss * tokens
            window_tokens += tokens
            if self.position.step % settings.log_every == 0:
                seconds = time.monotonic() - window_start
                progress.losses(self.position, window_loss / window_tokens, window_tokens / seconds)
                window_loss, window_tokens, window_start = 0.0, 0, time.monotonic()
                late = stop_after_seconds is not None and time.monotonic() - started > stop_after_seconds
                if agree(self.processes, stop.requested or late):
                    break
            is_last = self.position.step == settings.total_steps
            if dev is not None and (self.position.step % settings.evaluate_every == 0 or is_last):
                progress.scores(self.position, self.evaluate(dev))
                self.publish()
                window_start = time.monotonic()
            if self.processes.is_main and time.monotonic() - last_saved > settings.checkpoint_every_seconds:
                self.save()
                last_saved = time.monotonic()
        if self.processes.is_main:
            self.save()
            self.publish()
        return self.position.step >= settings.total_steps


class _StopSignals:
    """SIGTERM and SIGINT ask the loop to save and stop at the next log line; a second one ends it at once."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                signal.signal(number, self._ask)
            except ValueError:  # not in the main thread (tests)
                return

    def _ask(self, number: int, _frame: object) -> None:
        self.requested = True
        signal.signal(number, signal.SIG_DFL)


def _on_device(batch: Batch, device: torch.device) -> tuple[Tensor, ...]:
    tensors = (
        batch.source_ids.to(device, non_blocking=True),
        batch.source_mask.to(device, non_blocking=True),
        batch.target_inputs.to(device, non_blocking=True),
        batch.target_outputs.to(device, non_blocking=True),
    )
    return tensors if batch.alignment is None else (*tensors, batch.alignment.to(device, non_blocking=True))


def _comparable(settings: TrainingSettings) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings)))
    values["data"]["train"] = [Path(path).name for path in values["data"]["train"]]
    values["data"].pop("dev")
    values["tokenizer"].pop("path")
    values["data"].pop("scores")
    if values["guided_alignment"] is not None:
        values["guided_alignment"].pop("links")
    # What is not in use is not written: a state that knows nothing of it is still the same run.
    for table, name in ((values, "guided_alignment"), (values["data"], "leave_out")):
        if table[name] is None:
            table.pop(name)
    return values


def _check_same_run(saved: dict[str, Any], now: dict[str, Any], path: Path) -> None:
    for name in sorted(set(saved) | set(now)):
        if name not in _FREE_ON_RESUME and saved.get(name) != now.get(name):
            raise ResumeError(
                f"{path} was made with {name} = {saved.get(name)!r}, the settings now say {now.get(name)!r}; "
                f"start in another folder, or with --fresh"
            )


def _save_corpus(corpus: Corpus, path: Path) -> None:
    temporary = path.with_suffix(".writing.npz")
    arrays: dict[str, Any] = {
        "weights": corpus.weights,
        "facts": np.array(json.dumps([corpus.num_dropped, corpus.counts])),
    }
    lists_by_name = {"sources": corpus.sources, "targets": corpus.targets}
    if corpus.links is not None:
        lists_by_name["links"] = corpus.links
    for name, lists in lists_by_name.items():
        arrays[name], arrays[f"{name}_offsets"] = lists.arrays
    np.savez(temporary, **arrays)
    os.replace(temporary, path)


def _load_corpus(path: Path) -> Corpus:
    with np.load(path) as arrays:
        num_dropped, counts = json.loads(str(arrays["facts"]))
        return Corpus(
            TokenLists(arrays["sources"], arrays["sources_offsets"]),
            TokenLists(arrays["targets"], arrays["targets_offsets"]),
            arrays["weights"],
            num_dropped,
            counts,
            TokenLists(arrays["links"], arrays["links_offsets"]) if "links" in arrays else None,
        )


def main(
    config_path: Path,
    *,
    run_folder: Path | None = None,
    fresh: bool = False,
    start_from: Path | None = None,
    stop_after_minutes: float | None = None,
) -> bool:
    """Start or resume the run that a TOML file describes.

    Args:
        config_path: The TOML file.
        run_folder: Where the run lives; ``runs/<file's stem>`` when None.
        fresh: Begin anew even where a saved state exists.
        start_from: A checkpoint whose weights a run without a saved state begins with.
        stop_after_minutes: Save and stop after this time.

    Returns:
        True when the schedule is complete.

    Raises:
        ConfigError: For a setting that is unknown, missing or impossible.
        DataError: For a damaged data file.
        ResumeError: For a saved state of other settings.
    """
    settings = load_settings(config_path)
    folder = run_folder if run_folder is not None else Path("runs") / config_path.stem
    processes = join_processes()
    keep_freed_memory()
    try:
        trainer = Trainer(settings, folder, processes)
        resumed = not fresh and trainer.resume()
        if start_from is not None and not resumed:
            trainer.start_from(start_from)
        with Progress(folder, settings, enabled=processes.is_main) as progress:
            progress.start(trainer.position, trainer.model, trainer.corpus, processes.world_size, resumed)
            finished = trainer.run(progress, None if stop_after_minutes is None else 60.0 * stop_after_minutes)
            if processes.is_main:
                progress.stopped(trainer.position, finished)
        return finished
    finally:
        leave_processes(processes)
