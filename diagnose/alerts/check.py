"""One check of the store: the active runs and their findings. The result is the input of the state machine.

    Runs, Heartbeats --> attempts that are alive --load--> newest 200 steps --diagnose--> findings that hold now
                                                           newest 40 of them --'                             |--> Check

The window of 200 steps shows weak and rare problems. The window of 40 steps shows problems that have just begun, and no
longer shows problems that are over. A finding that names its first and last step holds now if it reaches the newest
steps. A run that died is not loaded and diagnosed again, so it does not delay the alerts of running jobs.
"""

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.alerts.alert import STANDING
from diagnose.alerts.notice import Complaints
from diagnose.findings import Finding
from diagnose.hang.stored import stored_verdict
from diagnose.model.load import load_view
from diagnose.model.outages import LINK_EVENTS
from diagnose.model.view import RunView
from diagnose.pipeline import Report, diagnose_view, stall_first
from telemetry.errors import RankscopeError, UnreachableError, UnreadableError
from telemetry.host_metrics import Happening
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Heartbeats, News, Runs
from telemetry.tables import ENDED_WELL


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A finding that holds at the end of the window."""

    finding: Finding
    sharp: bool
    """Whether it tells when the trouble was: it is about the newest steps alone, or names its first step. A vaguer one,
    over all of a long window, outlasts its trouble by as long as that window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFindings:
    """What was found in one attempt of a run."""

    run_id: str
    attempt: int
    step_s: float
    """Seconds a step takes; 0: not known."""
    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. A run that is ``known``, but neither in ``runs`` nor in ``failed``, is over: it ended, or a newer one
    runs."""

    now_ns: int
    runs: tuple[RunFindings, ...] = ()
    failed: frozenset[tuple[str, int]] = frozenset()
    """Runs that could not be checked. Their alerts do not change."""
    known: frozenset[tuple[str, int]] | None = None
    """All runs in the store, also ended ones. None: not known."""
    blind: bool = False
    """No run could be checked. No alert changes."""

    def knows(self, run: tuple[str, int]) -> bool:
        return self.known is None or run in self.known


RECENT_STEPS = 40
"""The shorter of the two windows."""
STILL_STEPS = 10
"""A trouble whose last step is not longer ago than this is still there."""
QUIET_S = 30.0
"""Of a run that nobody has heard of for so long there is no news, and it is asked about so often only."""
SILENT_S = 3600.0
"""A run that nobody has heard of for so long is over."""
MOST_RUNS = 16
"""The newest so many are looked at."""
MOST_FINDINGS = 10_000
"""Of one run, the worst: what comes in one check stays bounded."""
URGENT = tuple(map(str, (*LINK_EVENTS, Happening.GPU_XID, Happening.GPU_ERROR, Happening.RANK_STOPPED)))
"""Events that a check does not wait for."""


Attempt = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What an attempt tells of itself, as long as it lives."""

    row: dict[str, Any]
    """Of ``Runs``."""
    beats: pa.Table
    """``Heartbeats``."""

    @property
    def attempt(self) -> Attempt:
        return self.row["run_id"], self.row["attempt"]

    @property
    def heard_ns(self) -> int:
        """When anything was last heard of it, by the clocks of its hosts."""
        return int(max([self.row["last_ns"], *self.beats["at_ns"].to_pylist()]))

    def stands_still(self, before: "Life") -> bool:
        """Whether it has told nothing since ``before``."""
        return self.row == before.row and self.beats.equals(before.beats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """What a check brought."""

    life: Life
    happened: Hashable
    """What was known to have happened to it; None where nobody asked."""
    seen: RunFindings
    asked_ns: int
    """When all this was asked for."""

    def will_do(self, row: dict[str, Any], now_ns: int) -> bool:
        """Whether a run that is silent, and has this ``row`` of ``Runs`` now, need not be asked about again yet."""
        silent_ns, old_ns = now_ns - self.life.heard_ns, now_ns - self.asked_ns
        return row == self.life.row and silent_ns > QUIET_S * 1e9 > old_ns >= 0


class Watching:
    """Looks at whoever answers, again and again."""

    def __init__(self, complaints: Complaints, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._complaints = complaints
        self._clock_ns = clock_ns
        self._last: dict[Attempt, Last] = {}
        """Of each run that was alive at the last check, and could be diagnosed."""
        self._speaking: list[Attempt] = []
        """Those that were heard of just before."""
        self._ended: dict[Attempt, dict[str, Any]] = {}
        """Runs that ended in good order, by their row of ``Runs``."""

    def news(self, reader: Reader) -> Hashable:
        """Whatever changes when a job that spoke before the last check stalls, loses a rank or a link: cheap to ask.

        Raises:
            UnreachableError: nobody answers.
        """
        return tuple(_happened(reader, attempt, URGENT) for attempt in self._speaking)

    def check(self, reader: Reader, period_s: float) -> Check:
        """What ``reader`` shows now. A run that cannot be diagnosed spoils no other.

        ``period_s``: since the check before; a trouble of one step in between is not missed.

        Raises:
            UnreachableError: nobody answers.
        """
        now_ns = self._clock_ns()
        rows = reader.read(Runs()).to_pylist()
        lives, crowd = self._lives(reader, rows, now_ns)
        seen, failed = [], set(crowd)
        alive = [life.attempt for life in lives]
        self._speaking = [life.attempt for life in lives if now_ns - life.heard_ns <= QUIET_S * 1e9]
        self._last = {attempt: self._last[attempt] for attempt in alive if attempt in self._last}
        for life in lives:
            run_id, attempt = life.attempt
            name = f"run {run_id}/{attempt}"
            try:
                seen.append(self._seen(reader, life, period_s, now_ns))
                self._complaints.end(name, f"{name}: diagnosed again")
            except UnreachableError:
                raise
            except RankscopeError as error:
                failed.add((run_id, attempt))
                self._complaints.begin(name, f"{name}: cannot be diagnosed: {error.message}")
            except Exception as error:  # one run that a detector trips over must not end the watch over all others
                failed.add((run_id, attempt))
                self._complaints.begin(name, f"{name}: cannot be diagnosed: {type(error).__name__}: {error}")
        self._complaints.forget_all_but("run ", frozenset(f"run {run_id}/{attempt}" for run_id, attempt in alive))
        known = frozenset((row["run_id"], row["attempt"]) for row in rows)
        return Check(now_ns=self._clock_ns(), runs=tuple(seen), failed=frozenset(failed), known=known)

    def _seen(self, reader: Reader, life: Life, period_s: float, now_ns: int) -> RunFindings:
        """What is wrong with a run; as before, where nothing has come since."""
        before, happened = self._last.get(life.attempt), None
        if before and life is before.life:
            return before.seen
        seen = None
        if before and life.stands_still(before.life):
            happened = _happened(reader, life.attempt)
            seen = before.seen if happened == before.happened else None
        seen = seen or _diagnosed(reader, life.attempt, period_s)
        self._last[life.attempt] = Last(life=life, happened=happened, seen=seen, asked_ns=now_ns)
        return seen

    def _lives(self, reader: Reader, rows: list[dict[str, Any]], now_ns: int) -> tuple[list[Life], list[Attempt]]:
        """Those alive, the newest so many, and the others: the newest attempt of each run that has not ended in good
        order and was heard of lately.

        Jobs that died, or that hung until they were ended, are included: the cause may remain.
        """
        newest: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["run_id"] not in newest or row["attempt"] > newest[row["run_id"]]["attempt"]:
                newest[row["run_id"]] = row
        young = [row for row in newest.values() if row["num_ranks"] and now_ns - row["last_ns"] <= 24 * SILENT_S * 1e9]
        ended, self._ended, lives = self._ended, {}, []
        for row in young:
            attempt = row["run_id"], row["attempt"]
            if ended.get(attempt) == row:
                self._ended[attempt] = row
                continue
            last = self._last.get(attempt)
            if last and last.will_do(row, now_ns):
                lives.append(last.life)
                continue
            life = Life(row=row, beats=reader.read(Heartbeats(run_id=row["run_id"], attempt=row["attempt"])))
            if _ended_well(life) and not _has_stall(reader, attempt):
                self._ended[attempt] = row
            elif now_ns - life.heard_ns <= SILENT_S * 1e9:
                lives.append(life)
        self._tell_of_crowd(len(lives))
        return lives[:MOST_RUNS], [life.attempt for life in lives[MOST_RUNS:]]

    def _tell_of_crowd(self, number: int) -> None:
        if number > MOST_RUNS:
            words = (
                f"{number} runs are active: only the newest {MOST_RUNS} are checked, alerts of the others do not change"
            )
            self._complaints.begin("crowd", words)
        else:
            self._complaints.end("crowd", "all active runs are checked again")


def _happened(reader: Reader, attempt: Attempt, names: tuple[str, ...] = ()) -> Hashable:
    """The evidence of stalls of an attempt, and the events ``names`` of its hosts (empty: any). A cheap query."""
    run_id, number = attempt
    return str(reader.read(News(run_id=run_id, attempt=number, names=names)).to_pylist())


def _ended_well(life: Life) -> bool:
    return bool(life.beats.num_rows and pc.all(pc.equal(life.beats["ended"], ENDED_WELL)).as_py())


def _has_stall(reader: Reader, attempt: Attempt) -> bool:
    """Whether an attempt hung until its end."""
    with suppress(UnreadableError):
        verdict = stored_verdict(reader, *attempt)
        return verdict is not None and bool(verdict.initiating)
    return False


def _diagnosed(reader: Reader, attempt: Attempt, period_s: float) -> RunFindings:
    run_id, number = attempt
    view = load_view(reader, run_id, number)
    report = stall_first(diagnose_view(view), reader)
    step_s = _step_s(view)
    still_steps = max(STILL_STEPS, round(3 * period_s / step_s)) if step_s > 0 else STILL_STEPS
    sightings = list(_holding(report, still_steps))
    if report.num_steps > RECENT_STEPS:
        sightings += _holding(diagnose_view(view.newest(RECENT_STEPS)), still_steps)
    return RunFindings(run_id=run_id, attempt=number, step_s=step_s, sightings=tuple(sightings))


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


def _step_s(view: RunView) -> float:
    """The usual wall time of its newest steps; 0 where there are too few to say."""
    return float(np.median(view.step_ns[-RECENT_STEPS:])) / 1e9 if len(view.step_ns) > 1 else 0.0
