"""Limits the freed memory that glibc keeps. Other C libraries are not changed."""

import ctypes
from contextlib import suppress

MAX_ARENAS = 2
"""By default there are up to eight arenas for each core. Each keeps free pages, even if few threads allocate memory."""
_M_ARENA_MAX = -8
"""The number of this setting in ``malloc.h``."""
_MISSING = (AttributeError, OSError, TypeError)


def limit_arenas() -> None:
    """Let all threads that start from now on share few arenas."""
    with suppress(*_MISSING):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MAX_ARENAS)


def trim() -> None:
    """Give free pages back to the system."""
    with suppress(*_MISSING):
        ctypes.CDLL(None).malloc_trim(0)
