"""One check of the store: the active runs and their findings. The result is the input of the state machine.

    Runs, Heartbeats --> active attempts --load--> newest 200 steps --diagnose--> findings that hold now --> Check
                                                   newest 40 of them --'

``sightings.py`` diagnoses one run. A run that died is not loaded and diagnosed again, so it does not delay the alerts
of running jobs.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.quiet import Quiets
from diagnose.alerts.sightings import RunFindings, diagnosed
from diagnose.hang.stored import stored_verdict
from diagnose.model.outages import LINK_EVENTS
from telemetry.errors import RankscopeError, UnreachableError, UnreadableError
from telemetry.host_metrics import Happening
from telemetry.run_names import Attempt
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Heartbeats, News, Runs
from telemetry.tables import ENDED_WELL


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of a check. A run is over if it is in ``known``, but neither in ``runs`` nor in ``failed``: it ended,
    or a newer attempt runs."""

    now_ns: int
    runs: tuple[RunFindings, ...] = ()
    failed: frozenset[Attempt] = frozenset()
    """Runs that could not be checked. Their alerts do not change."""
    known: frozenset[Attempt] | None = None
    """All runs in the store, also ended ones. None: not known."""
    blind: bool = False
    """Whether the store could not be read. Then no alert changes."""
    quiets: Quiets | None = None
    """What people decided about findings. None: not known, so nothing changes."""
    logged_ns: Mapping[str, int] = field(default_factory=dict)
    """Fingerprint -> when the finding was raised, if the findings log has it and it is not resolved there."""

    def knows(self, run: Attempt) -> bool:
        return self.known is None or run in self.known


QUIET_S = 30.0
"""A run is quiet if it sent no data for this time. A quiet run is queried at most once in this time."""
SILENT_S = 3600.0
"""A run is over if it sent no data for this time."""
ENDED_S = 60.0
"""A hang is still reported for this time after its job ended normally."""
MOST_RUNS = 16
"""Number of runs that are checked: the newest ones."""
URGENT = tuple(map(str, (*LINK_EVENTS, Happening.GPU_XID, Happening.GPU_ERROR, Happening.RANK_STOPPED)))
"""Events that start a check at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """The newest data of an active attempt."""

    row: dict[str, Any]
    """The row of ``Runs``."""
    beats: pa.Table
    """The answer of ``Heartbeats``."""

    @property
    def attempt(self) -> Attempt:
        return self.row["run_id"], self.row["attempt"]

    @property
    def heard_ns(self) -> int:
        """When its newest data was recorded, by the clocks of its hosts."""
        return int(max([self.row["last_ns"], *self.beats["at_ns"].to_pylist()]))

    def is_unchanged(self, before: "ActiveRun") -> bool:
        """Whether it sent no data since ``before``."""
        return self.row == before.row and self.beats.equals(before.beats)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheck:
    """The result of the last check of a run."""

    run: ActiveRun
    news: Hashable
    """Its evidence and events; None if they were not queried."""
    findings: RunFindings
    asked_ns: int
    """When this was queried."""

    def is_recent(self, row: dict[str, Any], now_ns: int) -> bool:
        """Whether the run need not be queried again.

        This holds if the run is quiet, its row is the same, and it was queried less than ``QUIET_S`` ago.

        ``row``: the current row of ``Runs``.
        """
        quiet_ns, old_ns = now_ns - self.run.heard_ns, now_ns - self.asked_ns
        return row == self.run.row and quiet_ns > QUIET_S * 1e9 > old_ns >= 0


class RunChecker:
    """Checks the active runs of a store repeatedly."""

    def __init__(self, error_reports: ErrorReports, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._error_reports = error_reports
        self._clock_ns = clock_ns
        self._last: dict[Attempt, LastCheck] = {}
        """For each run that was active at the last check and could be diagnosed."""
        self._live: list[Attempt] = []
        """Runs that were not quiet at the last check."""
        self._ended: dict[Attempt, dict[str, Any]] = {}
        """Rows of ``Runs`` of runs that ended normally."""

    def news(self, reader: Reader) -> Hashable:
        """A value that changes if a live run stalls, or loses a rank or a link. Its query is cheap.

        Raises:
            UnreachableError: the store does not answer.
        """
        return tuple(_news_of(reader, attempt, URGENT) for attempt in self._live)

    def check(self, reader: Reader, period_s: float) -> Check:
        """The current findings of all active runs. A run that cannot be diagnosed does not affect the others.

        ``period_s``: time since the last check. A problem of a single step in this time is found.

        Raises:
            UnreachableError: the store does not answer.
        """
        now_ns = self._clock_ns()
        rows = reader.read(Runs()).to_pylist()
        runs, too_many = self._active_runs(reader, rows, now_ns)
        findings, failed = [], set(too_many)
        active = [run.attempt for run in runs]
        self._live = [run.attempt for run in runs if now_ns - run.heard_ns <= QUIET_S * 1e9]
        self._last = {attempt: self._last[attempt] for attempt in active if attempt in self._last}
        for run in runs:
            run_id, attempt = run.attempt
            name = f"run {run_id}/{attempt}"
            try:
                findings.append(self._findings(reader, run, period_s, now_ns))
                self._error_reports.end(name, f"{name}: diagnosed again")
            except UnreachableError:
                raise
            except RankscopeError as error:
                failed.add((run_id, attempt))
                self._error_reports.begin(name, f"{name}: cannot be diagnosed: {error.message}")
            except Exception as error:  # if a detector fails on one run, the other runs must still be checked
                failed.add((run_id, attempt))
                self._error_reports.begin(name, f"{name}: cannot be diagnosed: {type(error).__name__}: {error}")
        self._error_reports.forget_all_but("run ", frozenset(f"run {run_id}/{attempt}" for run_id, attempt in active))
        known = frozenset((row["run_id"], row["attempt"]) for row in rows)
        return Check(now_ns=self._clock_ns(), runs=tuple(findings), failed=frozenset(failed), known=known)

    def _findings(self, reader: Reader, run: ActiveRun, period_s: float, now_ns: int) -> RunFindings:
        """The findings of a run. If the run has no new data, these are the findings of the last check."""
        before, news = self._last.get(run.attempt), None
        if before and run is before.run:
            return before.findings
        findings = None
        if before and run.is_unchanged(before.run):
            news = _news_of(reader, run.attempt)
            findings = before.findings if news == before.news else None
        findings = findings or diagnosed(reader, run.attempt, period_s, has_ended=_has_ended(run))
        self._last[run.attempt] = LastCheck(run=run, news=news, findings=findings, asked_ns=now_ns)
        return findings

    def _active_runs(
        self, reader: Reader, rows: list[dict[str, Any]], now_ns: int
    ) -> tuple[list[ActiveRun], list[Attempt]]:
        """The newest active runs, and the attempts of the others.

        A run is active if its newest attempt has not ended normally and sent data within the last hour. Jobs that died
        are included: the cause may remain. A job that hung until it ended normally is included for a minute, so that
        its hang is sent.
        """
        newest: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["run_id"] not in newest or row["attempt"] > newest[row["run_id"]]["attempt"]:
                newest[row["run_id"]] = row
        young = [row for row in newest.values() if row["num_ranks"] and now_ns - row["last_ns"] <= 24 * SILENT_S * 1e9]
        ended, self._ended, active = self._ended, {}, []
        for row in young:
            attempt = row["run_id"], row["attempt"]
            if ended.get(attempt) == row:
                self._ended[attempt] = row
                continue
            last = self._last.get(attempt)
            if last and last.is_recent(row, now_ns):
                active.append(last.run)
                continue
            run = ActiveRun(row=row, beats=reader.read(Heartbeats(run_id=row["run_id"], attempt=row["attempt"])))
            if _ended_well(run) and (now_ns - run.heard_ns > ENDED_S * 1e9 or not _has_stall(reader, attempt)):
                self._ended[attempt] = row
            elif now_ns - run.heard_ns <= SILENT_S * 1e9:
                active.append(run)
        self._report_too_many(len(active))
        return active[:MOST_RUNS], [run.attempt for run in active[MOST_RUNS:]]

    def _report_too_many(self, number: int) -> None:
        if number > MOST_RUNS:
            checked = f"only the newest {MOST_RUNS} are checked; alerts of the others do not change"
            self._error_reports.begin("too many", f"{number} runs are active: {checked}")
        else:
            self._error_reports.end("too many", "all active runs are checked again")


def _news_of(reader: Reader, attempt: Attempt, names: tuple[str, ...] = ()) -> Hashable:
    """The evidence of stalls of an attempt, and the events ``names`` of its hosts (all events if ``names`` is empty).

    The query is cheap.
    """
    run_id, number = attempt
    return str(reader.read(News(run_id=run_id, attempt=number, names=names)).to_pylist())


def _ended_well(run: ActiveRun) -> bool:
    return bool(run.beats.num_rows and pc.all(pc.equal(run.beats["ended"], ENDED_WELL)).as_py())


def _has_ended(run: ActiveRun) -> bool:
    """Whether every rank has ended, well or not."""
    beats = run.beats
    return bool(beats.num_rows and pc.all(pc.or_(pc.not_equal(beats["ended"], 0), pc.equal(beats["alive"], 0))).as_py())


def _has_stall(reader: Reader, attempt: Attempt) -> bool:
    """Whether an attempt hung until its end."""
    with suppress(UnreadableError):
        verdict = stored_verdict(reader, *attempt)
        return verdict is not None and bool(verdict.initiating)
    return False
