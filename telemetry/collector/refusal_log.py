"""Refused batches in the collector's log: one line for each, up to a limit per minute."""

import time
from collections.abc import Callable

from telemetry.printable import log

LINES_A_MINUTE = 20
MAX_LENGTH = 400
_MINUTE_S = 60.0


class RefusalLog:
    """Not for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._lines = 0
        self._left_out = 0

    def refused(self, what: str) -> None:
        """Write a line about one batch, or count it where too many came within this minute."""
        if self._clock() - self._began_s >= _MINUTE_S:
            self._begin_minute()
        if self._lines >= LINES_A_MINUTE:
            self._left_out += 1
            return
        self._lines += 1
        _write(f"refused a batch of {what.partition(chr(10))[0][:MAX_LENGTH]}")
        if self._lines == LINES_A_MINUTE:
            _write("more refusals within this minute are only counted: see rankscope_batches_rejected_total")

    def _begin_minute(self) -> None:
        if self._left_out:
            _write(f"refused {self._left_out} more batches")
        self._began_s, self._lines, self._left_out = self._clock(), 0, 0


def _write(line: str) -> None:
    log(f"rankscope collect: {line}")
