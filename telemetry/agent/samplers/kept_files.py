"""Kernel files that are read again and again: opened once, then read by ``pread``.

The kernel produces the content of a file in sysfs or ``/proc`` anew for every read from offset 0. So one descriptor is
enough, at an eighth of the cost of opening the file each time. An open file of ``/proc/PID`` belongs to that process
only: after its end the file is empty, even if the number is reused. Descriptors are scarce (1024 a process by default):
once half of the limit is used, further files are opened for each read instead.

    read --answers--> a number
      '----fails TRIES times----> retired: not read any more --try_again()--> read
"""

import os
import resource
from contextlib import suppress
from pathlib import Path

TRIES = 3
LONGEST = 16_384
"""Bytes that are read unless the whole content is requested. A number has up to 20, ``/proc/net/snmp`` 2000."""
_CHUNK_BYTES = 65_536
_TOO_LARGE = 1 << 64


class Descriptors:
    """The number of files that may be kept open, shared by the samplers of a process."""

    def __init__(self, at_most: int | None = None) -> None:
        self._left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 if at_most is None else at_most

    def take(self) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        self._left += 1


class KeptFile:
    """One file. It may be missing, and may appear and disappear."""

    __slots__ = ("_content", "_descriptor", "_descriptors", "_fails", "last", "path")

    def __init__(self, path: Path, descriptors: Descriptors) -> None:
        self.path = str(path)
        self._descriptors = descriptors
        self._descriptor = -1
        self._fails = 0
        self._content = b""
        self.last: int | None = None
        """The last number that was read."""

    def read(self, *, whole: bool = False) -> bytes:
        """The current content; only the beginning of a long file, unless ``whole``.

        Raises:
            OSError: an error of the kernel; ENODEV if the device of an open file is gone.
        """
        if self._descriptor >= 0:
            return _read(self._descriptor, whole=whole)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        kept = False
        try:
            content = _read(descriptor, whole=whole)
            kept = self._descriptors.take()
        finally:
            if not kept:
                os.close(descriptor)
        self._descriptor = descriptor if kept else -1
        return content

    def content(self) -> bytes:
        """The whole content; empty if the file cannot be read. The next call then opens the file again."""
        try:
            return self.read(whole=True)
        except OSError:
            self.close()
            return b""

    def number(self) -> int | None:
        """The integer in the file; None if there is none or the file cannot be read. ``TRIES`` failures retire it."""
        if self._fails >= TRIES:
            return None
        with suppress(OSError, ValueError):
            content = self.read()
            value = self.last if content == self._content and self.last is not None else int(content)
            if -_TOO_LARGE < value < _TOO_LARGE:
                self._fails = 0
                self._content, self.last = content, value
                return value
        self._fails += 1
        return None

    def text(self) -> str:
        """The text without the end of the line; empty if the file cannot be read."""
        with suppress(OSError):
            return self.read().decode(errors="replace").strip()
        return ""

    def try_again(self) -> None:
        """Allow one more read of a retired file: its device may have been reset."""
        if self._fails:
            self._fails = TRIES - 1

    def close(self) -> None:
        """Close the file. Safe to repeat. A later read opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptors.give_back()
            self._descriptor = -1


def read_once(path: str) -> bytes:
    """The content of a file; empty if it cannot be read."""
    return KeptFile(Path(path), Descriptors(0)).content()


def _read(descriptor: int, *, whole: bool) -> bytes:
    if not whole:
        return os.pread(descriptor, LONGEST, 0)
    content = os.pread(descriptor, _CHUNK_BYTES, 0)
    while more := os.pread(descriptor, _CHUNK_BYTES, len(content)):  # the kernel returns about a page at a time
        content += more
    return content


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
