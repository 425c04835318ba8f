"""Parts as real processes that can be started many times."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from telemetry.errors import RankscopeError
from tests.forkserver import FORKED, end_with_pytest


class Part:
    """A process that can be started many times. It calls ``role`` with ``arguments``."""

    def __init__(self, name: str, role: Callable[..., None], log: Path) -> None:
        self.name = name
        self.arguments: tuple[object, ...] = ()
        self.num_starts = 0
        self._role = role
        self._log = log
        self._process: BaseProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def status(self) -> int | None:
        """The exit status. None while the process runs."""
        return self._process.exitcode if self._process is not None else None

    def start(self) -> None:
        assert not self.running, self.name
        self._process = FORKED.Process(
            target=_play, args=(self._log, self._role, *self.arguments), name=self.name, daemon=True
        )
        self._process.start()
        self.num_starts += 1

    def tell(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self.running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end of the process."""
        if self._process is not None:
            self.tell(signal.SIGKILL)
            self._process.join()

    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


def _play(log: Path, role: Callable[..., None], *arguments: object) -> None:
    """In the child: write the output to the log, and end when the test process ends."""
    threading.Thread(target=end_with_pytest, name="harness", daemon=True).start()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(output, number)
    try:
        role(*arguments)
    except RankscopeError as error:
        print(f"{role.__name__}: {error}", flush=True)
        sys.exit(error.exit_status)
