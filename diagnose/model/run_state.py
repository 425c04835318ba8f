"""The state of a run, for commands and dashboard.

ENDED     every rank ended normally, or the run has no agent and no data arrived for 20 s
DIED      a rank ended with an error, or its process disappeared
STALLED   evidence of a stall is newer than the newest step
LIVE      data arrived within the last 20 s
SILENT    otherwise: agents, hosts or the network are down
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from telemetry.run_names import Attempt
from telemetry.stores.interface import Query, Reader
from telemetry.stores.queries import RunBeats, Runs, RunStalls, RunSteps, in_portions

NS_PER_S = 1_000_000_000
SILENT_AFTER_NS = 20 * NS_PER_S
"""A run without data for this time is silent if it has not ended."""
Row = Mapping[str, Any]


class RunState(StrEnum):
    """States of a run. The table above describes them."""

    LIVE = "live"
    SILENT = "not-shipping"
    ENDED = "ended"
    DIED = "died"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """The last heartbeats of an attempt: number of ranks, of normal ends, and of other ends."""

    heard_ns: int = 0
    num_ranks: int = 0
    num_ended: int = 0
    num_gone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The state of an attempt, and the wall clock of its last data, nanoseconds."""

    state: RunState
    heard_ns: int
    is_silent: bool = False
    """Whether no data arrives and the attempt has not ended. It may have stalled before."""
    has_ended: bool = False
    """Whether every rank has ended. In a run that died, some ranks may still wait."""


def state_of(beats: Row | None, stall: Row | None, *, last_end_ns: int, last_ns: int, now_ns: int) -> Heard:
    """The state of an attempt. The command, the report, the list of runs and the pages call this function.

    Args:
        beats: its row of ``RunBeats``; None if there is none.
        stall: its row of ``RunStalls``; None if there is none.
        last_end_ns: end of its newest step: ``last_end_ns`` of ``RunSteps``. It is not used without ``stall``.
        last_ns: the newest data beside its heartbeats: ``last_ns`` of ``Runs``.
        now_ns: the time, in nanoseconds since the epoch.
    """
    known = Beats() if beats is None else Beats(**{name: beats[name] for name in Beats.__slots__})
    heard_ns = max(last_ns, known.heard_ns)
    is_over = known.num_gone > 0 or known.num_ended == known.num_ranks
    has_ended = known.num_ranks > 0 and known.num_ended + known.num_gone >= known.num_ranks
    is_late = now_ns - heard_ns >= SILENT_AFTER_NS
    state = _state(known, is_stalled=stall is not None and stall["newest_ns"] >= last_end_ns, is_late=is_late)
    return Heard(state=state, heard_ns=heard_ns, is_silent=is_late and not is_over, has_ended=has_ended)


def _state(beats: Beats, *, is_stalled: bool, is_late: bool) -> RunState:
    if beats.num_ranks and beats.num_ended == beats.num_ranks:
        return RunState.ENDED
    if beats.num_gone:
        return RunState.DIED
    if is_stalled:
        return RunState.STALLED
    if not is_late:
        return RunState.LIVE
    return RunState.SILENT if beats.num_ranks else RunState.ENDED


def states_of(reader: Reader, runs: Iterable[Row], now_ns: int | None = None) -> dict[Attempt, Heard]:
    """The states of some rows of ``Runs``."""
    rows = list(runs)
    beats, stalls, ends_ns = _facts(reader, list(dict.fromkeys(row["run_id"] for row in rows)))
    now_ns = time.time_ns() if now_ns is None else now_ns
    return {
        key: state_of(
            beats.get(key), stalls.get(key), last_end_ns=ends_ns.get(key, 0), last_ns=row["last_ns"], now_ns=now_ns
        )
        for row in rows
        for key in [_attempt(row)]
    }


def heard_of(reader: Reader, run_id: str, attempt: int, now_ns: int | None = None) -> Heard:
    """The state of one attempt."""
    rows = [row for row in reader.read(Runs(run_ids=(run_id,))).to_pylist() if row["attempt"] == attempt]
    known = states_of(reader, rows, now_ns)
    return known.get((run_id, attempt), Heard(state=RunState.ENDED, heard_ns=0))


def _facts(reader: Reader, run_ids: list[str]) -> tuple[dict[Attempt, Row], dict[Attempt, Row], dict[Attempt, int]]:
    """Rows of ``RunBeats`` and ``RunStalls`` by attempt, and ends of the newest steps.

    Steps are read only for the few runs with evidence of a stall.
    """

    def ask(query: Callable[[tuple[str, ...]], Query], names: list[str]) -> dict[Attempt, Row]:
        rows = (row for some in in_portions(names) for row in reader.read(query(some)).to_pylist())
        return {_attempt(row): row for row in rows}

    beats = ask(lambda names: RunBeats(run_ids=names), run_ids)
    stalls = ask(lambda names: RunStalls(run_ids=names), run_ids)
    steps = ask(lambda names: RunSteps(run_ids=names), sorted({run_id for run_id, _ in stalls}))
    return beats, stalls, {key: int(row["last_end_ns"]) for key, row in steps.items()}


def _attempt(row: Row) -> Attempt:
    return row["run_id"], row["attempt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShipping:
    """Text about a run whose agents do not ship. ``sentence``: since when. ``next_step``: what to do."""

    sentence: str
    next_step: str = "check that agents run on the hosts of the run and reach the collector"


def not_shipping(heard: Heard | None) -> NotShipping | None:
    """Text about a run that does not ship. None if it ships or has ended: then its stored data is complete."""
    if heard is None or not heard.is_silent:
        return None
    since = local_time(heard.heard_ns)
    return NotShipping(
        sentence=f"not shipping: no heartbeat since {since}, and no rank reported its end. Newer steps are not stored."
    )


def local_time(at_ns: int) -> str:
    """Date and time of this machine, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns / NS_PER_S))
