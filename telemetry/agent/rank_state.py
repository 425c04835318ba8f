"""The ``state`` of a rank as evidence: its live page, which outlives it, and what its process does."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import psutil

from telemetry.agent.heartbeat import is_alive
from telemetry.agent.usual import Habit
from telemetry.group_names import purpose_of
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState, Operation
from telemetry.records import RankIdentity
from telemetry.topology import Topology

ProcessWord = Literal["alive", "stopped", "dead", "ended"]
LIVING: tuple[ProcessWord, ...] = ("alive", "stopped")
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def look_at(reader: RankReader, identity: RankIdentity) -> tuple[LiveState, ProcessWord]:
    """The live page of a rank and what its process does.

    Raises:
        UnreadableError: there is no page.
    """
    state = reader.live()
    process = process_word(identity, state)
    if process == "dead":
        state = reader.live()  # it may have ended in good order since the first look at the page
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
            "topology": {"dp": identity.topology.dp, "pp": identity.topology.pp, "tp": identity.topology.tp},
            "open": [{"stage": span.stage.label, "since_ns": _wall(state, span.since_ns)} for span in state.open_spans],
            "operations": [
                _operation(identity.topology, state, one, habit)
                for one, habit in zip(state.operations, habits or (Habit(),) * len(state.operations), strict=True)
            ],
        }
    )


def _operation(topology: Topology, state: LiveState, one: Operation, habit: Habit) -> dict[str, Any]:
    return {
        "axis": purpose_of(topology.axes_of(one.mask)),
        "mask": one.mask,
        "stage": one.stage.label if one.stage is not None else None,
        "peer": one.peer,
        "issued": one.issued,
        "completed": one.completed,
        "issued_ns": _wall(state, one.issued_ns),
        "completed_ns": _wall(state, one.completed_ns),
        "size_bytes": one.size_bytes,
        **asdict(habit),
    }


def _wall(state: LiveState, at_ns: int) -> int:
    return state.anchor.to_wall_ns(at_ns) if at_ns else 0
