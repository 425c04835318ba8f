"""The measured clock offsets of the hosts of a run, now and over its steps."""

from dataclasses import replace
from typing import Any

from diagnose.model.host_clocks import WindowClocks, newest_clocks
from telemetry.clocks.align_evidence import HostClock
from telemetry.stores.queries import ClockHistory
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunFacts

MAX_POINTS = 500
"""Of one host's chart: of more windows those with the widest bounds."""


def clocks_now(reads: Reads, facts: RunFacts) -> WindowClocks:
    """Of all hosts, over the newest window; of a run that no collector watched it is estimated here.

    Raises:
        UsageError: no step is finished.
    """
    run = facts.summary
    return reads.work_out(
        run, "clocks-now", lambda reader: newest_clocks(reader, run.run_id, run.attempt, run.last_step)
    )


def clock_history(reads: Reads, facts: RunFacts, host: str) -> list[WindowClocks]:
    """The clock of ``host`` alone, window by window; of a run that no collector watched only the newest."""
    run = facts.summary
    columns = -(-(run.last_step - run.first_step + 1) // MAX_POINTS)
    asked = ClockHistory(run_id=run.run_id, attempt=run.attempt, hosts=(host,), column_steps=columns)
    if rows := reads.ask(run, asked).to_pylist():
        return [_window(row) for row in rows]
    now = clocks_now(reads, facts)
    return [replace(now, clocks=(one,)) for one in now.clocks if one.host == host]


def _window(row: dict[str, Any]) -> WindowClocks:
    first, last = row.pop("first_step"), row.pop("last_step")
    return WindowClocks(first_step=first, last_step=last, clocks=(HostClock(reference="", **row),))
