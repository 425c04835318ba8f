"""The ``state`` of a rank as evidence: its live page, which outlives it, and the state of its process."""

import errno
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import psutil
import pyarrow as pa

from telemetry.errors import UnreadableError
from telemetry.evidence.evidence import next_stamp_ns
from telemetry.evidence.usual import Habit
from telemetry.process.parent_death import BORN, birth_of
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState, Operation
from telemetry.records import RankIdentity
from telemetry.tables import ENDED_FAILED, ENDED_WELL, HEARTBEATS
from telemetry.topology import AXES, Axis, Topology


def check_owner(identity: RankIdentity) -> None:
    """Return if an agent of this user may serve the rank.

    Raises:
        UnreadableError: another user owns the folder and this process is not root, or the rank's process and
            the folder have different owners.
    """
    if identity.uid != os.geteuid() != 0:
        raise UnreadableError(
            f"user {identity.uid} owns the folder, but this agent runs as user {os.geteuid()}",
            hint="run one agent as root, or one agent for each user",
        )
    born = identity.meta.get(BORN)
    if not born or birth_of(identity.pid) != born:
        return  # the process has ended, and its number may be another's
    with suppress(OSError):
        if not belongs_to(identity.pid, identity.uid):
            raise UnreadableError(
                f"user {identity.uid} owns the folder, but not process {identity.pid}",
                hint="start the rank as the user who owns the folder",
            )


def belongs_to(pid: int, uid: int) -> bool:
    """Whether each user id of a process is ``uid``; a negative one is not checked.

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
            raise PermissionError(errno.EPERM, "the process of another user", f"/proc/{pid}")
        yield descriptor


@contextmanager
def _opened(pid: int) -> Iterator[int]:
    descriptor = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_there(descriptor: int) -> bool:
    """Whether the process still exists, as a zombie too."""
    try:
        os.stat("stat", dir_fd=descriptor)
    except OSError:
        return False
    return True


def _users(descriptor: int) -> set[int]:
    """Real, effective, saved and file-system user: a program with the set-user-ID bit has several."""
    with os.fdopen(os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=descriptor), "rb") as file:
        uids = next((line.split()[1:] for line in file if line.startswith(b"Uid:")), [])
    return set(map(int, uids))


START_SLACK_S = 10.0
"""Where an identity does not say when its process was born: one that began later than its rank by more than this has
only inherited the rank's pid."""
MAX_STEP = 2**32 - 1


def is_alive(identity: RankIdentity) -> bool:
    """Whether the process that wrote this identity still exists. A process of another user did not write it."""
    try:
        process = psutil.Process(identity.pid)
        ours = _is_same(process, identity) and belongs_to(identity.pid, identity.uid)
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.AccessDenied, PermissionError):
        return True
    except (psutil.NoSuchProcess, ValueError, OSError):
        return False


def _is_same(process: psutil.Process, identity: RankIdentity) -> bool:
    """Whether the process is the one that recorded, by what no step of the wall clock changes where that is known."""
    if born := identity.meta.get(BORN):
        return birth_of(process.pid) == born
    began_in_time: bool = process.create_time() <= identity.started_ns / 1e9 + START_SLACK_S
    return began_in_time


def heartbeat(identity: RankIdentity, state: LiveState, *, alive: bool) -> dict[str, Any]:
    """One row of the ``heartbeats`` table, stamped now, and after every one before."""
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


ProcessWord = Literal["alive", "stopped", "dead", "ended"]
LIVING: tuple[ProcessWord, ...] = ("alive", "stopped")
MAX_NAMED_MEMBERS = 256
"""Of a group, in the text of each of its ranks."""
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def live_state(reader: RankReader, identity: RankIdentity) -> tuple[LiveState, ProcessWord]:
    """The live page of a rank and what its process does.

    Raises:
        UnreadableError: there is no page.
    """
    state = reader.live()
    process = process_word(identity, state)
    if process == "dead":
        state = reader.live()  # it may have ended cleanly since the page was first read
        process = "ended" if state.ended else "dead"
    return state, process


def process_word(identity: RankIdentity, state: LiveState) -> ProcessWord:
    """What the rank's process does; ``ended`` once it has stopped recording in good order."""
    if state.ended:
        return "ended"
    if not is_alive(identity):
        return "dead"
    try:
        return "stopped" if psutil.Process(identity.pid).status() in _STOPPED else "alive"
    except psutil.NoSuchProcess:
        return "dead"
    except psutil.Error:
        return "alive"


def state_body(
    identity: RankIdentity,
    state: LiveState,
    process: ProcessWord,
    *,
    living: ProcessWord,
    died_ns: int,
    ended_by: str,
    habits: Sequence[Habit],
) -> str:
    """The text: one JSON object, all times wall clock nanoseconds, 0 where there is none. ``living``: what the process
    did when it was last seen alive. ``habits``: of each operation of the page, in order; those that are left out are
    not known."""
    return json.dumps(
        {
            "rank": identity.rank,
            "host": identity.host,
            "pid": identity.pid,
            "device": identity.meta.get("device", ""),
            "process": process,
            "living": living,
            "died_ns": died_ns,
            "ended_by": ended_by,
            "at_ns": time.time_ns(),
            "step": state.step,
            "step_started_ns": _wall(state, state.step_started_ns),
            "beat_ns": _wall(state, state.beat_ns),
            "recorded": state.recorded,
            "topology": _grid(identity.topology),
            "open": [{"stage": span.stage.label, "since_ns": _wall(state, span.since_ns)} for span in state.open_spans],
            "operations": [
                _operation(state, operation, habit, identity)
                for operation, habit in zip(state.operations, habits or (Habit(),) * len(state.operations), strict=True)
            ],
        }
    )


def _grid(topology: Topology) -> dict[str, Any]:
    return {"dp": topology.dp, "pp": topology.pp, "tp": topology.tp, "mesh": str(topology)}


def _operation(state: LiveState, operation: Operation, habit: Habit, identity: RankIdentity) -> dict[str, Any]:
    topology = identity.topology
    mask = topology.known_mask(operation.mask)
    return {
        "axis": _direction(topology, mask),
        "mask": mask,
        "axes": topology.axes_of(mask),
        "ranks": _group(topology, mask, identity.rank),
        "stage": operation.stage.label if operation.stage is not None else None,
        "peer": operation.peer,
        "issued": operation.issued,
        "completed": operation.completed,
        "issued_ns": _wall(state, operation.issued_ns),
        "completed_ns": _wall(state, operation.completed_ns),
        "size_bytes": operation.size_bytes,
        **asdict(habit),
    }


def _direction(topology: Topology, mask: int) -> Axis | None:
    """The direction of the grid that a group lies along, as older readers know it."""
    masks = {"dp": topology.replica_mask, "pp": topology.mask("pp"), "tp": topology.mask("tp")}
    return next((axis for axis in AXES if mask and masks[axis] == mask), None)


def _group(topology: Topology, mask: int, rank: int) -> list[int]:
    """The members of the group; none where it is not known. Of a large one they follow from its axes."""
    if not mask or topology.world_size <= rank:
        return []
    groups = topology.members(mask)
    if groups.shape[1] > MAX_NAMED_MEMBERS:
        return []
    members: list[int] = groups[int(np.flatnonzero((groups == rank).any(axis=1))[0])].tolist()
    return members


def _wall(state: LiveState, at_ns: int) -> int:
    return state.anchor.to_wall_ns(at_ns) if at_ns else 0
