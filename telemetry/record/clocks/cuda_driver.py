"""What CUDA's driver offers and ``torch.cuda`` does not: the capture mode of a thread, and whether a device is in use.

While any thread captures a graph in the *global* mode (the default of ``torch.cuda.graph``), CUDA forbids calls such as
``cudaEventQuery`` to every thread, and one of them invalidates the capture. A thread in the *relaxed* mode is exempt.

    exchange(relaxed) ---- query, record, elapsed_time ---- exchange(mode before)          on the drain thread

torch binds no function for it (``torch.cuda.cudart()`` has memory, profiler and stream calls only). The driver's
library is used and not libcudart: a process has one, whatever libcudart torch was linked with, its name never changes,
and it keeps the mode.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LIBRARY = "libcuda.so.1"
RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``."""


class CudaDriver:
    """Calls into the driver that torch has loaded and initialised. None of them creates a context."""

    def __init__(self, library: Any) -> None:
        self._exchange = library.cuThreadExchangeStreamCaptureMode
        self._device_of = library.cuDeviceGet
        self._state_of = library.cuDevicePrimaryCtxGetState

    @contextmanager
    def relaxed_captures(self) -> Iterator[None]:
        """This thread may ask events while others capture.

        Raises:
            OSError: the driver refuses.
        """
        mode = ctypes.c_int(RELAXED)
        _check(self._exchange(ctypes.byref(mode)), "cuThreadExchangeStreamCaptureMode")
        try:
            yield
        finally:
            self._exchange(ctypes.byref(mode))

    def has_context(self, device: int) -> bool:
        """Whether this process works on the device already.

        Raises:
            OSError: there is no such device.
        """
        handle, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        _check(self._device_of(ctypes.byref(handle), device), "cuDeviceGet")
        state = self._state_of(handle, ctypes.byref(flags), ctypes.byref(active))
        _check(state, "cuDevicePrimaryCtxGetState")
        return bool(active.value)


def loaded_driver() -> CudaDriver | None:
    """None where this process has loaded no driver with these functions (CUDA 10.1 or newer). It loads nothing."""
    try:
        return CudaDriver(ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW))
    except (OSError, AttributeError):
        return None


def _check(code: int, call: str) -> None:
    if code:
        raise OSError(f"{call} failed with CUDA error {code}")
