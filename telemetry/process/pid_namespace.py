"""PID namespaces: a process of another container has another number here, or none.

this process is in the namespace of the other one       the number is the same
in a namespace around it (``hostPID`` in Kubernetes)    the kernel lists both numbers: NSpid in /proc/PID/status
in any other namespace                                  the other process cannot be seen
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

from telemetry.records import RankIdentity

NAMESPACE = "pid_namespace"
"""Key in the ``meta`` of a rank's identity: the namespace of its process number. Missing in older versions."""
SCAN_S = 5.0
"""A process that was not found is searched again after this time."""
MAX_MISSED = 4096
REUSE_S = 0.1
"""The result of a search of all processes is used for this time, because any user can name many processes. A rank
writes its number later than this after its start, so a search before that is not used for it."""

_lock = threading.Lock()
_found: dict[tuple[str, int], int] = {}
"""Namespace and number there -> number here."""
_missed: dict[tuple[str, int], float] = {}
"""Namespace and number there -> time at which no process was found, in seconds of the monotonic clock."""
_searched_s = -REUSE_S
"""When all processes were last searched."""


def namespace_of(pid: int | str = "self") -> str:
    """The namespace of a process. Empty if it is not known."""
    try:
        return str(os.stat(f"/proc/{pid}/ns/pid").st_ino)
    except OSError:
        return ""


def is_foreign(namespace: str) -> bool:
    """Whether numbers of ``namespace`` mean other processes here. An empty ``namespace`` counts as this namespace."""
    own = namespace_of()
    return bool(namespace and own) and namespace != own


def pid_of(identity: RankIdentity) -> int:
    """The number of the rank's process in the PID namespace of this process; 0 if it cannot be seen."""
    return local_pid(identity.pid, identity.meta.get(NAMESPACE, ""))


def local_pid(pid: int, namespace: str) -> int:
    """The number that a process has here; 0 if it cannot be seen or has ended. ``pid``: its number in ``namespace``."""
    global _searched_s
    if not is_foreign(namespace):
        return pid
    key = namespace, pid
    with _lock:
        if _is(_found.get(key, 0), key):
            return _found[key]
        if monotonic() - _missed.get(key, -SCAN_S) < SCAN_S:
            return 0
        if monotonic() - _searched_s >= REUSE_S:
            _found.clear()
            _found.update(_scan())
            _searched_s = monotonic()
        if key not in _found:
            if len(_missed) >= MAX_MISSED:
                _missed.clear()
            _missed[key] = monotonic()
        return _found.get(key, 0)


def _is(here: int, key: tuple[str, int]) -> bool:
    return here > 0 and (namespace_of(here), _innermost(here)) == key


def _scan() -> Iterator[tuple[tuple[str, int], int]]:
    """All processes of other namespaces whose namespace can be read."""
    own = namespace_of()
    for name in os.listdir("/proc"):
        if name.isdecimal() and (namespace := namespace_of(name)) not in ("", own):
            yield (namespace, _innermost(int(name))), int(name)


def _innermost(pid: int) -> int:
    """The number of a process in its own namespace. -1 if it is not known."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return -1
