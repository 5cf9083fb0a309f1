"""All that a GPU is needed for, in one run: its tests, then speeds side by side, one table.

    python -m loadtests.gpu                # on a machine with a GPU; under ten minutes
    python -m loadtests.gpu --rehearse     # on a processor, with a tiny model: tries this script, says nothing of speed

Needed are PyTorch's CUDA build and this package with its extra `dev`, which has pytest, and transformers to compare
with; `peers` has CTranslate2. All run the same random weights, of OPUS-MT's shape. What is not installed, or fails, is
named in the table. Ends with 0 if all went well, with 1 if a test or a run of ours failed, with 3 if there is no GPU.

Terms are those of `loadtests.peers.decode_speed`. Figures are medians over rounds, in target tokens a second. Rounds
and works that do not fit into the time are left out and said so.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from loadtests.peers import decode_speed
from loadtests.peers.decode_speed import VOCAB_SIZE, Work, mixed_lengths, sources_of

if TYPE_CHECKING:
    from model.checkpoint import Checkpoint
    from model.config import DeviceName, Precision

EXIT_FAILED = 1
EXIT_NO_GPU = 3

_ROOT = Path(__file__).resolve().parents[1]
_TESTS_SECONDS = 240
_SENTENCE = (24, 32)


@dataclass
class Report:
    """What was found.

    Attributes:
        works: Their names, in the order of the table.
        speeds: Target tokens a second, by system and work.
        notes: By system, why something is missing.
        failures: What makes the run a failed one.
    """

    works: list[str]
    speeds: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def table(self) -> str:
        """For people: a line a system, a column a work."""
        width = max(map(len, [*self.speeds, *self.notes, "target tokens a second"])) + 2
        lines = ["".join([f"{'target tokens a second':{width}}", *(f"{name:>12}" for name in self.works)])]
        for system in dict.fromkeys([*self.speeds, *self.notes]):
            known = self.speeds.get(system, {})
            cells = [f"{known[name]:>12,.0f}" if name in known else f"{'-':>12}" for name in self.works]
            note = f"  {self.notes[system]}" if system in self.notes else ""
            lines.append("".join([f"{system:{width}}", *cells, note]))
        for rival in ("ct2", "hf"):
            cells = []
            for work in self.works:
                mine, theirs = self._known("ours", work), self._known(rival, work)
                cells.append(f"{f'{max(mine) / max(theirs):.2f}x' if mine and theirs else '-':>12}")
            lines.append("".join([f"{f'ours against {rival}':{width}}", *cells]))
        return "\n".join(lines)

    def _known(self, system: str, work: str) -> list[float]:
        return [speeds[work] for name, speeds in self.speeds.items() if name.startswith(system) and work in speeds]


def works(is_rehearsal: bool) -> list[Work]:
    """What is translated."""
    if is_rehearsal:
        return [Work("1 greedy", ((6, 8),)), Work("4 beam 4", ((6, 8),) * 4, beam_size=4)]
    return [
        Work("1 greedy", (_SENTENCE,)),
        Work("32 greedy", (_SENTENCE,) * 32),
        Work("128 greedy", (_SENTENCE,) * 128),
        Work("256 mixed", mixed_lengths(256, 8)),
        Work("1 beam 4", (_SENTENCE,), beam_size=4),
        Work("32 beam 4", (_SENTENCE,) * 32, beam_size=4),
    ]


def run_tests(paths: list[str], marker: str, seconds: float) -> str | None:
    """Run the tests with a mark; what went wrong, None if nothing. Tests that are all skipped have gone wrong."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", marker, f"--junitxml={results}", *paths]
        try:
            status = subprocess.run(command, cwd=_ROOT, timeout=seconds, check=False).returncode
        except subprocess.TimeoutExpired:
            return f"the tests took longer than {seconds:.0f} s"
        if not results.exists():
            return "the tests did not run: is pytest installed (the extra dev)?"
        counts = {"tests": 0, "skipped": 0}
        for suite in ElementTree.parse(results).iter("testsuite"):
            counts = {name: counts[name] + int(suite.get(name, "0")) for name in counts}
        num_run = counts["tests"] - counts["skipped"]
        sys.stdout.write(f"tests: {num_run} run, {counts['skipped']} skipped, exit status {status}\n")
        if status or not num_run:
            return f"pytest ended with {status}, {num_run} tests were run"
    return None


def random_checkpoint(device: str, *, d_model: int = 512, layers: int = 6) -> Checkpoint:
    """Random weights of OPUS-MT's shape without transformers, which else writes them for all."""
    from model.checkpoint import Checkpoint
    from model.config import TransformerConfig
    from model.transformer import Transformer

    config = TransformerConfig(
        source_vocab_size=VOCAB_SIZE, target_vocab_size=VOCAB_SIZE, d_model=d_model, num_heads=8, d_ff=4 * d_model,
        num_encoder_layers=layers, num_decoder_layers=layers, activation="swish", sinusoid_layout="halves",
        pad_id=VOCAB_SIZE - 1, decoder_start_id=VOCAB_SIZE - 1, eos_id=0,
    )  # fmt: skip
    model = Transformer(config, seed=1).requires_grad_(False).to(device)
    tokenizer: Any = SimpleNamespace(unk_id=1, bos_id=0)
    return Checkpoint("speed", "en", "fr", config, model, tokenizer, "random", {})


Starters = dict[str, Callable[[], Any]]


def systems(device: DeviceName, folder: Path, is_rehearsal: bool) -> tuple[Starters, dict[str, str]]:
    """How each system is started, and why others cannot be."""
    notes: dict[str, str] = {}
    hf: Path | None = None
    if not is_rehearsal:
        try:
            hf = decode_speed.make_checkpoint(folder)
        except ImportError as error:
            notes["hf"] = notes["ct2"] = f"not compared: {error}"

    def checkpoint(precision: Precision) -> Checkpoint:
        if hf is not None:
            return decode_speed.imported(folder, hf, precision, device)
        made = random_checkpoint(device, **({"d_model": 32, "layers": 1} if is_rehearsal else {}))
        made.model.set_precision(precision)
        return made

    def ours(precision: Precision, **how: Any) -> Callable[[], Any]:
        return lambda: decode_speed.Ours(checkpoint(precision), None, **how)

    found: Starters = {}
    if is_rehearsal:
        found["ours float32, fixed shapes"] = ours("float32", capture=lambda step, buffers: lambda: step(*buffers))
        found["ours float32"] = ours("float32")
        return found, notes
    found["ours bfloat16, graphs"] = ours("bfloat16")
    found["ours float16, graphs"] = ours("float16")
    found["ours bfloat16, no graphs"] = ours("bfloat16", cuda_graphs=False)
    if hf is not None:
        known = hf
        for kind in ("float16", "int8_float16"):
            found[f"ct2 {kind}"] = lambda kind=kind: decode_speed.CTranslate2(folder, known, kind, 1, 1, 256, device)
        found["hf bfloat16"] = lambda: decode_speed.HuggingFace(known, 1, device, "bfloat16")
    return found, notes


def measure(starters: Starters, wanted: list[Work], report: Report, rounds: int, deadline: float) -> None:
    """Fill in the report: rounds of all systems, interleaved, until the time is over."""
    running = {}
    for name, start in starters.items():
        begin = time.monotonic()
        try:
            running[name] = start()
        except Exception as error:  # Whatever a rival's libraries raise: it belongs into the table.
            _fail(report, name, error)
            continue
        sys.stdout.write(f"{name}: started in {time.monotonic() - begin:.1f} s\n")
        sys.stdout.flush()
    gc.collect()
    for work in wanted:
        sources = sources_of(work)
        seconds: dict[str, list[float]] = {name: [] for name in running}
        for index in range(rounds + 1):
            for name, system in list(running.items()):
                if time.monotonic() > deadline:
                    break
                begin = time.perf_counter()
                try:
                    system.run(work, sources)
                except Exception as error:  # As above.
                    _fail(report, name, error)
                    del running[name]
                    continue
                if index:  # The first is to get warm: shapes are captured, kernels chosen.
                    seconds[name].append(time.perf_counter() - begin)
        for name, times in seconds.items():
            if times:
                report.speeds.setdefault(name, {})[work.name] = work.target_tokens / statistics.median(times)
            elif name in running:
                report.notes[name] = "out of time for some works"
    for system in running.values():
        system.close()


def _fail(report: Report, name: str, error: Exception) -> None:
    report.notes[name] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
    if name.startswith("ours"):
        report.failures.append(f"{name}: {report.notes[name]}")


def main() -> int:
    """Test, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="on a processor, with a tiny model: tries this script")
    parser.add_argument("--minutes", type=float, default=9.0, help="all has to be done by then")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("runs/gpu"), help="where random weights are written")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes

    import torch

    from model.device import DeviceUnavailable, choose_device

    if not arguments.rehearse:
        try:
            device = choose_device("cuda")
        except DeviceUnavailable as error:
            sys.stdout.write(f"no GPU, nothing was run: {error}\n")
            return EXIT_NO_GPU
        sys.stdout.write(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}\n")
    sys.stdout.flush()
    wanted = works(arguments.rehearse)
    report = Report([work.name for work in wanted])
    paths = ["tests/model/test_device.py"] if arguments.rehearse else ["tests/service/engine/test_gpu.py"]
    fault = run_tests(paths, "not gpu" if arguments.rehearse else "gpu", _TESTS_SECONDS)
    if fault is not None:
        report.failures.append(fault)
    starters, report.notes = systems("cpu" if arguments.rehearse else "cuda", arguments.folder, arguments.rehearse)
    measure(starters, wanted, report, arguments.rounds, deadline)
    sys.stdout.write(f"\n{report.table()}\n")
    sys.stdout.write(json.dumps({"speeds": report.speeds, "notes": report.notes, "failures": report.failures}) + "\n")
    for failure in report.failures:
        sys.stdout.write(f"FAILED: {failure}\n")
    return EXIT_FAILED if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
