"""Runs the watcher in its own process next to a collector, so that it does not slow the collector.

collector ---- SIGHUP when it ends, for any reason ---> rankscope alerts run
                                                         | dies: restarted after a pause that doubles up to a minute
"""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from diagnose.alerts.notice import ErrorReports, Say
from telemetry.process.child_process import FIRST_PAUSE_S, RestartPauses, child_environment

FINISH_S = 10.0
"""Time for a normal end. After this time, the process is killed."""


class KeptAlive:
    """A process that is restarted when it dies, until the block ends.

    ``first_pause_s``: pause before the first restart. It doubles each time, up to a minute.
    """

    def __init__(
        self,
        command: Sequence[str],
        say: Say,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pid = 0
        """Pid of the running process, or of the last one."""
        self._command = command
        # The watcher is restarted even if standard error is closed.
        self._say = ErrorReports(say).report
        self._pauses = RestartPauses(first_pause_s)
        self._clock_s = clock_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        with self._lock:
            _end(self._process)
        self._thread.join(FINISH_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._pauses.started(self._clock_s())
            status = self._run_once()
            if self._ending.is_set():
                return
            pause_s = self._pauses.after_death(self._clock_s())
            self._say(f"the alert watcher ended ({status}); it restarts in {pause_s:g} s")
            self._ending.wait(pause_s)

    def _run_once(self) -> str:
        """Run the process until it ends. Returns how it ended."""
        try:
            with self._lock:
                if self._ending.is_set():
                    return ""
                # In its own process group it does not receive Ctrl-C of the terminal.
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, env=child_environment(), process_group=0
                )
            self.pid = self._process.pid
            with self._process as process:
                status = process.wait()
        except Exception as error:  # it could not be started: retried later
            return str(error) or type(error).__name__
        return f"signal {-status}" if status < 0 else f"status {status}"


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """End the process with SIGTERM. Kill it if it does not end in time."""
    if process is None:
        return
    process.terminate()
    try:
        process.wait(FINISH_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
