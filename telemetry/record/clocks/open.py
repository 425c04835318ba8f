"""Opens the device clock of a session. CUDA is never initialised here, and torch is imported only for ``cuda``.

``rankscope.start(device=...)`` selects when a clock is opened:

    auto      once this process uses a CUDA device (the default)
    cuda      likewise; it is an error if torch sees no such device
    cpu       never
"""

import os
import sys
from pathlib import Path
from typing import Literal

from telemetry.errors import UsageError
from telemetry.record.clocks.interface import DeviceClock

Device = Literal["auto", "cpu", "cuda"]
GPU_NODES = (Path("/dev/nvidiactl"), Path("/dev/nvhost-ctrl"), Path("/dev/dxg"))
"""Of a machine, of a Jetson, of Windows' subsystem."""
HIDDEN = ("", "-1")


def open_device_clock(device: str) -> DeviceClock | None:
    """None on a CPU, and until this process works on a device. Cheap until then.

    Raises:
        UsageError: the device cannot be timed.
    """
    cuda = sys.modules.get("torch.cuda")
    if device == "cpu" or cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None
    from telemetry.record.clocks.cuda import open_cuda_clock  # noqa: PLC0415  (optional extra)

    return open_cuda_clock()


def expects_device(device: str) -> bool:
    """Whether ``open_device_clock`` may give a clock later.

    Raises:
        UsageError: ``cuda`` was asked for, and torch sees no such device.
        ImportError: likewise, and torch is not installed.
    """
    if device == "cuda":
        import torch  # noqa: PLC0415  (optional extra)

        if not torch.cuda.is_available():
            raise UsageError("torch sees no CUDA device", hint='use rankscope.start(device="cpu") to time on the host')
        return True
    return device == "auto" and _has_gpu() and _torch_has_cuda()


def _has_gpu() -> bool:
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (shown is None or shown.strip() not in HIDDEN) and any(node.exists() for node in GPU_NODES)


def _torch_has_cuda() -> bool:
    """True also while torch is not imported."""
    torch = sys.modules.get("torch")
    return torch is None or getattr(getattr(torch, "version", None), "cuda", None) is not None
