"""Calls that must end: each in a process of its own, killed from outside at the deadline.

caller ---- fork ----> call 0, call 1 ..      all at once; a call may fork further in the same way
   |  waits for answers, deaths, the deadline
   '- kill, by pid; whoever does not even die (a mount or a device that holds it in the kernel) is left and said so

A child dies with its parent, whatever kills that. To be used in a process without threads: it forks.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from telemetry.process.child_process import tie_to_parent

BURIAL_S = 1.0
"""So long after its kill a process may take to be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call came out."""

    value: Any = None
    error: str = ""
    """Empty: it returned ``value``."""
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Running:
    process: BaseProcess
    answer: Connection
    begun: float
    outcome: Outcome | None = None


def run_bounded(calls: Sequence[Callable[[], Any]], deadline_s: float) -> list[Outcome]:
    """Run all ``calls`` at once; returns when each has answered, died, or been killed at the deadline.

    What a call returns is pickled and should be small. An exception becomes the outcome's error.
    """
    running: list[_Running] = []
    try:
        running.extend(_start(call) for call in calls)
        _await(running, time.monotonic() + deadline_s)
        return [one.outcome or _overdue(one, deadline_s) for one in running]
    finally:
        for one in running:
            _bury(one)


def first_line(error: BaseException) -> str:
    """An exception in a line, as far as it says something."""
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0]}" if words else type(error).__name__


def _start(call: Callable[[], Any]) -> _Running:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(call, mine, theirs, os.getpid()))
    process.start()
    theirs.close()
    return _Running(process=process, answer=mine, begun=time.monotonic())


def _child(call: Callable[[], Any], other_end: Connection, answer: Connection, parent: int) -> None:
    tie_to_parent(parent)
    other_end.close()
    try:
        value: tuple[Any, str] = (call(), "")
    except BaseException as error:
        value = (None, first_line(error))
    answer.send(value)
    os._exit(0)


def _await(running: Sequence[_Running], deadline: float) -> None:
    while waiting := [one for one in running if one.outcome is None]:
        left = deadline - time.monotonic()
        ready = wait_for_any([one.answer for one in waiting], max(left, 0.0))
        for one in waiting:
            if one.answer in ready:
                one.outcome = _heard(one)
        if not ready:
            return


def _heard(one: _Running) -> Outcome:
    """A closed pipe without an answer is a death."""
    try:
        value, error = one.answer.recv()
    except (EOFError, OSError):
        one.process.join(BURIAL_S)
        value, error = None, _manner(one.process.exitcode)
    return Outcome(value=value, error=error, seconds=time.monotonic() - one.begun)


def _manner(exitcode: int | None) -> str:
    if exitcode is None:
        return "closed its answer and did not end"
    return f"was killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"ended with status {exitcode}"


def _overdue(one: _Running, deadline_s: float) -> Outcome:
    seconds = time.monotonic() - one.begun
    standing = _bury(one)
    return Outcome(error=f"did not finish in {deadline_s:g} s{standing}", seconds=seconds)


def _bury(one: _Running) -> str:
    """Kill, wait a moment; what to say when it is still there."""
    if one.process.is_alive():
        one.process.kill()
        one.process.join(BURIAL_S)
    one.answer.close()
    if not one.process.is_alive():
        return ""
    state = "?"
    with suppress(OSError):
        state = Path(f"/proc/{one.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return f"; process {one.process.pid} stands in the kernel (state {state}) and cannot be killed"
