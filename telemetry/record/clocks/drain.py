"""The drain thread: opens the device clock once there is one, queries it for completed spans, and records them.

``rankscope.start(device=...)`` selects when a clock is opened. CUDA is never initialised here, and torch is imported
only for ``cuda``.

auto      once this process uses a CUDA device (the default)
cuda      the same, and an error if torch sees no such device
cpu       never

error    --> the spans concerned are dropped and counted; the 1st, 2nd, 4th, 8th ... error leaves a mark
50 passes with errors, and no completed span in between (idle passes do not reset the count)
          --> the clock is given up: a mark, and spans are refused from then on
"""

import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from telemetry.errors import UsageError
from telemetry.record.clocks.interface import (
    CapturedSpan,
    ClockError,
    CompletedSpan,
    DeviceClock,
    DeviceSpan,
    Drained,
    ResolvedSpan,
)
from telemetry.record.dropped_spans import Reason
from telemetry.record.recorder import Recorder

Device = Literal["auto", "cpu", "cuda"]
GPU_NODES = (Path("/dev/nvidiactl"), Path("/dev/nvhost-ctrl"), Path("/dev/dxg"))
"""Device files of a PC, of a Jetson, and of Windows Subsystem for Linux."""
HIDDEN = ("", "-1")
PERIOD_S = 0.02
FLUSH_S = 5.0
MAX_FAILED_PASSES = 50
CLOCK_ERROR, CLOCK_FAILED = "device-clock-error", "device-clock-failed"


class FailedClock:
    """Refuses every span. Implements ``DeviceClock``."""

    def begin(self) -> None:
        return None

    def end(self, ticket: Any, span: DeviceSpan) -> None:
        raise RuntimeError("the device clock failed during this span")

    def drain(self) -> list[Drained]:
        return []

    def pending(self) -> int:
        return 0

    def device_uuid(self) -> str:
        return ""


class Drain:
    """Moves spans from a clock to a recorder until stopped. Without a ``clock``, ``open_clock`` is called in each pass
    and at each step, until it returns one. ``on_device`` is called once, on this thread, with the UUID of the first
    device that the clock times."""

    def __init__(
        self,
        clock: DeviceClock | None,
        recorder: Recorder,
        *,
        open_clock: Callable[[], DeviceClock | None] | None = None,
        on_device: Callable[[str], None] | None = None,
        period_s: float = PERIOD_S,
    ) -> None:
        self._clock = clock
        self._recorder = recorder
        self._open_clock = open_clock
        self._on_device = on_device
        self._period_s = period_s
        self._opening = threading.Lock()
        self._num_errors = 0
        self._failed_passes = 0
        self._failed = False
        self._line_ends_ns: dict[Hashable, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-drain", daemon=True)

    @property
    def clock(self) -> DeviceClock | None:
        """The device clock; None until it is open."""
        return self._clock

    def start(self) -> None:
        if self._clock is None:
            self._recorder.at_each_step(self.try_open_clock)
        self._thread.start()

    def stop(self, *, within_s: float = FLUSH_S) -> int:
        """Drain the open spans, for at most ``within_s``. Returns the number of spans that are lost. Does not wait for
        the device itself: it queries repeatedly."""
        self._stopping.set()
        self._recorder.at_each_step(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            return self._pending()
        deadline = monotonic() + within_s
        pause = threading.Event()
        while self._pending() and not self._failed and monotonic() < deadline:
            self._pass_on()
            pause.wait(self._period_s / 10)
        self._pass_on()
        return self._pending()

    def try_open_clock(self) -> None:
        """Open the clock if the device is in use. For any thread. Does not wait if another thread opens the clock."""
        if self._open_clock is None or not self._opening.acquire(blocking=False):
            return
        try:
            self._clock = self._open_clock()
            if self._clock is not None:
                self._recorder.use_clock(self._clock)
                self._stop_trying()
        except Exception as error:
            self._stop_trying()
            self._recorder.mark(CLOCK_FAILED, repr(error))
        finally:
            self._opening.release()

    def _stop_trying(self) -> None:
        self._open_clock = None
        self._recorder.at_each_step(None)

    def _run(self) -> None:
        while not self._stopping.wait(self._period_s):
            self._pass_on()

    def _pending(self) -> int:
        return self._clock.pending() if self._clock is not None else 0

    def _pass_on(self) -> None:
        if self._clock is None:
            self.try_open_clock()
        if self._clock is None or self._failed:
            return
        self._name_device(self._clock)
        try:
            drained: Sequence[Drained] = self._clock.drain()
        except Exception as error:
            drained = [ClockError(error=error)]
        for result in drained:
            self._take(result)
        self._count_pass(drained)

    def _name_device(self, clock: DeviceClock) -> None:
        if self._on_device is None:
            return
        try:
            if uuid := clock.device_uuid():
                on_device, self._on_device = self._on_device, None
                on_device(uuid)
        except Exception as error:
            self._on_device = None
            self._recorder.mark(CLOCK_ERROR, f"the UUID of the GPU is not known: {error!r}")

    def _take(self, result: Drained) -> None:
        if isinstance(result, ClockError):
            return self._drop_failed(result)
        if isinstance(result, ResolvedSpan):
            self._record(result)
        elif isinstance(result, CapturedSpan) and result.span.stage is not None:
            self._recorder.drop(Reason.CAPTURED, result.span.stage.label)
        if result.span.on_completed is not None:
            with suppress(Exception):
                result.span.on_completed()

    def _drop_failed(self, result: ClockError) -> None:
        if result.span is not None and result.span.stage is not None:
            self._recorder.lose(1)
        self._num_errors += 1
        if self._num_errors.bit_count() == 1:
            self._recorder.mark(CLOCK_ERROR, f"{result.error!r}; error {self._num_errors} of this clock")

    def _count_pass(self, drained: Sequence[Drained]) -> None:
        """A pass with errors and without a completed span has failed. A pass without results changes nothing."""
        if any(isinstance(result, (ResolvedSpan, CompletedSpan)) for result in drained):
            self._failed_passes = 0
        elif errors := [result.error for result in drained if isinstance(result, ClockError)]:
            self._failed_passes += 1
            if self._failed_passes == MAX_FAILED_PASSES:
                self._failed = True
                self._recorder.use_clock(FailedClock())
                self._recorder.mark(CLOCK_FAILED, repr(errors[-1]))

    def _record(self, resolved: ResolvedSpan) -> None:
        span = resolved.span
        start_ns, end_ns = self._in_line(resolved)
        if span.stage is None:
            return
        names = ("step", "microbatch", "chunk", "size_bytes", "peer", "op_seq", "issue_ns", "clock")
        details = {name: getattr(span, name) for name in names}
        self._recorder.record_span(span.stage, start_ns, end_ns - start_ns, **details)

    def _in_line(self, resolved: ResolvedSpan) -> tuple[int, int]:
        """Start and end of a span. It does not start before the previous span on its line has ended."""
        line, end_ns = resolved.span.line, resolved.start_ns + resolved.duration_ns
        if line is None:
            return resolved.start_ns, end_ns
        start_ns = min(max(resolved.start_ns, self._line_ends_ns.get(line, 0)), end_ns)
        self._line_ends_ns[line] = end_ns
        return start_ns, end_ns


def device_name(device: Device) -> str:
    """``cuda`` or ``cpu``: what the rank is expected to use."""
    return "cuda" if device == "cuda" or expects_device(device) else "cpu"


def device_drain(device: Device, recorder: Recorder, on_device: Callable[[str], None]) -> Drain | None:
    """The drain of the device's clock, which may be opened later. None if there will be none."""
    clock = open_device_clock(device)
    if clock is None and not expects_device(device):
        return None
    return Drain(clock, recorder, open_clock=partial(open_device_clock, device), on_device=on_device)


def open_device_clock(device: str) -> DeviceClock | None:
    """The clock of the device; None on a CPU, and until this process uses a device. Cheap until then.

    Raises:
        UsageError: the device cannot be timed.
    """
    cuda = sys.modules.get("torch.cuda")
    if device == "cpu" or cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None
    from telemetry.record.clocks.cuda import open_cuda_clock  # noqa: PLC0415  (optional extra)

    return open_cuda_clock()


def expects_device(device: str) -> bool:
    """Whether ``open_device_clock`` may return a clock later.

    Raises:
        UsageError: ``device`` is ``cuda``, and torch sees no such device.
        ImportError: ``device`` is ``cuda``, and torch is not installed.
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
    """Whether torch supports CUDA. True while torch is not imported."""
    torch = sys.modules.get("torch")
    return torch is None or getattr(getattr(torch, "version", None), "cuda", None) is not None
