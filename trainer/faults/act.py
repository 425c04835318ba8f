"""Faults in action: hooks that a step calls before and around its stages.

step ---- before(data-load) -- before(forward-compute) -[begin .. compute .. end]- before(...) ---->
"""

import ctypes
import gc
import os
import random
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from statistics import median
from typing import Any, Literal

import torch

from telemetry.stages import Stage
from trainer.data.batches import Batch
from trainer.faults.inject import DataStall, Die, Fault, Fuse, GcBursts, Hang, Shape, Skip, Slow

KEPT = 32
CALIBRATION_CYCLES = 50_000_000


class GpuDrag:
    """Makes the GPU compute of one rank longer by a factor, and never waits for it.

    stream   [begin] compute [end] sleep(...)      the sleep is (factor - 1) x the median of earlier computes, whose
                                                   events have passed; the first computes are not extended
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._cycles_per_ms = _cycles_per_ms()
        self._open: deque[tuple[Stage, Any, Any]] = deque()
        self._seen_ms: dict[Stage, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def begin(self) -> Any:
        """An event where the compute starts."""
        return _event()

    def end(self, stage: Stage, begun: Any, *, active: bool) -> None:
        """Sleep on the stream for the share that is missing to the factor."""
        self._open.append((stage, begun, _event()))
        self._resolve()
        if active and self._seen_ms[stage]:
            _sleep(round((self._factor - 1) * median(self._seen_ms[stage]) * self._cycles_per_ms))

    def _resolve(self) -> None:
        while self._open and self._open[0][2].query():
            stage, begin, end = self._open.popleft()
            self._seen_ms[stage].append(begin.elapsed_time(end))


def _sleep(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def _event() -> Any:
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _cycles_per_ms() -> float:
    """Measured before training begins, where waiting is allowed."""
    _sleep(CALIBRATION_CYCLES)
    begin = _event()
    _sleep(CALIBRATION_CYCLES)
    end = _event()
    end.synchronize()
    return CALIBRATION_CYCLES / float(begin.elapsed_time(end))


BatchAt = Callable[[int], Batch]
Wrong = Literal["skip", "half", "double"]

EXIT_STATUS = 13
BURN_SIZE = 64


class Healthy:
    """Does nothing anywhere; faults override what they need."""

    step = -1

    def at_step(self, step: int) -> None:
        """A step begins."""
        self.step = step

    def before(self, stage: Stage) -> None:
        """``stage`` is about to begin."""

    def begin(self, stage: Stage) -> Any:
        """The compute of ``stage`` begins, inside its span."""

    def end(self, stage: Stage, begun: Any) -> None:
        """The compute of ``stage`` is done, its span still open."""

    def source(self, batch_at: BatchAt) -> BatchAt:
        """Where batches come from."""
        return batch_at

    def instead(self, stage: Stage) -> Wrong | None:
        """What to do to the collective of ``stage`` that is about to be issued; None: nothing."""
        return None


class Dragging(Healthy):
    """Burns, on the processor, ``factor`` - 1 times the thread time that the real compute took."""

    def __init__(self, fault: Slow) -> None:
        self._fault = fault
        self._matrix = torch.rand(BURN_SIZE, BURN_SIZE)

    def begin(self, stage: Stage) -> int:
        return time.thread_time_ns()

    def end(self, stage: Stage, begun: int) -> None:
        if self._fault.first_step <= self.step <= self._fault.last_step:
            now = time.thread_time_ns()
            until = now + round((now - begun) * (self._fault.factor - 1))
            while time.thread_time_ns() < until:
                torch.mm(self._matrix, self._matrix)


class DraggingGpu(Healthy):
    """The same on a GPU's stream."""

    def __init__(self, fault: Slow) -> None:
        self._fault = fault
        self._drag = GpuDrag(fault.factor)

    def begin(self, stage: Stage) -> Any:
        return self._drag.begin()

    def end(self, stage: Stage, begun: Any) -> None:
        self._drag.end(stage, begun, active=self._fault.first_step <= self.step <= self._fault.last_step)


class Hanging(Healthy):
    """Stands still for ever."""

    def __init__(self, fault: Hang, fuse: Fuse) -> None:
        self._fault = fault
        self._fuse = fuse

    def before(self, stage: Stage) -> None:
        if self.step == self._fault.step and stage == self._fault.before:
            self._fuse.blow(self.step, stage)
            STANDING_STILL[self._fault.how]()


def _wait() -> None:
    threading.Event().wait()


def _spin() -> None:
    while True:
        pass


def _hold_interpreter() -> None:
    """``PyDLL`` calls into C without letting go of the interpreter: no other Python thread runs, nothing can look
    from within. ``pause`` returns after a signal that has a handler, so again."""
    library = ctypes.PyDLL(None)
    while True:
        library.pause()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    _wait()


STANDING_STILL: dict[str, Callable[[], None]] = {
    "wait": _wait,
    "spin": _spin,
    "gil": _hold_interpreter,
    "stop": _stop,
}


class Famished(Healthy):
    """Its data never comes: the thread that makes batches stands still, the training waits for the next."""

    def __init__(self, fault: Hang, fuse: Fuse) -> None:
        self._fault = fault
        self._fuse = fuse

    def source(self, batch_at: BatchAt) -> BatchAt:
        def dry(step: int) -> Batch:
            if step == self._fault.step:
                _wait()
            return batch_at(step)

        return dry

    def begin(self, stage: Stage) -> None:
        if stage == Stage.DATA_LOAD and self.step == self._fault.step:
            self._fuse.blow(self.step, stage)


class Dying(Healthy):
    """Ends its process."""

    def __init__(self, fault: Die, fuse: Fuse) -> None:
        self._fault = fault
        self._fuse = fuse

    def before(self, stage: Stage) -> None:
        if self.step != self._fault.step or stage != self._fault.before:
            return
        self._fuse.blow(self.step, stage)
        if self._fault.how == "raise":
            raise RuntimeError("fault: this rank fails on purpose")
        if self._fault.how == "exit":
            os._exit(EXIT_STATUS)
        os.kill(os.getpid(), signal.SIGKILL)


class Misissuing(Healthy):
    """Leaves out one collective, or gives it another shape; the first of its stage in that step."""

    def __init__(self, fault: Skip | Shape, fuse: Fuse) -> None:
        self._fault = fault
        self._fuse = fuse
        self._done = False

    def instead(self, stage: Stage) -> Wrong | None:
        if self._done or self.step != self._fault.step or stage != self._fault.stage:
            return None
        self._done = True
        self._fuse.blow(self.step, stage)
        return "skip" if isinstance(self._fault, Skip) else self._fault.sizes


class Starving(Healthy):
    """Waits for its data, inside data-load."""

    def __init__(self, fault: DataStall) -> None:
        self._fault = fault

    def begin(self, stage: Stage) -> None:
        if stage == Stage.DATA_LOAD and self._fault.strikes(self.step):
            time.sleep(self._fault.seconds)


class Littering(Healthy):
    """Makes garbage in cycles before a forward of some steps and collects it there and then."""

    def __init__(self, fault: GcBursts) -> None:
        self._fault = fault
        self._random = random.Random(fault.rank)
        self._due = False

    def at_step(self, step: int) -> None:
        super().at_step(step)
        self._due = self._random.random() < 1 / self._fault.every

    def before(self, stage: Stage) -> None:
        if self._due and stage == Stage.FORWARD_COMPUTE:
            self._due = False
            for _ in range(self._fault.objects):
                cycle: list[Any] = []
                cycle.append(cycle)
            gc.collect()


def hook_for(fault: Fault | None, *, rank: int, device: torch.device, fuse: Fuse) -> Healthy:
    """What stands in the way of ``rank``; every rank but the one at fault is healthy."""
    if fault is None or fault.rank != rank:
        return Healthy()
    if isinstance(fault, Slow):
        return DraggingGpu(fault) if device.type == "cuda" else Dragging(fault)
    if isinstance(fault, Hang):
        famished = fault.before == Stage.DATA_LOAD and fault.how == "wait"
        return Famished(fault, fuse) if famished else Hanging(fault, fuse)
    if isinstance(fault, Die):
        return Dying(fault, fuse)
    if isinstance(fault, Skip | Shape):
        return Misissuing(fault, fuse)
    return Starving(fault) if isinstance(fault, DataStall) else Littering(fault)
