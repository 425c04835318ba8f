"""Bringing a step's numbers to the host without making the device wait.

device   step 7 .. sum over ranks .. copy -> pinned memory, event      step 8 .. step 9 ..
host                                                       event passed? -> figures of step 7
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What a step came to, over all ranks."""

    step: int
    loss: float
    gradient_norm: float
    step_seconds: float


class HostReadout:
    """On a CPU the numbers are there at once; the step lasts from one call to the next."""

    def __init__(self) -> None:
        self._last_ns = time.monotonic_ns()
        self._ready: list[StepFigures] = []

    def put(self, step: int, totals: Tensor) -> None:
        """``totals`` holds the squared gradient norm and the loss."""
        now = time.monotonic_ns()
        self._ready.append(_figures(step, totals, (now - self._last_ns) / 1e9))
        self._last_ns = now

    def ready(self, *, wait: bool = False) -> list[StepFigures]:
        """Figures that have come since the last call, in order of steps."""
        ready, self._ready = self._ready, []
        return ready


class DeviceReadout:
    """On a GPU they come some steps later; the step lasts from one event to the next. Only ``wait`` waits."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, Tensor, Any]] = deque()
        self._last: Any = torch.cuda.Event(enable_timing=True)
        self._last.record()

    def put(self, step: int, totals: Tensor) -> None:
        """As on the host; the copy is queued behind the step."""
        copy = torch.empty(totals.shape, dtype=totals.dtype, pin_memory=True)
        copy.copy_(totals, non_blocking=True)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._open.append((step, copy, event))

    def ready(self, *, wait: bool = False) -> list[StepFigures]:
        """Figures that have come since the last call, in order of steps; with ``wait``, all of them."""
        if wait and self._open:
            self._open[-1][2].synchronize()
        figures = []
        while self._open and self._open[0][2].query():
            step, copy, event = self._open.popleft()
            figures.append(_figures(step, copy, self._last.elapsed_time(event) / 1e3))
            self._last = event
        return figures


def _figures(step: int, totals: Tensor, seconds: float) -> StepFigures:
    square_sum, loss = totals.tolist()
    return StepFigures(step=step, loss=loss, gradient_norm=square_sum**0.5, step_seconds=seconds)
