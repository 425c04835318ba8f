"""Garbage collections of this process as spans."""

import gc
from time import monotonic_ns
from typing import Any

from telemetry.record.recorder import Recorder
from telemetry.stages import Stage

MIN_PAUSE_NS = 100_000
"""Shorter collections are left out: they are frequent, and do not slow a step."""


class GarbageWatch:
    """Records a ``gc`` span for each collection from :meth:`install` to :meth:`remove`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._started_ns = 0

    def install(self) -> None:
        gc.callbacks.append(self._on_collection)

    def remove(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the interpreter as a collection begins and ends, on the thread that it interrupts."""
        now = monotonic_ns()
        if phase == "start":
            self._started_ns = now
        elif now - self._started_ns >= MIN_PAUSE_NS:
            self._recorder.record_span(Stage.GC, self._started_ns, now - self._started_ns)
