"""All settings of the server: where they come from, what is allowed, and every fault at once.

Each setting is an environment variable (`GOSSAMER_PORT`), a line of the TOML file that `GOSSAMER_CONFIG` names
(`port = 8000`), or an argument of `load_settings` (options of the command line). An argument wins over the
environment, the environment over the file, the file over the default. Nothing is read when this module is imported.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from model.config import DeviceName, Precision
from model.decoding import USUAL_BEAM_THRESHOLD
from service.engine.limits import EngineLimits, InvalidLimits

ENV_PREFIX = "GOSSAMER_"
CONFIG_VARIABLE = "GOSSAMER_CONFIG"
BUNDLED_MODELS = Path(__file__).resolve().parent.parent / "model" / "pretrained"

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_ENGINE = EngineLimits()
_STORAGES = ("memory://", "redis://", "rediss://", "redis+unix://")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+")
_SECRETS = ("limits_storage",)
"""Settings whose values are shown nowhere: a URL may hold a password."""


class SettingsError(ValueError):
    """The settings cannot be used.

    Attributes:
        faults: Every fault that was found, each naming its variable, line or option.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("the settings cannot be used:\n" + "\n".join(f"  {fault}" for fault in self.faults))


class Settings(BaseSettings):
    """The settings, checked. `load_settings` reads them; the constructor alone reads no environment and no file."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    models: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description="Checkpoint folders to serve, parted by the system's path separator (`:`, on Windows `;`). "
        "Empty: every model that comes with Gossamer.",
    )

    allow_open: bool = Field(
        False, description="Listen on an address that others can reach although no keys are needed."
    )
    keys_file: Path | None = Field(None, description="File of API keys (`gossamer keys`); with it, a key is needed.")
    metrics_need_key: bool = Field(False, description="Where keys are needed, `/metrics` needs one too, with `admin`.")
    key_requests_per_minute: int | None = Field(None, ge=1, description="For each key that has no limit of its own.")
    key_tokens_per_minute: int | None = Field(None, ge=1, description="The same, in source tokens.")
    address_requests_per_minute: int | None = Field(None, ge=1, description="For each address without a key.")
    address_tokens_per_minute: int | None = Field(None, ge=1, description="The same, in source tokens.")
    limits_storage: SecretStr = Field(
        SecretStr("memory://"), description="Where rates are counted; `redis://...` if several replicas count together."
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Addresses or networks whose `X-Forwarded-For` is believed, parted by commas."
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Origins whose pages may use the API, parted by commas; `*` for all."
    )

    max_body_bytes: int = Field(2 * 1024**2, ge=1024, description="Longest body of a request.")
    max_text_bytes: int = Field(
        128 * 1024, ge=1, description="Most text in one request: all its texts together, as UTF-8."
    )
    max_texts: int = Field(1024, ge=1, description="Most texts in one request.")
    max_file_bytes: int = Field(
        10 * 1024**2,
        ge=1024,
        description="Longest file that is translated; packed ones may unpack to ten times as much.",
    )
    max_segment_tokens: int = Field(
        128,
        ge=8,
        description="Longest segment shown to a model whole, in source tokens with the end of sentence; "
        "what is longer is translated in windows. A model's own limit counts if it is lower.",
    )
    default_beam_size: int = Field(
        4, ge=1, le=16, description="Hypotheses kept alive where a request does not say; 1 is greedy, and fastest."
    )
    default_beam_threshold: float = Field(
        USUAL_BEAM_THRESHOLD,
        ge=0,
        le=1_000,
        description="Nats below the best hypothesis at which one of a beam is given up, where a request does not say.",
    )
    request_timeout_seconds: float = Field(
        60.0,
        gt=0,
        le=86_400,
        description="A translation that is not done by then is given up; no request may ask for a longer deadline.",
    )
    file_timeout_seconds: float = Field(
        600.0, gt=0, le=86_400, description="A file that is not translated by then is given up."
    )
    file_lifetime_seconds: float = Field(
        3_600.0, gt=0, le=604_800, description="How long a translated file waits to be fetched."
    )
    file_store_bytes: int = Field(
        256 * 1024**2, ge=1024, description="Most bytes of translated files that wait, all together."
    )
    receive_timeout_seconds: float = Field(
        30.0,
        gt=0,
        le=3_600,
        description="How long a request may take to arrive: first its headers, then its body.",
    )
    stop_grace_seconds: float = Field(
        60.0,
        ge=0,
        le=3_600,
        description="How long running requests may go on when the server is told to stop; the default is as long as "
        "any translation may take.",
    )

    max_rows: int = Field(
        _ENGINE.max_rows,
        ge=1,
        description="Rows decoded in one step; a beam takes as many as it is wide. A quarter is for newcomers.",
    )
    kv_cache_bytes: int = Field(
        _ENGINE.kv_cache_bytes, ge=1, description="Memory for keys and values of all running sequences."
    )
    max_waiting_tokens: int = Field(
        _ENGINE.max_waiting_tokens, ge=1, description="Source tokens that may wait; beyond, requests are refused."
    )
    max_wait_seconds: float = Field(
        _ENGINE.max_wait_seconds,
        gt=0,
        le=86_400,
        description="What would wait longer until all of it has been started, or the first ten sentences or so, is "
        "refused.",
    )
    max_encode_tokens_per_step: int = Field(
        _ENGINE.max_encode_tokens_per_step, ge=1, description="Source tokens encoded between two decode steps."
    )
    max_source_tokens: int = Field(
        _ENGINE.max_source_tokens, ge=8, description="Longest source the engine takes, end of sentence included."
    )
    max_target_tokens: int = Field(
        _ENGINE.max_target_tokens, ge=1, description="Longest target the engine writes, end of sentence included."
    )
    target_tokens_per_source_token: float = Field(
        _ENGINE.target_tokens_per_source_token,
        gt=0,
        description="A target without a limit of its own may be this many times as long as its source ...",
    )
    extra_target_tokens: int = Field(_ENGINE.extra_target_tokens, ge=1, description="... and this many tokens more.")
    device: DeviceName = Field(
        "auto", description="Where models are computed: `cpu`, `cuda`, or `auto` for a GPU if there is one."
    )
    precision: Precision = Field(
        "auto",
        description="Number format of the matrices: `float32`, `bfloat16`, `float16`, `int8`, or `auto` for the "
        "fastest there is.",
    )
    batch_invariant: bool = Field(
        False, description="Compute so that no bit of a sentence depends on what is translated beside it; slower."
    )
    cuda_graphs: bool = Field(
        True, description="On a GPU, capture decode steps as CUDA graphs; off, they run kernel by kernel."
    )
    self_check: bool = Field(
        True, description="Be ready only when each model has translated a sentence well; untrained ones never do."
    )
    torch_threads: int | None = Field(
        None, ge=1, le=1024, description="Threads that PyTorch computes with. Unset: PyTorch decides."
    )

    inspection: bool = Field(
        True, description="Whether anybody may look inside: attention, stations, alignment, scores, candidates."
    )
    max_inspection_tokens: int = Field(
        2_048, ge=16, description="Most source and target tokens, together, whose inside one request may look into."
    )
    max_inspection_bytes: int = Field(
        16 * 1024**2, ge=1024, description="Largest answer about the inside, as far as its numbers go."
    )
    max_waiting_inspections: int = Field(
        8, ge=0, description="Requests that may wait for the one that is looking inside; more are refused with 429."
    )

    log_level: LogLevel = Field("info", description="Least important lines to log: debug, info, warning or error.")
    log_format: LogFormat = Field("text", description="`text` for people, `json` for programs.")
    tracing: bool = Field(
        False, description="Send spans of requests to an OpenTelemetry collector; `OTEL_*` variables say where it is."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the library's signature, here and below
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the constructor is given: `load_settings` merges the sources, so that it can name them."""
        return (init_settings,)

    @field_validator("models", mode="before")
    @classmethod
    def _split_paths(cls, value: object) -> object:
        return tuple(part for part in value.split(os.pathsep) if part) if isinstance(value, str) else value

    @field_validator("log_level", "log_format", "device", "precision", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("trusted_proxies", "cors_origins", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for part in value:
            try:
                ip_network(part)
            except ValueError as error:
                raise _fault(f"{part!r} is no address or network ({error})") from error
        return value

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for part in value:
            if part != "*" and not _ORIGIN.fullmatch(part):
                raise _fault(f"{part!r} is no origin such as https://example.org, without a path")
        return value

    @field_validator("limits_storage")
    @classmethod
    def _is_storage(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(_STORAGES):
            raise _fault(f"must begin with {', '.join(_STORAGES)}")
        return value

    @field_validator(
        "torch_threads",
        "keys_file",
        "key_requests_per_minute",
        "key_tokens_per_minute",
        "address_requests_per_minute",
        "address_tokens_per_minute",
        mode="before",
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _limits_fit_together(self) -> Self:
        faults = []
        try:
            self.engine_limits()
        except InvalidLimits as error:
            faults.append((error.field, str(error)))
        if not is_loopback(self.host) and self.keys_file is None and not self.allow_open:
            text = (
                f"host={self.host!r} can be reached from other machines, and no keys are needed: "
                "set GOSSAMER_KEYS_FILE (see `gossamer keys --help`), "
                "or GOSSAMER_ALLOW_OPEN=true (--open) if everyone may use it"
            )
            faults.append(("host", text))
        if faults:
            raise _errors_at([(field, getattr(self, field), text) for field, text in faults])
        return self

    def engine_limits(self) -> EngineLimits:
        """The engine's part of the settings."""
        return EngineLimits(**{name: getattr(self, name) for name in EngineLimits.__dataclass_fields__})

    def model_folders(self) -> tuple[Path, ...]:
        """The folders of the models to serve, in the order of their names if none were chosen."""
        if self.models:
            return self.models
        return tuple(sorted(config.parent for config in BUNDLED_MODELS.glob("*/config.json")))


def load_settings(environ: Mapping[str, str] | None = None, **arguments: object) -> Settings:
    """Reads the settings once.

    Args:
        environ: The environment; the process's own by default.
        **arguments: Settings that win over environment and file; None stands for "not given".

    Raises:
        SettingsError: Lists every fault: unknown names (with the nearest one there is), wrong types, values out of
            range, a file that cannot be read.
    """
    environ = os.environ if environ is None else environ
    faults: list[str] = []
    sources = [
        _from_file(environ.get(CONFIG_VARIABLE), faults),
        _from_environment(environ, faults),
        {name: (f"--{name.replace('_', '-')}", value) for name, value in arguments.items() if value is not None},
    ]
    merged: dict[str, tuple[str, object]] = {}
    for source in sources:
        merged |= source
    try:
        settings = Settings(**{name: value for name, (_, value) in merged.items()})  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as error:
        faults += [_describe(details, merged) for details in error.errors()]
    if faults:
        raise SettingsError(faults)
    return settings


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, tuple[str, object]]:
    found: dict[str, tuple[str, object]] = {}
    known = [ENV_PREFIX + name.upper() for name in Settings.model_fields]
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable in known:
            found[variable.removeprefix(ENV_PREFIX).lower()] = (variable, environ[variable])
        else:
            faults.append(f"{variable}: there is no such setting{_nearest(variable, [*known, CONFIG_VARIABLE])}")
    return found


def _from_file(path: str | None, faults: list[str]) -> dict[str, tuple[str, object]]:
    if not path:
        return {}
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(f"{CONFIG_VARIABLE}: {path} cannot be read ({error.strerror})")
        return {}
    except ValueError as error:  # not UTF-8, or not TOML
        faults.append(f"{CONFIG_VARIABLE}: {path} is not a TOML file ({error})")
        return {}
    found: dict[str, tuple[str, object]] = {}
    for name, value in content.items():
        if name in Settings.model_fields:
            found[name] = (f"{name} in {path}", _in_file(Path(path).parent, name, value))
        else:
            faults.append(f"{name} in {path}: there is no such setting{_nearest(name, Settings.model_fields)}")
    return found


def _in_file(folder: Path, name: str, value: object) -> object:
    """A value as it is meant: lists are lists, and paths start where the file stands."""
    if name == "models":
        return _relative_to(folder, value)
    if name == "keys_file" and isinstance(value, str) and value:
        return folder / value
    return tuple(value) if isinstance(value, list) else value


def _relative_to(folder: Path, value: object) -> object:
    """Paths in a file are meant from where the file stands."""
    if isinstance(value, str):
        value = [part for part in value.split(os.pathsep) if part]
    if isinstance(value, list):
        return tuple(folder / item if isinstance(item, str) else item for item in value)
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    # What all begin with says nothing: GOSSAMER_FOO is not near to GOSSAMER_PORT.
    by_stem = {each.removeprefix(ENV_PREFIX): each for each in known}
    matches = difflib.get_close_matches(name.removeprefix(ENV_PREFIX), list(by_stem), n=1, cutoff=0.6)
    return f"; did you mean {by_stem[matches[0]]}?" if matches else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("fault", "{text}", {"text": message})


def _errors_at(faults: Iterable[tuple[str, object, str]]) -> ValidationError:
    details = [
        InitErrorDetails(type=PydanticCustomError("limits", "{text}", {"text": text}), loc=(field,), input=value)
        for field, value, text in faults
    ]
    return ValidationError.from_exception_data("Settings", details)


def _describe(details: ErrorDetails, merged: Mapping[str, tuple[str, object]]) -> str:
    name = str(details["loc"][0]) if details["loc"] else ""
    context: dict[str, Any] = details.get("ctx") or {}
    if "text" in context and details["type"] == "limits":
        field = str(context["text"]).partition("=")[0]
        where = merged[field][0] if field in merged else ENV_PREFIX + field.upper()
        return f"{where}: {context['text']}"
    where, value = merged.get(name, (name, details["input"]))
    if name in _SECRETS:
        value = "**********"
    message = details["msg"][:1].lower() + details["msg"][1:]
    return f"{where}: {message}, but it is {value!r}"
