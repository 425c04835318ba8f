"""Spans on CUDA devices: pairs of events on the stream that does the work, resolved by the drain thread.

    training thread    start.record() ---- kernels are launched ---- end.record()        on the current stream
    drain thread       end.query()?  ->  start.elapsed_time(end)  and  reference.elapsed_time(start)

The training thread only records events: no wait, no synchronize, no edge between streams. A device that the process
uses gets a queue (``cuda_device``) and a reference (``cuda_reference``) with its first span. No context is created: a
device without one is not timed.

A capture of a graph is not disturbed. While any thread captures in the *global* mode (the default of
``torch.cuda.graph``), CUDA forbids calls such as ``cudaEventQuery`` to every thread, and one of them invalidates the
capture. A thread in the *relaxed* mode is exempt, so the drain thread uses that mode:

    exchange(relaxed) ---- query, record, elapsed_time ---- exchange(mode before)

A span that begins or ends inside a capture records no event there, and is returned as captured.

torch has no function for the capture mode, so CUDA's driver library is called. Unlike libcudart there is only one in a
process, its name never changes, and it keeps the mode.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic_ns, sleep
from typing import Any

import torch

from telemetry.errors import UsageError
from telemetry.record.clocks.cuda_device import CudaDevice
from telemetry.record.clocks.cuda_reference import DeviceReference
from telemetry.record.clocks.interface import CapturedSpan, ClockError, DeviceSpan, Drained

LIBRARY = "libcuda.so.1"
RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``."""


class CudaDriver:
    """Calls of the driver that torch has loaded and initialised. None of them creates a context."""

    def __init__(self, library: Any) -> None:
        self._exchange = library.cuThreadExchangeStreamCaptureMode
        self._device_of = library.cuDeviceGet
        self._state_of = library.cuDevicePrimaryCtxGetState

    @contextmanager
    def relaxed_captures(self) -> Iterator[None]:
        """In this block the thread may query events while other threads capture.

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
        """Whether this process uses the device already.

        Raises:
            OSError: there is no such device.
        """
        handle, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        _check(self._device_of(ctypes.byref(handle), device), "cuDeviceGet")
        state = self._state_of(handle, ctypes.byref(flags), ctypes.byref(active))
        _check(state, "cuDevicePrimaryCtxGetState")
        return bool(active.value)


def loaded_driver() -> CudaDriver | None:
    """The driver that this process has loaded; None if it has no driver with these functions (CUDA 10.1 or newer).
    Loads nothing."""
    try:
        return CudaDriver(ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW))
    except (OSError, AttributeError):
        return None


def _check(code: int, call: str) -> None:
    if code:
        raise OSError(f"{call} failed with CUDA error {code}")


MAX_PENDING = 16384
"""Spans of one device that wait to be resolved; also the limit of captured spans."""

Ticket = tuple[CudaDevice, Any]
"""The device of a span and its start event; None if it started inside a capture."""


class CudaClock:
    """A ``DeviceClock`` of all CUDA devices that this process uses.

    ``cuda`` is ``torch.cuda`` and ``driver`` a ``CudaDriver``; their twin in tests is both. ``now`` is the host's
    clock. The drain thread calls ``pause`` between two queries.
    """

    def __init__(
        self,
        cuda: Any = torch.cuda,
        driver: Any = None,
        *,
        max_pending: int = MAX_PENDING,
        now: Callable[[], int] = monotonic_ns,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self._cuda = cuda
        self._driver = cuda if driver is None else driver
        self._max_pending = max_pending
        self._now = now
        self._pause = pause
        self._devices: dict[int, CudaDevice] = {}
        self._captured: deque[CapturedSpan] = deque()

    def is_used(self) -> bool:
        """Whether this process uses a device. Does not initialise CUDA."""
        return self._cuda.is_initialized() and bool(self._used())

    def error_ns(self, device: int) -> int:
        """The largest error of the start of a span on the device. Call it after a span was drained."""
        return self._devices[device].error_ns()

    def begin(self) -> Ticket | None:
        """Record the start of a span. Returns None while a queue is full, and if no device is in use."""
        index = self._cuda.current_device()
        device = self._devices.get(index) or self._open(index)
        if device is None or device.pending() >= self._max_pending:
            return None
        if self._cuda.is_current_stream_capturing():
            return (device, None) if len(self._captured) < self._max_pending else None
        start, _ = device.record()
        return device, start

    def end(self, ticket: Ticket, span: DeviceSpan) -> None:
        device, start = ticket
        if start is None:
            self._captured.append(CapturedSpan(span=span))
        elif self._cuda.is_current_stream_capturing():
            device.give_back(start)
            self._captured.append(CapturedSpan(span=span))
        else:
            device.queue(start, span)

    def drain(self) -> list[Drained]:
        drained: list[Drained] = []
        while self._captured:
            drained.append(self._captured.popleft())
        with self._driver.relaxed_captures():
            for device in list(self._devices.values()):
                drained += self._drain(device)
        return drained

    def pending(self) -> int:
        return len(self._captured) + sum(device.pending() for device in list(self._devices.values()))

    def device_uuid(self) -> str:
        first = next(iter(list(self._devices)), None)
        if first is None:
            return ""
        with self._driver.relaxed_captures():
            return str(self._cuda.get_device_properties(first).uuid)

    def _drain(self, device: CudaDevice) -> list[Drained]:
        try:
            with self._cuda.device(device.index):  # otherwise it is device 0, and a context would be created there
                return device.drain()
        except Exception as error:
            return [ClockError(error=error)]

    def _open(self, current: int) -> CudaDevice | None:
        """The queue of the current device if it is in use, otherwise of the only device in use. In a program that names
        the device of each tensor, device 0 stays current."""
        used = self._used()
        if current not in used and len(used) != 1:
            return None
        index = current if current in used else used[0]
        reference = DeviceReference(self._cuda, now=self._now, pause=self._pause)
        return self._devices.setdefault(index, CudaDevice(index, self._cuda, reference))

    def _used(self) -> list[int]:
        return [index for index in range(self._cuda.device_count()) if self._driver.has_context(index)]


def open_cuda_clock() -> CudaClock | None:
    """The clock of the CUDA devices; None until this process uses a device.

    Raises:
        UsageError: with this driver, queries would invalidate graph captures of this process.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    driver = loaded_driver()
    if driver is None:
        raise UsageError(
            "CUDA's driver has no capture modes", hint='use rankscope.start(device="cpu") to time on the host'
        )
    clock = CudaClock(torch.cuda, driver)
    return clock if clock.is_used() else None
