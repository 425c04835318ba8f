"""Stamps of what an agent tells again and again, of which the newest counts.

    wall clock   10  11  12   4   5   6 ... 12  13      set back by 8
    stamps       10  11  12  12+ 12+ 12+ ... 12+ 13     + some nanoseconds: what is told last is the newest all the time

An agent that is started again while the clock catches up knows of none before its own.
"""

import threading
import time
from collections.abc import Callable


class Stamps:
    """Wall clock, nanoseconds, each later than the one before. For any thread."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._last_ns = 0

    def __call__(self, *, after_ns: int = 0) -> int:
        """Now; later than ``after_ns``, too, which is not remembered: it may be any number that a file holds."""
        with self._lock:
            self._last_ns = max(self._clock_ns(), self._last_ns + 1)
            return max(self._last_ns, after_ns + 1)


next_stamp_ns = Stamps()
"""Of this process."""
