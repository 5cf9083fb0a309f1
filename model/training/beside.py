"""What a tool knows about every line of a data file (links, scores), kept in a file beside it.

A first line says which file it was made from, then comes one line for each of its lines, empty where nothing is known.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from model.training.data import DataError


def beside_path(folder: Path, data: Path, kind: str) -> Path:
    """Where ``folder`` keeps the ``kind`` ("links", "scores") of a data file."""
    return folder / f"{data.name.removesuffix('.gz').removesuffix('.tsv')}.{kind}.gz"


def write_beside(folder: Path, data: Path, kind: str, lines: Iterable[str]) -> Path:
    """Write one line for each line of ``data``; returns the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = beside_path(folder, data, kind)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with gzip.open(unfinished, "wt", encoding="utf-8") as file:
        file.write(json.dumps(_header(data)) + "\n")
        file.writelines(f"{line}\n" for line in lines)
    unfinished.replace(path)
    return path


def read_beside(folder: Path, data: Path, kind: str) -> Iterator[str]:
    """The lines that belong to the lines of ``data``.

    Raises:
        DataError: When the file is missing, or was made from other data than ``data`` holds now.
    """
    path = beside_path(folder, data, kind)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            header = file.readline()
            try:
                made_from = json.loads(header)
            except ValueError:
                made_from = None
            if made_from != _header(data):
                raise DataError(f"{path} was made from {made_from}, not from {data} as it is now: make it again")
            for line in file:
                yield line.rstrip("\n")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; it must hold the {kind} of {data}") from None
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise DataError(f"{path}: damaged: {error}") from error


def _header(data: Path) -> dict[str, str]:
    try:
        with data.open("rb") as file:
            return {"file": data.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except FileNotFoundError:
        raise DataError(f"{data}: no such file") from None
