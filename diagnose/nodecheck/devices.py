"""The little that checks ask of a torch device. ``cpu`` is one."""

import os
from typing import Any

import torch

from diagnose.nodecheck.occupied import GpuUse, use_of_gpu


def is_gpu(device: str) -> bool:
    """Whether it is a CUDA device."""
    return device.startswith("cuda")


def gpus() -> list[str]:
    """CUDA devices of this machine. May initialise the driver: not to be asked before a fork."""
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def uses() -> list[GpuUse]:
    """The same with who else computes there. Asks each one, so not before a fork either."""
    return [use_of_gpu(gpu, _uuid(gpu), _nvml()) for gpu in gpus()]


def _nvml() -> Any:
    try:
        import pynvml  # noqa: PLC0415 - NVML is an optional extra
    except ImportError:
        return None
    return pynvml


def _uuid(gpu: str) -> str:
    return str(torch.cuda.get_device_properties(gpu).uuid)


def kind_of(device: str) -> str:
    """Devices of one kind may be compared; empty for a CPU, of which there is one."""
    return torch.cuda.get_device_name(device) if is_gpu(device) else ""


def free_bytes(device: str) -> int:
    """Memory that is free."""
    if is_gpu(device):
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def synchronize(device: str) -> None:
    """Wait until the device has done what it was given."""
    if is_gpu(device):
        torch.cuda.synchronize(device)
