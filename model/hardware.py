"""What torch can use on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from model.linear import has_int8_kernels
from model.native.library import kernels, runnable


@dataclass(frozen=True, slots=True)
class ComputeDevices:
    """Processors, and what torch knows to do with them.

    Attributes:
        torch_version: With the local part that names the build, as `2.13.0+cpu`.
        cuda_version: Of the CUDA that this build of torch is for; None for a build without it.
        gpus: Names of the GPUs that can be used.
        vector_width: The widest vector instructions: "AVX512", "AVX2", "DEFAULT", ...
        has_vnni: Whether there are instructions for products of 8-bit numbers, which make int8 faster, and on
            torch's kernels exact.
        has_int8_kernels: Whether matrices can be held in int8.
        has_compiled_kernels: Whether whole decode steps run in the compiled kernels of model/native.
        can_run_kernels: Whether the processor could, were they compiled.
        num_threads: Threads that torch computes with by default.
    """

    torch_version: str
    cuda_version: str | None
    gpus: tuple[str, ...]
    vector_width: str
    has_vnni: bool
    has_int8_kernels: bool
    has_compiled_kernels: bool
    can_run_kernels: bool
    num_threads: int


def compute_devices() -> ComputeDevices:
    """Looks once; starts no CUDA context on a machine without a GPU."""
    return ComputeDevices(
        torch_version=torch.__version__,
        cuda_version=torch.version.cuda,
        gpus=tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())),
        vector_width=torch.backends.cpu.get_cpu_capability(),
        has_vnni=bool(torch.cpu._is_vnni_supported()),
        has_int8_kernels=has_int8_kernels(),
        has_compiled_kernels=kernels() is not None,
        can_run_kernels=bool(runnable()),
        num_threads=torch.get_num_threads(),
    )
