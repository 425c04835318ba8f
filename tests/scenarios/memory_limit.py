"""A cgroup whose memory can be limited while a process is in it: versions 1 and 2 of cgroups, as root."""

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
        """A process whose pid is written into this file joins the cgroup."""
        return self.folder / "cgroup.procs"

    def cut(self, limit_bytes: int) -> None:
        """Limit the memory to this. Version 2 slows down a process that needs more. Version 1 drops pages."""
        for name in ("memory.high", "memory.limit_in_bytes"):
            if (self.folder / name).exists():
                until(lambda name=name: self._write(name, limit_bytes), what="less memory")  # type: ignore[misc]
                return
        raise AssertionError(f"{self.folder} limits no memory")

    def _write(self, name: str, limit_bytes: int) -> bool:
        """Whether the kernel accepted the limit. It refuses while it cannot reclaim enough memory."""
        with contextlib.suppress(OSError):
            (self.folder / name).write_text(str(limit_bytes))
            return True
        return False


@contextmanager
def memory_limit() -> Iterator[MemoryLimit]:
    """A cgroup for a test. All processes in it must end before the block ends."""
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
    """Create the cgroup. If this is not permitted, as in a container, skip the test, or fail it if ``CI`` is set."""
    try:
        folder.mkdir()
    except OSError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"cannot make a cgroup: {error}")
