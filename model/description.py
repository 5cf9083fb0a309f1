"""What a checkpoint says about itself, read from its ``config.json`` alone, and its tokenizer, both without torch.

A checkpoint is a folder:

    config.json         what :func:`describe` reads
    model.safetensors   the weights, each stored once, in any float format
    tokenizer.model     or whatever names config.json gives; the tokenizer of an imported model has several files
    MODEL_CARD.md       for people; optional
    lexicon.txt.gz      words that the training data copies or translates (``model.lexicon``); optional

The weights are read by ``model.checkpoint``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from model.config import ConfigError, TransformerConfig
from model.decoding import DecodingOptions, InvalidDecodingOptions
from model.marian_tokenizer import MarianTokenizer, UnknownTargetTag
from model.tokenizer import TextTokenizer, Tokenizer, TokenizerModelError

FORMAT = 1
"""Version of the folder's layout; a change that older readers would misread raises it."""

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "MODEL_CARD.md"

_REQUIRED = ("format", "name", "source_language", "target_language", "model", "tokenizer")
_KNOWN = (*_REQUIRED, "training", "max_source_tokens")


class CheckpointError(ValueError):
    """A checkpoint cannot be read or written; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class SentencePieceFiles:
    """The tokenizer of our own models, `model.tokenizer.Tokenizer`.

    Attributes:
        file: The name of its file within the folder.
    """

    kind: ClassVar[str] = "sentencepiece"
    file: str

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all its files."""
        return (self.file,)


@dataclass(frozen=True)
class MarianFiles:
    """The tokenizer of an imported model, `model.marian_tokenizer.MarianTokenizer`; file names are within the folder.

    Attributes:
        source_model: SentencePiece model of the sources.
        target_model: SentencePiece model of the targets.
        vocabulary: The ids of pieces, of both sides or of the source.
        target_vocabulary: The ids of the target's pieces; None if both sides share one vocabulary.
        target_tags: The target languages of a model that has several, as its tags name them.
        target_tag: Which of them is meant when a request does not choose; None for no tag.
    """

    kind: ClassVar[str] = "marian"
    source_model: str
    target_model: str
    vocabulary: str
    target_vocabulary: str | None = None
    target_tags: tuple[str, ...] = ()
    target_tag: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all its files."""
        shared = (self.source_model, self.target_model, self.vocabulary)
        return shared if self.target_vocabulary is None else (*shared, self.target_vocabulary)


TokenizerFiles = SentencePieceFiles | MarianFiles
_TOKENIZER_KINDS: dict[str, type[TokenizerFiles]] = {
    SentencePieceFiles.kind: SentencePieceFiles,
    MarianFiles.kind: MarianFiles,
}


@dataclass(frozen=True)
class Description:
    """A checkpoint without its weights.

    Attributes:
        name: What requests call the model.
        source_language: Language code of what it reads.
        target_language: Language code of what it writes.
        config: Shape and arithmetic.
        tokenizer: Kind and files of its tokenizer; :func:`open_tokenizer` opens it.
        training: Facts about the training (steps, data, scores, ...), as the trainer wrote them.
        max_source_tokens: The longest source that it was made for, eos included; None if that is not known.
    """

    name: str
    source_language: str
    target_language: str
    config: TransformerConfig
    tokenizer: TokenizerFiles = SentencePieceFiles("tokenizer.model")
    training: Mapping[str, Any] = field(default_factory=dict)
    max_source_tokens: int | None = None

    @property
    def tokenizer_file(self) -> str:
        """The name of the tokenizer's first file, the only one of a model of our own."""
        return self.tokenizer.files[0]

    def to_dict(self) -> dict[str, Any]:
        """What ``config.json`` holds; what is not known or not there is left out."""
        tokenizer = dataclasses.asdict(self.tokenizer)
        values = {
            "format": FORMAT,
            "name": self.name,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "model": self.config.to_dict(),
            "tokenizer": {"kind": self.tokenizer.kind} | {key: tokenizer[key] for key in tokenizer if tokenizer[key]},
            "training": dict(self.training),
        }
        if self.max_source_tokens is not None:
            values["max_source_tokens"] = self.max_source_tokens
        return values


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


_ADVISED = ("beam_size", "length_penalty", "no_repeat_ngram_size", "repetition_penalty", "early_stopping")


def advised_decoding(training: Mapping[str, Any]) -> dict[str, Any]:
    """How the makers of a model advise to search, as fields of `DecodingOptions`; empty where they say nothing.

    Only what makes a translation better or worse counts. A limit of target tokens is none of it: the makers' own is
    that of their program, and here it would set apart memory that no sentence needs. Sampling is for who asks for it.

    Args:
        training: Of the checkpoint.

    Raises:
        InvalidDecodingOptions: An advice that no search can follow.
    """
    advice = training.get("advised_decoding", {})
    chosen = {name: advice[name] for name in _ADVISED if name in advice}
    DecodingOptions(**chosen)
    return chosen


def open_tokenizer(folder: str | Path, description: Description) -> TextTokenizer:
    """Open the tokenizer of a checkpoint, of either kind.

    Args:
        folder: Holds its files.
        description: Of the checkpoint; what the tokenizer has to fit.

    Raises:
        CheckpointError: Naming the file that is missing, damaged, or does not fit the model.
    """
    folder, files, config = Path(folder), description.tokenizer, description.config
    tokenizer: Tokenizer | MarianTokenizer
    try:
        if isinstance(files, SentencePieceFiles):
            tokenizer = Tokenizer(folder / files.file)
            source_path, source_vocab_size = folder / files.file, tokenizer.vocab_size
        else:
            tokenizer = MarianTokenizer(
                *(folder / file for file in files.files),
                target_language=description.target_language,
                target_tag=files.target_tag,
            )
            source_path, source_vocab_size = folder / files.vocabulary, tokenizer.source_vocab_size
            if files.target_tags != tokenizer.target_tags:
                raise CheckpointError(
                    f"{folder / CONFIG_FILE}: tokenizer.target_tags is {list(files.target_tags)}, "
                    f"but {source_path.name} has {list(tokenizer.target_tags)}"
                )
    except TokenizerModelError as error:
        raise CheckpointError(str(error)) from error
    except UnknownTargetTag as error:
        raise CheckpointError(f"{folder / CONFIG_FILE}: tokenizer.target_tag: {error}") from error
    path = folder / files.files[-1]
    _check_size(source_path, source_vocab_size, "source_vocab_size", config)
    _check_size(path, tokenizer.vocab_size, "target_vocab_size", config)
    for name, given in (
        ("pad_id", tokenizer.pad_id),
        ("eos_id", tokenizer.eos_id),
        ("decoder_start_id", tokenizer.bos_id),
    ):
        if getattr(config, name) != given:
            raise CheckpointError(f"{path}: its {name} is {given}, but the model's is {getattr(config, name)}")
    return tokenizer


def _check_size(path: Path, size: int, name: str, config: TransformerConfig) -> None:
    if getattr(config, name) != size:
        raise CheckpointError(f"{path}: has {size} pieces, but the model's {name} is {getattr(config, name)}")


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
    tokenizer = _parse_tokenizer(values["tokenizer"], path)
    try:
        config = TransformerConfig.from_dict(values["model"])
    except ConfigError as error:
        raise CheckpointError(f"{path}: model: {error}") from error
    training = values.get("training") or {}
    if not isinstance(training.get("advised_decoding", {}), dict):
        raise CheckpointError(f"{path}: training.advised_decoding must be an object")
    try:
        advised_decoding(training)
    except InvalidDecodingOptions as error:
        raise CheckpointError(f"{path}: training.advised_decoding: {error}") from error
    return Description(
        name=values["name"],
        source_language=values["source_language"],
        target_language=values["target_language"],
        config=config,
        tokenizer=tokenizer,
        training=training,
        max_source_tokens=values.get("max_source_tokens"),
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
    longest = values.get("max_source_tokens", 1)
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 1:
        raise CheckpointError(f"{path}: max_source_tokens is {longest!r}; it must be a whole number of at least 1")


def _parse_tokenizer(values: dict[str, Any], path: Path) -> TokenizerFiles:
    given = values.get("kind", SentencePieceFiles.kind)
    if not isinstance(given, str) or given not in _TOKENIZER_KINDS:
        raise CheckpointError(f"{path}: tokenizer.kind is {given!r}; it must be one of {', '.join(_TOKENIZER_KINDS)}")
    kind = _TOKENIZER_KINDS[given]
    known = dataclasses.fields(kind)
    required = ["kind", *(one.name for one in known if one.default is dataclasses.MISSING)]
    allowed = ["kind", *(one.name for one in known)]
    if not set(required) <= set(values) <= set(allowed):
        optional = f", and may be {', '.join(allowed[len(required) :])}" if len(allowed) > len(required) else ""
        raise CheckpointError(
            f"{path}: tokenizer has the fields {sorted(values)}; they must be "
            f"{', '.join(required[:-1])} and {required[-1]}{optional}"
        )
    fields = {name: value for name, value in values.items() if name != "kind"}
    for name, value in fields.items():
        _check_tokenizer_field(name, value, path)
    if "target_tags" in fields:
        fields["target_tags"] = tuple(fields["target_tags"])
    return kind(**fields)


def _check_tokenizer_field(name: str, value: object, path: Path) -> None:
    if name == "target_tags":
        if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
            raise CheckpointError(f"{path}: tokenizer.target_tags is {value!r}; it must be a list of strings")
    elif name == "target_tag":
        if not isinstance(value, str):
            raise CheckpointError(f"{path}: tokenizer.target_tag is {value!r}; it must be a string")
    # A checkpoint may come from anyone: its files are looked for inside its folder and nowhere else.
    elif not isinstance(value, str) or value in ("", ".", "..") or "/" in value or "\\" in value or "\0" in value:
        raise CheckpointError(
            f"{path}: tokenizer.{name} is {value!r}; it must be the name of a file in the same folder"
        )
