"""One look at a store: which runs are alive, and what is wrong with them.

    Runs, Heartbeats --> attempts that are alive --load--> newest 200 steps --diagnose--> findings that hold now
                                                           newest 40 of them --'                             |--> Look

Over 200 steps weak and rare troubles show; over 40 those show that have just begun, and what is over no longer does.
A finding that names its first and last step holds now if it reaches the newest steps.
"""

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from diagnose.alerts.alert import STANDING
from diagnose.alerts.complaints import Complaints
from diagnose.alerts.look import Look, RunSeen, Sighting
from diagnose.findings import Finding
from diagnose.load import load_view
from diagnose.outages import LINK_EVENTS
from diagnose.pipeline import Report, diagnose_view, stall_first
from telemetry.errors import RankscopeError, UnreachableError
from telemetry.host_metrics import Happening
from telemetry.stores.host_queries import HostEvents
from telemetry.stores.queries import EvidenceCount, Heartbeats, Runs, Steps
from telemetry.stores.reader import Reader

RECENT_STEPS = 40
"""The shorter of the two windows."""
STILL_STEPS = 10
"""A trouble whose last step is not longer ago than this is still there."""
SILENT_S = 3600.0
"""A run that nobody has heard of for so long is over."""
MOST_RUNS = 16
"""The newest so many are looked at."""
MOST_FINDINGS = 10_000
"""Of one run, the worst: what comes in one look stays bounded."""
URGENT = tuple(map(str, (*LINK_EVENTS, Happening.GPU_XID, Happening.GPU_ERROR, Happening.RANK_STOPPED)))
"""Events that a look does not wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How far a run has come, and how fast."""

    last_step: int
    step_s: float


class Watching:
    """Looks at whoever answers, again and again."""

    def __init__(self, complaints: Complaints, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._complaints = complaints
        self._clock_ns = clock_ns
        self._alive: list[tuple[str, int]] = []

    def news(self, reader: Reader) -> Hashable:
        """Whatever changes when a job of the last look stalls, loses a rank or a link: cheap to ask.

        Raises:
            UnreachableError: nobody answers.
        """
        questions = [
            question
            for run_id, attempt in self._alive
            for question in (
                EvidenceCount(run_id=run_id, attempt=attempt),
                HostEvents(run_id=run_id, attempt=attempt, names=URGENT, limit=1),
            )
        ]
        return tuple(str(reader.read(question).to_pylist()) for question in questions)

    def look(self, reader: Reader, period_s: float) -> Look:
        """What ``reader`` shows now. A run that cannot be diagnosed spoils no other.

        ``period_s``: since the look before; a trouble of one step in between is not missed.

        Raises:
            UnreachableError: nobody answers.
        """
        now_ns = self._clock_ns()
        seen, failed = [], set()
        self._alive = alive = list(_alive(reader, now_ns))
        for run_id, attempt in alive:
            name = f"run {run_id}/{attempt}"
            try:
                seen.append(_seen(reader, run_id, attempt, period_s))
                self._complaints.end(name, f"{name}: looked at again")
            except UnreachableError:
                raise
            except RankscopeError as error:
                failed.add((run_id, attempt))
                self._complaints.begin(name, f"{name}: cannot be looked at: {error.message}")
            except Exception as error:  # one run that a detector trips over must not end the watch over all others
                failed.add((run_id, attempt))
                self._complaints.begin(name, f"{name}: cannot be looked at: {type(error).__name__}: {error}")
        self._complaints.forget_all_but("run ", frozenset(f"run {run_id}/{attempt}" for run_id, attempt in alive))
        return Look(now_ns=self._clock_ns(), runs=tuple(seen), failed=frozenset(failed))


def _seen(reader: Reader, run_id: str, attempt: int, period_s: float) -> RunSeen:
    view = load_view(reader, run_id, attempt)
    report = stall_first(diagnose_view(view), reader)
    pace = _pace(reader, report)
    still_steps = max(STILL_STEPS, round(3 * period_s / pace.step_s)) if pace.step_s > 0 else STILL_STEPS
    sightings = list(_holding(report, still_steps))
    if report.num_steps > RECENT_STEPS:
        sightings += _holding(diagnose_view(view.newest(RECENT_STEPS)), still_steps)
    return RunSeen(run_id=run_id, attempt=attempt, step_s=pace.step_s, sightings=tuple(sightings))


def _holding(report: Report, still_steps: int) -> Iterator[Sighting]:
    """Findings of a report that hold at its end."""
    for finding in report.findings[:MOST_FINDINGS]:
        if finding.kind in STANDING or finding.window.last_step >= report.window.last_step - still_steps:
            yield Sighting(finding=finding, sharp=_is_sharp(finding, report))


def _is_sharp(finding: Finding, report: Report) -> bool:
    """Whether it is about the newest steps, or dates its trouble."""
    if report.num_steps <= RECENT_STEPS or finding.kind in STANDING:
        return True
    return finding.window.first_step > report.window.first_step


def _pace(reader: Reader, report: Report) -> Pace:
    """From the steps of the report's window."""
    first, last = report.window.first_step, report.window.last_step
    if report.num_steps < 2:
        return Pace(last_step=last, step_s=0.0)
    asked = Steps(
        run_id=report.run_id, attempt=report.attempt, first_step=max(first, last - RECENT_STEPS), last_step=last
    )
    durations = sorted(reader.read(asked)["duration_ns"].to_pylist())
    return Pace(last_step=last, step_s=durations[len(durations) // 2] / 1e9 if durations else 0.0)


def _alive(reader: Reader, now_ns: int) -> Iterator[tuple[str, int]]:
    """The newest attempt of each run that has not ended in good order and was heard of lately.

    A job that died is alive in this sense: what killed it still stands.
    """
    newest: dict[str, dict[str, Any]] = {}
    for row in reader.read(Runs()).to_pylist():
        if row["run_id"] not in newest or row["attempt"] > newest[row["run_id"]]["attempt"]:
            newest[row["run_id"]] = row
    num_alive = 0
    for row in newest.values():
        if num_alive < MOST_RUNS and row["num_ranks"] and _is_alive(reader, row, now_ns):
            num_alive += 1
            yield row["run_id"], row["attempt"]


def _is_alive(reader: Reader, row: dict[str, Any], now_ns: int) -> bool:
    heard_ns = row["last_ns"]
    if now_ns - heard_ns > 24 * SILENT_S * 1e9:
        return False
    beats = reader.read(Heartbeats(run_id=row["run_id"], attempt=row["attempt"])).to_pylist()
    if beats and all(beat["ended"] == 1 for beat in beats):
        return False
    heard_ns = max([heard_ns, *(beat["at_ns"] for beat in beats)])
    return bool(now_ns - heard_ns <= SILENT_S * 1e9)
