"""A fresh process that does one piece of work and tells how it goes.

caller                                     python -m MODULE
  request       ------------------------>    work(request, tell)
  each record   <------------------------    tell(record) ..
  end           <------------------------    Done | Refusal
  silence for too long: killed                dies with the caller, whatever kills that

Fresh, so that the work may fork: the caller may have threads or a device.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any, NoReturn

from diagnose.nodecheck.bounded import BURIAL_S
from telemetry.errors import RankscopeError, UnreachableError, UsageError
from telemetry.process.child_process import path_of_this_process, python_module, tie_to_parent

Tell = Callable[[object], None]


class SilenceError(Exception):
    """The process did not say a word for too long, or ended without its last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The last word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A user's error, on its way to the user."""

    message: str
    hint: str
    exit_status: int


def ask(module: str, request: object, silence_s: float) -> Iterator[Any]:
    """What ``python -m module`` tells about ``request``, as it comes. The process is gone when the iterator is.

    To be iterated by one thread: the kernel takes the end of the thread that started a process for its parent's.

    Raises:
        SilenceError: nothing was told for ``silence_s``.
        UsageError: the request is refused.
        UnreachableError: it needs somebody who does not answer.
    """
    mine, theirs = Pipe()
    with tempfile.TemporaryFile() as words, mine:
        process = _start(module, theirs, words)
        try:
            mine.send(request)
            yield from _told(mine, silence_s, words)
        finally:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(BURIAL_S)


def serve(work: Callable[[Any, Tell], None]) -> NoReturn:
    """The process's side: do ``work``, and leave at once, whatever of its children may still stand in the kernel."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    tie_to_parent(parent)
    channel = Connection(descriptor)
    try:
        work(channel.recv(), channel.send)
        channel.send(Done())
    except RankscopeError as error:
        channel.send(Refusal(message=error.message, hint=error.hint, exit_status=error.exit_status))
    os._exit(0)


def _start(module: str, channel: Connection, words: IO[bytes]) -> "subprocess.Popen[bytes]":
    with channel:
        return subprocess.Popen(
            [*python_module(module), str(channel.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            pass_fds=[channel.fileno()],
            env={**os.environ, "PYTHONPATH": path_of_this_process()},
        )


def _told(channel: Connection, silence_s: float, words: IO[bytes]) -> Iterator[Any]:
    while channel.poll(silence_s):
        try:
            told = channel.recv()
        except (EOFError, OSError) as error:
            raise SilenceError(f"ended early: {_last_line(words)}") from error
        if isinstance(told, Done):
            return
        if isinstance(told, Refusal):
            kind = UsageError if told.exit_status == UsageError.exit_status else UnreachableError
            raise kind(told.message, hint=told.hint)
        yield told
    raise SilenceError(f"said nothing for {silence_s:g} s")


def _last_line(words: IO[bytes]) -> str:
    words.seek(0)
    lines = words.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
