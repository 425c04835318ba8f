"""SIGTERM asks a rank to end after its step, and after a checkpoint of that step.

    first SIGTERM           ``asked`` is True
    no step for 30 s        the process ends: another rank is lost or hangs
    another SIGTERM         the process ends, unless it is a copy of the first one

A thread acts on signals, because Python runs no signal handler while the main thread waits in a collective.
"""

import os
import signal
import socket
import threading
import time
from contextlib import suppress

from telemetry.printable import write_lines

STEP_LIMIT_S = 30.0
"""Longest time from one completed step to the next, after the first SIGTERM."""
COPY_S = 2.0
"""A second SIGTERM within this time is a copy of the first: a scheduler and the launcher may each send one."""
FAILED = 1


class EndingRequest:
    """Whether this process was asked to end. Create it on the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self._alive_s = time.monotonic()
        self._limited = True
        self._received, self._signalled = socket.socketpair()
        self._signalled.setblocking(False)
        threading.Thread(target=self._follow, name="ending", daemon=True).start()
        signal.signal(signal.SIGTERM, _nothing)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=_forget)

    def step_done(self) -> None:
        """Start the time limit again."""
        self._alive_s = time.monotonic()
        self._limited = True

    def lift_limit(self) -> None:
        """Set no time limit until ``step_done``. The rank waits for a checkpoint, however long that takes."""
        self._limited = False

    def _follow(self) -> None:
        self._wait_for_signal(None)
        self._alive_s = first_s = time.monotonic()
        self.asked = True
        while True:
            if self._wait_for_signal(1.0) and time.monotonic() - first_s > COPY_S:
                _end("a second SIGTERM")
            if self._limited and time.monotonic() - self._alive_s > STEP_LIMIT_S:
                _end(f"no step was completed within {STEP_LIMIT_S:g} s after SIGTERM")

    def _wait_for_signal(self, seconds: float | None) -> bool:
        """Wait for a SIGTERM. Returns False if none arrives within ``seconds``; None means no limit."""
        self._received.settimeout(seconds)
        with suppress(TimeoutError):
            while signal.SIGTERM not in self._received.recv(64):
                pass
            return True
        return False


def _end(reason: str) -> None:
    write_lines(f"this rank ends without a checkpoint: {reason}")
    os._exit(FAILED)


def _forget() -> None:
    """Stop passing on signals. Called in a forked child: a SIGTERM for a child, such as a worker of a data loader, must
    not count as one for its parent."""
    with suppress(ValueError):  # a thread other than the main one has forked
        signal.set_wakeup_fd(-1)


def _nothing(*_: object) -> None:
    """Do nothing. The thread receives a signal only if the signal has a Python handler."""
