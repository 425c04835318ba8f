"""The figures of many runs: state, step time, MFU and goodput, from the same number of queries for few and many runs.

ask(query of all runs) --> rows by attempt --> RunFigures, one for each run --> list of runs, metrics
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.goodput.share import goodput_of_sums, wall_range
from diagnose.goodput.stored import decision_in
from diagnose.model.recent_steps import (
    AttemptSteps,
    RecentMean,
    Row,
    means_by_attempt,
    step_sums,
    steps_by_attempt,
    without_interrupted,
)
from diagnose.model.run_state import Heard, state_of
from telemetry.run_names import Attempt
from telemetry.stages import Stage
from telemetry.stores.interface import Query
from telemetry.stores.queries import (
    InterruptedSteps,
    RunBeats,
    RunDecisions,
    RunFirstSteps,
    RunRates,
    Runs,
    RunStageTimes,
    RunStalls,
    RunSteps,
    RunWallTimes,
)

MFU = "mfu"
"""Name of the sample of MFU."""
Ask = Callable[[Callable[[tuple[str, ...]], Query]], list[dict[str, Any]]]
"""Sends a query about all runs, in portions if there are many, and returns the rows."""
AskInterrupted = Callable[[InterruptedSteps, int], list[dict[str, Any]]]
"""Sends a query about one attempt. The number is the time of its last heartbeat in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The newest attempt of a run, and the goodput of the run. Times are nanoseconds. None means unknown."""

    run_id: str
    attempt: int
    num_attempts: int
    num_ranks: int
    last_step: int
    """The highest step with data, also if it was interrupted."""
    last_ns: int
    """The newest data of this attempt beside its heartbeats."""
    meta: str
    steps: AttemptSteps | None
    """The completed steps."""
    mfu: RecentMean | None
    goodput: float | None
    heard: Heard
    stalled_ns: int
    """Time of the newest evidence of a stall. 0: there is none."""
    started_ns: int
    heard_ns: int
    """The newest data of all attempts."""

    @property
    def key(self) -> Attempt:
        return self.run_id, self.attempt

    @property
    def step_time(self) -> RecentMean | None:
        """The recent step time in nanoseconds."""
        return self.steps.recent if self.steps else None


def figures_of_runs(ask: Ask, ask_interrupted: AskInterrupted, now_ns: int) -> list[RunFigures]:
    """The figures of all runs that ``ask`` is about."""
    facts = _Facts(ask, ask_interrupted)
    return [
        _figures(sorted(rows, key=lambda row: int(row["attempt"])), facts, now_ns) for rows in facts.attempts.values()
    ]


class _Facts:
    """The answers of bulk queries, by attempt."""

    def __init__(self, ask: Ask, ask_interrupted: AskInterrupted) -> None:
        self.attempts: dict[str, list[Row]] = {}
        for row in ask(lambda names: Runs(run_ids=names)):
            self.attempts.setdefault(row["run_id"], []).append(row)
        self.beats = _by_attempt(ask(lambda names: RunBeats(run_ids=names)))
        self.stalls = _by_attempt(ask(lambda names: RunStalls(run_ids=names)))
        self.mfu = means_by_attempt(ask(lambda names: RunRates(run_ids=names, metric=MFU)))
        self.steps = steps_by_attempt(ask(lambda names: RunSteps(run_ids=names)))
        self._leave_out_interrupted(ask_interrupted)
        first = ask(lambda names: RunFirstSteps(run_ids=names))
        self.first_ns = {(row["run_id"], row["attempt"]): row["mean_ns"] for row in first}
        self.wall_ns = {
            (row["run_id"], row["first_attempt"], row["last_attempt"]): row["wall_ns"]
            for row in ask(lambda names: RunWallTimes(run_ids=names))
        }
        snapshots = ask(lambda names: RunStageTimes(run_ids=names, stage=int(Stage.CHECKPOINT_SNAPSHOT)))
        self.snapshot_ns = {(row["run_id"], row["attempt"]): row["mean_ns"] for row in snapshots}
        self.decisions: dict[str, list[tuple[int, str]]] = {}
        for row in ask(lambda names: RunDecisions(run_ids=names)):
            self.decisions.setdefault(row["run_id"], []).append((row["at_ns"], decision_in(row).name))

    def _leave_out_interrupted(self, ask_interrupted: AskInterrupted) -> None:
        """Remove interrupted steps of attempts that died after a stall. There are few such attempts."""
        for attempt in self.stalls.keys() & self.steps.keys() & self.beats.keys():
            beats = self.beats[attempt]
            if beats["num_gone"]:
                query = InterruptedSteps(run_id=attempt[0], attempt=attempt[1])
                left = without_interrupted(self.steps.pop(attempt), ask_interrupted(query, beats["heard_ns"]))
                self.steps |= {} if left is None else {attempt: left}


def _by_attempt(rows: list[dict[str, Any]]) -> dict[Attempt, Mapping[str, Any]]:
    return {(row["run_id"], row["attempt"]): row for row in rows}


def _figures(attempts: list[Row], facts: _Facts, now_ns: int) -> RunFigures:
    """The figures of one run. ``attempts``: all its attempts, ascending."""
    newest = attempts[-1]
    attempt = newest["run_id"], newest["attempt"]
    steps, stall = facts.steps.get(attempt), facts.stalls.get(attempt)
    heard = state_of(
        facts.beats.get(attempt),
        stall,
        last_end_ns=steps.last_end_ns if steps else 0,
        last_ns=newest["last_ns"],
        now_ns=now_ns,
    )
    heard_ns = max(heard.heard_ns, *(int(row["last_ns"]) for row in attempts))
    started_ns = min(row["started_ns"] for row in attempts)
    return RunFigures(
        run_id=attempt[0],
        attempt=attempt[1],
        num_attempts=len(attempts),
        num_ranks=newest["num_ranks"],
        last_step=newest["last_step"],
        last_ns=newest["last_ns"],
        meta=newest["meta"],
        steps=steps,
        mfu=facts.mfu.get(attempt),
        goodput=_goodput(attempts, facts, started_ns, heard_ns),
        heard=heard,
        stalled_ns=stall["newest_ns"] if stall else 0,
        started_ns=started_ns,
        heard_ns=heard_ns,
    )


def _goodput(attempts: list[Row], facts: _Facts, started_ns: int, heard_ns: int) -> float | None:
    run_id, first, last = attempts[0]["run_id"], attempts[0]["attempt"], attempts[-1]["attempt"]
    host_wall_ns = facts.wall_ns.get((run_id, first, last))
    begin_ns, end_ns = wall_range(started_ns, heard_ns, host_wall_ns, facts.decisions.get(run_id, ()))
    keys = [(run_id, row["attempt"]) for row in attempts]
    sums = [
        step_sums(facts.steps.get(key), facts.snapshot_ns.get(key, 0.0), facts.first_ns.get(key, 0.0)) for key in keys
    ]
    return goodput_of_sums(sums, end_ns - begin_ns)
