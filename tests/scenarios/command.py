"""The command as a user runs it, without the second of imports."""

import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.forkserver import FORKED, WIDE, Program, end_with_pytest
from ui.cli.main import main

COMMAND_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Output and exit status of a command."""

    status: int
    out: str
    error: str


def rankscope(*arguments: object, first: Callable[[], None] | None = None, **environment: str) -> Answer:
    """Run `rankscope` with these arguments, and wait for its end. ``first``: what its process calls before."""
    seen = {**os.environ, **WIDE, **environment}
    with tempfile.TemporaryDirectory(prefix="rankscope-said-") as folder:
        outputs = Path(folder)
        process = FORKED.Process(target=_run, args=(list(map(str, arguments)), seen, os.getcwd(), outputs, first))
        process.start()
        process.join(COMMAND_S)
        if late := process.is_alive():
            process.kill()
            process.join()
        out, error = ((outputs / name).read_text() for name in ("out", "error"))
        assert not late, (arguments, out, error)
        return Answer(status=process.exitcode or 0, out=out, error=error)


def run_code(code: str, *arguments: object) -> Answer:
    """Run Python code with these arguments, and wait for its end. ``out`` also has what it writes to stderr."""
    with tempfile.TemporaryDirectory(prefix="rankscope-said-") as folder:
        program = Program(["-c", code, *map(str, arguments)], Path(folder) / "said")
        status = program.wait(COMMAND_S)
        return Answer(status=status, out=(Path(folder) / "said").read_text(), error="")


def _run(
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    outputs: Path,
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
    for number, name in ((1, "out"), (2, "error")):
        os.dup2(os.open(outputs / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdout, sys.stderr = _written(1), _written(2)
    sys.argv = ["rankscope", *arguments]
    main()


def _written(number: int) -> io.TextIOWrapper:
    return os.fdopen(number, "w", encoding="utf-8", closefd=False)
