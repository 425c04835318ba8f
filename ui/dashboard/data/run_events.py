"""Events of a run that charts mark: findings from their onset, restarts, link losses, and marks of ranks."""

from collections.abc import Hashable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from diagnose.findings import Finding, Kind, Severity, kind_in_words
from diagnose.hang.verdict import hang_finding
from diagnose.model.marks import Mark
from diagnose.pipeline import Report
from diagnose.ranges import fold_ranks, unfold_ranks
from diagnose.report.as_text import mark_line
from telemetry.errors import UnreadableError, UsageError
from telemetry.stores.queries import Findings, MarkColumns
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.data.core import Reads
from ui.dashboard.data.curves import Shown
from ui.dashboard.data.goodput import decisions_of
from ui.dashboard.defaults import onset_of
from ui.dashboard.events import EventKind, RunEvent
from ui.dashboard.records import Ints
from ui.dashboard.wording import count

MARK_COLUMNS = 64
"""Marks of one name are combined within this part of the time shown."""
MAX_LOGGED, LOG_AGE_S = 200, 2.0
"""The number of newest findings of the log that are marked, and the largest age of the answer in seconds."""
MAX_EVENTS = 2000


def run_events(shown: Shown, reads: Reads) -> list[RunEvent]:
    """The events in the part of a run that is shown, ascending by time. At most MAX_EVENTS, the newest."""
    run = shown.facts.summary
    report, stall = reads.reports.of(run), _stall(shown, reads)
    decisions = len(decisions_of(run.run_id, reads))
    logged = reads.ask_all_runs(
        Findings(run_id=run.run_id, limit=MAX_LOGGED), age_s=LOG_AGE_S, known=(run.last_step, run.last_ns)
    ).to_pylist()

    def make() -> list[RunEvent]:
        places = _Places(shown)
        found = [] if report is None else [*report.findings]
        found = [finding for finding in [*stall, *found] if finding.kind is not Kind.INSUFFICIENT_EVIDENCE]
        every = [
            *(event for finding in found for event in _finding(finding, report, places)),
            *_logged(logged, found, places),
            *_restarts(shown, reads, places),
            *(event for mark in (report.marks if report else ()) for event in _flap(mark, places)),
            *_marks(shown, reads, places),
        ]
        return sorted(every, key=lambda event: event.at_ns)[-MAX_EVENTS:]

    raised = tuple((row["fingerprint"], row["raised_ns"], row["at_ns"]) for row in logged)
    stalls = tuple(finding.headline for finding in stall)
    newest: Hashable = run.last_step, run.last_ns, id(report), stalls, decisions, raised
    return reads.kept(("events", run.run_id, run.attempt, shown.part.name), make, newest)


def _stall(shown: Shown, reads: Reads) -> list[Finding]:
    with suppress(StillWorking, UnreadableError):
        verdict = reads.hang(shown.facts)
        stall = None if verdict is None else hang_finding(verdict)
        return [] if stall is None else [stall]
    return []


class _Places:
    """Finds where events are on the axes of charts: the nearest stored steps and their times."""

    def __init__(self, shown: Shown) -> None:
        self.facts = shown.facts
        run, steps = shown.facts.summary, shown.steps
        self.run_id, self.own = run.run_id, run.attempt
        self._of: dict[int, tuple[Ints, Ints]] = {}
        for attempt in np.unique(steps.attempt).tolist():
            rows = steps.where(steps.attempt == attempt)
            self._of[attempt] = rows.step, rows.at_ns
        self._of[run.attempt] = shown.facts.steps.step, shown.facts.steps.start_ns

    def at_step(self, attempt: int, step: int) -> tuple[int, int] | None:
        """The last stored step up to ``step``, or the first one, and its begin. None for an attempt that is not
        shown."""
        return self._at(attempt, 0, step)

    def at_time(self, attempt: int, at_ns: int) -> tuple[int, int] | None:
        """The step that ran at a time, or the nearest one, and its begin. None for an attempt that is not shown."""
        return self._at(attempt, 1, at_ns)

    def _at(self, attempt: int, column: int, value: int) -> tuple[int, int] | None:
        columns = self._of.get(attempt)
        if columns is None or not len(columns[0]):
            return None
        row = max(0, int(np.searchsorted(columns[column], value, side="right")) - 1)
        return int(columns[0][row]), int(columns[1][row])


def _finding(finding: Finding, report: Report | None, places: _Places) -> Iterator[RunEvent]:
    examined = finding.window if report is None else report.window
    onset = onset_of(finding, examined)
    since = "" if onset is not None else f"in step {finding.window.first_step} or earlier: "
    place = places.at_step(places.own, finding.window.first_step if onset is None else onset)
    last = places.at_step(places.own, finding.window.last_step)
    if place is not None and last is not None:
        yield RunEvent(
            kind=EventKind.FINDING,
            name=kind_in_words(finding.kind),
            text=f"{since}{finding.headline}",
            run_id=places.run_id,
            attempt=places.own,
            step=place[0],
            at_ns=place[1],
            severity=finding.severity,
            rank=finding.ranks[0] if finding.ranks else None,
            host=finding.hosts[0] if finding.hosts else "",
            stage=finding.stage,
            last_step=last[0],
            last_ns=last[1],
        )


def _logged(rows: list[dict[str, Any]], found: list[Finding], places: _Places) -> Iterator[RunEvent]:
    """Findings that the watcher stored, except those that the report has too."""
    known = {(places.own, str(finding.kind), fold_ranks(finding.ranks)) for finding in found}
    for row in rows:
        key = row["attempt"], row["kind"], row["ranks"]
        place = places.at_step(row["attempt"], max(0, row["onset_step"]))
        if key in known or place is None or row["onset_step"] < 0 or row["severity"] not in list(Severity):
            continue
        known.add(key)
        yield RunEvent(
            kind=EventKind.FINDING,
            name=kind_in_words(row["kind"]),
            text=f"{'' if row['onset_exact'] else 'in this step or earlier: '}{row['summary']}",
            run_id=places.run_id,
            attempt=row["attempt"],
            step=place[0],
            at_ns=place[1],
            severity=Severity(row["severity"]),
            rank=_first_rank(row["ranks"], places),
            host=row["hosts"].split(",")[0],
            stage=row["stage"],
        )


def _first_rank(ranks: str, places: _Places) -> int | None:
    with suppress(UsageError):
        return unfold_ranks(ranks, places.facts.topology.world_size)[0]
    return None


def _restarts(shown: Shown, reads: Reads, places: _Places) -> Iterator[RunEvent]:
    """The first step of each attempt after the first one, and the decisions of the driver."""
    run = shown.facts.summary
    first = min(reads.attempts(run.run_id))
    for attempt in shown.part.attempts:
        place = places.at_step(attempt, 0)
        if attempt > first and place is not None:
            yield RunEvent(
                kind=EventKind.RESTART,
                name=f"attempt {attempt}",
                text=f"attempt {attempt} begins with step {place[0]}",
                run_id=places.run_id,
                attempt=attempt,
                step=place[0],
                at_ns=place[1],
            )
    for decision in decisions_of(run.run_id, reads):
        place = places.at_time(decision.attempt, decision.at_ns)
        if place is not None:
            node = f" on {decision.node}" if decision.node else ""
            yield RunEvent(
                kind=EventKind.RESTART,
                name=decision.name,
                text=f"{decision.name}{node}: {decision.reason}",
                run_id=places.run_id,
                attempt=decision.attempt,
                step=place[0],
                at_ns=decision.at_ns,
                host=decision.node if decision.node in places.facts.hosts else "",
            )


def _flap(mark: Mark, places: _Places) -> Iterator[RunEvent]:
    place = places.at_time(places.own, mark.at_ns)
    if place is not None:
        hosts = places.facts.hosts
        yield RunEvent(
            kind=EventKind.FLAP,
            name="link lost",
            text=mark_line(mark),
            run_id=places.run_id,
            attempt=places.own,
            step=place[0],
            at_ns=mark.at_ns,
            rank=hosts.index(mark.host) if mark.host in hosts else None,
            host=mark.host,
        )


def _marks(shown: Shown, reads: Reads, places: _Places) -> Iterator[RunEvent]:
    run, part = shown.facts.summary, shown.part
    since_ns = shown.first_ns if part.first_ns or len(shown.steps.step) < len(shown.facts.steps.step) else 0
    width_ns = 1 << ((shown.end_ns - shown.first_ns) // MARK_COLUMNS).bit_length()
    query = MarkColumns(
        run_id=run.run_id, attempts=part.attempts, column_ns=width_ns, first_ns=since_ns - since_ns % width_ns
    )
    for row in reads.reader_of(run).read(query).to_pylist():
        place = places.at_step(row["attempt"], row["step"])
        if place is not None:
            many = f" ({count(row['marks'], 'mark')} of {count(row['ranks'], 'rank')})" if row["marks"] > 1 else ""
            yield RunEvent(
                kind=EventKind.MARK,
                name=row["name"],
                text=f"{row['name']} of rank {row['rank']}{many}: {row['text']}",
                run_id=places.run_id,
                attempt=row["attempt"],
                step=place[0],
                at_ns=row["at_ns"],
                rank=row["rank"],
            )
