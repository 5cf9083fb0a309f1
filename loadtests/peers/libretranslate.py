"""The real LibreTranslate, its released package in an environment of its own, with our bundled model's weights.

    python -m loadtests.peers.libretranslate            # set it up in runs/peers/libretranslate, once: 2-5 minutes
    python -m loadtests.peers.libretranslate --serve    # and serve it on port 5000

Packages come from the Python package index when it is set up; afterwards nothing is downloaded. LibreTranslate's own,
and left so: Argos Translate splits text, tokenizes it with our SentencePiece model (without our normaliser),
calls CTranslate2, request by request, in threads. What is chosen, to its advantage where there was a choice:

- Weights: `gossamer export --ctranslate2` in int8, in Argos' package layout (metadata.json, model/,
  sentencepiece.model); `add_source_eos` is on, since Argos does not end its sources itself.
- Sentences: its default, MiniSBD, downloads a neural model when first used. Argos also reads a spaCy pipeline from
  the package: ours is an empty English one, to which Argos adds spaCy's rules for sentence ends: faster, too.
- Greedy (`ARGOS_BEAM_SIZE=1`) as all peers, as many CTranslate2 workers as cores with a thread each, 16 HTTP threads;
  the released defaults are a beam of 4, one worker and 4 threads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from loadtests.servers import ServerProcess
from service.settings import BUNDLED_MODELS

LIBRETRANSLATE, SPACY = "libretranslate==1.9.6", "spacy==3.8.*"
_HTTP_THREADS = 16
# In its environment: the empty pipeline, and the space before a text that our normaliser otherwise adds.
_FINISH = """
import pathlib, sys
import spacy
from sentencepiece import sentencepiece_model_pb2
package = pathlib.Path(sys.argv[1])
spacy.blank("en").to_disk(package / "spacy")
model = sentencepiece_model_pb2.ModelProto()
model.ParseFromString((package / "sentencepiece.model").read_bytes())
model.normalizer_spec.add_dummy_prefix = True
(package / "sentencepiece.model").write_bytes(model.SerializeToString())
"""


def is_set_up(folder: Path) -> bool:
    """Whether it is installed there."""
    return (folder / "venv" / "installed").exists()


def set_up(folder: Path) -> None:
    """Install it and give it the bundled model, as far as that is not done; a new bundled model is converted again."""
    python = folder / "venv" / "bin" / "python"
    if not is_set_up(folder):
        sys.stderr.write(f"installing {LIBRETRANSLATE} into {folder / 'venv'}\n")
        venv.create(folder / "venv", with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", LIBRETRANSLATE, SPACY], check=True)
        (folder / "venv" / "installed").touch()
    stat = (BUNDLED_MODELS / "en-fr" / "model.safetensors").stat()
    mark = folder / f"model-{stat.st_size}-{stat.st_mtime_ns}"
    if not mark.exists():
        _write_package(folder, python)
        for old in folder.glob("model-*"):
            old.unlink()
        mark.touch()


def _write_package(folder: Path, python: Path) -> None:
    from model.exporters.ctranslate2 import export_ctranslate2

    package = folder / "data" / "argos-translate" / "packages" / "translate-en_fr"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    metadata = {"package_version": "1.0", "argos_version": "1.9", "from_code": "en", "from_name": "English"}
    metadata |= {"to_code": "fr", "to_name": "French"}
    (package / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    export_ctranslate2(BUNDLED_MODELS / "en-fr", package / "model", quantization="int8")
    config = json.loads((package / "model" / "config.json").read_text(encoding="utf-8"))
    (package / "model" / "config.json").write_text(json.dumps(config | {"add_source_eos": True}), encoding="utf-8")
    shutil.move(package / "model" / "tokenizer.model", package / "sentencepiece.model")
    subprocess.run([python, "-W", "ignore", "-c", _FINISH, package], check=True)
    # Argos downloads a pipeline for packages without one when it is imported, unless it finds this file.
    senter = folder / "cache" / "argos-translate" / "spacy" / "senter"
    senter.mkdir(parents=True, exist_ok=True)
    (senter / "model").touch()


def start(folder: Path, threads: int) -> ServerProcess:
    """Start what was set up; `threads` are CTranslate2's workers."""
    command = [str(folder / "venv" / "bin" / "libretranslate"), "--host", "127.0.0.1", "--port", "{port}"]
    command += ["--load-only", "en,fr", "--threads", str(_HTTP_THREADS), "--disable-web-ui"]
    return ServerProcess(
        "libretranslate",
        command,
        environment(folder, threads),
        ready_path="/health",
    )


def environment(folder: Path, threads: int) -> dict[str, str]:
    """What it is told."""
    folder = folder.resolve()
    return {
        **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "CONFIG", "CACHE")},
        "ARGOS_CHUNK_TYPE": "SPACY", "ARGOS_COMPUTE_TYPE": "int8", "ARGOS_BEAM_SIZE": "1",
        "ARGOS_INTER_THREADS": str(threads), "ARGOS_INTRA_THREADS": "1",
        # With fewer than two packages it looks for more when it starts, and goes on without.
        "ARGOS_PACKAGE_INDEX": "file:///nowhere/", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip


def main() -> None:
    """Set up; serve if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/peers/libretranslate"))
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    set_up(arguments.folder)
    if arguments.serve:
        command = [str(arguments.folder / "venv" / "bin" / "libretranslate"), "--host", "127.0.0.1"]
        command += ["--port", str(arguments.port), "--load-only", "en,fr", "--threads", str(_HTTP_THREADS)]
        os.execve(command[0], command, {**os.environ, **environment(arguments.folder, arguments.threads)})


if __name__ == "__main__":
    main()
