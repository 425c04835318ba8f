"""The watcher as a process of its own beside a collector: what it does never takes the collector's time.

collector ---- SIGHUP, however it ends ---> rankscope alerts run
                                             | dies: started again, after a pause that doubles up to a minute
"""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from diagnose.alerts.notice import Complaints, Say
from telemetry.process.child_process import FIRST_PAUSE_S, RestartPauses, child_environment

FINISH_S = 10.0
"""How long it may take to end in order."""


class KeptAlive:
    """A process that is started again when it dies, for as long as the block lasts.

    ``first_pause_s``: before it is started again; doubled each time, up to a minute.
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
        """Of the process that runs, or ran last."""
        self._command = command
        # Where standard error is gone, the watcher is still kept alive.
        self._say = Complaints(say).tell
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
            status = self._lived()
            if self._ending.is_set():
                return
            pause_s = self._pauses.after_death(self._clock_s())
            self._say(f"the alert watcher ended ({status}); it restarts in {pause_s:g} s")
            self._ending.wait(pause_s)

    def _lived(self) -> str:
        """One life of the process, and how it ended."""
        try:
            with self._lock:
                if self._ending.is_set():
                    return ""
                # In a process group of its own, Ctrl-C at the terminal does not reach it.
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, env=child_environment(), process_group=0
                )
            self.pid = self._process.pid
            with self._process as process:
                status = process.wait()
        except Exception as error:  # whatever keeps it from being started may be over at the next try
            return str(error) or type(error).__name__
        return f"signal {-status}" if status < 0 else f"status {status}"


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """Let it end in order; kill it where it does not."""
    if process is None:
        return
    process.terminate()
    try:
        process.wait(FINISH_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
