"""Files of the kernel that are read every second: held open, read anew each time.

Opening costs more than reading. And a file of ``/proc/PID`` that is held open belongs to that one process for good:
once it has ended the file says nothing, whoever gets the number next.
"""

import os
from pathlib import Path

_CHUNK_BYTES = 65_536


class ProcFile:
    """One file, opened at its first reading, however long it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def read(self) -> bytes:
        """What it says now; nothing where it is not there, may not be read, or its process has ended."""
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDONLY)
            return _read_all(self._fd)
        except OSError:
            self.close()
            return b""

    def close(self) -> None:
        """Safe to repeat; a later reading opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_once(path: str) -> bytes:
    """What a file says; nothing where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return _read_all(fd)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    """The kernel hands out a page or so at a time."""
    told = os.pread(fd, _CHUNK_BYTES, 0)
    while more := os.pread(fd, _CHUNK_BYTES, len(told)):
        told += more
    return told
