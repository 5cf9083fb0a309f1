"""What this machine lets a process have, as far as files of Linux tell; no torch. Elsewhere less is known."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_CGROUP_V1_UNLIMITED_BYTES = 1 << 60
"""What version 1 says without a limit is a page below 2^63."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is; None for what is not known, or not limited.

    Attributes:
        processor: Name of its model.
        usable_cores: Cores that the process may be put on.
        cpu_quota: Processor time that its container may use in a second, in seconds (cores).
        load: Processes that wanted a core, on average over the last minute.
        memory_bytes: Memory of the machine, or of the container if that is less.
        available_memory_bytes: What of the machine's memory could be had now.
        max_open_files: Files and connections that the process may have open.
    """

    processor: str
    usable_cores: int
    cpu_quota: float | None
    load: float | None
    memory_bytes: int | None
    available_memory_bytes: int | None
    max_open_files: int | None

    @property
    def cores(self) -> float:
        """Cores that can really be used."""
        return self.usable_cores if self.cpu_quota is None else min(self.usable_cores, self.cpu_quota)


def read_machine(root: Path = Path("/")) -> Machine:
    """Looks once.

    Args:
        root: Where `proc` and `sys` stand; another one in tests.
    """
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    memory = _memory(root)
    limits = [size for size in (memory.get("MemTotal"), _memory_limit(root)) if size is not None]
    return Machine(
        processor=_processor(root) or platform.processor() or platform.machine(),
        usable_cores=len(affinity),
        cpu_quota=cpu_quota(root),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        memory_bytes=min(limits, default=None),
        available_memory_bytes=memory.get("MemAvailable"),
        max_open_files=None if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that the container may use; None without a limit.

    PyTorch does not look at it: in a container with 2 of 64 cores it would start 64 threads, which then wait for
    each other.
    """
    groups = root / "sys/fs/cgroup"
    quota, _, period = _read(groups / "cpu.max").partition(" ")
    if not quota:  # version 1
        quota, period = _read(groups / "cpu/cpu.cfs_quota_us"), _read(groups / "cpu/cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:  # "max" and -1 mean that there is none
        return None
    return int(quota) / int(period)


def _memory_limit(root: Path) -> int | None:
    groups = root / "sys/fs/cgroup"
    for path in (groups / "memory.max", groups / "memory/memory.limit_in_bytes"):
        text = _read(path)
        if text.isdigit() and int(text) < _CGROUP_V1_UNLIMITED_BYTES:
            return int(text)
    return None


def _memory(root: Path) -> dict[str, int]:
    found = {}
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, size = line.partition(":")
        if size.strip().endswith(" kB"):
            found[name] = int(size.split()[0]) * 1024
    return found


def _processor(root: Path) -> str | None:
    for line in _read(root / "proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
