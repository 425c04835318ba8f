"""Torch devices for the checks, and which GPUs other processes use. ``cpu`` is a device too.

NVML lists processes on the GPU            -> taken
NVML lists none, but memory is in use,     -> unknown: the check takes little memory
or there is no NVML
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

OWN_SHARE_OF_DRIVER = 0.05
"""Share of a GPU's memory that can be in use without any process."""


def is_gpu(device: str) -> bool:
    """Whether it is a CUDA device."""
    return device.startswith("cuda")


def gpus() -> list[str]:
    """CUDA devices of this machine. Can initialise the driver: do not call it before a fork."""
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def kind_of(device: str) -> str:
    """The name of a GPU model, or empty for a CPU. Devices of one kind are compared with each other."""
    return torch.cuda.get_device_name(device) if is_gpu(device) else ""


def free_bytes(device: str) -> int:
    """Free memory of a device in bytes."""
    if is_gpu(device):
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def synchronize(device: str) -> None:
    """Wait until the device has completed its work."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


class Use(StrEnum):
    """Whether other processes use a GPU."""

    FREE = "free"
    TAKEN = "taken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """A CUDA device and its use."""

    device: str
    use: Use
    why: str = ""


def uses() -> list[GpuUse]:
    """All GPUs with their use. Initialises the driver: do not call it before a fork."""
    try:
        import pynvml  # noqa: PLC0415 - NVML is an optional extra
    except ImportError:
        pynvml = None
    return [use_of_gpu(gpu, str(torch.cuda.get_device_properties(gpu).uuid), pynvml) for gpu in gpus()]


def use_of_gpu(device: str, uuid: str, library: Any) -> GpuUse:
    """The use of the GPU with this UUID. ``library`` is the module ``pynvml``; None if it is not installed."""
    if library is None:
        return GpuUse(device=device, use=Use.UNKNOWN, why="its processes are unknown: NVML is missing")
    try:
        library.nvmlInit()
        try:
            return _use(device, library, library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}"))
        finally:
            library.nvmlShutdown()
    except library.NVMLError as error:
        return GpuUse(device=device, use=Use.UNKNOWN, why=f"its processes are unknown: NVML error ({error})")


def _use(device: str, library: Any, handle: Any) -> GpuUse:
    """The use of one GPU. NVML does not list processes of another namespace, so memory in use counts too."""
    processes = [*library.nvmlDeviceGetComputeRunningProcesses(handle), *_of_mps(library, handle)]
    others = sorted({int(process.pid) for process in processes} - {os.getpid()})
    if others:
        who = f"{len(others)} processes compute" if len(others) > 1 else f"process {others[0]} computes"
        return GpuUse(device=device, use=Use.TAKEN, why=f"{who} on it")
    memory = library.nvmlDeviceGetMemoryInfo(handle)
    share = memory.used / memory.total
    if share > OWN_SHARE_OF_DRIVER:
        return GpuUse(device=device, use=Use.UNKNOWN, why=f"{share:.0%} of its memory is in use by an unknown process")
    return GpuUse(device=device, use=Use.FREE)


def _of_mps(library: Any, handle: Any) -> Iterator[Any]:
    with suppress(library.NVMLError, AttributeError):
        yield from library.nvmlDeviceGetMPSComputeRunningProcesses(handle)
