"""One process, or several under ``torchrun`` (DistributedDataParallel)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import distributed


@dataclass(frozen=True)
class Processes:
    """Which process this is.

    Attributes:
        rank: 0 for the one that logs and saves.
        world_size: How many there are.
        device: Where this one computes.
    """

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process logs and saves."""
        return self.rank == 0


def join_processes() -> Processes:
    """Join the group that ``torchrun`` announces in the environment; alone without it.

    A process gets its own GPU where there are GPUs (NCCL), else the CPU (gloo).
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if "WORLD_SIZE" not in os.environ:
        return Processes(0, 1, device)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Processes(distributed.get_rank(), distributed.get_world_size(), device)


def wait_for_all(processes: Processes) -> None:
    """Return when every process has come here."""
    if processes.world_size > 1:
        distributed.barrier()


def agree(processes: Processes, value: bool) -> bool:
    """What the main process says, in every process: ``value`` of rank 0."""
    if processes.world_size == 1:
        return value
    flag = torch.tensor([int(value)], device=processes.device)
    distributed.broadcast(flag, 0)
    return bool(flag.item())


def leave_processes(processes: Processes) -> None:
    """Leave the group."""
    if processes.world_size > 1:
        distributed.destroy_process_group()
