"""Whether a run goes on, and whether its agents still ship: one answer for commands and dashboard.

ENDED     every rank ended in order, or no agent has reported on the run
DIED      a rank ended over an error, or is gone without an end
STALLED   evidence of a stall is newer than the newest step
LIVE      a heartbeat arrived within 20 s
SILENT    otherwise: agents or hosts are down, or their network is
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from telemetry.stores.queries import RunBeats, RunStalls, in_portions
from telemetry.stores.reader import Reader

NS_PER_S = 1_000_000_000
SILENT_AFTER_NS = 20 * NS_PER_S
"""After this time without a heartbeat a rank that did not end counts as silent."""
Attempt = tuple[str, int]


class RunState(StrEnum):
    """What is known about the life of a run."""

    LIVE = "live"
    SILENT = "not-shipping"
    """No rank reported its end, and no heartbeat arrives: nothing is shipped."""
    ENDED = "ended"
    DIED = "died"
    """A rank ended over an error, or is gone without an end."""
    STALLED = "stalled"
    """Agents took evidence of a stall after the newest step had ended, and none took it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """The last heartbeats of an attempt: how many ranks have one, ended in good order, are gone otherwise."""

    heard_ns: int = 0
    num_ranks: int = 0
    num_ended: int = 0
    num_gone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The state of an attempt, and the time of its last sign of life: wall clock, nanoseconds."""

    state: RunState
    heard_ns: int


def state_of(beats: Beats, *, heard_ns: int, stalled_ns: int, last_end_ns: int, now_ns: int) -> RunState:
    """The state of an attempt. ``stalled_ns``: time of the newest evidence of a stall, 0 if there is none;
    ``last_end_ns``: end of the newest step."""
    if beats.num_ranks and beats.num_ended == beats.num_ranks:
        return RunState.ENDED
    if beats.num_gone:
        return RunState.DIED
    if stalled_ns and stalled_ns >= last_end_ns:
        return RunState.STALLED
    if now_ns - heard_ns < SILENT_AFTER_NS:
        return RunState.LIVE
    return RunState.SILENT if beats.num_ranks else RunState.ENDED


def states_of(reader: Reader, runs: Iterable[dict[str, Any]], now_ns: int | None = None) -> dict[Attempt, Heard]:
    """The states of some rows of ``Runs``."""
    rows = list(runs)
    beats: dict[Attempt, Beats] = {}
    stalled_ns: dict[Attempt, int] = {}
    for names in in_portions(list(dict.fromkeys(row["run_id"] for row in rows))):
        for row in reader.read(RunBeats(run_ids=names)).to_pylist():
            beats[row["run_id"], row["attempt"]] = _beats(row)
        for row in reader.read(RunStalls(run_ids=names)).to_pylist():
            stalled_ns[row["run_id"], row["attempt"]] = row["newest_ns"]
    now_ns = time.time_ns() if now_ns is None else now_ns
    return {
        key: _heard(beats.get(key, Beats()), row["last_ns"], stalled_ns.get(key, 0), now_ns)
        for row in rows
        for key in [(row["run_id"], row["attempt"])]
    }


def heard_of(reader: Reader, run_id: str, attempt: int, now_ns: int | None = None) -> Heard:
    """The state of one attempt by its heartbeats alone: no step is read, and a stall counts for nothing."""
    rows = reader.read(RunBeats(run_ids=(run_id,))).to_pylist()
    beats = next((_beats(row) for row in rows if row["attempt"] == attempt), Beats())
    return _heard(beats, 0, 0, time.time_ns() if now_ns is None else now_ns)


def _beats(row: dict[str, Any]) -> Beats:
    return Beats(**{name: row[name] for name in Beats.__slots__})


def _heard(beats: Beats, last_ns: int, stalled_ns: int, now_ns: int) -> Heard:
    """``last_ns``: the newest of the attempt's starts and steps."""
    heard_ns = max(last_ns, beats.heard_ns)
    state = state_of(beats, heard_ns=heard_ns, stalled_ns=stalled_ns, last_end_ns=last_ns, now_ns=now_ns)
    return Heard(state=state, heard_ns=heard_ns)
