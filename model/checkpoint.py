"""Reading and writing checkpoints; ``model.description`` says what one consists of.

checkpoint = load_checkpoint("model/pretrained/en-fr")
checkpoint.model, checkpoint.tokenizer, checkpoint.revision
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from model.config import Precision, TransformerConfig
from model.description import (
    CARD_FILE,
    CONFIG_FILE,
    WEIGHTS_FILE,
    CheckpointError,
    Description,
    SentencePieceFiles,
    describe,
    open_tokenizer,
    parse_description,
    read_file,
)
from model.linear import Linear
from model.tokenizer import TextTokenizer
from model.transformer import Transformer, choose_precision

__all__ = ["Checkpoint", "CheckpointError", "describe", "load_checkpoint", "save_checkpoint", "write_checkpoint"]

_TOKENIZER_FILE = "tokenizer.model"


@dataclass(frozen=True)
class Checkpoint:
    """A model ready to translate.

    Attributes:
        name: What requests call it.
        source_language: Language code of what it reads.
        target_language: Language code of what it writes.
        config: Shape and arithmetic.
        model: In evaluation mode; its weights ask for no gradient.
        tokenizer: Fits the model's vocabulary and special ids.
        revision: 16 hexadecimal digits that change when any byte of configuration, weights or tokenizer does.
        training: Facts about the training, as the trainer wrote them.
        max_source_tokens: The longest source that it was made for, eos included; None if that is not known.
    """

    name: str
    source_language: str
    target_language: str
    config: TransformerConfig
    model: Transformer
    tokenizer: TextTokenizer
    revision: str
    training: Mapping[str, Any]
    max_source_tokens: int | None = None


def load_checkpoint(
    folder: str | Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    precision: Precision | None = None,
    tokenizer: TextTokenizer | None = None,
) -> Checkpoint:
    """Read a checkpoint.

    Args:
        folder: The checkpoint.
        device: Where the weights go.
        dtype: What they are computed in, whatever the file holds.
        precision: As `Transformer.set_precision`, which is called. Matrices that become int8 do so one by one as they
            are read, so that the whole model is never held in floats; `set_precision` afterwards needs several times
            the memory. None leaves all in `dtype`.
        tokenizer: The folder's, where it is open already: of a large vocabulary one takes tens of megabytes.

    Raises:
        CheckpointError: Naming the file, and the field or tensor, that is missing, damaged or does not fit.
        Int8Unavailable: As `Transformer.set_precision`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        describe(folder)  # says what is there instead
    config_bytes = read_file(folder / CONFIG_FILE)
    description = parse_description(config_bytes, folder / CONFIG_FILE)
    tokenizer_bytes = [read_file(folder / file) for file in description.tokenizer.files]
    if tokenizer is None:
        tokenizer = open_tokenizer(folder, description)
    weights_before = _file_identity(folder / WEIGHTS_FILE)
    weights_digest = _file_digest(folder / WEIGHTS_FILE)
    with _one_thread():
        model = _load_model(folder / WEIGHTS_FILE, description.config, torch.device(device), dtype, precision)
    if _file_identity(folder / WEIGHTS_FILE) != weights_before:
        raise CheckpointError(f"{folder / WEIGHTS_FILE}: was changed while it was read")
    return Checkpoint(
        name=description.name,
        source_language=description.source_language,
        target_language=description.target_language,
        config=description.config,
        model=model,
        tokenizer=tokenizer,
        revision=_revision(_digest(config_bytes), weights_digest, *map(_digest, tokenizer_bytes)),
        training=description.training,
        max_source_tokens=description.max_source_tokens,
    )


def save_checkpoint(
    folder: str | Path,
    model: Transformer,
    tokenizer_path: str | Path,
    *,
    name: str,
    source_language: str,
    target_language: str,
    dtype: torch.dtype = torch.float16,
    training: Mapping[str, Any] | None = None,
    model_card: str | None = None,
) -> None:
    """Write a checkpoint of a model of our own; see :func:`write_checkpoint`.

    Args:
        folder: Where the checkpoint will be; its parents are made.
        model: Its weights are copied.
        tokenizer_path: The tokenizer's model file, copied.
        name: What requests call the model.
        source_language: Language code of what it reads.
        target_language: Language code of what it writes.
        dtype: What the weights are stored in.
        training: Facts about the training: anything that JSON can hold.
        model_card: Text of MODEL_CARD.md; None writes none.

    Raises:
        CheckpointError: As :func:`write_checkpoint`, or when the tokenizer does not fit the model.
    """
    tokenizer_path = Path(tokenizer_path)
    description = Description(
        name=name,
        source_language=source_language,
        target_language=target_language,
        config=model.config,
        tokenizer=SentencePieceFiles(tokenizer_path.name),
        training=training or {},
    )
    open_tokenizer(tokenizer_path.parent, description)
    write_checkpoint(
        folder,
        model,
        dataclasses.replace(description, tokenizer=SentencePieceFiles(_TOKENIZER_FILE)),
        [tokenizer_path.read_bytes()],
        dtype=dtype,
        model_card=model_card,
    )


def write_checkpoint(
    folder: str | Path,
    model: Transformer,
    description: Description,
    tokenizer_files: Sequence[bytes],
    *,
    dtype: torch.dtype,
    model_card: str | None = None,
) -> None:
    """Write a checkpoint of any kind; a reader sees all of it or nothing.

    Everything is written to a folder beside ``folder``, which then takes its name. An earlier checkpoint of that
    name is replaced whole, its model card included; between the two renames the name is free for a moment.

    Args:
        folder: Where the checkpoint will be; its parents are made.
        model: Its weights are copied.
        description: What ``config.json`` will hold; its configuration is the model's.
        tokenizer_files: Contents of the files that the description names, in its order. The caller has opened them
            (``open_tokenizer``), from wherever they lie.
        dtype: What the weights are stored in.
        model_card: Text of MODEL_CARD.md; None writes none.

    Raises:
        CheckpointError: When a weight is not finite in ``dtype``, or ``folder`` holds something else than a checkpoint.
            Nothing is changed then.
    """
    folder = Path(folder)
    config_text = json.dumps(description.to_dict(), indent=2, ensure_ascii=False) + "\n"
    parse_description(config_text.encode(), folder / CONFIG_FILE)  # what is written can be read
    weights = _stored_weights(model, dtype, folder / WEIGHTS_FILE)
    _check_replaceable(folder)

    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    unfinished.mkdir()
    try:
        _write(unfinished / CONFIG_FILE, config_text.encode())
        _write(unfinished / WEIGHTS_FILE, safetensors.torch.save(weights, {"format": "pt"}))
        for file, content in zip(description.tokenizer.files, tokenizer_files, strict=True):
            _write(unfinished / file, content)
        if model_card is not None:
            _write(unfinished / CARD_FILE, model_card.encode())
        _put_in_place(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextmanager
def _one_thread() -> Iterator[None]:
    """Many small operations: torch's workers would spin between them, ten times the work where the cores are taken."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _load_model(
    path: Path, config: TransformerConfig, device: torch.device, dtype: torch.dtype, precision: Precision | None
) -> Transformer:
    with torch.device("meta"):  # shapes without memory: no weight is drawn that the file replaces anyway
        model = Transformer(config)
    _check_shapes(path, model)
    wants_int8 = precision is not None and choose_precision(precision, device) == "int8" and device.type == "cpu"
    times_used = Counter(empty for _, empty in model.named_parameters(remove_duplicate=False))
    shared: dict[nn.Parameter, nn.Parameter] = {}
    for prefix, module in list(model.named_modules()):
        for attribute, empty in list(module.named_parameters(recurse=False)):
            weight = shared.get(empty)
            if weight is None:  # a shared weight is met first under the name it is stored by
                tensor = _read_tensor(path, f"{prefix}.{attribute}", device, dtype)
                weight = nn.Parameter(tensor, requires_grad=False)
                if times_used[empty] > 1:
                    shared[empty] = weight
            setattr(module, attribute, weight)
        if wants_int8 and isinstance(module, Linear):
            module.quantize()
    if precision is not None:
        model.set_precision(precision)
    return model.eval()


def _check_shapes(path: Path, model: Transformer) -> None:
    """Names and shapes, from the head of the file."""
    expected = dict(model.named_parameters())
    with _open_tensors(path) as tensors:
        names = list(tensors.keys())
        shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
    missing = [name for name in expected if name not in shapes]
    if missing:
        raise CheckpointError(f"{path}: missing tensor(s) {_listed(missing)}")
    unexpected = [name for name in names if name not in expected]
    if unexpected:
        raise CheckpointError(f"{path}: unexpected tensor(s) {_listed(unexpected)}")
    for name, shape in shapes.items():
        if shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: tensor {name} has shape {shape}; the configuration asks for {tuple(expected[name].shape)}"
            )


def _read_tensor(path: Path, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of its own. The file is opened for each: what was read of it stays in memory until it is closed."""
    with _open_tensors(path) as tensors:
        tensor: Tensor = tensors.get_tensor(name)
        if not tensor.is_floating_point():
            raise CheckpointError(f"{path}: tensor {name} holds {tensor.dtype}, not floating-point numbers")
        if not all(bound.isfinite() for bound in tensor.aminmax()):  # either is NaN if any number is
            raise CheckpointError(f"{path}: tensor {name} holds NaN or infinity")
        return tensor.to(device=device, dtype=dtype, copy=True)


@contextmanager
def _open_tensors(path: Path) -> Iterator[Any]:
    try:
        with safetensors.safe_open(path, "pt") as tensors:
            yield tensors
    except (safetensors.SafetensorError, KeyError) as error:
        raise CheckpointError(f"{path}: truncated or not a safetensors file ({error})") from error


def _stored_weights(model: Transformer, dtype: torch.dtype, path: Path) -> dict[str, Tensor]:
    """Each weight once, under the first of its names."""
    with torch.device("meta"):
        expected = dict(Transformer(model.config).named_parameters())
    missing = [name for name in expected if name not in dict(model.named_parameters())]
    if missing:  # as after Linear.quantize
        raise CheckpointError(f"{path}: the model no longer holds {_listed(missing)}; nothing was written")
    weights = {}
    for name, weight in model.named_parameters():
        weights[name] = weight.detach().to(device="cpu", dtype=dtype).contiguous()
        if not weights[name].isfinite().all():
            raise CheckpointError(
                f"{path}: tensor {name} has values that are not finite in {dtype}; nothing was written"
            )
    return weights


def _check_replaceable(folder: Path) -> None:
    """Saving replaces a whole folder, so it must hold nothing but an earlier checkpoint."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CheckpointError(f"checkpoint {folder}: is a file, and was left alone")
    try:
        tokenizer_files = describe(folder).tokenizer.files
    except CheckpointError:
        tokenizer_files = (_TOKENIZER_FILE,)
    known = {CONFIG_FILE, WEIGHTS_FILE, CARD_FILE, *tokenizer_files}
    others = sorted(entry.name for entry in folder.iterdir() if entry.name not in known)
    if others:
        raise CheckpointError(
            f"checkpoint {folder}: holds {_listed(others)}, which no checkpoint has; nothing was replaced"
        )


def _put_in_place(unfinished: Path, folder: Path) -> None:
    if not folder.exists():
        unfinished.rename(folder)
        return
    replaced = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    folder.rename(replaced)
    try:
        unfinished.rename(folder)
    except BaseException:
        replaced.rename(folder)
        raise
    shutil.rmtree(replaced)


def _write(path: Path, content: bytes) -> None:
    """Write through to the disk: a rename must not outlive what it names."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _revision(*digests: bytes) -> str:
    return _digest(b"".join(digests)).hex()[:16]


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _file_identity(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file is replaced or written to; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _file_digest(path: Path) -> bytes:
    """As `_digest` of its content, which is never held whole."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
