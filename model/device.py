"""Where models are computed: the processor, or a GPU that torch can use."""

from __future__ import annotations

import torch

from model.config import DeviceName


class DeviceUnavailable(RuntimeError):
    """The device that was asked for is not there; nothing is computed elsewhere in its place."""


def choose_device(name: DeviceName) -> torch.device:
    """The device that a name means; "auto" is a GPU if torch sees one, else the processor.

    Raises:
        DeviceUnavailable: "cuda" was asked for, and torch has or sees none; the message says which of the two.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = f"it is built for CUDA {built} and finds no GPU or driver" if built else "this build has no CUDA in it"
        raise DeviceUnavailable(f"device is cuda, but torch {torch.__version__} cannot use one: {why}")
    return torch.device("cuda", torch.cuda.current_device())
