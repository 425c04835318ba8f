"""A cgroup whose memory can be cut while a process is in it: versions 1 and 2 of cgroups, as root."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deadline import until
from tests.parts import require_root

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """An empty cgroup without a limit yet."""

    folder: Path

    @property
    def procs(self) -> Path:
        """Who writes its pid there enters."""
        return self.folder / "cgroup.procs"

    def cut(self, limit_bytes: int) -> None:
        """Keep no more than this of its memory. Version 2 slows down who wants more, version 1 drops what it can."""
        for name in ("memory.high", "memory.limit_in_bytes"):
            if (self.folder / name).exists():
                until(lambda name=name: self._write(name, limit_bytes), what="less memory")  # type: ignore[misc]
                return
        raise AssertionError(f"{self.folder} limits no memory")

    def _write(self, name: str, limit_bytes: int) -> bool:
        """The kernel refuses while it cannot take enough back."""
        with contextlib.suppress(OSError):
            (self.folder / name).write_text(str(limit_bytes))
            return True
        return False


@contextmanager
def memory_limit() -> Iterator[MemoryLimit]:
    """A cgroup for the time of a test; whoever is in it must have ended when that is over."""
    require_root("limits the memory of a process")
    top = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    folder = top / f"rankscope-test-{os.getpid()}"
    _make(folder)
    try:
        yield MemoryLimit(folder=folder)
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text(), what="an empty cgroup")
        folder.rmdir()


def _make(folder: Path) -> None:
    """Skips the test where cgroups are not ours to make, in a container say; fails it where ``CI`` is set."""
    try:
        folder.mkdir()
    except OSError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"cannot make a cgroup: {error}")
