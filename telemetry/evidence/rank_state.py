"""The process of a rank, its live page, and its heartbeat.

Access to a process is allowed only if the process and the rank's folder have the same owner. A rank file names the
process that wrote it, and any user can write any number there. So the owner is read from the kernel, through a
descriptor of ``/proc/PID``. The descriptor never leads to a later process with the same number.

In another PID namespace the number of the rank means another process, or none. Such a rank is alive as long as the lock
of its state page is held.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psutil
import pyarrow as pa

from telemetry.errors import UnreadableError
from telemetry.evidence.evidence import next_stamp_ns
from telemetry.process.child_process import BORN, birth_of, is_of_this_boot
from telemetry.process.pid_namespace import NAMESPACE, is_foreign, pid_of
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState, is_held
from telemetry.records import RankIdentity
from telemetry.tables import ENDED_FAILED, ENDED_WELL, HEARTBEATS


def check_owner(identity: RankIdentity) -> None:
    """Check that an agent of this user may read the rank.

    Raises:
        UnreadableError: another user owns the folder and this process is not root, or the rank's process and
            the folder have different owners.
    """
    if identity.uid != os.geteuid() != 0:
        raise UnreadableError(
            f"user {identity.uid} owns the folder, but this agent runs as user {os.geteuid()}",
            hint="run one agent as root, or one agent for each user",
        )
    born, pid = identity.meta.get(BORN), pid_of(identity)
    if not born or not pid or birth_of(pid) != born:
        return  # the process has ended, and another process may have its number; or it cannot be seen
    with suppress(OSError):
        if not belongs_to(pid, identity.uid):
            raise UnreadableError(
                f"user {identity.uid} owns the folder, but not process {identity.pid}",
                hint="start the rank as the user who owns the folder",
            )


def is_hidden(identity: RankIdentity) -> bool:
    """Whether the rank is in a PID namespace whose processes cannot be seen."""
    return is_foreign(identity.meta.get(NAMESPACE, "")) and not pid_of(identity)


def belongs_to(pid: int, uid: int) -> bool:
    """Whether each user id of a process is ``uid``; a negative ``uid`` is not checked.

    Raises:
        OSError: there is no such process, or its users are hidden from this one.
    """
    if uid < 0:
        return True
    with _opened(pid) as descriptor:
        return _users(descriptor) == {uid}


@contextmanager
def open_process(pid: int, uid: int) -> Iterator[int]:
    """A descriptor of the folder ``/proc/PID``. ``uid``: the owner of the rank's folder; negative: this user.

    Raises:
        OSError: there is no such process, another user owns it, or it hides its memory from its own user.
    """
    wanted = os.geteuid() if uid < 0 else uid
    with _opened(pid) as descriptor:
        if os.fstat(descriptor).st_uid != wanted or _users(descriptor) != {wanted}:
            raise PermissionError(errno.EPERM, "the process belongs to another user", f"/proc/{pid}")
        yield descriptor


@contextmanager
def _opened(pid: int) -> Iterator[int]:
    descriptor = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_there(descriptor: int) -> bool:
    """Whether the process still exists, including as a zombie."""
    try:
        os.stat("stat", dir_fd=descriptor)
    except OSError:
        return False
    return True


def _users(descriptor: int) -> set[int]:
    """Real, effective, saved and file-system user of a process. They differ in a program with the set-user-ID bit."""
    with os.fdopen(os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=descriptor), "rb") as file:
        uids = next((line.split()[1:] for line in file if line.startswith(b"Uid:")), [])
    return set(map(int, uids))


START_SLACK_S = 10.0
"""For identities without a birth time: a process that began this much later than its rank has reused the pid."""
MAX_STEP = 2**32 - 1


def is_alive(identity: RankIdentity, folder: Path) -> bool:
    """Whether the process of the rank still exists: the one that wrote ``identity`` into ``folder``.

    A process with the same number is not the rank if it began at another time or belongs to another user. A zombie
    does not count as existing.
    """
    if is_foreign(identity.meta.get(NAMESPACE, "")):
        born = identity.meta.get(BORN, "")
        return (not born or is_of_this_boot(born)) and is_held(folder)
    try:
        process = psutil.Process(identity.pid)
        ours = _is_same(process, identity) and belongs_to(identity.pid, identity.uid)
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.AccessDenied, PermissionError):
        return True
    except (psutil.NoSuchProcess, ValueError, OSError):
        return False


def _is_same(process: psutil.Process, identity: RankIdentity) -> bool:
    """Whether the process is the one that recorded. The birth time does not depend on the wall clock."""
    if born := identity.meta.get(BORN):
        return birth_of(process.pid) == born
    return bool(process.create_time() <= identity.started_ns / 1e9 + START_SLACK_S)


def heartbeat(identity: RankIdentity, state: LiveState, *, alive: bool) -> dict[str, Any]:
    """One row of the ``heartbeats`` table, with the current time, later than all rows before."""
    return {
        "rank": identity.rank,
        "at_ns": next_stamp_ns(),
        "beat_ns": state.beat_ns - state.anchor.monotonic_ns + state.anchor.wall_ns,
        "step": min(max(state.step, 0), MAX_STEP),
        "stage": int(state.stage or 0),
        "alive": int(alive),
        "ended": ENDED_FAILED if state.failed else ENDED_WELL if state.ended else 0,
        "recorded": max(state.recorded, 0),
        "dropped": max(state.dropped, 0),
    }


def heartbeat_rows(beats: list[dict[str, Any]]) -> pa.Table:
    """Rows of the ``heartbeats`` table."""
    return pa.Table.from_pylist(beats, schema=HEARTBEATS)


ProcessState = Literal["alive", "stopped", "dead", "ended"]
LIVING: tuple[ProcessState, ...] = ("alive", "stopped")
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def live_state(reader: RankReader, identity: RankIdentity) -> tuple[LiveState, ProcessState]:
    """The live page of a rank and the state of its process.

    Raises:
        UnreadableError: there is no page.
    """
    state = reader.live()
    process = process_state(identity, state, reader.folder)
    if process == "dead":
        state = reader.live()  # it may have ended cleanly since the page was first read
        process = "ended" if state.ended else "dead"
    return state, process


def process_state(identity: RankIdentity, state: LiveState, folder: Path) -> ProcessState:
    """The state of the rank's process. It is ``ended`` if the rank stopped recording normally."""
    if state.ended:
        return "ended"
    if not is_alive(identity, folder):
        return "dead"
    if is_hidden(identity):
        return "alive"
    try:
        return "stopped" if psutil.Process(pid_of(identity)).status() in _STOPPED else "alive"
    except psutil.NoSuchProcess:
        return "dead"
    except psutil.Error:
        return "alive"
