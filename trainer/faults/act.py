"""Injects faults with hooks that a step calls before and around its stages.

step ---- before(data-load) -- before(forward-compute) -[begin .. compute .. end]- before(...) ---->
"""

import ctypes
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from telemetry.stages import Stage
from trainer.data.batches import Batch
from trainer.faults.gpu_delay import GpuDelay
from trainer.faults.inject import DataStall, Die, Fault, GcBursts, Hang, NanGradients, Shape, Skip, Slow, StartFile

BatchAt = Callable[[int], Batch]
Alteration = Literal["skip", "half", "double"]

EXIT_STATUS = 13
BURN_SIZE = 64


class Healthy:
    """Hooks without effect. Faults override some of them."""

    step = -1

    def at_step(self, step: int) -> None:
        """Called when a step begins."""
        self.step = step

    def before(self, stage: Stage) -> None:
        """Called before ``stage`` begins."""

    def begin(self, stage: Stage) -> Any:
        """Called when the compute of ``stage`` begins, inside its span. Returns what :meth:`end` gets as ``begun``."""

    def end(self, stage: Stage, begun: Any) -> None:
        """Called when the compute of ``stage`` has ended. Its span is still open."""

    def source(self, batch_at: BatchAt) -> BatchAt:
        """The function that returns the batch of a step."""
        return batch_at

    def alteration(self, stage: Stage) -> Alteration | None:
        """How to alter the collective of ``stage`` that is about to be issued; None if it is not altered."""
        return None

    def gradients(self, gradients: Sequence[Tensor]) -> None:
        """Called when the gradients of the step are complete. They are this rank's parts, and may be changed in
        place."""


class SlowCompute(Healthy):
    """Uses extra processor time after each compute: ``factor`` - 1 times the thread time of the compute."""

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


class SlowGpuCompute(Healthy):
    """Uses extra time on the stream of a GPU after each compute."""

    def __init__(self, fault: Slow) -> None:
        self._fault = fault
        self._delay = GpuDelay(fault.factor)

    def begin(self, stage: Stage) -> Any:
        return self._delay.begin()

    def end(self, stage: Stage, begun: Any) -> None:
        self._delay.end(stage, begun, active=self._fault.first_step <= self.step <= self._fault.last_step)


class StopForever(Healthy):
    """Stops before a stage and never continues."""

    def __init__(self, fault: Hang, start_file: StartFile) -> None:
        self._fault = fault
        self._start_file = start_file

    def before(self, stage: Stage) -> None:
        if self.step == self._fault.step and stage == self._fault.before:
            self._start_file.record_start(self.step, stage)
            HANGS[self._fault.how]()


def _wait() -> None:
    threading.Event().wait()


def _spin() -> None:
    while True:
        pass


def _hold_interpreter() -> None:
    """Block in C without releasing the GIL (``PyDLL``), so that no other Python thread can run. ``pause`` returns after
    a signal with a handler, so it is called in a loop."""
    library = ctypes.PyDLL(None)
    while True:
        library.pause()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    _wait()


HANGS: dict[str, Callable[[], None]] = {
    "wait": _wait,
    "spin": _spin,
    "gil": _hold_interpreter,
    "stop": _stop,
}


class NoData(Healthy):
    """Waits for data forever: the thread that prepares batches blocks, and the training waits for the next batch."""

    def __init__(self, fault: Hang, start_file: StartFile) -> None:
        self._fault = fault
        self._start_file = start_file

    def source(self, batch_at: BatchAt) -> BatchAt:
        def blocking_batch_at(step: int) -> Batch:
            if step == self._fault.step:
                _wait()
            return batch_at(step)

        return blocking_batch_at

    def begin(self, stage: Stage) -> None:
        if stage == Stage.DATA_LOAD and self.step == self._fault.step:
            self._start_file.record_start(self.step, stage)


class EndProcess(Healthy):
    """Ends its process."""

    def __init__(self, fault: Die, start_file: StartFile) -> None:
        self._fault = fault
        self._start_file = start_file

    def before(self, stage: Stage) -> None:
        if self.step != self._fault.step or stage != self._fault.before:
            return
        self._start_file.record_start(self.step, stage)
        if self._fault.how == "raise":
            raise RuntimeError("fault: this rank fails on purpose")
        if self._fault.how == "exit":
            os._exit(EXIT_STATUS)
        os.kill(os.getpid(), signal.SIGKILL)


class AlteredCollective(Healthy):
    """Skips one collective, or changes its size: the first one of its stage in a step."""

    def __init__(self, fault: Skip | Shape, start_file: StartFile) -> None:
        self._fault = fault
        self._start_file = start_file
        self._done = False

    def alteration(self, stage: Stage) -> Alteration | None:
        if self._done or self.step != self._fault.step or stage != self._fault.stage:
            return None
        self._done = True
        self._start_file.record_start(self.step, stage)
        return "skip" if isinstance(self._fault, Skip) else self._fault.sizes


class LateData(Healthy):
    """Sleeps inside the stage data-load of some steps."""

    def __init__(self, fault: DataStall) -> None:
        self._fault = fault

    def begin(self, stage: Stage) -> None:
        if stage == Stage.DATA_LOAD and self._fault.is_late(self.step):
            time.sleep(self._fault.seconds)


class GarbageBursts(Healthy):
    """Creates garbage cycles before a forward of some steps, and collects them at once."""

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


class NoNumbers(Healthy):
    """Sets the gradients of one step to NaN."""

    def __init__(self, fault: NanGradients, start_file: StartFile) -> None:
        self._fault = fault
        self._start_file = start_file

    def gradients(self, gradients: Sequence[Tensor]) -> None:
        if self.step == self._fault.step:
            self._start_file.record_start(self.step, Stage.OPTIMIZER_CLIP)
            for gradient in gradients:
                gradient.fill_(float("nan"))


def hook_for(fault: Fault | None, *, rank: int, device: torch.device, start_file: StartFile) -> Healthy:
    """The hooks of ``rank``. Only the rank of the fault has hooks with an effect."""
    if fault is None or fault.rank != rank:
        return Healthy()
    if isinstance(fault, Slow):
        return SlowGpuCompute(fault) if device.type == "cuda" else SlowCompute(fault)
    if isinstance(fault, Hang):
        lacks_data = fault.before == Stage.DATA_LOAD and fault.how == "wait"
        return NoData(fault, start_file) if lacks_data else StopForever(fault, start_file)
    if isinstance(fault, Die):
        return EndProcess(fault, start_file)
    if isinstance(fault, Skip | Shape):
        return AlteredCollective(fault, start_file)
    if isinstance(fault, NanGradients):
        return NoNumbers(fault, start_file)
    return LateData(fault) if isinstance(fault, DataStall) else GarbageBursts(fault)
