"""Errors of our own: counted, reported once, and never raised into training.

1st, 2nd, 4th, 8th ... error   a mark in the recording        the first: also one line on stderr
100th                          nothing is inferred any more
"""

from collections.abc import Callable
from contextlib import suppress

from telemetry.record.recording import RECORDER, warn

ATTACH_ERROR = "attach-error"
"""Name of the mark of an error of our own. Its text is the error and the number of errors so far."""
MAX_ERRORS = 100


class OwnErrors:
    """The errors of this process."""

    def __init__(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        self.count = 0

    def add(self, error: Exception) -> None:
        """Count and report an error. Never raises."""
        with suppress(Exception):
            self.count += 1
            if self.count == 1:
                warn(f"the training loop cannot be followed completely: {error!r}. Training is not affected")
            if self.count.bit_count() == 1:
                RECORDER.mark(ATTACH_ERROR, f"{error!r}; error {self.count}")
            if self.count >= MAX_ERRORS:
                self._give_up()
