"""When each rank's process ended. The first death matters: the launcher ends the other processes within a moment.

One thread waits for all processes at once (a pidfd becomes readable when its process ends) and records the wall-clock
time. On kernels without pidfd it records nothing; the agent then uses the time at which it noticed the death.

Until the parent reaps it, a dead process also shows its exit status. A rank that another process terminated is not the
one that failed first.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class DeathWatch:
    """Stamps the ends of processes. ``on_death`` is called from its thread."""

    def __init__(self, on_death: Callable[[], None] = lambda: None) -> None:
        self._on_death = on_death
        self._pids: dict[int, int] = {}
        """By pidfd."""
        self._died_ns: dict[int, int] = {}
        self._ended_by: dict[int, str] = {}
        self._poll = select.poll()
        self._lock = threading.Lock()
        self._wake_end, self._wake = os.pipe()
        self._poll.register(self._wake_end, select.POLLIN)
        self._thread = threading.Thread(target=self._watch, name="rankscope-deaths", daemon=True)
        self._thread.start()

    def follow(self, pid: int) -> bool:
        """Stamp the end of a process that lives now. False where that cannot be done."""
        if not self._thread.is_alive():
            return False
        with suppress(OSError, AttributeError), self._lock:
            self._died_ns.pop(pid, None)
            self._ended_by.pop(pid, None)
            pidfd = os.pidfd_open(pid)
            self._pids[pidfd] = pid
            self._poll.register(pidfd, select.POLLIN)
            os.write(self._wake, b".")  # a poll under way does not see what is registered meanwhile
            return True
        return False

    def died_ns(self, pid: int) -> int:
        """Wall clock of its end; 0 where it was not seen."""
        return self._died_ns.get(pid, 0)

    def ended_by(self, pid: int) -> str:
        """``SIGKILL``, ``exit 1`` ...; empty if its parent reaped it first, or it was not observed."""
        return self._ended_by.get(pid, "")

    def close(self) -> None:
        """End the thread. Safe to repeat."""
        if self._thread.is_alive():
            os.write(self._wake, b"x")
            self._thread.join()
            for pidfd in (*self._pids, self._wake, self._wake_end):
                os.close(pidfd)

    def _watch(self) -> None:
        while True:
            ready = self._poll.poll()
            now = time.time_ns()
            died = [fd for fd, _ in ready if fd != self._wake_end]
            for pidfd in died:
                self._ended_by[self._pids[pidfd]] = _manner(self._pids[pidfd])
            for pidfd in died:
                self._note(pidfd, now)
            if died:
                self._on_death()
            if len(died) < len(ready) and b"x" in os.read(self._wake_end, 4096):
                return

    def _note(self, pidfd: int, now_ns: int) -> None:
        with self._lock:
            self._poll.unregister(pidfd)
            self._died_ns[self._pids.pop(pidfd)] = now_ns
            os.close(pidfd)


def _manner(pid: int) -> str:
    """Exit status of a process that is not reaped yet: the last field of its ``stat`` is the result of wait()."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        state, status = fields[0], int(fields[-1])
    except (OSError, ValueError, IndexError):
        return ""
    if state not in "ZX":
        return ""
    number = os.waitstatus_to_exitcode(status)
    return signal.Signals(-number).name if number < 0 else f"exit {number}"
