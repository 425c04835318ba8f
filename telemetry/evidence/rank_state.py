"""The ``state`` of a rank as evidence: its live page, which outlives it, and the state of its process."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import psutil

from telemetry.evidence.owned_process import is_alive
from telemetry.evidence.usual import Habit
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState, Operation
from telemetry.records import RankIdentity
from telemetry.topology import AXES, Axis, Topology

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
