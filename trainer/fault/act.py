"""Faults at work: hooks that stand where a step passes by.

step ---- before(data-load) -- before(forward-compute) -[begin .. compute .. end]- before(...) ---->
"""

import gc
import os
import random
import signal
import threading
import time
from typing import Any

import torch

from telemetry.stages import Stage
from trainer.fault.gpu_drag import GpuDrag
from trainer.fault.inject import DataStall, Die, Fault, GcBursts, Hang, Slow

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

    def __init__(self, fault: Hang) -> None:
        self._fault = fault

    def before(self, stage: Stage) -> None:
        if self.step != self._fault.step or stage != self._fault.before:
            return
        print(f"fault: hanging before {stage.label} of step {self.step}", flush=True)
        if self._fault.how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while self._fault.how == "spin":
            pass
        threading.Event().wait()


class Dying(Healthy):
    """Ends its process."""

    def __init__(self, fault: Die) -> None:
        self._fault = fault

    def before(self, stage: Stage) -> None:
        if self.step != self._fault.step or stage != self._fault.before:
            return
        print(f"fault: dying before {stage.label} of step {self.step}", flush=True)
        if self._fault.how == "raise":
            raise RuntimeError("fault: this rank was told to fail")
        if self._fault.how == "exit":
            os._exit(EXIT_STATUS)
        os.kill(os.getpid(), signal.SIGKILL)


class Starving(Healthy):
    """Waits for its data, inside data-load."""

    def __init__(self, fault: DataStall) -> None:
        self._fault = fault

    def begin(self, stage: Stage) -> None:
        if stage == Stage.DATA_LOAD and self.step == self._fault.step:
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


def hook_for(fault: Fault | None, *, rank: int, device: torch.device) -> Healthy:
    """What stands in the way of ``rank``; every rank but the one at fault is healthy."""
    if fault is None or fault.rank != rank:
        return Healthy()
    if isinstance(fault, Slow):
        return DraggingGpu(fault) if device.type == "cuda" else Dragging(fault)
    if isinstance(fault, Hang):
        return Hanging(fault)
    if isinstance(fault, Die):
        return Dying(fault)
    return Starving(fault) if isinstance(fault, DataStall) else Littering(fault)
