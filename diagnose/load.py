"""Ask a reader for what a :class:`diagnose.view.RunView` holds."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose.findings import StepWindow
from diagnose.self_time import self_time_ns
from diagnose.view import Basis, FloatMatrix, IntVector, RunView, Work
from telemetry.errors import UnknownRunError, UsageError
from telemetry.stages import Stage, Stream
from telemetry.stores.queries import Ranks, Runs, Spans, StageTotals, Steps
from telemetry.stores.reader import Reader
from telemetry.topology import Topology

FloatVector = npt.NDArray[np.float64]

WORK_STAGES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
INNER_STAGES = tuple(stage for stage in Stage if stage.stream is Stream.TP)
DEFAULT_STEPS = 200
"""Steps looked at when no window is asked for: the newest so many."""


def newest_attempt(reader: Reader, run_id: str | None = None, attempt: int | None = None) -> tuple[str, int]:
    """The run and attempt meant: the newest where not said.

    Raises:
        UnknownRunError: the store is empty, or holds no such run or attempt.
    """
    runs = reader.read(Runs()).to_pylist()
    if not runs:
        raise UnknownRunError(
            "the store holds no run yet",
            hint="record one: `rankscope demo`, or telemetry.start(collector=...) in your loop",
        )
    for row in runs:
        if run_id in (None, row["run_id"]) and attempt in (None, row["attempt"]):
            return row["run_id"], row["attempt"]
    names = ", ".join(dict.fromkeys(f"{row['run_id']}/{row['attempt']}" for row in runs[:5]))
    wanted = run_id or "any run"
    raise UnknownRunError(
        f"no run {wanted!r}" + ("" if attempt is None else f" with attempt {attempt}"),
        hint=f"stored, newest first: {names}; `rankscope runs` lists all",
    )


def load_view(reader: Reader, run_id: str, attempt: int, window: StepWindow | None = None) -> RunView:
    """The view of one attempt; the newest 200 steps where no window is given.

    Raises:
        UnknownRunError: no rank of this attempt has reported.
    """
    ranks = reader.read(Ranks(run_id=run_id, attempt=attempt))
    if not ranks.num_rows:
        raise UnknownRunError(
            f"no rank of {run_id!r} attempt {attempt} has reported", hint="`rankscope runs` lists what is stored"
        )
    topology = _topology(ranks)
    hosts = [""] * topology.world_size
    for rank, host in zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True):
        if rank < topology.world_size:  # a run recorded again with a smaller grid leaves rows of ranks that are no more
            hosts[rank] = host
    steps, step_ns = _steps(reader, run_id, attempt, window)
    work = _work(reader, run_id, attempt, steps, topology.world_size) if len(steps) else {}
    return RunView(
        run_id=run_id, attempt=attempt, topology=topology, hosts=tuple(hosts), steps=steps, step_ns=step_ns, work=work
    )


def _topology(ranks: pa.Table) -> Topology:
    dp, pp, tp = (ranks[f"{axis}_size"][0].as_py() for axis in ("dp", "pp", "tp"))
    return Topology(dp=dp, pp=pp, tp=tp)


def _steps(reader: Reader, run_id: str, attempt: int, window: StepWindow | None) -> tuple[IntVector, FloatVector]:
    table = reader.read(Steps(run_id=run_id, attempt=attempt))
    steps = _ints(table, "step")
    duration = _floats(table, "duration_ns")
    if window is None:
        return steps[-DEFAULT_STEPS:], duration[-DEFAULT_STEPS:]
    inside = (steps >= window.first_step) & (steps <= window.last_step)
    if len(steps) and not inside.any():
        raise UsageError(
            f"no finished step from {window.first_step} to {window.last_step}",
            hint=f"steps {steps[0]} to {steps[-1]} are stored",
        )
    return steps[inside], duration[inside]


def _work(reader: Reader, run_id: str, attempt: int, steps: IntVector, num_ranks: int) -> dict[Stage, Work]:
    first, last = int(steps[0]), int(steps[-1])
    totals = reader.read(
        StageTotals(
            run_id=run_id,
            attempt=attempt,
            first_step=first,
            last_step=last,
            stages=tuple(int(stage) for stage in WORK_STAGES),
        )
    )
    if totals.num_rows and bool((_ints(totals, "cpu_ns") < 0).any()):
        return _work_by_self_time(reader, run_id, attempt, steps, num_ranks)
    return _matrices(totals, "cpu_ns", Basis.PROCESSOR_TIME, steps, num_ranks)


def _work_by_self_time(
    reader: Reader, run_id: str, attempt: int, steps: IntVector, num_ranks: int
) -> dict[Stage, Work]:
    spans = reader.read(
        Spans(
            run_id=run_id,
            attempt=attempt,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            stages=tuple(int(stage) for stage in (*WORK_STAGES, *INNER_STAGES)),
            limit=50_000_000,
        )
    )
    own = subtract_inner(spans)
    return _matrices(own, "self_ns", Basis.SELF_TIME, steps, num_ranks)


def subtract_inner(spans: pa.Table) -> pa.Table:
    """Compute spans with a column ``self_ns``: their duration less the tensor-parallel collectives inside.

    ``spans`` holds compute and collective spans ordered by rank, then start_ns.
    """
    stage = _ints(spans, "stage")
    rank = _ints(spans, "rank")
    start = _ints(spans, "start_ns")
    duration = _ints(spans, "duration_ns")
    is_compute = np.isin(stage, [int(work) for work in WORK_STAGES])
    own = np.zeros(len(stage), dtype=np.int64)
    for one in np.unique(rank):
        outer, inner = (rank == one) & is_compute, (rank == one) & ~is_compute
        own[outer] = self_time_ns(start[outer], duration[outer], start[inner], duration[inner])
    return pa.table(
        {
            "step": _ints(spans, "step")[is_compute],
            "rank": rank[is_compute],
            "stage": stage[is_compute],
            "self_ns": own[is_compute],
        }
    )


def _matrices(rows: pa.Table, column: str, basis: Basis, steps: IntVector, num_ranks: int) -> dict[Stage, Work]:
    stage = _ints(rows, "stage")
    row = np.searchsorted(steps, _ints(rows, "step"))
    rank = _ints(rows, "rank")
    value = _floats(rows, column)
    known = (row < len(steps)) & (rank < num_ranks)
    return {
        one: Work(ns=_sum_by_cell(row, rank, value, known & (stage == one), (len(steps), num_ranks)), basis=basis)
        for one in WORK_STAGES
        if bool((stage == one).any())
    }


def _sum_by_cell(
    row: IntVector,
    rank: IntVector,
    value: FloatVector,
    chosen: npt.NDArray[np.bool_],
    shape: tuple[int, int],
) -> FloatMatrix:
    cell = row[chosen] * shape[1] + rank[chosen]
    total = np.bincount(cell, value[chosen], shape[0] * shape[1])
    present = np.bincount(cell, minlength=shape[0] * shape[1]) > 0
    return np.where(present, total, np.nan).reshape(shape)


def _ints(table: pa.Table, name: str) -> IntVector:
    return np.asarray(table[name].to_numpy(), dtype=np.int64)


def _floats(table: pa.Table, name: str) -> FloatVector:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)
