"""The list of runs: its rows, with the same number of queries for few and for thousands of runs.

every run              its name, start and number of ranks, from tables that hold no spans
runs that are shown    a few queries for all of them, none per run:
                       runs that may still change            queried for each list
                       runs that are long over               once a minute, and when new rows arrive
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagnose.alerts.alert import URGENCY, Alert, Phase
from diagnose.alerts.reported import SILENT_AFTER_NS, ReportedAlert, ReportedAlerts
from diagnose.findings import Finding, Severity, kind_in_words
from diagnose.model.run_state import RunState
from diagnose.pipeline import Report
from diagnose.ranges import list_some, name_some
from diagnose.run_figures import RunFigures, figures_of_runs
from telemetry.records import topology_in
from telemetry.run_names import Attempt
from telemetry.stores.interface import Query
from telemetry.stores.queries import InterruptedSteps, RunGrids, in_portions
from telemetry.topology import Topology
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import reported_alerts
from ui.dashboard.data.annotations import run_tags
from ui.dashboard.data.asking import LONG_OVER_S
from ui.dashboard.data.columns import metadata
from ui.dashboard.data.run_rows import OLD_NS, OpenFindings, RunRow, ordered
from ui.dashboard.view_state import RunOrder

Row = dict[str, Any]
AGE_S = 2.0
OVER_AGE_S = 60.0
MOST_ROWS = 100
"""Largest number of rows of the list."""
MOST_COMPARED = 250
"""Largest number of runs whose state, times and findings are compared: those with the newest data."""

SHOWN = ("recipe", "model", "device")
"""Metadata that is shown below the name of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """The first rows of the list of runs."""

    rows: tuple[RunRow, ...]
    num_stored: int
    num_found: int
    """Runs with the chosen tag whose name contains the searched text."""
    num_compared: int
    """Runs that were compared to choose ``rows``: all that were found, or those with the newest data."""
    num_living: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The facts about a run that are known for all runs."""

    run_id: str
    started_ns: int
    last_ns: int
    num_ranks: int


def run_list(reads: Reads, find: str = "", order: RunOrder = RunOrder.TROUBLE, tag: str = "") -> RunList:
    """The first rows of the runs with ``find`` in their names, and with the tag."""
    stored, tags = _stored(reads), run_tags(reads)
    tagged = [run for run in stored if not tag or tag in tags.get(run.run_id, ())]
    found = [run for run in tagged if find.casefold() in run.run_id.casefold()]
    is_known = order in _KNOWN_OF_ALL
    first = sorted(found, key=_KNOWN_OF_ALL[order])[:MOST_ROWS] if is_known else _heard_last(found)
    rows = [replace(row, tags=tags.get(row.run_id, ())) for row in _rows(reads, first, _heard_last(stored))]
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
    """All stored runs, the newest first."""
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
    now_ns = reads.now_ns()
    over = {run.run_id: run.last_ns for run in runs.values() if now_ns - run.last_ns > LONG_OVER_S * 1e9}
    living = sorted(runs.keys() - over.keys())

    def ask(query: Callable[[tuple[str, ...]], Query]) -> list[Row]:
        still = (reads.ask_all_runs(query(some), age_s=AGE_S) for some in in_portions(living))
        known = tuple(over[name] for name in sorted(over))
        past = (reads.ask_all_runs(query(some), age_s=OVER_AGE_S, known=known) for some in in_portions(sorted(over)))
        return [row for table in (*still, *past) for row in table.to_pylist()]

    def ask_interrupted(query: InterruptedSteps, heard_ns: int) -> list[Row]:
        rows: list[Row] = reads.ask_each_second(query, heard_ns).to_pylist()
        return rows

    grids = {(row["run_id"], row["attempt"]): topology_in(row) for row in ask(lambda names: RunGrids(run_ids=names))}
    alerts = _Alerts(reported_alerts(reads), now_ns)
    found = figures_of_runs(ask, ask_interrupted, now_ns)
    return [_row(figures, grids.get(figures.key), alerts, reads) for figures in found]


class _Alerts:
    """Alerts by attempt, without those that another alert explains."""

    def __init__(self, alerts: ReportedAlerts, now_ns: int) -> None:
        self.analysed = alerts.checked_ns.keys()
        self.watched = {run for run, at_ns in alerts.checked_ns.items() if now_ns - at_ns <= SILENT_AFTER_NS}
        self.open = self._by_run(entry for entry in alerts.alerts if entry.alert.is_alive)
        self._closed = self._by_run(entry for entry in alerts.alerts if not entry.alert.is_alive)

    def at_end(self, attempt: Attempt, ended_ns: int) -> list[Alert]:
        """Alerts of a run that were still open when it sent its last data."""
        alerts = self._closed.get(attempt, [])
        return [alert for alert in alerts if (alert.absent_ns or alert.changed_ns) >= ended_ns]

    @staticmethod
    def _by_run(entries: Iterable[ReportedAlert]) -> dict[Attempt, list[Alert]]:
        found: dict[Attempt, list[Alert]] = {}
        for entry in entries:
            if not entry.alert.suppressed_by:
                found.setdefault(entry.alert.run, []).append(entry.alert)
        return found


def _last_ns(rows: list[Row]) -> int:
    return max(int(row["last_ns"]) for row in rows)


def _row(figures: RunFigures, grid: Topology | None, alerts: _Alerts, reads: Reads) -> RunRow:
    heard = figures.heard
    # A live run has completed a step since its last stall. Old runs are not read again for each list.
    is_recent = reads.now_ns() - figures.heard_ns < OLD_NS
    may_stall = figures.stalled_ns and heard.state is not RunState.LIVE and is_recent
    freshness = figures.last_step, figures.last_ns, figures.stalled_ns, heard.has_ended
    stall = reads.stall(figures.key, freshness, figures.num_ranks) if may_stall else None
    meta = metadata(figures.meta)
    return RunRow(
        run_id=figures.run_id,
        attempt=figures.attempt,
        num_attempts=figures.num_attempts,
        state=heard.state,
        what=" · ".join(meta[key] for key in SHOWN if key in meta),
        topology=grid,
        num_ranks=figures.num_ranks,
        last_step=figures.steps.last_step if figures.steps else None,
        step_time=figures.step_time,
        mfu=figures.mfu,
        goodput=figures.goodput,
        findings=_findings(figures, alerts, reads.reports.known(figures.key), stall),
        started_ns=figures.started_ns,
        heard_ns=figures.heard_ns,
    )


def _findings(
    figures: RunFigures, alerts: _Alerts, report: Report | None, stall: Finding | None
) -> OpenFindings | None:
    """Open alerts. Otherwise the stall and the findings of the last report. None if neither is known.

    A recent check of the watcher without an alert counts more than a report, as long as the run is not over.
    """
    attempt, is_over = figures.key, figures.heard.state in (RunState.ENDED, RunState.DIED)
    if stands := alerts.open.get(attempt):
        return _of_alerts(stands, at_end=False)
    if stall is None and attempt in alerts.watched and not is_over:
        return OpenFindings(count=0)
    if stall is None and report is None:
        if stood := alerts.at_end(attempt, figures.heard_ns) if is_over else []:
            return _of_alerts(stood, at_end=True)
        return OpenFindings(count=0) if attempt in alerts.analysed else None
    known = [*([stall] if stall else []), *(report.findings if report else ())]
    found = [finding for finding in known if finding.severity is not Severity.INFO]
    if not found:
        return OpenFindings(count=0)
    return OpenFindings(
        count=len(found),
        severity=found[0].severity,
        worst=_finding_in_words(found[0]),
        summary=found[0].headline,
        at_end=is_over,
    )


def _of_alerts(alerts: Sequence[Alert], *, at_end: bool) -> OpenFindings:
    worst = max(alerts, key=lambda alert: URGENCY[alert.account.severity])
    account = worst.account
    return OpenFindings(
        count=len(alerts),
        severity=account.severity,
        worst=_alert_in_words(worst),
        summary=account.summary,
        at_end=at_end,
    )


def _alert_in_words(alert: Alert) -> str:
    labels = alert.labels
    places = [f"rank {labels['rank']}" if "rank" in labels else "", labels.get("host", ""), labels.get("stage", "")]
    pending = [" (pending)"] if alert.phase is Phase.PENDING else []
    return _at(kind_in_words(alert.kind), list(filter(None, places))) + "".join(pending)


def _finding_in_words(finding: Finding) -> str:
    noun = "rank" if len(finding.ranks) == 1 else "ranks"
    ranks = [f"{noun} {name_some(finding.ranks)}"] if finding.ranks else [finding.stage] * bool(finding.stage)
    hosts = [list_some(finding.hosts, 1)] if finding.hosts else []
    return _at(kind_in_words(finding.kind), [*ranks, *hosts])


def _at(words: str, places: list[str]) -> str:
    """A kind with its places, such as ``slow rank: rank 5, gpu-03``."""
    return ": ".join(filter(None, [words, ", ".join(places)]))
