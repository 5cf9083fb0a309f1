"""What a checkpoint says about itself, read from its ``config.json`` alone, without torch.

A checkpoint is a folder:

    config.json         what :func:`describe` reads
    model.safetensors   the weights, each stored once, in any float format
    tokenizer.model     or whatever name config.json gives
    MODEL_CARD.md       for people; optional

The weights are read by ``model.checkpoint``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.config import ConfigError, TransformerConfig

FORMAT = 1
"""Version of the folder's layout; a change that older readers would misread raises it."""

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "MODEL_CARD.md"

_REQUIRED = ("format", "name", "source_language", "target_language", "model", "tokenizer")
_KNOWN = (*_REQUIRED, "training")
_TOKENIZER_KINDS = ("sentencepiece",)


class CheckpointError(ValueError):
    """A checkpoint cannot be read or written; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Description:
    """A checkpoint without its weights.

    Attributes:
        name: What requests call the model.
        source_language: Language code of what it reads.
        target_language: Language code of what it writes.
        config: Shape and arithmetic.
        tokenizer_kind: Which class reads the tokenizer file.
        tokenizer_file: Its name within the folder.
        training: Facts about the training (steps, data, scores, ...), as the trainer wrote them.
    """

    name: str
    source_language: str
    target_language: str
    config: TransformerConfig
    tokenizer_kind: str = "sentencepiece"
    tokenizer_file: str = "tokenizer.model"
    training: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """What ``config.json`` holds."""
        return {
            "format": FORMAT,
            "name": self.name,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "model": self.config.to_dict(),
            "tokenizer": {"kind": self.tokenizer_kind, "file": self.tokenizer_file},
            "training": dict(self.training),
        }


def describe(folder: str | Path) -> Description:
    """Read a checkpoint's ``config.json`` and nothing else.

    Raises:
        CheckpointError: Naming the folder or file that is missing or the field that is wrong.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(
            f"checkpoint {folder}: {'not a folder' if folder.exists() else 'there is no such folder'}"
        )
    return parse_description(read_file(folder / CONFIG_FILE), folder / CONFIG_FILE)


def read_file(path: Path) -> bytes:
    """The bytes of one of the checkpoint's files.

    Raises:
        CheckpointError: Naming the file and why it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error


def parse_description(content: bytes, path: Path) -> Description:
    """Check what a ``config.json`` holds.

    Args:
        content: The bytes of the file.
        path: Where they came from, for messages.

    Raises:
        CheckpointError: Naming the file and the field that is wrong.
    """
    try:
        values = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: holds {type(values).__name__}, not an object")
    _check_fields(values, path)
    tokenizer = values["tokenizer"]
    try:
        config = TransformerConfig.from_dict(values["model"])
    except ConfigError as error:
        raise CheckpointError(f"{path}: model: {error}") from error
    return Description(
        name=values["name"],
        source_language=values["source_language"],
        target_language=values["target_language"],
        config=config,
        tokenizer_kind=tokenizer["kind"],
        tokenizer_file=tokenizer["file"],
        training=values.get("training") or {},
    )


def _check_fields(values: dict[str, Any], path: Path) -> None:
    # The format comes first: another format may well have other fields.
    if "format" in values and (values["format"] != FORMAT or isinstance(values["format"], bool)):
        raise CheckpointError(f"{path}: format is {values['format']!r}; this version reads format {FORMAT}")
    missing = [name for name in _REQUIRED if name not in values]
    if missing:
        raise CheckpointError(f"{path}: missing field(s) {', '.join(missing)}")
    unknown = sorted(set(values) - set(_KNOWN))
    if unknown:
        raise CheckpointError(f"{path}: unknown field(s) {', '.join(unknown)}; known are {', '.join(_KNOWN)}")
    for name in ("name", "source_language", "target_language"):
        if not isinstance(values[name], str) or not values[name]:
            raise CheckpointError(f"{path}: {name} is {values[name]!r}; it must be a string that is not empty")
    for name in ("model", "tokenizer", "training"):
        if not isinstance(values.get(name, {}), dict):
            raise CheckpointError(f"{path}: {name} is {values[name]!r}; it must be an object")
    _check_tokenizer(values["tokenizer"], path)


def _check_tokenizer(tokenizer: dict[str, Any], path: Path) -> None:
    if set(tokenizer) != {"kind", "file"}:
        raise CheckpointError(f"{path}: tokenizer has the fields {sorted(tokenizer)}; they must be kind and file")
    if tokenizer["kind"] not in _TOKENIZER_KINDS:
        raise CheckpointError(
            f"{path}: tokenizer.kind is {tokenizer['kind']!r}; it must be one of {', '.join(_TOKENIZER_KINDS)}"
        )
    file = tokenizer["file"]
    # A checkpoint may come from anyone: its files are looked for inside its folder and nowhere else.
    if not isinstance(file, str) or file in ("", ".", "..") or "/" in file or "\\" in file or "\0" in file:
        raise CheckpointError(f"{path}: tokenizer.file is {file!r}; it must be the name of a file in the same folder")
