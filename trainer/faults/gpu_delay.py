"""Makes the compute of a GPU longer, for the fault ``slow``."""

from collections import defaultdict, deque
from statistics import median
from typing import Any

import torch

from telemetry.stages import Stage

KEPT = 32
CALIBRATION_CYCLES = 50_000_000


class GpuDelay:
    """Makes the GPU compute of one rank longer by a factor, without a wait of the host.

    stream   [begin] compute [end] sleep(...)      the sleep is (factor - 1) x the median of earlier computes whose
                                                   events are complete; the first computes are not extended
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._cycles_per_ms = _cycles_per_ms()
        self._open: deque[tuple[Stage, Any, Any]] = deque()
        self._seen_ms: dict[Stage, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def begin(self) -> Any:
        """An event at the start of the compute."""
        return _event()

    def end(self, stage: Stage, begun: Any, *, active: bool) -> None:
        """Sleep on the stream, so that the compute takes ``factor`` times as long."""
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
    """Clock cycles of the GPU in a millisecond. Measured before training begins, so this may wait for the GPU."""
    _sleep(CALIBRATION_CYCLES)
    begin = _event()
    _sleep(CALIBRATION_CYCLES)
    end = _event()
    end.synchronize()
    return CALIBRATION_CYCLES / float(begin.elapsed_time(end))
