"""`gossamer translate --ray`: a large file over the machines of a Ray cluster, resumable, each line once and in order.

    driver: input -> blocks of lines -> workers, a few blocks ahead of each -> in order -> OUTPUT
    worker: an actor with an engine of its own, on as many processors as it is given, or on a GPU

Only the driver reads and writes. What is done is what stands in the output: after each block in order it notes, in
`OUTPUT.progress`, how far input and output are. A run that was killed goes on from there: what lies behind the note is
cut off, what workers had not given back is translated again. A block whose worker is lost goes to another worker; a new
worker takes the lost one's place when the cluster has room for it. Why not Ray Data: docs/adr/0003-ray-tasks.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from service.engine.interface import ModelInfo
from service.search_options import search_options
from service.settings import Settings
from service.translate_command import InputError, TranslationFailed, line_blocks, open_engine

_BLOCKS_AHEAD = 3
"""Blocks that a worker has at once: one being finished, one beside it so that its rows are full, one on its way."""

_BLOCKS_KEPT = 16
"""Blocks that may wait in the driver for an earlier one, for each worker."""

_NOTE_SECONDS = 1.0
"""How often the note is written: so much is done again after the driver was killed."""

_WAIT_SECONDS = 1.0

_FAILED_STARTS = 3
"""More workers in a row than one each and these, that end before they are ready, are no accident."""


@dataclass(frozen=True, slots=True)
class RayJob:
    """What is to be done.

    Attributes:
        address: Of the cluster: `auto`, `HOST:PORT`, `ray://HOST:PORT`; `local` starts one on this machine.
        input: UTF-8 text; lines stay lines.
        output: Written in order; goes on where an earlier run ended.
        settings: For the workers' engines: the models' folders must be there on every machine.
        source: As for `translate_inputs`; so are the next two.
        target: Language code.
        decoding: As for `translate_inputs`.
        num_workers: How many; None for as many as the cluster has room for.
        cpus_per_worker: Processors, and threads, of each.
    """

    address: str
    input: Path
    output: Path
    settings: Settings
    source: str | None
    target: str | None
    decoding: Mapping[str, Any]
    num_workers: int | None = None
    cpus_per_worker: int = 2

    @property
    def note_path(self) -> Path:
        """Where it is noted how far the output is."""
        return self.output.with_name(self.output.name + ".progress")


@dataclass(slots=True)
class _Note:
    """How far a run is.

    Attributes:
        wish: What was asked for, models' revisions included: only the same is gone on with.
        input_bytes: Of the input, translated and in the output.
        input_sha256: Of those bytes.
        output_bytes: What they became.
        lines: Of the input.
    """

    wish: dict[str, Any]
    input_bytes: int = 0
    input_sha256: str = hashlib.sha256().hexdigest()
    output_bytes: int = 0
    lines: int = 0

    def write(self, path: Path) -> None:
        """At once or not at all."""
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(new, path)


class _Worker:
    """An engine in a process of Ray's."""

    def __init__(self, settings: Settings, source: str | None, target: str | None, decoding: Mapping[str, Any]) -> None:
        self._opened = open_engine(settings, source, target, decoding, "text")

    async def start(self) -> tuple[ModelInfo, ...]:
        """Loads the models; tells of them."""
        self._translate, models = await self._opened.__aenter__()
        return models

    async def translate(self, text: str) -> str:
        """Translates lines."""
        return await self._translate(text)


@dataclass(slots=True)
class _Member:
    """A worker, as the driver sees it."""

    actor: Any
    starting: Any
    blocks: dict[Any, int] = field(default_factory=dict)
    """What it has been given, by the reference to what will come of it."""
    is_ready: bool = False


class _Workers:
    """The workers, and which of them does what."""

    def __init__(self, job: RayJob) -> None:
        self._job = job
        num_gpus = 1 if job.settings.device == "cuda" else 0
        resources = ray.cluster_resources()
        most = int(resources.get("CPU", 0)) // job.cpus_per_worker
        if num_gpus:
            most = min(most, int(resources.get("GPU", 0)))
        if most < 1:
            raise InputError(
                f"the cluster has {resources.get('CPU', 0):.0f} processors and {resources.get('GPU', 0):.0f} GPUs; "
                f"a worker needs {job.cpus_per_worker} and {num_gpus}"
            )
        self.size = job.num_workers or most
        settings = job.settings.model_copy(update={"torch_threads": job.cpus_per_worker})
        # Blocks of a lost worker are given to another one at once, so Ray need not bring it back itself.
        remote = ray.remote(num_cpus=job.cpus_per_worker, num_gpus=num_gpus, max_restarts=0, max_concurrency=8)(_Worker)
        self._make: Callable[[], Any] = lambda: remote.remote(settings, job.source, job.target, job.decoding)
        self.members: list[_Member] = []
        self.num_lost = 0
        self._num_failed_starts = 0
        self.models: tuple[ModelInfo, ...] | None = None
        for _ in range(self.size):
            self._add()

    def _add(self) -> None:
        actor = self._make()
        self.members.append(_Member(actor, actor.start.remote()))

    @property
    def num_given(self) -> int:
        return sum(len(member.blocks) for member in self.members)

    def idlest(self) -> _Member | None:
        """A worker that can take a block."""
        able = [member for member in self.members if member.is_ready and len(member.blocks) < _BLOCKS_AHEAD]
        return min(able, key=lambda member: len(member.blocks)) if able else None

    def wait(self, take: Callable[[int, str], None], give_back: Callable[[int], None]) -> None:
        """Waits for something to happen: a block is done, a worker is ready or lost.

        Args:
            take: Given a block's number and its translation.
            give_back: Given the number of a block that somebody else has to do.

        Raises:
            InputError, TranslationFailed: As a worker raised it.
        """
        owners = {reference: member for member in self.members for reference in self._references(member)}
        done, _ = ray.wait(list(owners), num_returns=1, timeout=_WAIT_SECONDS, fetch_local=True)
        for reference in done:
            member = owners[reference]
            if member not in self.members:
                continue
            try:
                result = ray.get(reference)
            except RayTaskError as error:
                raise _cause(error) from error
            except RayError as error:  # of the worker, its machine, or what it had given back
                self._replace(member, give_back, error)
                continue
            if reference == member.starting:
                member.starting, member.is_ready, self._num_failed_starts = None, True, 0
                self._check_models(result)
            else:
                take(member.blocks.pop(reference), result)

    @staticmethod
    def _references(member: _Member) -> list[Any]:
        return [*member.blocks, *([] if member.starting is None else [member.starting])]

    def _replace(self, member: _Member, give_back: Callable[[int], None], error: RayError) -> None:
        self.members.remove(member)
        self.num_lost += 1
        self._num_failed_starts += not member.is_ready
        if self._num_failed_starts > self.size + _FAILED_STARTS:
            raise TranslationFailed(f"workers end before they are ready: {_last_line(error)}")
        for number in member.blocks.values():
            give_back(number)
        with contextlib.suppress(Exception):
            ray.kill(member.actor)  # it may only have been out of reach, and must not go on for nobody
        self._add()

    def _check_models(self, found: tuple[ModelInfo, ...]) -> None:
        if self.models is None:
            self.models = found
        elif (known := _revisions(self.models)) != (others := _revisions(found)):
            raise TranslationFailed(f"the machines have different models: {known} and {others}")

    def close(self) -> None:
        for member in self.members:
            ray.kill(member.actor)


def translate_with_ray(
    job: RayJob, report: Callable[[int], None] = lambda _: None, tell: Callable[[str], None] = lambda _: None
) -> None:
    """Translates a file over a cluster.

    Args:
        job: What.
        report: Told how many bytes of the input have been done since.
        tell: Told what a person should know.

    Raises:
        InputError: The input cannot be used, or the output is not from the same wish.
        TranslationFailed: A model failed, or the cluster cannot be reached.
    """
    if not job.input.is_file():
        raise InputError(f"{job.input} is not a file")
    if job.output.exists() and not job.note_path.exists():
        raise InputError(f"{job.output} exists, and is not an unfinished one: remove it, or name another")
    try:
        local = {"include_dashboard": False} if job.address == "local" else {}
        ray.init(address=job.address, log_to_driver=False, logging_level="error", **local)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise TranslationFailed(f"no Ray cluster at {job.address}: {error}") from error
    try:
        workers = _Workers(job)
        try:
            _wait_for_first(workers)
            _run(job, workers, report, tell)
        finally:
            workers.close()
        if workers.num_lost:
            what = "worker was" if workers.num_lost == 1 else "workers were"
            tell(f"{workers.num_lost} {what} lost on the way; others did their work")
    finally:
        ray.shutdown()


def _wait_for_first(workers: _Workers) -> None:
    while workers.models is None:
        workers.wait(_nothing_yet, _nothing_yet)


def _nothing_yet(*_: object) -> None:
    raise AssertionError("no block was given to anybody yet")


def _run(job: RayJob, workers: _Workers, report: Callable[[int], None], tell: Callable[[str], None]) -> None:
    assert workers.models is not None
    note = _open_note(job, workers.models)
    if note.input_bytes:
        tell(f"going on after line {note.lines}")
        report(note.input_bytes)
    with job.input.open("rb") as file, job.output.open("ab") as output:
        file.seek(note.input_bytes)
        output.truncate(note.output_bytes)
        blocks = enumerate(line_blocks(file, str(job.input), lambda _: None))
        writer = _Writer(note, output, job.note_path, report, _prefix_hash(job.input, note.input_bytes))
        is_over = False
        again: list[int] = []
        sources: dict[int, str] = {}
        while True:
            # Blocks of lost workers first: all later ones wait for them.
            while (member := workers.idlest()) is not None:
                if again:
                    number = heapq.heappop(again)
                elif is_over or len(sources) >= workers.size * _BLOCKS_KEPT:
                    break
                else:
                    number, text = next(blocks, (-1, ""))
                    if number < 0:
                        is_over = True
                        break
                    sources[number] = text
                member.blocks[member.actor.translate.remote(sources[number])] = number
            if is_over and not again and not workers.num_given:
                break

            def take(number: int, text: str) -> None:
                for done in writer.take(number, sources[number], text):
                    del sources[done]

            workers.wait(take, lambda number: heapq.heappush(again, number))
        writer.close()
    job.note_path.unlink()


class _Writer:
    """Puts what comes in any order into the output in order, and notes how far it is."""

    def __init__(self, note: _Note, output: Any, path: Path, report: Callable[[int], None], digest: Any) -> None:
        self._note, self._output, self._path, self._report, self._digest = note, output, path, report, digest
        self._next = 0
        self._early: dict[int, tuple[str, str]] = {}
        self._noted_at = 0.0
        note.write(path)

    def take(self, number: int, source: str, translation: str) -> Iterator[int]:
        """Gives the numbers of the blocks that were written."""
        self._early[number] = source, translation
        while self._next in self._early:
            source, translation = self._early.pop(self._next)
            read, written = source.encode(), translation.encode()
            self._output.write(written)
            self._digest.update(read)
            self._note.input_bytes += len(read)
            self._note.output_bytes += len(written)
            self._note.lines += read.count(b"\n")
            self._report(len(read))
            yield self._next
            self._next += 1
        if time.monotonic() - self._noted_at > _NOTE_SECONDS:
            self._write_note()

    def close(self) -> None:
        """All is done."""
        assert not self._early, "a block in the midst was never done"
        self._write_note()

    def _write_note(self) -> None:
        self._output.flush()
        os.fsync(self._output.fileno())  # a note must not tell of what a crash of the machine takes away
        self._note.input_sha256 = self._digest.hexdigest()
        self._note.write(self._path)
        self._noted_at = time.monotonic()


def _revisions(models: Iterable[ModelInfo]) -> dict[str, str]:
    return {model.name: model.revision for model in models}


def _open_note(job: RayJob, models: Sequence[ModelInfo]) -> _Note:
    # As the workers search: with each model as it advises, and as if none advised anything, which two in a row may.
    options = {model.name: asdict(search_options(job.settings, (model,), job.decoding)) for model in models}
    options[""] = asdict(search_options(job.settings, (), job.decoding))
    wish = {"source": job.source, "target": job.target, "models": _revisions(models), "options": options}
    wish = json.loads(json.dumps(wish))
    if not job.note_path.exists():
        return _Note(wish)
    try:
        note = _Note(**json.loads(job.note_path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InputError(f"{job.note_path} is not a note of an earlier run ({error})") from error
    for name, value in wish.items():
        if note.wish.get(name) != value:
            raise InputError(
                f"{job.output} was begun with {name} {note.wish.get(name)!r}, and now {name} is {value!r}: remove it "
                f"and {job.note_path.name}, or ask as before"
            )
    if _prefix_hash(job.input, note.input_bytes).hexdigest() != note.input_sha256:
        raise InputError(f"{job.input} has changed since {job.output} was begun: remove it and {job.note_path.name}")
    size = job.output.stat().st_size if job.output.exists() else 0
    if size < note.output_bytes:
        raise InputError(f"{job.output} has {size} bytes, but {note.output_bytes} were written: it was changed since")
    return note


def _prefix_hash(path: Path, num_bytes: int) -> Any:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while num_bytes and (part := file.read(min(num_bytes, 1 << 20))):
            digest.update(part)
            num_bytes -= len(part)
    return digest


def _cause(error: RayTaskError) -> Exception:
    cause = error.cause
    if isinstance(cause, InputError | TranslationFailed):
        return type(cause)(str(cause.args[0]) if cause.args else "")
    return TranslationFailed(_last_line(error))


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
