"""The command line: `gossamer serve | translate | train | evaluate`.

PyTorch is imported only by the commands that compute, when they begin to, so that help is instant.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from model.decoding import USUAL_BEAM_THRESHOLD, DecodingOptions, InvalidDecodingOptions
from service.settings import BUNDLED_MODELS, Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from service.keys import KeyFile

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="gossamer",
    help="A translation server you can see through: serve, translate, train and evaluate Transformer models.",
    epilog="Start with: gossamer serve",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gossamer {importlib.metadata.version('gossamer')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # the callback answers it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and stop.")
    ] = False,
) -> None:
    """A translation server you can see through: serve, translate, train and evaluate Transformer models."""


_MODEL = "Checkpoint folder, or the name of a model that comes with Gossamer"


class LogLevel(StrEnum):
    """The levels, for the option."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class PrecisionName(StrEnum):
    """Number formats, for the option."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    int8 = "int8"


class QuantizationName(StrEnum):
    """Number formats that CTranslate2 stores, for the option."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int16 = "int16"
    int8 = "int8"
    int8_float32 = "int8_float32"


ModelOption = Annotated[
    Path | None,
    typer.Option("--model", "-m", help=f"{_MODEL}. Default: the only one that would be served."),
]
_BEAM = "Hypotheses kept alive, 1 to 16: 1 is fastest, 4 often a bit better."
BeamOption = Annotated[int, typer.Option("--beam-size", "-b", help=_BEAM)]


@app.command(
    epilog="Every setting is also a variable (GOSSAMER_PORT) and a line of the TOML file that GOSSAMER_CONFIG names; "
    "docs/settings.md lists them. Options win over variables, variables over the file. "
    "Example: GOSSAMER_LOG_FORMAT=json gossamer serve --port 9000"
)
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1; 0.0.0.0 opens it to the network.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one. Default: 8000.")] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", "-m", help=f"{_MODEL}; may be repeated. Default: all that come with Gossamer."),
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="Least important lines to log. Default: info.")] = None,
    allow_open: Annotated[
        bool, typer.Option("--open", help="Let everyone in who can reach the address, without a key.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Check settings and models, and do not serve.")] = False,
) -> None:
    """Serve translations over HTTP: an API, its documentation, and a page to try it.

    SIGTERM or Ctrl-C stops it: running requests are finished first, unless it comes again, and the exit status is 0.
    It is 2 if the settings cannot be used, and 1 if a model cannot be loaded or fails.
    """
    from service.app import open_keys, open_models, open_tracing
    from service.observability.logging import configure_logging
    from service.server import ListenError, run

    try:
        settings = load_settings(
            host=host,
            port=port,
            models=_folders_of(model) if model else None,
            log_level=log_level.value if log_level else None,
            allow_open=allow_open or None,
        )
        if check:
            open_keys(settings)
            open_tracing(settings, "unknown")
            names = ", ".join(found.description.name for found in open_models(settings))
            typer.echo(f"The settings can be used. Models: {names}")
            return
        configure_logging(settings.log_level, settings.log_format)
        went_well = run(settings, announce=_say)
    except (SettingsError, ListenError) as error:
        _fail(str(error), EXIT_USAGE)
    if not went_well:
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: GOSSAMER_CONFIG=gossamer.toml gossamer doctor    For programs: gossamer doctor --json")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Tell what this machine offers, what the settings make of it, and what would be faster or safer.

    The exit status is 0 if the server can be started, 2 if it cannot.
    """
    from model.hardware import compute_devices
    from service.app import open_models
    from service.doctor import Finding, ModelFiles, examine
    from service.machine import read_machine

    machine, findings = read_machine(), []
    try:
        settings = load_settings()
        opened = open_models(settings)
    except SettingsError as error:
        settings, opened = load_settings({}), []
        findings = [Finding("fault", fault, "see docs/settings.md") for fault in error.faults]
    models = [ModelFiles(found.description.name, found.folder, found.weights_bytes) for found in opened]
    findings += examine(settings, models, machine, compute_devices())
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        marks = {"fact": " ", "hint": "!", "fault": "X"}
        for finding in findings:
            typer.echo(
                f"{marks[finding.level]} {finding.text}" + (f"\n    -> {finding.remedy}" if finding.remedy else "")
            )
    if any(finding.level == "fault" for finding in findings):
        raise typer.Exit(EXIT_USAGE)


keys_app = typer.Typer(
    help="Make, list and withdraw API keys. A server whose GOSSAMER_KEYS_FILE names the file needs one for each "
    "request, and sees a change within a second.",
    epilog="Example: gossamer keys --file keys.json create web-shop --scope translate",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(keys_app, name="keys")


class ScopeName(StrEnum):
    """What a key is good for, for the option."""

    TRANSLATE = "translate"
    INSPECT = "inspect"
    ADMIN = "admin"


@keys_app.callback()
def keys(
    context: typer.Context,
    file: Annotated[Path | None, typer.Option(help="The file of keys. Default: what GOSSAMER_KEYS_FILE says.")] = None,
) -> None:
    """Finds the file that the commands work on."""
    context.obj = file


def _key_file(context: typer.Context) -> KeyFile:
    from service.keys import KeyFile

    path = context.obj or _settings().keys_file
    if path is None:
        _fail("name a file: gossamer keys --file keys.json ..., or GOSSAMER_KEYS_FILE", EXIT_USAGE)
    return KeyFile(path)


@keys_app.command(
    epilog="Example: gossamer keys --file keys.json create web-shop --scope translate --requests-per-minute 600"
)
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Whose it is; for you, and for the list.")],
    scope: Annotated[
        list[ScopeName] | None,
        typer.Option(help="What it is good for; repeatable. inspect: what looks inside the model. Default: translate."),
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Its own limit, instead of GOSSAMER_KEY_REQUESTS_PER_MINUTE.")
    ] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(min=1, help="The same, in source tokens.")] = None,
) -> None:
    """Make a key and print it, once: the file holds only its hash."""
    from service.keys import KeyFileError

    try:
        key, secret = _key_file(context).create(
            name,
            [part.value for part in scope or [ScopeName.TRANSLATE]],
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
    except KeyFileError as error:
        _fail(str(error), EXIT_USAGE)
    typer.echo(f"key {key.id} for {name}, good for {', '.join(key.scopes)}; it is shown only now:", err=True)
    typer.echo(secret)


@keys_app.command("list", epilog="Example: gossamer keys --file keys.json list")
def list_keys(context: typer.Context) -> None:
    """List all keys by their ids, revoked ones too."""
    from service.keys import KeyFileError

    try:
        found = _key_file(context).read().values()
    except KeyFileError as error:
        _fail(str(error), EXIT_USAGE)
    for key in found:
        limits = [
            f"{amount} {unit} a minute"
            for amount, unit in ((key.requests_per_minute, "requests"), (key.tokens_per_minute, "tokens"))
            if amount is not None
        ]
        state = f"revoked {key.revoked}" if key.revoked else "holds"
        typer.echo("  ".join([key.id, state, key.created, ",".join(key.scopes), key.name, *limits]))


@keys_app.command(epilog="Example: gossamer keys --file keys.json revoke 5f0c54d2")
def revoke(
    context: typer.Context, key_id: Annotated[str, typer.Argument(metavar="ID", help="As the list shows it.")]
) -> None:
    """Withdraw a key; running servers refuse it within a second."""
    from service.keys import KeyFileError

    try:
        key = _key_file(context).revoke(key_id)
    except KeyFileError as error:
        _fail(str(error), EXIT_USAGE)
    typer.echo(f"{key.id} ({key.name}) is revoked since {key.revoked}")


@app.command(
    epilog="Examples: gossamer translate 'Good morning.'    gossamer translate < book.txt > livre.txt    "
    "gossamer translate --html --file page.html > page.fr.html    "
    "gossamer translate --server http://127.0.0.1:8000 --target fr -"
)
def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts, one answer a line; - is standard input.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="UTF-8 file to translate; may be repeated; - is standard input."),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Texts and files are HTML; a file is read whole.")] = False,
    xml: Annotated[bool, typer.Option("--xml", help="Texts and files are XML; a file is read whole.")] = False,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help=f"{_MODEL}. Default: all that come with Gossamer.")
    ] = None,
    beam_size: Annotated[
        int | None,
        typer.Option(
            "--beam-size", "-b", help=f"{_BEAM} Default: what GOSSAMER_DEFAULT_BEAM_SIZE says, or the server's."
        ),
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Let this server translate, instead of this machine.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            "--from",
            help="Language code of the texts, or auto. Default: found out, if models read several.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", "--to", help="Language code to translate to. Default: the only one from there."),
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="For a server that needs one.")] = None,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="A bar on standard error. Default: if that is a terminal, and there is much to do.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Spread one --file over a Ray cluster: HOST:PORT, auto, or local."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write this file. Needed with --ray, which goes on with one that is unfinished."
        ),
    ] = None,
    ray_workers: Annotated[
        int | None, typer.Option(min=1, help="With --ray: engines to run. Default: as many as there is room for.")
    ] = None,
    ray_cpus: Annotated[int, typer.Option(min=1, help="With --ray: processors of each engine.")] = 2,
) -> None:
    """Translate texts, files, or standard input; on this machine, by a server, or over a Ray cluster.

    Lines stay lines, in their order: blank ones, indents and list markers come back as they are; so do tags in HTML and
    XML. The exit status is 0 if all was translated, 2 if there is something wrong with the call or the input, 1 if
    the model failed, or the server did not answer.
    """
    from service.translate_command import InputError, Inputs, TranslationFailed, translate_inputs

    decoding = {} if beam_size is None else {"beam_size": _options(beam_size).beam_size}
    if texts and file:
        _fail("give texts or files, not both", EXIT_USAGE)
    if texts and "-" in texts and len(texts) > 1:
        _fail("give texts, or - for standard input, not both", EXIT_USAGE)
    if html and xml:
        _fail("give --html or --xml, not both", EXIT_USAGE)
    if server is not None and model is not None:
        _fail("--model is a folder of this machine; with --server, name the languages", EXIT_USAGE)
    if server is None and api_key is not None:
        _fail("--api-key is for a --server", EXIT_USAGE)
    if ray is not None and output is None:
        _fail("--ray needs --output", EXIT_USAGE)
    if ray is not None and output is not None:
        if texts or server or html or xml or not file or len(file) > 1 or file == ["-"]:
            _fail("--ray translates one --file of lines, without --server, --html or --xml", EXIT_USAGE)
        _translate_with_ray(
            ray,
            file[0],
            output,
            model,
            source,
            target,
            decoding,
            ray_workers,
            ray_cpus,
            sys.stderr.isatty() if progress is None else progress,
        )
        return
    inputs = Inputs(None if texts == ["-"] else texts, file, "html" if html else "xml" if xml else "text")
    try:
        settings = None if server is not None else _settings_for(model)
        with _quiet_pipe():
            translate_inputs(
                inputs,
                settings=settings,
                server=server,
                api_key=api_key,
                source=source,
                target=target,
                decoding=decoding,
                show_progress=progress,
                tell=lambda message: typer.echo(message, err=True),
                output=output,
            )
    except InputError as error:
        _fail(str(error), EXIT_USAGE)
    except TranslationFailed as error:
        _fail(str(error), EXIT_FAILED)


def _translate_with_ray(
    address: str,
    file: str,
    output: Path,
    model: Path | None,
    source: str | None,
    target: str | None,
    decoding: Mapping[str, Any],
    num_workers: int | None,
    cpus_per_worker: int,
    show_progress: bool,
) -> None:
    from service.translate_command import InputError, TranslationFailed, progress_bar

    _check_output(output, [file])
    try:
        from service.ray_translate import RayJob, translate_with_ray
    except ModuleNotFoundError as error:
        _fail_without_package(error, "a Ray cluster", "ray")
    try:
        settings = _settings_for(_folder_of(model).resolve() if model else None)
        job = RayJob(address, Path(file), output, settings, source, target, decoding, num_workers, cpus_per_worker)
        total = job.input.stat().st_size if job.input.is_file() else None
        with progress_bar(total, show_progress) as report:
            translate_with_ray(job, report, lambda message: typer.echo(message, err=True))
    except InputError as error:
        _fail(str(error), EXIT_USAGE)
    except TranslationFailed as error:
        _fail(str(error), EXIT_FAILED)
    except OSError as error:  # a full disk, say
        _fail(f"{error.filename or output} cannot be used ({error.strerror or error})", EXIT_FAILED)


@app.command(
    epilog="Example: gossamer train model/training/en-fr.toml    "
    "On several processes: torchrun --nproc-per-node 2 -m service train CONFIG.toml"
)
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to train; docs/training.md explains it.")],
    run_folder: Annotated[
        Path | None, typer.Option(help="Where state, logs and checkpoints go. Default: runs/ and the name of CONFIG.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh/--resume", help="Begin anew, or go on where the run folder's state ends.")
    ] = False,
    start_from: Annotated[
        Path | None, typer.Option(help="Checkpoint whose weights a new run begins with, instead of random ones.")
    ] = None,
    stop_after_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Save and stop after this time; the same command goes on later.")
    ] = None,
) -> None:
    """Train a model, or go on with a training that was interrupted: the result is the same.

    The exit status is 0 when the schedule is complete or the time is up, 2 if the configuration or the data cannot be
    used.
    """
    try:
        from model.training.loop import main

        finished = main(
            config,
            run_folder=run_folder,
            fresh=fresh,
            start_from=start_from,
            stop_after_minutes=stop_after_minutes,
        )
    except ModuleNotFoundError as error:
        _fail_without_package(error)
    except (ValueError, OSError) as error:
        _fail(str(error), EXIT_USAGE)
    if not finished:
        typer.echo("Not finished yet; the same command goes on from here.", err=True)


@app.command(epilog="Example: gossamer evaluate --model fr-en --data test/ --beam-size 4 --output scores.json")
def evaluate(
    data: Annotated[
        list[Path],
        typer.Option("--data", "-d", help="Held-out pairs: a .tsv or .tsv.gz file, or a folder of them; repeatable."),
    ],
    model: ModelOption = None,
    beam_size: BeamOption = 4,
    precision: Annotated[
        PrecisionName, typer.Option(help="Number format of the matrices; auto is what the server uses.")
    ] = PrecisionName.auto,
    limit: Annotated[int | None, typer.Option(min=1, help="Score only the first so many pairs of each set.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the scores to this JSON file.")] = None,
) -> None:
    """Score a model on held-out sets: BLEU and chrF with their signatures, by sentence length, with samples.

    The exit status is 0 if every set was scored, 2 if model or data cannot be used.
    """
    options = _options(beam_size)
    if output is not None:
        _check_output(output)
    try:
        from model.training.evaluation import main

        main(
            _folder_of(model) if model else _only_model(_settings()),
            data,
            options=options,
            precision=precision.value,
            limit=limit,
            output=output,
        )
    except ModuleNotFoundError as error:
        _fail_without_package(error)
    except (ValueError, OSError) as error:
        _fail(str(error), EXIT_USAGE)


def _say(message: str) -> None:
    """To standard output, if that can be written: a full disk must not end a server."""
    try:
        typer.echo(message)
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # what it still holds would be an error at the exit


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"gossamer: {message}", err=True)
    raise typer.Exit(code)


def _check_output(output: Path, inputs: Sequence[str] = ()) -> None:
    """Before the work, and not after hours of it."""
    from service.translate_command import InputError, check_output

    try:
        check_output(output, inputs)
    except InputError as error:
        _fail(str(error), EXIT_USAGE)


def _fail_without_package(error: ModuleNotFoundError, what: str = "training", extra: str = "train") -> NoReturn:
    """Serving needs less than training: what is missing is named, with how to get it."""
    _fail(f"the package {error.name} is not installed; {what} needs: pip install 'gossamer[{extra}]'", EXIT_USAGE)


def _options(beam_size: int) -> DecodingOptions:
    try:
        return DecodingOptions(beam_size=beam_size, beam_threshold=USUAL_BEAM_THRESHOLD if beam_size > 1 else None)
    except InvalidDecodingOptions as error:
        _fail(f"--beam-size is {error.value}; allowed is {error.allowed}", EXIT_USAGE)


def _settings() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        _fail(str(error), EXIT_USAGE)


def _only_model(settings: Settings) -> Path:
    folders = settings.model_folders()
    if len(folders) != 1:
        found = ", ".join(map(str, folders)) or "none"
        _fail(f"name a checkpoint folder with --model; there is not exactly one by default: {found}", EXIT_USAGE)
    return folders[0]


def _folder_of(model: Path) -> Path:
    """The folder that is meant: a name may be that of a model that comes with Gossamer."""
    return _folders_of([model])[0]


def _folders_of(models: Sequence[Path]) -> tuple[Path, ...]:
    """The folders that are meant; those that are none are all named."""
    names = sorted(config.parent.name for config in BUNDLED_MODELS.glob("*/config.json"))
    unknown = [str(model) for model in models if not model.exists() and str(model) not in names]
    if unknown:
        told = f"with Gossamer come: {', '.join(names)}" if names else "none comes with this Gossamer"
        allowed = f"allowed is a checkpoint folder, or the name of a model ({told})"
        _fail(f"--model is {', '.join(unknown)}; {allowed}", EXIT_USAGE)
    return tuple(model if model.exists() else BUNDLED_MODELS / model for model in models)


def _settings_for(model: Path | None) -> Settings:
    """The settings, with this model or all of theirs; without limits that protect a server from its clients."""
    try:
        return load_settings(models=(_folder_of(model),) if model else None, max_waiting_tokens=100_000_000)
    except SettingsError as error:
        _fail(str(error), EXIT_USAGE)


@contextlib.contextmanager
def _quiet_pipe() -> Iterator[None]:
    """A reader that has seen enough (`| head`) is no error."""
    try:
        yield
    except BrokenPipeError:
        # Python flushes standard output once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command(
    "import",
    epilog="Example: gossamer import opus-mt-en-fr --output models/en-fr    docs/importing.md says what is read, and "
    "what is refused.",
)
def import_model(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="MarianMT folder: config.json, weights, *.spm, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that becomes the checkpoint.")],
    name: Annotated[str | None, typer.Option(help="What requests call the model. Default: FOLDER's name.")] = None,
    source: Annotated[str | None, typer.Option(help="Language code of what it reads. Default: as FOLDER says.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Language code of what it writes. Default: as FOLDER says.")
    ] = None,
    target_tag: Annotated[
        str | None, typer.Option(help="Of a model with several targets: the tag of --target, if its code is another.")
    ] = None,
) -> None:
    """Turn an OPUS-MT model, or any MarianMT folder of Hugging Face, into a checkpoint.

    The exit status is 0 if the checkpoint was written. It is 2 if something in the folder is missing or not understood,
    which is then named; nothing is written.
    """
    from model.checkpoint import CheckpointError
    from model.importers.marian import import_marian

    try:
        found = import_marian(
            folder, output, name=name, source_language=source, target_language=target, target_tag=target_tag
        )
    except (CheckpointError, OSError) as error:
        _fail(str(error), EXIT_USAGE)
    typer.echo(f"{output} is now the model {found.name}, {found.source_language} to {found.target_language}")


@app.command(
    "export",
    epilog="Example: gossamer export --ctranslate2 models/en-fr-ct2    docs/importing.md says what is the same there.",
)
def export_model(
    ctranslate2: Annotated[
        Path, typer.Option("--ctranslate2", metavar="OUTPUT", help="Folder that becomes a CTranslate2 model.")
    ],
    model: ModelOption = None,
    quantization: Annotated[
        QuantizationName, typer.Option(help="Number format of the written weights; CTranslate2 can convert them later.")
    ] = QuantizationName.float32,
) -> None:
    """Turn a checkpoint into a model for CTranslate2, to compare or to use where Gossamer cannot run.

    The exit status is 0 if it was written, 2 if the checkpoint cannot be read, has something that CTranslate2 does not
    know, OUTPUT is taken, or the package ctranslate2 is missing; nothing is written then.
    """
    from model.checkpoint import CheckpointError
    from model.exporters.ctranslate2 import CTranslate2Missing, export_ctranslate2

    try:
        found = export_ctranslate2(
            _folder_of(model) if model else _only_model(_settings()), ctranslate2, quantization=quantization.value
        )
    except (CheckpointError, CTranslate2Missing, OSError) as error:
        _fail(str(error), EXIT_USAGE)
    typer.echo(
        f"{ctranslate2} is now {found.name}, {found.source_language} to {found.target_language}, for CTranslate2"
    )
