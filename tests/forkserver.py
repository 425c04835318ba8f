"""Real processes, forked from one that has loaded what they need: a start costs no second of imports.

pytest ---> fork server (modules are loaded, nothing runs) --fork--> rank, agent, collector, `rankscope` ...

The engine of embedded stores is not among them: it has threads as soon as it is loaded.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path

WIDE = {"NO_COLOR": "1", "COLUMNS": "200"}
"""A terminal whose lines do not wrap."""
os.environ.update(WIDE)  # consoles are made as modules load
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.preloaded"])


class Program:
    """``python -m MODULE ...`` or ``python -c CODE ...``, with the same methods as ``subprocess.Popen``.

    It has the environment and the folder of the caller. Its output is appended to a file. In the list of processes it
    has the command line of the fork server.

    Args:
        first: what the new process calls before everything else.
        errors: the file for stderr. None: ``output``.
        variables: of the environment, beside those of the caller.
    """

    def __init__(
        self,
        words: list[str],
        output: Path,
        first: Callable[[], None] | None = None,
        errors: Path | None = None,
        **variables: str,
    ) -> None:
        arguments = (words, {**os.environ, **variables}, os.getcwd(), (output, errors or output), first)
        self._process = FORKED.Process(target=_run_program, args=arguments)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status.

        Raises:
            TimeoutExpired: it still runs after ``timeout`` seconds.
        """
        self._process.join(timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired("program", timeout or 0)
        return status

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def output_of(*words: str, seconds: float = 240) -> str:
    """What a program prints to stdout. It must end with status 0 within ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="rankscope-output-") as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        program = Program(list(words), output, errors=errors)
        try:
            status = program.wait(seconds)
        finally:
            program.kill()
        assert status == 0, output.read_text()[-3000:] + errors.read_text()[-3000:]
        return output.read_text()


def _run_program(
    words: list[str],
    environment: dict[str, str],
    folder: str,
    outputs: tuple[Path, Path],
    first: Callable[[], None] | None,
) -> None:
    """In the child."""
    if first is not None:
        first()
    threading.Thread(target=end_with_pytest, daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, output in enumerate(outputs, 1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
    how, what, *sys.argv[1:] = words
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})


def end_with_pytest() -> None:
    """In a thread of the child: it ends with pytest, however that ends."""
    harness = multiprocessing.parent_process()
    assert harness is not None
    wait([harness.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
