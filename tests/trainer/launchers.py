"""Launchers of jobs, forked from a process that has loaded torch and the trainer: a start costs no seconds of imports.

test ----- request, log ----> server ----- fork ----> launcher ----- fork ----> ranks
     <----------- pipe: pid, exit status -----------'

The server has no threads, and ends with the test process.
"""

import atexit
import json
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from telemetry.process.quick_imports import quick_imports

LAUNCH = f"{__name__}:launch_pickled"
START_S = 120
"""The server may still load torch."""
REQUEST_BYTES = 1 << 17
COMMANDS = ("ui.cli.main", "ui.cli.drive", "ui.cli.train", "httpcore")
"""Modules that jobs use beside the trainer, which loads them late."""
_starting = threading.Lock()


class Launched:
    """A launcher. The same methods as ``subprocess.Popen``."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._unread = b""
        self.returncode: int | None = None
        self.pid = int(self._line(START_S) or 0)
        assert self.pid, "the server of launchers has ended"

    def poll(self) -> int | None:
        """The exit status; None while the process runs."""
        if self.returncode is None and (line := self._line(0)) is not None:
            os.close(self._status)
            assert line, "the server of launchers has ended"
            self.returncode = int(line)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status.

        Raises:
            TimeoutExpired: the process still runs after ``timeout`` seconds.
        """
        if self.returncode is None:
            select.select([self._status], [], [], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired("launcher", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _line(self, seconds: float) -> bytes | None:
        """The next line of the server. None: there is none yet. Empty: the server has ended."""
        while b"\n" not in self._unread:
            if not select.select([self._status], [], [], seconds)[0]:
                return None
            if not (piece := os.read(self._status, 64)):
                return b""
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def start_launcher(job: Path, log: Path, work: str = LAUNCH) -> Launched:
    """Launch the training of a ``job.pickle`` (``tests/trainer/jobs.py``). Its output is appended to ``log``.

    ``work``: as in :func:`start_forked`. It takes the path of the job.
    """
    return start_forked(work, str(job.resolve()), log=log)


def start_forked(work: str, *arguments: str, log: Path, **variables: str) -> Launched:
    """Call a function in a process that has loaded torch and the trainer. Its output is appended to ``log``.

    Args:
        work: ``module:function``. The function takes ``arguments``, and returns the exit status or None.
        variables: of the environment, beside those of this process.
    """
    environment = {**os.environ, **variables}
    called = {"work": work, "arguments": arguments, "folder": os.getcwd(), "environment": environment}
    request = json.dumps(called).encode()
    assert len(request) < REQUEST_BYTES
    status, written = os.pipe()
    with log.open("ab") as output, _starting:
        socket.send_fds(_server(), [request], [output.fileno(), written])
    os.close(written)
    return Launched(status)


def start_script(script: Path, *, log: Path, **variables: str) -> Launched:
    """Run a script as ``python script`` does, in such a process."""
    return start_forked(f"{__name__}:run_script", str(script), log=log, **variables)


def run_script(script: str) -> None:
    runpy.run_path(script, run_name="__main__")


def run_torchrun(*words: str) -> None:
    """The command `torchrun` in this process."""
    import_module("torch.distributed.run").main(list(words))


def launch_pickled(job: str) -> int:
    """Train in this process: the exit status of the launcher."""
    config, options = pickle.loads(Path(job).read_bytes())
    status: int = _load_trainer().launch(config, options)
    return status


def _load_trainer() -> ModuleType:
    """The trainer. Torch is slow to import, and tests themselves need none."""
    with quick_imports():
        return import_module("trainer.run")


@cache
def _server() -> socket.socket:
    """A connection to the server, which starts now."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.trainer.launchers", str(theirs.fileno())]
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


def _serve(requests: socket.socket) -> None:
    """Fork a launcher for each request, and report each end, until the test process has ended."""
    _load_trainer()
    with quick_imports():
        for module in COMMANDS:
            import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    reports: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _report_ended(reports)
        if requests in ready:
            request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
            if not request:
                return
            output, report = files
            if not (pid := os.fork()):
                inherited = (requests.detach(), ended, wakes, report, *reports.values())
                _become_launcher(json.loads(request), output, inherited)
            os.close(output)
            os.write(report, b"%d\n" % pid)
            reports[pid] = report


def _report_ended(reports: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            report = reports.pop(ended[0])
            with suppress(BrokenPipeError):
                os.write(report, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
            os.close(report)


def _become_launcher(request: dict[str, Any], output: int, inherited: Iterable[int]) -> NoReturn:
    """In the child."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(output, number)
    for number in (output, *inherited):
        os.close(number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    status = 1
    try:
        module, _, function = request["work"].partition(":")
        status = getattr(import_module(module), function)(*request["arguments"]) or 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _serve(requests)
