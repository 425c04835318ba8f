"""Child processes that always end.

run_bounded    caller ---- fork ----> call 0, call 1 ..        all at once; killed by pid at the deadline
run_fresh      caller                                     python -m MODULE
                 request      ------------------------>     work(request, report)
                 record       <------------------------     report(record), any number of times
                 end          <------------------------     None | Refusal
                 no record for too long: killed

``run_bounded`` forks, so use it only in a process without threads; a call may use it again. ``run_fresh`` also works in
a process that has threads or a CUDA context. The kernel ends every child with its parent.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any, NoReturn

from telemetry.errors import RankscopeError
from telemetry.process.child_process import path_of_this_process, python_module, tie_to_parent
from telemetry.process.signals import FROM_OUTSIDE

KILL_WAIT_S = 1.0
"""Time that a killed process has to disappear."""
Report = Callable[[object], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a call."""

    value: Any = None
    error: str = ""
    """Empty: the call returned ``value``."""
    seconds: float = 0.0
    is_late: bool = False
    """Whether it was killed at the deadline."""
    is_killed: bool = False
    """Whether another process or the kernel killed it: a sign of too little memory, not of broken hardware."""


@dataclass(slots=True, kw_only=True)
class _Child:
    process: BaseProcess
    answer: Connection
    begun_s: float
    outcome: Outcome | None = None


def run_bounded(calls: Sequence[Callable[[], Any]], deadline_s: float) -> list[Outcome]:
    """Run all ``calls`` at once. Returns when each has returned, died, or been killed at the deadline.

    What a call returns is pickled and should be small. An exception becomes the outcome's error.
    """
    children: list[_Child] = []
    try:
        children.extend(_fork(call) for call in calls)
        _await(children, time.monotonic() + deadline_s)
        return [child.outcome or _overdue(child, deadline_s) for child in children]
    finally:
        for child in children:
            _kill(child)


def first_line(error: BaseException) -> str:
    """Type and first line of the message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _fork(call: Callable[[], Any]) -> _Child:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run_call, args=(call, mine, theirs, os.getpid()))
    process.start()
    theirs.close()
    return _Child(process=process, answer=mine, begun_s=time.monotonic())


def _run_call(call: Callable[[], Any], other_end: Connection, answer: Connection, parent: int) -> None:
    tie_to_parent(parent)
    other_end.close()
    try:
        value: tuple[Any, str] = (call(), "")
    except BaseException as error:
        value = (None, first_line(error))
    answer.send(value)
    os._exit(0)


def _await(children: Sequence[_Child], deadline: float) -> None:
    while waiting := [child for child in children if child.outcome is None]:
        ready = wait_for_any([child.answer for child in waiting], max(deadline - time.monotonic(), 0.0))
        for child in waiting:
            if child.answer in ready:
                child.outcome = _outcome(child)
        if not ready:
            return


def _outcome(child: _Child) -> Outcome:
    """The outcome of a child whose pipe has data or is closed. A pipe that closes without an answer means that the
    child died."""
    is_killed = False
    try:
        value, error = child.answer.recv()
    except (EOFError, OSError):
        child.process.join(KILL_WAIT_S)
        value, error = None, _death(child.process.exitcode)
        is_killed = child.process.exitcode in FROM_OUTSIDE
    return Outcome(value=value, error=error, seconds=time.monotonic() - child.begun_s, is_killed=is_killed)


def _death(exitcode: int | None) -> str:
    if exitcode is None:
        return "closed its pipe and did not end"
    return f"was killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"ended with status {exitcode}"


def _overdue(child: _Child, deadline_s: float) -> Outcome:
    seconds = time.monotonic() - child.begun_s
    return Outcome(error=f"did not finish in {deadline_s:g} s{_kill(child)}", seconds=seconds, is_late=True)


def _kill(child: _Child) -> str:
    """Kill the child. Returns a note if it still exists: a mount or a device can hold it in the kernel."""
    if child.process.is_alive():
        child.process.kill()
        child.process.join(KILL_WAIT_S)
    child.answer.close()
    if not child.process.is_alive():
        return ""
    state = "?"
    with suppress(OSError):
        state = Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return f"; process {child.process.pid} hangs in the kernel (state {state}) and cannot be killed"


class SilenceError(Exception):
    """The process reported nothing for too long, or ended without its last report.

    ``is_killed``: it ended because another process or the kernel killed it.
    """

    def __init__(self, message: str, *, is_killed: bool = False) -> None:
        super().__init__(message)
        self.is_killed = is_killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A user's error that the process sends to the caller."""

    kind: type[RankscopeError]
    message: str
    hint: str


def run_fresh(module: str, request: object, silence_s: float) -> Iterator[Any]:
    """Yield what ``python -m module`` reports about ``request``. The process ends with the iterator.

    Iterate in one thread only: the kernel ends the process with the thread that started it.

    Raises:
        SilenceError: no report for ``silence_s``.
        UsageError, UnreachableError: as the process raised it.
    """
    mine, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryFile() as output, mine:
        process = _start(module, theirs, output)
        try:
            mine.send(request)
            yield from _reports(process, mine, silence_s, output)
        finally:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILL_WAIT_S)


def serve(work: Callable[[Any, Report], None]) -> NoReturn:
    """The main function of a fresh process. Exits at once, even if children of it still hang in the kernel."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    tie_to_parent(parent)
    channel = Connection(descriptor)
    try:
        work(channel.recv(), channel.send)
        channel.send(None)
    except RankscopeError as error:
        channel.send(Refusal(kind=type(error), message=error.message, hint=error.hint))
    os._exit(0)


def _start(module: str, channel: Connection, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    with channel:
        return subprocess.Popen(
            [*python_module(module), str(channel.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[channel.fileno()],
            env={**os.environ, "PYTHONPATH": path_of_this_process()},
        )


def _reports(
    process: "subprocess.Popen[bytes]", channel: Connection, silence_s: float, output: IO[bytes]
) -> Iterator[Any]:
    while channel.poll(silence_s):
        try:
            record = channel.recv()
        except (EOFError, OSError) as error:
            raise _early_end(process, output) from error
        if record is None:
            return
        if isinstance(record, Refusal):
            raise record.kind(record.message, hint=record.hint)
        yield record
    raise SilenceError(f"reported nothing for {silence_s:g} s")


def _early_end(process: "subprocess.Popen[bytes]", output: IO[bytes]) -> SilenceError:
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILL_WAIT_S)
    status = process.returncode
    if status in FROM_OUTSIDE:
        return SilenceError(_death(status), is_killed=True)
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    return SilenceError(f"ended early: {lines[-1] if lines else 'no output'}")
