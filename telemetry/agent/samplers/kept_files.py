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
"""Bytes of a file that are read at once. A number takes twenty, ``/proc/net/snmp`` two thousand."""
_CHUNK_BYTES = 65_536
_TOO_LARGE = 1 << 64


class Descriptors:
    """How many files may be kept open, shared by the samplers of a process."""

    def __init__(self, at_most: int | None = None) -> None:
        self._left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 if at_most is None else at_most

    def take(self) -> bool:
        """Whether one more may be kept."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        self._left += 1


class KeptFile:
    """One file. It need not exist, and may come and go."""

    __slots__ = ("_descriptor", "_descriptors", "_fails", "_held", "last", "path")

    def __init__(self, path: Path, descriptors: Descriptors) -> None:
        self.path = str(path)
        self._descriptors = descriptors
        self._descriptor = -1
        self._fails = 0
        self._held = b""
        self.last: int | None = None
        """The number that it held when it held one."""

    def read(self, *, whole: bool = False) -> bytes:
        """Its current content; only the beginning of a long file, unless ``whole``.

        Raises:
            OSError: what the kernel says; ENODEV where the device behind an open file is gone.
        """
        read = _read_all if whole else _read_some
        if self._descriptor >= 0:
            return read(self._descriptor)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        kept = False
        try:
            held = read(descriptor)
            kept = self._descriptors.take()
        finally:
            if not kept:
                os.close(descriptor)
        self._descriptor = descriptor if kept else -1
        return held

    def content(self) -> bytes:
        """Its whole content; empty if it cannot be read. The next call then opens it again."""
        try:
            return self.read(whole=True)
        except OSError:
            self.close()
            return b""

    def number(self) -> int | None:
        """The whole number that it holds; None where it holds none or cannot be read. Retired after some tries."""
        if self._fails >= TRIES:
            return None
        try:
            held = self.read()
            value = self.last if held == self._held and self.last is not None else int(held)
        except (OSError, ValueError):
            self._fails += 1
            return None
        if not -_TOO_LARGE < value < _TOO_LARGE:
            self._fails += 1
            return None
        self._fails = 0
        self._held, self.last = held, value
        return value

    def word(self) -> str:
        """Its text without the line's end; empty where it cannot be read."""
        with suppress(OSError):
            return self.read().decode(errors="replace").strip()
        return ""

    def try_again(self) -> None:
        """Ask a retired file once more: what failed may have been a device that began anew."""
        if self._fails:
            self._fails = TRIES - 1

    def close(self) -> None:
        """Safe to repeat, and it may be read again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptors.give_back()
            self._descriptor = -1


def read_once(path: str) -> bytes:
    """The content of a file; empty if it cannot be read."""
    return KeptFile(Path(path), Descriptors(0)).content()


def _read_some(descriptor: int) -> bytes:
    return os.pread(descriptor, LONGEST, 0)


def _read_all(descriptor: int) -> bytes:
    """The kernel hands out a page or so at a time."""
    content = os.pread(descriptor, _CHUNK_BYTES, 0)
    while more := os.pread(descriptor, _CHUNK_BYTES, len(content)):
        content += more
    return content
