"""When each step of a job was completed for the first time, by the clock of a process outside the job.

step            17      18      19                                   20      21
                |-usual-|-usual-|------------- gap ------------------|-usual-|
cost of a fault                 |----- gap - usual step ----|

The gap contains everything that a fault costs: the lost part of a step, detection, checks, restart, repeated steps.
"""

import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import TracebackType

from tests.trainer.jobs import figures

POLL_S = 0.02


class StepClock:
    """Watches the progress file of a job for the block. Times are seconds of the monotonic clock."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._first_s: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "StepClock":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def cost_s(self, *, steps_per_fault: int = 1) -> float:
        """Seconds that faults cost: the ``steps_per_fault`` longest gaps, each without a usual step."""
        times = [self._first_s[step] for step in sorted(self._first_s)]
        gaps = sorted(after - before for before, after in pairwise(times))
        usual = median(gaps)
        return sum(gap - usual for gap in gaps[-steps_per_fault:])

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        now_s = time.monotonic()
        for step in figures(self._out):
            self._first_s.setdefault(step["step"], now_s)
