"""Is a rank alive, and where is it: its live state page and its process, as a row."""

import time
from typing import Any

import psutil
import pyarrow as pa

from telemetry.record.state_page import LiveState
from telemetry.records import RankIdentity
from telemetry.tables import ENDED_FAILED, ENDED_WELL, HEARTBEATS

START_SLACK_S = 10.0
"""A process that began later than its rank by more than this has only inherited the rank's pid."""
MAX_STEP = 2**32 - 1


def is_alive(identity: RankIdentity) -> bool:
    """Whether the process that wrote this identity still exists."""
    try:
        process = psutil.Process(identity.pid)
        began_in_time = process.create_time() <= identity.started_ns / 1e9 + START_SLACK_S
        return began_in_time and process.status() != psutil.STATUS_ZOMBIE
    except psutil.AccessDenied:
        return True
    except (psutil.NoSuchProcess, ValueError):
        return False


def heartbeat(identity: RankIdentity, state: LiveState, *, alive: bool) -> dict[str, Any]:
    """One row of the ``heartbeats`` table, stamped now."""
    return {
        "rank": identity.rank,
        "at_ns": time.time_ns(),
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
