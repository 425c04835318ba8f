"""Reads pickles from outside with an unpickler that builds only plain containers, numbers and text.

A pickle that needs a class or a function is rejected before the class is imported, so a hostile pickle runs no code. A
very large memo index would need gigabytes, so the memory is limited while a pickle is read.

The limit applies to the whole process, so a process with threads does not read pickles itself. It runs this file as a
program (:func:`json_of_pickle`), which imports only the standard library:

    python -I plain_pickle.py [USER]  < pickle  > JSON        exit status 1: it cannot be read

Under root it first switches to the rights of USER (a number), without any group.
"""

import io
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Never

EXTRA_BYTES_EACH = 400
"""Memory that one byte of a pickle may need: a memo entry, an empty container."""
LEAST_EXTRA_BYTES = 64 * 2**20
MOST_EXTRA_BYTES = 2**29
"""Largest additional memory of a whole conversion to JSON."""
MAX_JSON_BYTES = 64 * 2**20
"""Largest size of the text, so that the memory of the caller is limited too."""
CONVERT_S = 5.0
MOST_CPU_S = 10
"""Processor time after which the program ends itself, because its caller may have ended."""
NOBODY = 65534
"""A group without rights."""
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")
BROKEN = (
    pickle.PickleError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError, ImportError,
    OverflowError, MemoryError, RecursionError, struct.error, SystemError,
)  # fmt: skip
"""Exceptions of the standard library's unpickler on invalid data."""


class MalformedError(ValueError):
    """The content of a file does not have the expected form. The message is for users."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Never:
        raise MalformedError(f"it needs {module}.{name}")

    def persistent_load(self, pid: object) -> Never:
        raise MalformedError("it contains a reference to an external object")


def load_plain(data: bytes) -> Any:
    """The value that ``data`` pickles.

    Raises:
        MalformedError: it is no pickle, is cut off, needs code, or needs more memory than its size explains.
    """
    try:
        with _bounded_memory(LEAST_EXTRA_BYTES + EXTRA_BYTES_EACH * len(data)):
            return _PlainUnpickler(io.BytesIO(data)).load()
    except MalformedError:
        raise
    except MemoryError:
        raise MalformedError("it needs more memory than its size explains") from None
    except BROKEN:
        raise MalformedError("it is not a complete pickle") from None


def json_of_pickle(data: bytes, *, within_s: float = CONVERT_S, user: int | None = None) -> str | None:
    """The value that ``data`` pickles as JSON text, converted in a separate process. None if it cannot be read, or the
    text is longer than ``MAX_JSON_BYTES``.

    Waits ``within_s`` at most. Safe to call from any thread. ``user``: the process takes the rights of
    this user before it reads; for root only. The interpreter may be in a folder that this user cannot read.
    """
    try:
        with os.fdopen(os.memfd_create("pickle"), "w+b") as file:
            file.write(data)
            file.seek(0)
            return _converted(file, within_s, [] if user is None else [str(user)])
    except (OSError, subprocess.SubprocessError):
        return None


def _converted(file: BinaryIO, within_s: float, users: list[str]) -> str | None:
    """Run the program. It gets only two variables of the environment, because others may hold secrets."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    program = subprocess.Popen(
        [sys.executable, "-I", __file__, *users],
        stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", env=kept,
    )  # fmt: skip
    timer = threading.Timer(within_s, program.kill)
    timer.daemon = True
    timer.start()
    try:
        with program:
            assert program.stdout is not None
            text = program.stdout.read(MAX_JSON_BYTES + 1)
            if len(text) > MAX_JSON_BYTES:
                program.kill()
    finally:
        timer.cancel()
    return text.decode(errors="replace") if program.returncode == 0 and len(text) <= MAX_JSON_BYTES else None


def _convert(users: list[str]) -> int:
    """The main function of the program. Returns the exit status."""
    for user in map(int, users):
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(user, user, user)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    data = sys.stdin.buffer.read()
    try:
        with _bounded_memory(min(LEAST_EXTRA_BYTES + EXTRA_BYTES_EACH * len(data), MOST_EXTRA_BYTES)):
            sys.stdout.write(json.dumps(load_plain(data)))
    except BROKEN:
        return 1
    return 0


@contextmanager
def _bounded_memory(extra_bytes: int) -> Iterator[None]:
    """In the block, this process cannot grow by more than ``extra_bytes``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = _size_bytes() + extra_bytes
    if soft != resource.RLIM_INFINITY and soft <= bound:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _size_bytes() -> int:
    """Address space of this process."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(_convert(sys.argv[1:]))
