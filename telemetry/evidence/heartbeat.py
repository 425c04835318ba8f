"""Is a rank alive, and where is it: its live state page and its process, as a row."""

from typing import Any

import psutil
import pyarrow as pa

from telemetry.evidence.owned_process import belongs_to
from telemetry.evidence.stamps import next_stamp_ns
from telemetry.process.birth import BORN, birth_of
from telemetry.record.state_page import LiveState
from telemetry.records import RankIdentity
from telemetry.tables import ENDED_FAILED, ENDED_WELL, HEARTBEATS

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
