"""What `gossamer translate` does: inputs in, translations out, by an engine of its own or by a server.

Texts go through in blocks of lines, so that a book needs little memory and its beginning is there at once; documents
are translated whole. Both ways give the same translations.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from service.settings import Settings, load_settings

if TYPE_CHECKING:  # what translates by a server needs no engine
    from service.engine.interface import ModelInfo

Format = Literal["text", "html", "xml"]
Translate = Callable[[str], str]

LINES_AT_ONCE = 128
_BYTES_AT_ONCE = 32_000
"""A block ends after so many lines or bytes, whichever comes first; a line is never parted."""

_PROGRESS_FROM_BYTES = 20_000
"""Less is done before a bar could be read."""

_SERVER_TIMEOUT_SECONDS = 600.0


class InputError(Exception):
    """Something is wrong with what is to be translated; the message says where."""


class TranslationFailed(Exception):
    """The model failed, or the server."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is to be translated.

    Attributes:
        texts: Texts, one answer a line.
        paths: Files, without texts; `-` is standard input, which also counts if there is nothing else.
        format: What they are.
    """

    texts: Sequence[str] | None
    paths: Sequence[str] | None
    format: Format

    def blocks(self, report: Callable[[int], None], tell: Callable[[str], None]) -> Iterator[tuple[str, str]]:
        """What is translated at once, one after the other, each with what it is called where that is not plain.

        Args:
            report: Told how many bytes have been read since.
            tell: Told what a person should know.

        Raises:
            InputError: A file cannot be read, or is no UTF-8.
        """
        if self.texts:
            for text in self.texts:
                yield "", text + "\n"
                report(len(text.encode()) + 1)
            return
        for path in self.paths or ["-"]:
            is_terminal = path == "-" and sys.stdin.isatty()
            if is_terminal:
                tell("Type lines to translate; Ctrl-D ends.")
            name = "standard input" if path == "-" else path
            try:
                with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
                    if self.format == "text":
                        for block in line_blocks(file, name, report, 1 if is_terminal else LINES_AT_ONCE):
                            yield "", block
                    else:
                        content = file.read()
                        yield name, _decoded(content, name, 0)
                        report(len(content))
            except OSError as error:
                raise InputError(f"{name} cannot be read ({error.strerror})") from error

    def check(self) -> None:
        """Looks whether all files can be read, before a model is loaded for them.

        Raises:
            InputError: One cannot.
        """
        for path in () if self.texts else self.paths or ():
            if path == "-":
                continue
            try:
                is_folder = stat.S_ISDIR(os.stat(path).st_mode)
                fault = errno.EISDIR if is_folder else 0 if os.access(path, os.R_OK) else errno.EACCES
            except OSError as error:
                fault = error.errno or errno.ENOENT
            if fault:
                raise InputError(f"{path} cannot be read ({os.strerror(fault)})")

    @property
    def reads_standard_input(self) -> bool:
        """Whether it is among what is translated."""
        return not self.texts and "-" in (self.paths or ["-"])

    def num_bytes(self) -> int | None:
        """How much there is; None if that is not known beforehand."""
        if self.texts:
            return sum(len(text.encode()) + 1 for text in self.texts)
        try:
            return sum(os.stat(path).st_size for path in self.paths or ["-"])
        except OSError:
            return None


def translate_inputs(
    inputs: Inputs,
    *,
    settings: Settings | None,
    server: str | None,
    api_key: str | None,
    source: str | None,
    target: str | None,
    decoding: Mapping[str, Any],
    show_progress: bool | None,
    tell: Callable[[str], None],
    output: Path | None = None,
) -> None:
    """Translates to standard output, or to a file.

    Args:
        inputs: What.
        settings: For an engine of its own; None with a server.
        server: Its address.
        api_key: For the server.
        source: Language code, or `auto`; None is that of the only model that fits, and `auto` where several do.
        target: Language code; None where only one model fits.
        decoding: How to search, as far as the caller says; the rest is decided by the settings, or the server.
        show_progress: Whether a bar is shown; None if a person would want it.
        tell: Told what a person should know.
        output: File to write instead; one that is there is replaced, as soon as there is something to write.

    Raises:
        InputError: The input cannot be used, or the output by anybody.
        TranslationFailed: The model failed, or the server, or the output cannot be written.
        BrokenPipeError: Nobody reads on.
    """
    if output is not None:
        check_output(output, inputs.paths or ())
    elif sys.stdout is None:  # what Python makes of a standard stream that its caller has closed
        raise TranslationFailed("standard output is closed")
    if sys.stdin is None and inputs.reads_standard_input:
        raise InputError("standard input is closed")
    inputs.check()
    opened = (
        _by_server(server, api_key, source, target, decoding, inputs.format)
        if server is not None
        else _by_engine(settings or load_settings({}), source, target, decoding, inputs.format)
    )
    name = "standard output" if output is None else str(output)
    with (
        progress_bar(inputs.num_bytes(), _wants_bar(inputs, output, show_progress)) as report,
        opened as translate,
        contextlib.ExitStack() as stack,
    ):
        file = sys.stdout.buffer if output is None else None

        def write(translation: str) -> None:
            nonlocal file
            try:
                if file is None:
                    file = stack.enter_context(_quietly_closed(open(name, "wb")))
                file.write(translation.encode())
                file.flush()
            except BrokenPipeError:
                raise
            except OSError as error:
                raise TranslationFailed(f"{name} cannot be written ({error.strerror})") from error

        for called, block in inputs.blocks(report, tell):
            try:
                translation = translate(block)
            except InputError as error:
                raise InputError(f"{called}: {error}" if called else str(error)) from error
            write(translation)
        if file is None:
            write("")


@contextlib.contextmanager
def _quietly_closed(file: BinaryIO) -> Iterator[BinaryIO]:
    """Closes a file that has been flushed, or could not be, which has been told then."""
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()


def check_output(output: Path, inputs: Sequence[str | Path] = ()) -> None:
    """Looks whether a file can be written, before there is anything to write; leaves no trace.

    Raises:
        InputError: It cannot, or is one of the inputs.
    """
    try:
        if any(str(path) != "-" and os.path.exists(path) and output.samefile(path) for path in inputs):
            raise InputError(f"{output} is what is to be translated: name another file")
    except FileNotFoundError:
        pass  # there is none yet
    except OSError as error:
        raise InputError(f"{output} cannot be written ({error.strerror})") from error
    folder = output.parent
    if output.is_dir():
        fault = os.strerror(errno.EISDIR)
    elif output.exists():
        fault = "" if os.access(output, os.W_OK) else os.strerror(errno.EACCES)
    elif not folder.is_dir():
        fault = os.strerror(errno.ENOTDIR if folder.exists() else errno.ENOENT)
    else:
        fault = "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    if fault:
        raise InputError(f"{output} cannot be written ({fault})")


@contextlib.contextmanager
def _by_engine(
    settings: Settings, source: str | None, target: str | None, decoding: Mapping[str, Any], format_: Format
) -> Iterator[Translate]:
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        opened = open_engine(settings, source, target, decoding, format_)
        translate, _ = runner.run(stack.enter_async_context(opened))
        try:
            yield lambda text: runner.run(translate(text))
        finally:
            runner.run(stack.aclose())


@contextlib.asynccontextmanager
async def open_engine(
    settings: Settings, source: str | None, target: str | None, decoding: Mapping[str, Any], format_: Format
) -> AsyncIterator[tuple[Callable[[str], Coroutine[Any, Any, str]], tuple[ModelInfo, ...]]]:
    """An engine of this process: what translates with it, and its models.

    Raises:
        InputError: The settings cannot be used; or, when translating, the text.
        TranslationFailed: A model cannot be loaded; or it failed.
    """
    from service.app import local_translation, open_models
    from service.engine.errors import EngineError
    from service.markup import read_markups
    from service.routing import UnknownLanguagePair
    from service.search_options import search_options
    from service.settings import SettingsError
    from service.text.markup import MarkupError
    from service.translator import Job, UnknownSourceLanguage

    async with contextlib.AsyncExitStack() as stack:
        try:
            names = [model.description.name for model in open_models(settings)]
            translator, documents = await stack.enter_async_context(local_translation(settings))
        except SettingsError as error:
            raise InputError(str(error)) from error
        except EngineError as error:
            raise TranslationFailed(str(error)) from error

        language: str | None = None  # of the texts, as far as it was found out

        async def find_model(text: str) -> ModelInfo:
            nonlocal language
            if not translator.must_detect(source, target=target):
                return translator.find_model(source=source, target=target)
            try:
                (model,), (found,) = await translator.detect_models([text], target=target)
            except UnknownSourceLanguage:
                if source is not None or language is None:
                    raise
            else:
                if source is not None or found.is_known or language is None:
                    language = model.source_language
                    return model
            # A block in the middle of a book that tells nothing of its language (names, a list) is in the book's.
            return translator.find_model(source=language, target=target, with_routes=True)

        async def run(text: str) -> str:
            markups = [] if format_ == "text" else await read_markups(format_, [text])
            model = await find_model(markups[0].text if markups else text)
            job = Job((text,), model, search_options(settings, (model,), decoding))
            done = await (documents.translate(job, markups) if markups else translator.translate(job))
            return done.texts[0].text

        async def translate(text: str) -> str:
            try:
                return await run(text)
            except (UnknownLanguagePair, UnknownSourceLanguage) as error:
                raise InputError(str(error)) from error
            except MarkupError as error:
                raise InputError(f"not well-formed XML: {error}") from error
            except EngineError as error:
                raise TranslationFailed(str(error)) from error

        yield translate, tuple(translator.find_model(model=name) for name in names)


@contextlib.contextmanager
def _by_server(
    server: str,
    api_key: str | None,
    source: str | None,
    target: str | None,
    decoding: Mapping[str, Any],
    format_: Format,
) -> Iterator[Translate]:
    from gossamer.client import Answer, ApiError, Client, GossamerError

    try:
        opened = Client(server, api_key=api_key, timeout_seconds=_SERVER_TIMEOUT_SECONDS)
    except ValueError as error:
        raise InputError(f"--server or --api-key cannot be used: {error}") from error
    with opened as client:
        language: str | None = None  # of the texts, as far as the server found it out

        def ask(text: str, source: str | None) -> Answer:
            return client.translate(text, source=source, target=target, format=format_, decoding=decoding)

        def translate(text: str) -> str:
            nonlocal language
            try:
                try:
                    answer = ask(text, source)
                except ApiError as error:
                    if source is not None or language is None or error.kind != "unknown-source-language":
                        raise
                    answer = ask(text, language)  # as with an engine of its own
                language = answer.source
                return answer.text
            except ApiError as error:
                is_input = error.status in (400, 413, 422)
                raise (InputError if is_input else TranslationFailed)(str(error)) from error
            except GossamerError as error:
                raise TranslationFailed(str(error)) from error

        yield translate


def _wants_bar(inputs: Inputs, output: Path | None, wanted: bool | None) -> bool:
    if wanted is not None:
        return wanted
    total = inputs.num_bytes()
    # On a terminal the translations themselves are seen to come, and a bar would stand between their lines.
    is_shown = output is None and sys.stdout.isatty()
    types_lines = not inputs.texts and not inputs.paths and sys.stdin.isatty()
    return sys.stderr.isatty() and not is_shown and not types_lines and (total is None or total >= _PROGRESS_FROM_BYTES)


@contextlib.contextmanager
def progress_bar(total: int | None, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, in bytes that are done; to be told of each part."""
    if not wanted:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("translating"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("translating", total=total)
        yield lambda amount: bar.advance(task, amount)


def line_blocks(
    file: BinaryIO, name: str, report: Callable[[int], None], num_lines: int = LINES_AT_ONCE
) -> Iterator[str]:
    """Whole lines, some at once: enough for full batches, few enough to see progress."""
    num_read = 0
    block, num_in_block = b"", 0
    while True:
        line = file.readline()
        if block and (not line or num_in_block >= num_lines or len(block) + len(line) > _BYTES_AT_ONCE):
            yield _decoded(block, name, num_read)
            report(len(block))
            num_read += num_in_block
            block, num_in_block = b"", 0
        if not line:
            return
        block, num_in_block = block + line, num_in_block + 1


def _decoded(content: bytes, name: str, num_read: int) -> str:
    if not num_read and content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name} is UTF-16, not UTF-8; save it as UTF-8")
    try:
        text = content.decode()
        place, fault = content.find(b"\0"), "not text, there is a zero byte in it"
    except UnicodeDecodeError as error:
        place, fault = error.start, f"not UTF-8 ({error.reason})"
    if place >= 0:
        line = num_read + 1 + content[:place].count(b"\n")
        raise InputError(f"{name}, line {line}: {fault}")
    return text
