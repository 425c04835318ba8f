"""The alerts that the watcher has stored, with the states of their runs."""

from collections.abc import Hashable
from typing import Any

import pyarrow as pa

from diagnose.alerts.reported import ReportedAlerts, reported_in, with_run_states
from diagnose.model.run_state import Heard, states_of
from telemetry.run_names import Attempt
from telemetry.stores.interface import Query
from telemetry.stores.queries import AlertLooks, Alerts, FindingActions, FindingCount, Runs, in_portions
from ui.dashboard.data.core import Reads

MOST_ALERTS = 1000
AGE_S = 2.0


def reported_alerts(reads: Reads) -> ReportedAlerts:
    """The alerts of all runs, with a few queries at most every two seconds. No alert of an ended run is open."""
    reported = reported_in(
        reads.ask_all_runs(Alerts(limit=MOST_ALERTS), age_s=AGE_S).to_pylist(),
        reads.ask_all_runs(AlertLooks(), age_s=AGE_S).to_pylist(),
    )
    open_runs = sorted({entry.alert.run[0] for entry in reported.alerts if entry.alert.is_alive})
    return with_run_states(reported, newest_states(open_runs, reads), reads.now_ns())


def newest_states(run_ids: list[str], reads: Reads) -> dict[Attempt, Heard]:
    """The state of the newest attempt of each run. Runs that are not stored are left out."""
    reader = SharedReader(reads)
    newest: dict[str, dict[str, Any]] = {}
    for some in in_portions(run_ids):
        for row in reader.read(Runs(run_ids=some)).to_pylist():
            if row["run_id"] not in newest or row["attempt"] > newest[row["run_id"]]["attempt"]:
                newest[row["run_id"]] = row
    return states_of(reader, newest.values(), reads.now_ns())


def newest_of_log(reads: Reads, run_id: str = "") -> tuple[Hashable, ...]:
    """A value that changes when a finding or an action on a finding is stored. ``run_id``: only findings of this run
    count; empty for all runs."""
    count = reads.ask_all_runs(FindingCount(run_id=run_id), age_s=AGE_S).to_pylist()
    acted = reads.ask_all_runs(FindingActions(limit=1), age_s=AGE_S)["action_id"].to_pylist()
    return *(value for row in count for value in row.values()), *acted


class SharedReader:
    """A reader with cached answers, for all pages. An answer is at most two seconds old.

    ``known``: a description of the stored data. An answer that was cached under another description is not used. A page
    whose freshness is this description is thus never drawn from older answers.
    """

    def __init__(self, reads: Reads, known: Hashable = None) -> None:
        self._reads = reads
        self._known = known

    def read(self, query: Query) -> pa.Table:
        return self._reads.ask_all_runs(query, age_s=AGE_S, known=self._known)
