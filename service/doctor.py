"""`gossamer doctor`: what this machine offers, what the settings make of it, and what would be faster or safer.

Facts are read elsewhere and handed in, so that what is said of them can be tested without such a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from service.machine import Machine
from service.settings import Settings, is_loopback

if TYPE_CHECKING:
    from model.hardware import ComputeDevices

Level = Literal["fact", "hint", "fault"]

_CONNECTIONS = 4096
"""Open files with which two thousand idle clients and the models' files find room."""
_BASE_BYTES = 450 * 1024**2
"""What Python and torch's CPU build take, without models: measured at a server that was ready."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        level: `fault`: the server will not start, or not work. `hint`: it works, but something else would be better.
        text: What it is.
        remedy: What to do about it; none for facts.
    """

    level: Level
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model to be served.

    Attributes:
        name: What requests call it.
        folder: Where it stands.
        weights_bytes: Size of its weights' file.
    """

    name: str
    folder: Path
    weights_bytes: int


def examine(
    settings: Settings, models: Sequence[ModelFiles], machine: Machine, devices: ComputeDevices
) -> list[Finding]:
    """All findings: facts and what is said of them, in the order in which they are read best."""
    return [
        *_processor(settings, machine, devices),
        *_gpu(devices),
        *_memory(settings, models, machine),
        *_speed(settings),
        *_reach(settings),
        *_files(machine),
    ]


def _processor(settings: Settings, machine: Machine, devices: ComputeDevices) -> Iterator[Finding]:
    yield Finding("fact", f"processor: {machine.processor}, {devices.vector_width}, {machine.usable_cores} cores")
    if machine.cpu_quota is not None and machine.cpu_quota < machine.usable_cores:
        yield Finding("fact", f"the container may use {machine.cpu_quota:g} of them at a time")
    if not devices.has_int8_kernels:
        yield Finding(
            "fault" if settings.precision == "int8" else "hint",
            f"torch {devices.torch_version} has no int8 kernels for this processor: matrices stay in float32",
            "a processor with AVX2, better with AVX-512 VNNI, translates several times faster",
        )
    elif devices.has_vnni:
        yield Finding("fact", "int8: fast and exact here (VNNI)")
    elif devices.has_compiled_kernels:
        yield Finding("fact", "int8: exact here; with VNNI (Intel since Ice Lake, AMD since Zen 4) it would be faster")
    if devices.can_run_kernels and not devices.has_compiled_kernels:
        less = "" if devices.has_vnni else ", and with 7-bit activations, less exact"
        yield Finding(
            "hint",
            "the compiled decode kernels are missing: translations run on torch's own, at half the speed or "
            f"less{less}",
            "a C compiler (gcc), then install again: pip install -e . (or make setup after touching pyproject.toml)",
        )
    threads = settings.torch_threads
    if threads is not None and threads > machine.cores:
        yield Finding(
            "hint",
            f"{threads} threads for {machine.cores:g} cores: they wait for each other",
            f"GOSSAMER_TORCH_THREADS={max(1, int(machine.cores))}, or none",
        )
    if machine.load is not None and machine.load > machine.usable_cores + 0.5:
        yield Finding(
            "hint",
            f"other processes want the processor too: the load is {machine.load:.1f} on {machine.usable_cores} cores",
            "a step waits for its slowest thread, so a core shared with others costs more than its share: "
            "give the server cores of its own, or set GOSSAMER_TORCH_THREADS to those that are free",
        )


def _gpu(devices: ComputeDevices) -> Iterator[Finding]:
    if devices.gpus:
        yield Finding("fact", f"GPU: {', '.join(devices.gpus)}")
    elif devices.cuda_version is not None:
        yield Finding(
            "hint",
            f"torch {devices.torch_version} is a build for CUDA {devices.cuda_version}, but finds no GPU",
            "torch's CPU build does the same and is several GB smaller; in a container, is the GPU passed on?",
        )
    elif Path("/dev/nvidia0").exists():
        yield Finding(
            "hint",
            f"there is an NVIDIA GPU, but torch {devices.torch_version} is a build without CUDA",
            "a CUDA build of the same torch",
        )
    else:
        yield Finding("fact", f"GPU: none; torch {devices.torch_version}")


def _memory(settings: Settings, models: Sequence[ModelFiles], machine: Machine) -> Iterator[Finding]:
    for model in models:
        yield Finding("fact", f"model {model.name}: {_mib(model.weights_bytes)} of weights in {model.folder}")
    # Weights are held once as they are read, and once more in the format they are used in, which is no larger.
    needed = _BASE_BYTES + 2 * sum(model.weights_bytes for model in models) + settings.kv_cache_bytes
    if machine.memory_bytes is None:
        return
    text = f"memory: {_mib(machine.memory_bytes)}; the server may come to need about {_mib(needed)}"
    if needed > machine.memory_bytes:
        yield Finding("hint", text, "a smaller GOSSAMER_KV_CACHE_BYTES, fewer models, or more memory")
    elif machine.available_memory_bytes is not None and needed > machine.available_memory_bytes:
        free = _mib(machine.available_memory_bytes)
        yield Finding("hint", f"{text}, and {free} are free now", "stop what else runs here, or lower the limits")
    else:
        yield Finding("fact", text)


def _speed(settings: Settings) -> Iterator[Finding]:
    if settings.precision == "float32":
        yield Finding(
            "hint",
            "GOSSAMER_PRECISION is float32",
            "int8 needs a quarter of the memory and is much faster, with the same results alone or in company",
        )
    if settings.default_beam_size > 1:
        yield Finding(
            "hint",
            f"requests that do not say otherwise are searched with a beam of {settings.default_beam_size}",
            "GOSSAMER_DEFAULT_BEAM_SIZE=1 does several times as many sentences a second, a little worse",
        )


def _reach(settings: Settings) -> Iterator[Finding]:
    text = f"listens on {settings.host}, port {settings.port or 'a free one'}"
    if is_loopback(settings.host):
        yield Finding("fact", f"{text}: only this machine can connect")
    elif settings.keys_file is not None:
        yield Finding("fact", f"{text}, for clients with a key")
    else:
        yield Finding(
            "hint", f"{text}, for everyone who can reach it", "GOSSAMER_KEYS_FILE, see `gossamer keys --help`"
        )


def _files(machine: Machine) -> Iterator[Finding]:
    if machine.max_open_files is not None and machine.max_open_files < _CONNECTIONS:
        yield Finding(
            "hint",
            f"the process may open {machine.max_open_files} files, connections included",
            f"ulimit -n {_CONNECTIONS}, or more, before many clients connect",
        )


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 1024**2:,.0f} MiB"
