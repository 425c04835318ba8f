"""The keeper of a node, as its executor runs it: a socket that stays open, and a process that may be restarted."""

import subprocess
import time

from telemetry.collector.serving import listen, url_of
from telemetry.printable import write_lines
from telemetry.process.child_process import RestartPauses, child_environment, python_module

LOOPBACK = "127.0.0.1"


class KeeperProcess:
    """Starts and ends the keeper of this node. Create it before any rank is started: ranks of other nodes learn the
    address from the first report.

    ``address``: that of this node; empty if all nodes are on this machine.

    Raises:
        UsageError: the address is not one of this machine.
    """

    def __init__(self, address: str) -> None:
        self._listener = listen(address or LOOPBACK, 0)
        self.url = url_of(self._listener)
        self._process: subprocess.Popen[bytes] | None = None
        self._token = ""
        self._pauses = RestartPauses()
        self._restart_s = 0.0
        self.may_hold_parts = False
        """Set by the executor when ranks start here."""

    def look_after(self, token: str) -> None:
        """Start the keeper if it does not run, or restart it if the job has another token now."""
        if self._process is not None and token != self._token:
            self._kill()
        now_s = time.monotonic()
        if self._process is not None and (status := self._process.poll()) is not None:
            self._process = None
            self._restart_s = now_s + self._pauses.after_death(now_s)
            write_lines(f"the keeper of replicas ended with status {status}; another one starts without replicas")
        elif self._process is None and now_s >= self._restart_s:
            self._pauses.started(now_s)
            try:
                self._start(token)
            except OSError as error:  # such as no memory: the ranks train on
                self._kill()
                self._restart_s = now_s + self._pauses.after_death(now_s)
                write_lines(f"the keeper of replicas cannot start: {error}")

    def forget(self) -> None:
        """Free the memory by ending the process. The next :meth:`look_after` starts another process."""
        if self.may_hold_parts:
            self.may_hold_parts = False
            self._kill()

    def end(self) -> None:
        """End the keeper, and free the memory."""
        self._kill()
        self._listener.close()

    def _start(self, token: str) -> None:
        number = self._listener.fileno()
        self._token = token
        self._process = subprocess.Popen(
            [*python_module("trainer.replicas.keeper"), str(number)],
            stdin=subprocess.PIPE,
            env=child_environment(),
            pass_fds=[number],
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with self._process.stdin as stream:  # not in the environment or the command, which stay readable
            stream.write(token.encode())

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
