"""Read the history of a run from a store."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.goodput.ledger import make_ledger
from diagnose.goodput.records import NO_TIMES, AttemptFacts, DriverDecision, Ending, Ledger, RunHistory, StepTimes
from diagnose.goodput.timeline import Ints
from telemetry.errors import UnknownRunError
from telemetry.record.spans import STEP_INTERRUPTED
from telemetry.stages import Stage
from telemetry.stores.interface import Query, Reader
from telemetry.stores.queries import (
    Marks,
    RunBeats,
    RunDecisions,
    RunMarks,
    Runs,
    RunStalls,
    RunStepTimes,
    RunWallTimes,
    Steps,
)

CHECKPOINT = "checkpoint"
"""Name of the mark that a rank of the trainer records when a checkpoint is complete."""
STAGES = (int(Stage.STEP), int(Stage.CHECKPOINT_SNAPSHOT))
MARKS = (STEP_INTERRUPTED, CHECKPOINT)
THE_JOB = "driver"
"""Host of a decision that is not about one node."""
Row = Mapping[str, Any]
ByStage = Mapping[tuple[int, int], StepTimes]
"""Attempt and stage -> times of its steps."""
ByName = Mapping[tuple[int, str], Ints]
"""Attempt and name of a mark -> times of these marks."""


def load_ledger(reader: Reader, run_id: str) -> Ledger:
    """The ledger of a run from all of its attempts.

    Raises:
        UnknownRunError: the store holds no such run.
        UnreachableError: the store does not answer.
    """
    return make_ledger(load_history(reader, run_id))


def load_history(reader: Reader, run_id: str) -> RunHistory:
    """What is stored about a run, read with ten queries for any number of attempts. The newest attempt has separate
    queries, because only its answers change.

    Raises:
        UnknownRunError: the store holds no such run.
        UnreachableError: the store does not answer.
    """
    names = (run_id,)
    rows = sorted(reader.read(Runs(run_ids=names)).to_pylist(), key=lambda row: row["attempt"])
    if not rows:
        raise UnknownRunError(f"no run {run_id!r} is stored", hint="`rankscope runs` lists all runs")
    beats, stalls = (_by_attempt(reader, query) for query in (RunBeats(run_ids=names), RunStalls(run_ids=names)))
    walls = reader.read(RunWallTimes(run_ids=names)).to_pylist()
    ends = rows[0]["attempt"], rows[-1]["attempt"]
    steps, marks = _times_of(reader, run_id, ends[1])
    return RunHistory(
        run_id=run_id,
        attempts=tuple(
            _attempt(row, beats.get(row["attempt"]), stalls.get(row["attempt"]), steps, marks) for row in rows
        ),
        decisions=decisions_in(reader.read(RunDecisions(run_ids=names))),
        host_wall_ns=next(
            (row["wall_ns"] for row in walls if (row["first_attempt"], row["last_attempt"]) == ends), None
        ),
    )


def decisions_in(rows: pa.Table) -> tuple[DriverDecision, ...]:
    """The decisions in the rows of ``RunDecisions`` about one run."""
    return tuple(decision_in(row) for row in rows.to_pylist())


def decision_in(row: Row) -> DriverDecision:
    """The decision in a row of ``RunDecisions``."""
    name, _, reason = row["text"].partition(":")
    node = "" if row["host"] == THE_JOB else row["host"]
    return DriverDecision(at_ns=row["at_ns"], attempt=row["attempt"], name=name, reason=reason.strip(), node=node)


def _by_attempt(reader: Reader, query: Query) -> dict[int, Row]:
    return {row["attempt"]: row for row in reader.read(query).to_pylist()}


def _times_of(reader: Reader, run_id: str, newest: int) -> tuple[ByStage, ByName]:
    """Steps and marks of the attempt ``newest`` and of those before it."""
    earlier: dict[str, Any] = {"run_id": run_id, "before_attempt": newest}
    steps = {
        key: _step_times(rows)
        for key, rows in _divided(reader.read(RunStepTimes(**earlier, stages=STAGES)), "attempt", "stage")
    }
    marks = {
        key: _ints(rows["at_ns"])
        for key, rows in _divided(reader.read(RunMarks(**earlier, names=MARKS)), "attempt", "name")
    }
    for stage in STAGES:
        steps[newest, stage] = _step_times(reader.read(Steps(run_id=run_id, attempt=newest, stage=stage)))
    own = reader.read(Marks(run_id=run_id, attempt=newest, names=MARKS)).sort_by("name")
    marks |= {(newest, name): _ints(rows["at_ns"]) for (name,), rows in _divided(own, "name")}
    return steps, marks


def _attempt(row: Row, beats: Row | None, stall: Row | None, times: ByStage, marks: ByName) -> AttemptFacts:
    """The facts about one attempt. ``row``, ``beats`` and ``stall`` are rows of ``Runs``, ``RunBeats`` and
    ``RunStalls``."""
    attempt = row["attempt"]
    steps = times.get((attempt, Stage.STEP), StepTimes())
    last_ns = int((steps.start_ns + steps.duration_ns).max()) if len(steps) else 0
    interrupted = marks.get((attempt, STEP_INTERRUPTED), NO_TIMES)
    return AttemptFacts(
        attempt=attempt,
        started_ns=row["started_ns"],
        heard_ns=max(row["last_ns"], beats["heard_ns"] if beats else 0),
        steps=steps,
        snapshots=times.get((attempt, Stage.CHECKPOINT_SNAPSHOT), StepTimes()),
        ending=_ending(beats),
        num_ranks=beats["num_ranks"] if beats else 0,
        num_failed=beats["num_gone"] if beats else 0,
        num_well=beats["num_ended"] if beats else 0,
        has_stalled=stall is not None and stall["newest_ns"] >= last_ns,
        interrupted_ns=_first_after(interrupted, last_ns),
        saved_ns=int(marks.get((attempt, CHECKPOINT), NO_TIMES).max(initial=0)),
    )


def _first_after(times_ns: Ints, at_ns: int) -> int:
    """The first of ``times_ns`` that is later than ``at_ns``, or 0 if there is none."""
    later = times_ns[times_ns > at_ns]
    return int(later.min()) if len(later) else 0


def _ending(beats: Row | None) -> Ending:
    if beats is None or not beats["num_ranks"]:
        return Ending.UNKNOWN
    if beats["num_gone"]:
        return Ending.FAILED
    return Ending.WELL if beats["num_ended"] == beats["num_ranks"] else Ending.RUNNING


def _step_times(rows: pa.Table) -> StepTimes:
    return StepTimes(
        number=_ints(rows["step"]),
        start_ns=_ints(rows["start_ns"]),
        duration_ns=rows["duration_ns"].to_numpy().round().astype(np.int64),
    )


def _divided(rows: pa.Table, *columns: str) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The values of ``columns``, with their rows. Rows of the same values follow each other."""
    begin = 0
    for key, group in groupby(zip(*(rows[column].to_pylist() for column in columns), strict=True)):
        length = sum(1 for _ in group)
        yield key, rows.slice(begin, length)
        begin += length


def _ints(column: pa.ChunkedArray) -> Ints:
    found: Ints = column.to_numpy().astype(np.int64)
    return found
