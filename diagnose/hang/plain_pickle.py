"""Pickles from outside, read with an unpickler that builds nothing but plain containers, numbers and text.

Whatever asks for a class or a function is refused before it is looked up, so a hostile pickle runs nothing. A memo
index that is out of all proportion would take gigabytes, so memory is bounded meanwhile.
"""

import io
import pickle
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Never

EXTRA_BYTES_EACH = 400
"""Memory that a byte of a pickle may turn into: a memo entry, an empty container."""
LEAST_EXTRA_BYTES = 64 * 2**20
BROKEN = (
    pickle.PickleError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError, ImportError,
    OverflowError, MemoryError, RecursionError, struct.error, SystemError,
)  # fmt: skip
"""What a pickle that is none may raise in the standard library's unpickler."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Never:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: object) -> Never:
        raise pickle.UnpicklingError("it refers to something outside of itself")


def load_plain(data: bytes) -> Any:
    """The value that ``data`` pickles.

    Raises:
        ValueError: it is no pickle, is cut off, asks for code, or wants more memory than its size explains.
    """
    try:
        with _bounded_memory(LEAST_EXTRA_BYTES + EXTRA_BYTES_EACH * len(data)):
            return _PlainUnpickler(io.BytesIO(data)).load()
    except BROKEN as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from None


@contextmanager
def _bounded_memory(extra_bytes: int) -> Iterator[None]:
    """This process may not grow by more than ``extra_bytes`` meanwhile."""
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
