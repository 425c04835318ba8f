"""Read the history of a run from a store."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.goodput.ledger import make_ledger
from diagnose.goodput.records import AttemptFacts, DriverDecision, Ending, Ledger, RunHistory, StepTimes
from telemetry.errors import UnknownRunError
from telemetry.record.spans import STEP_INTERRUPTED
from telemetry.stages import Stage
from telemetry.stores.interface import Query, Reader
from telemetry.stores.queries import Marks, RunBeats, RunDecisions, Runs, RunStalls, RunWallTimes, Steps

CHECKPOINT = "checkpoint"
"""Mark of a rank of the trainer: a checkpoint is complete."""
THE_JOB = "driver"
"""Host of a decision that is not about one node."""
Row = Mapping[str, Any]


def load_ledger(reader: Reader, run_id: str) -> Ledger:
    """The ledger of a run from all of its attempts.

    Raises:
        UnknownRunError: the store holds no such run.
        UnreachableError: the store does not answer.
    """
    return make_ledger(load_history(reader, run_id))


def load_history(reader: Reader, run_id: str) -> RunHistory:
    """What is stored about a run: three queries for each attempt, and five for the run.

    Raises:
        UnknownRunError: the store holds no such run.
        UnreachableError: the store does not answer.
    """
    names = (run_id,)
    rows = sorted(reader.read(Runs(run_ids=names)).to_pylist(), key=lambda row: row["attempt"])
    if not rows:
        raise UnknownRunError(f"no run {run_id!r}", hint="`rankscope runs` lists all")
    beats, stalls = (_by_attempt(reader, query) for query in (RunBeats(run_ids=names), RunStalls(run_ids=names)))
    walls = reader.read(RunWallTimes(run_ids=names)).to_pylist()
    ends = rows[0]["attempt"], rows[-1]["attempt"]
    return RunHistory(
        run_id=run_id,
        attempts=tuple(_attempt(reader, row, beats.get(row["attempt"]), stalls.get(row["attempt"])) for row in rows),
        decisions=decisions_in(reader.read(RunDecisions(run_ids=names))),
        host_wall_ns=next(
            (row["wall_ns"] for row in walls if (row["first_attempt"], row["last_attempt"]) == ends), None
        ),
    )


def decisions_in(rows: pa.Table) -> tuple[DriverDecision, ...]:
    """From the rows of ``RunDecisions`` about one run."""
    return tuple(decision_in(row) for row in rows.to_pylist())


def decision_in(row: Row) -> DriverDecision:
    """From a row of ``RunDecisions``."""
    name, _, reason = row["text"].partition(":")
    node = "" if row["host"] == THE_JOB else row["host"]
    return DriverDecision(at_ns=row["at_ns"], attempt=row["attempt"], name=name, reason=reason.strip(), node=node)


def _by_attempt(reader: Reader, query: Query) -> dict[int, Row]:
    return {row["attempt"]: row for row in reader.read(query).to_pylist()}


def _attempt(reader: Reader, row: Row, beats: Row | None, stall: Row | None) -> AttemptFacts:
    """``row``: of ``Runs``. ``beats``, ``stall``: of ``RunBeats`` and ``RunStalls``."""
    key = {"run_id": row["run_id"], "attempt": row["attempt"]}
    steps = _step_times(reader.read(Steps(**key)))
    last_ns = int((steps.start_ns + steps.duration_ns).max()) if len(steps) else 0
    marks = reader.read(Marks(**key, names=(STEP_INTERRUPTED, CHECKPOINT))).to_pylist()
    interrupted = [mark["at_ns"] for mark in marks if mark["name"] == STEP_INTERRUPTED and mark["at_ns"] > last_ns]
    saved = [mark["at_ns"] for mark in marks if mark["name"] == CHECKPOINT]
    return AttemptFacts(
        attempt=row["attempt"],
        started_ns=row["started_ns"],
        heard_ns=max(row["last_ns"], beats["heard_ns"] if beats else 0),
        steps=steps,
        snapshots=_step_times(reader.read(Steps(**key, stage=int(Stage.CHECKPOINT_SNAPSHOT)))),
        ending=_ending(beats),
        num_ranks=beats["num_ranks"] if beats else 0,
        num_failed=beats["num_gone"] if beats else 0,
        num_well=beats["num_ended"] if beats else 0,
        has_stalled=stall is not None and stall["newest_ns"] >= last_ns,
        interrupted_ns=min(interrupted, default=0),
        saved_ns=max(saved, default=0),
    )


def _ending(beats: Row | None) -> Ending:
    if beats is None or not beats["num_ranks"]:
        return Ending.UNKNOWN
    if beats["num_gone"]:
        return Ending.FAILED
    return Ending.WELL if beats["num_ended"] == beats["num_ranks"] else Ending.RUNNING


def _step_times(rows: pa.Table) -> StepTimes:
    return StepTimes(
        number=rows["step"].to_numpy().astype(np.int64),
        start_ns=rows["start_ns"].to_numpy().astype(np.int64),
        duration_ns=rows["duration_ns"].to_numpy().round().astype(np.int64),
    )
