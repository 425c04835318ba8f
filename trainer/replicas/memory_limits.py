"""The memory that this process may use: that of the node, or less if a cgroup limits it, as in a container.

    /proc/self/cgroup            0::/kubepods/pod7/main              version 2
                                 9:memory:/docker/4f1c               version 1
    /sys/fs/cgroup               /kubepods/pod7/main/memory.max      and the same file of each parent
    /sys/fs/cgroup/memory        /docker/4f1c/memory.limit_in_bytes

A limit of a parent counts too. In a container, ``/sys/fs/cgroup`` can be the folder of its own cgroup, while
``/proc/self/cgroup`` has the path on the host: then only the root is read.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """An amount of memory in bytes, and how much of it is free."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Names of the files of one version of cgroups."""

    limits: tuple[str, ...]
    used: str
    cached: str
    """Line in ``memory.stat``: the kernel frees this memory when it is needed."""


_V2 = _Names(limits=("memory.max", "memory.high"), used="memory.current", cached="inactive_file")
_V1 = _Names(limits=("memory.limit_in_bytes",), used="memory.usage_in_bytes", cached="total_inactive_file")


def usable_memory(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> Memory:
    """The smallest memory of the node and of the cgroups of this process, and the least that is free.

    Args:
        cgroups: where cgroups are mounted.
        own: the file that names the cgroups of this process.
    """
    node = psutil.virtual_memory()
    limits = [Memory(total_bytes=node.total, free_bytes=node.available), *_limits(cgroups, own)]
    return Memory(
        total_bytes=min(limit.total_bytes for limit in limits), free_bytes=min(limit.free_bytes for limit in limits)
    )


def _limits(cgroups: Path, own: Path) -> Iterator[Memory]:
    """The limit of each cgroup of this process that has one, and what is free of it."""
    for folder, names in _folders(cgroups, own):
        total = min((found for name in names.limits if (found := _number(folder / name)) is not None), default=None)
        used = _number(folder / names.used)
        if total is not None and used is not None:
            yield Memory(total_bytes=total, free_bytes=max(0, total - used + _cached(folder, names.cached)))


def _folders(cgroups: Path, own: Path) -> Iterator[tuple[Path, _Names]]:
    """The cgroups of this process that account for memory, with all parents."""
    for line in _lines(own):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            yield from ((folder, _V1) for folder in _upwards(cgroups / "memory", path))
        elif number == "0" and not controllers:
            yield from ((folder, _V2) for folder in _upwards(cgroups, path))


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The folders from that of ``path`` to ``root``."""
    names = [name for name in path.split("/") if name not in ("", ".", "..")]
    for depth in range(len(names), -1, -1):
        yield root.joinpath(*names[:depth])


def _cached(folder: Path, name: str) -> int:
    for line in _lines(folder / "memory.stat"):
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    """The number in a file; None for ``max``, and if there is no such file."""
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    with suppress(OSError, ValueError):
        return path.read_text().splitlines()
    return []
