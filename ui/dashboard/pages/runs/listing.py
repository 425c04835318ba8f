"""The list of runs: its rows, with the same number of queries for few and for thousands of runs.

every run              its name, start and number of ranks, from tables that hold no spans
runs that are shown    a few queries for all of them, none per run:
                       runs that may still change            queried for each list
                       runs that are long over               once a minute, and when new rows arrive
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.alerts.alert import Alert, Phase
from diagnose.findings import Finding, Severity
from diagnose.goodput.share import goodput_of_sums, wall_range
from diagnose.goodput.stored import decision_in
from diagnose.model.run_state import RunState, state_of
from diagnose.pipeline import Report
from diagnose.ranges import list_some, name_some
from telemetry.records import topology_in
from telemetry.stages import Stage
from telemetry.stores.interface import Query
from telemetry.stores.queries import (
    InterruptedSteps,
    RunBeats,
    RunDecisions,
    RunGrids,
    RunRates,
    Runs,
    RunStageTimes,
    RunStalls,
    RunSteps,
    RunWallTimes,
    in_portions,
)
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import ReportedAlerts, reported_alerts
from ui.dashboard.data.asking import LONG_OVER_S
from ui.dashboard.data.columns import metadata
from ui.dashboard.data.run_rows import (
    MFU,
    OLD_NS,
    Attempt,
    OpenFindings,
    Row,
    RunRow,
    means_by_attempt,
    ordered,
    step_sums,
    steps_by_attempt,
    without_interrupted,
)
from ui.dashboard.view_state import RunOrder

AGE_S = 2.0
OVER_AGE_S = 60.0
MOST_ROWS = 100
"""Rows of the list."""
MOST_COMPARED = 250
"""Runs whose state, times and findings are compared: those with the newest heartbeats."""

SHOWN = ("recipe", "model", "device")
"""Metadata that is shown below the name of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """The first rows of the list of runs."""

    rows: tuple[RunRow, ...]
    num_stored: int
    num_found: int
    """Runs whose name contains the searched text."""
    num_compared: int
    """Runs that were compared to choose ``rows``: all that were found, or those with the newest heartbeats."""
    num_living: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The facts of every run."""

    run_id: str
    started_ns: int
    last_ns: int
    num_ranks: int


def run_list(reads: Reads, find: str = "", order: RunOrder = RunOrder.TROUBLE) -> RunList:
    """The first rows of the runs with ``find`` in their names."""
    stored = _stored(reads)
    found = [run for run in stored if find.casefold() in run.run_id.casefold()]
    is_known = order in _KNOWN_OF_ALL
    first = sorted(found, key=_KNOWN_OF_ALL[order])[:MOST_ROWS] if is_known else _heard_last(found)
    rows = _rows(reads, first, _heard_last(stored))
    names = {run.run_id for run in first}
    return RunList(
        rows=tuple(ordered([row for row in rows if row.run_id in names], order, reads.now_ns())[:MOST_ROWS]),
        num_stored=len(stored),
        num_found=len(found),
        num_compared=len(found) if is_known else len(first),
        num_living=sum(row.state is RunState.LIVE for row in rows),
    )


def _heard_last(runs: list[_Stored]) -> list[_Stored]:
    return sorted(runs, key=lambda run: -run.last_ns)[:MOST_COMPARED]


_KNOWN_OF_ALL: dict[RunOrder, Callable[[_Stored], Any]] = {
    RunOrder.NAME: lambda run: run.run_id,
    RunOrder.RANKS: lambda run: (-run.num_ranks, -run.started_ns),
    RunOrder.STARTED: lambda run: -run.started_ns,
}
"""Orders that need only what :func:`_stored` returns."""


def _stored(reads: Reads) -> list[_Stored]:
    """Newest first."""
    runs: dict[str, list[Row]] = {}
    for row in reads.run_rows():
        runs.setdefault(row["run_id"], []).append(row)
    return [
        _Stored(
            run_id=run_id,
            started_ns=min(row["started_ns"] for row in attempts),
            last_ns=_last_ns(attempts),
            num_ranks=max(attempts, key=lambda row: row["attempt"])["num_ranks"],
        )
        for run_id, attempts in runs.items()
    ]


def _rows(reads: Reads, *groups: list[_Stored]) -> list[RunRow]:
    runs = {run.run_id: run for group in groups for run in group}
    if not runs:
        return []
    facts, alerts = _Facts(reads, [*runs.values()]), _Alerts(reported_alerts(reads))
    return [
        _row(sorted(rows, key=lambda row: row["attempt"]), facts, alerts, reads) for rows in facts.attempts.values()
    ]


class _Facts:
    """The answers of bulk queries, by attempt."""

    def __init__(self, reads: Reads, runs: Sequence[_Stored]) -> None:
        now_ns = reads.now_ns()
        over = {run.run_id: run.last_ns for run in runs if now_ns - run.last_ns > LONG_OVER_S * 1e9}
        living = sorted({run.run_id for run in runs} - over.keys())

        def ask(query: Callable[[tuple[str, ...]], Query]) -> list[Row]:
            still = (reads.ask_all_runs(query(some), age_s=AGE_S) for some in in_portions(living))
            known = tuple(over[name] for name in sorted(over))
            past = (
                reads.ask_all_runs(query(some), age_s=OVER_AGE_S, known=known) for some in in_portions(sorted(over))
            )
            return [row for table in (*still, *past) for row in table.to_pylist()]

        self.attempts: dict[str, list[Row]] = {}
        for row in ask(lambda names: Runs(run_ids=names)):
            self.attempts.setdefault(row["run_id"], []).append(row)
        self.grids = _by_attempt(ask(lambda names: RunGrids(run_ids=names)))
        self.beats = _by_attempt(ask(lambda names: RunBeats(run_ids=names)))
        self.stalls = _by_attempt(ask(lambda names: RunStalls(run_ids=names)))
        self.mfu = means_by_attempt(ask(lambda names: RunRates(run_ids=names, metric=MFU)))
        self.steps = steps_by_attempt(ask(lambda names: RunSteps(run_ids=names)))
        self._leave_out_interrupted(reads)
        self.wall_ns = {
            (row["run_id"], row["first_attempt"], row["last_attempt"]): row["wall_ns"]
            for row in ask(lambda names: RunWallTimes(run_ids=names))
        }
        snapshots = ask(lambda names: RunStageTimes(run_ids=names, stage=int(Stage.CHECKPOINT_SNAPSHOT)))
        self.snapshot_ns = {(row["run_id"], row["attempt"]): row["mean_ns"] for row in snapshots}
        self.decisions: dict[str, list[tuple[int, str]]] = {}
        for row in ask(lambda names: RunDecisions(run_ids=names)):
            self.decisions.setdefault(row["run_id"], []).append((row["at_ns"], decision_in(row).name))

    def _leave_out_interrupted(self, reads: Reads) -> None:
        """Remove interrupted steps of attempts that died after a stall. There are few such attempts."""
        for attempt in self.stalls.keys() & self.steps.keys() & self.beats.keys():
            beats = self.beats[attempt]
            if beats["num_gone"]:
                query = InterruptedSteps(run_id=attempt[0], attempt=attempt[1])
                rows = reads.ask_each_second(query, beats["heard_ns"]).to_pylist()
                left = without_interrupted(self.steps.pop(attempt), rows)
                self.steps |= {} if left is None else {attempt: left}


class _Alerts:
    """Open alerts by attempt, without those that another alert explains."""

    def __init__(self, alerts: ReportedAlerts) -> None:
        self.looked_at = alerts.checked_ns.keys()
        self.open: dict[Attempt, list[Alert]] = {}
        for entry in alerts.alerts:
            if entry.alert.is_alive and not entry.alert.suppressed_by:
                self.open.setdefault(entry.alert.run, []).append(entry.alert)


def _by_attempt(rows: list[Row]) -> dict[Attempt, Row]:
    return {(row["run_id"], row["attempt"]): row for row in rows}


def _last_ns(rows: list[Row]) -> int:
    return max(int(row["last_ns"]) for row in rows)


def _row(attempts: list[Row], facts: _Facts, alerts: _Alerts, reads: Reads) -> RunRow:
    """``attempts``: all attempts of one run, ascending."""
    newest = attempts[-1]
    attempt = newest["run_id"], newest["attempt"]
    steps, grid, stall_row = facts.steps.get(attempt), facts.grids.get(attempt), facts.stalls.get(attempt)
    heard = state_of(
        facts.beats.get(attempt),
        stall_row,
        last_end_ns=steps.last_end_ns if steps else 0,
        last_ns=newest["last_ns"],
        now_ns=reads.now_ns(),
    )
    heard_ns, started_ns = max(_last_ns(attempts), heard.heard_ns), min(row["started_ns"] for row in attempts)
    host_wall_ns = facts.wall_ns.get((attempt[0], attempts[0]["attempt"], attempt[1]))
    begin_ns, end_ns = wall_range(started_ns, heard_ns, host_wall_ns, facts.decisions.get(attempt[0], ()))
    keys = [(row["run_id"], row["attempt"]) for row in attempts]
    sums = [step_sums(facts.steps.get(key), facts.snapshot_ns.get(key, 0.0)) for key in keys]
    # A live run has completed a step since its last stall. Old runs are not read again for each list.
    may_stall = stall_row and heard.state is not RunState.LIVE and reads.now_ns() - heard_ns < OLD_NS
    freshness = newest["last_step"], newest["last_ns"], stall_row["newest_ns"] if stall_row else 0, heard.has_ended
    stall = reads.stall(attempt, freshness, newest["num_ranks"]) if may_stall else None
    return RunRow(
        run_id=attempt[0],
        attempt=attempt[1],
        num_attempts=len(attempts),
        state=heard.state,
        what=" · ".join(meta[key] for key in SHOWN if key in meta) if (meta := metadata(newest["meta"])) else "",
        topology=topology_in(grid) if grid else None,
        num_ranks=newest["num_ranks"],
        last_step=steps.last_step if steps else None,
        step_time=steps.recent if steps else None,
        mfu=facts.mfu.get(attempt),
        goodput=goodput_of_sums(sums, end_ns - begin_ns),
        findings=_findings(attempt, alerts, reads.reports.known(attempt), stall),
        started_ns=started_ns,
        heard_ns=heard_ns,
    )


def _findings(attempt: Attempt, alerts: _Alerts, report: Report | None, stall: Finding | None) -> OpenFindings | None:
    """Open alerts. Otherwise the stall and the findings of the last report. None if neither is known."""
    if stands := alerts.open.get(attempt):
        worst = stands[0].account
        return OpenFindings(
            count=len(stands), severity=worst.severity, worst=_alert_in_words(stands[0]), summary=worst.summary
        )
    if stall is None and attempt in alerts.looked_at:
        return OpenFindings(count=0)
    if stall is None and report is None:
        return None
    known = [*([stall] if stall else []), *(report.findings if report else ())]
    found = [finding for finding in known if finding.severity is not Severity.INFO]
    if not found:
        return OpenFindings(count=0)
    return OpenFindings(
        count=len(found), severity=found[0].severity, worst=_finding_in_words(found[0]), summary=found[0].summary
    )


def _alert_in_words(alert: Alert) -> str:
    labels = alert.labels
    places = [f"rank {labels['rank']}" if "rank" in labels else "", labels.get("host", ""), labels.get("stage", "")]
    pending = [" (pending)"] if alert.phase is Phase.PENDING else []
    return ", ".join([alert.kind, *filter(None, places)]) + "".join(pending)


def _finding_in_words(finding: Finding) -> str:
    noun = "rank" if len(finding.ranks) == 1 else "ranks"
    ranks = [f"{noun} {name_some(finding.ranks)}"] if finding.ranks else [finding.stage] * bool(finding.stage)
    hosts = [list_some(finding.hosts, 1)] if finding.hosts else []
    return ", ".join([str(finding.kind), *ranks, *hosts])
