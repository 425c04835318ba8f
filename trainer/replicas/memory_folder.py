"""A folder whose files are in memory, for the code that reads and writes checkpoints in folders.

Each file is a memfd: no other process can open it by a name, and it is gone when this process ends.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.files.private_files import Folder

NO_DESCRIPTOR = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFolder(Folder):
    """A folder in memory. Create it with :func:`memory_folder`."""

    files: dict[str, int] = field(default_factory=dict)
    """Name -> descriptor."""

    def names(self) -> list[str]:
        return list(self.files)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """A new descriptor of a file, with a position of its own."""
        if flags & os.O_EXCL or name not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path / name))
        return os.open(f"/proc/self/fd/{self.files[name]}", flags | os.O_CLOEXEC)

    def make(self, name: str) -> int:
        """A descriptor of a new, empty file. An existing file is removed first."""
        if name in self.files:
            self.remove(name)
        self.files[name] = os.memfd_create("rankscope-replica")
        return self.open(name, os.O_RDWR)

    def rename(self, old: str, new: str) -> None:
        if new in self.files:
            self.remove(new)
        self.files[new] = self.files.pop(old)

    def remove(self, name: str) -> None:
        os.close(self.files.pop(name))

    def size_bytes(self, name: str) -> int:
        return os.fstat(self.files[name]).st_size


@contextmanager
def memory_folder(path: str) -> Iterator[MemoryFolder]:
    """An empty folder in memory. ``path``: its name in messages. The memory is freed after the ``with`` block."""
    folder = MemoryFolder(descriptor=NO_DESCRIPTOR, path=Path(path), owner=os.geteuid())
    try:
        yield folder
    finally:
        for name in folder.names():
            folder.remove(name)
