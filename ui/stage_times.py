"""From sums by rank and step to the times that a heat map shows, and which of them are asked for.

ranks x steps <= MAX_OWN_CELLS   each step by itself; compute as the detectors see it: own work
              <= MAX_CELLS       each step by itself: sums of the store
              more               means over columns of neighbouring steps, pooled by the store: HeatCells
"""

import numpy as np
import pyarrow as pa

from diagnose.peers import peer_median
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass
from telemetry.stores.queries import HeatCells
from ui.columns import by_step_and_rank, floats, ints
from ui.records import Floats, Ints, RunFacts, StageTimes
from ui.view_state import Clock

WALL = "wall time, waiting for others included"
PROCESSOR = "processor time"
MAX_CELLS = 1_000_000
"""Ranks times steps that are asked for one by one."""
MAX_OWN_CELLS = 100_000
"""Ranks times steps of which every operation is loaded, to show own work as detectors see it."""
MAX_COLUMNS = 600
"""Of a picture that is pooled: more than a screen shows apart."""


def pooled_query(facts: RunFacts, stage: Stage, steps: Ints, max_cells: int) -> HeatCells:
    """Every rank over ``steps``, in as few columns as fit."""
    num_ranks = facts.topology.world_size
    return HeatCells(
        run_id=facts.summary.run_id,
        attempt=facts.summary.attempt,
        stage=int(stage),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        num_ranks=num_ranks,
        max_rows=num_ranks,
        max_columns=max(1, min(MAX_COLUMNS, max_cells // num_ranks)),
    )


def pooled_times(table: pa.Table, query: HeatCells, facts: RunFacts, clock: Clock) -> StageTimes:
    """The answer to :func:`pooled_query`."""
    stage, columns = STAGE_BY_CODE[query.stage], np.unique(ints(table, "step"))
    cpu = floats(table, "mean_cpu_ns")
    own = _is_own(stage, clock, cpu)
    ns = by_step_and_rank(table, cpu if own else floats(table, "mean_ns"), columns, facts.topology.world_size)
    first_steps = np.maximum(columns, query.first_step)
    return _times(stage, first_steps, ns, PROCESSOR if own else WALL, facts, steps_a_column=query.steps_a_column)


def summed(table: pa.Table, stage: Stage, clock: Clock, steps: Ints, num_ranks: int) -> tuple[Floats, str]:
    """The answer to ``StageTotals`` by step and rank, and what it is of."""
    cpu = floats(table, "cpu_ns")
    own = _is_own(stage, clock, cpu)
    value = cpu if own else floats(table, "duration_ns")
    return by_step_and_rank(table, value, steps, num_ranks), PROCESSOR if own else WALL


def step_by_step(stage: Stage, steps: Ints, ns: Floats, basis: str, facts: RunFacts) -> StageTimes:
    """``ns`` [steps, ranks] beside its ratio to the peers'."""
    return _times(stage, steps, ns, basis, facts, steps_a_column=1)


def _times(stage: Stage, steps: Ints, ns: Floats, basis: str, facts: RunFacts, *, steps_a_column: int) -> StageTimes:
    pp = np.array([facts.topology.place(rank).pp for rank in range(facts.topology.world_size)])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = ns / peer_median(ns, pp)
    return StageTimes(stage=stage, steps=steps, ns=ns, ratio=ratio, basis=basis, steps_a_column=steps_a_column)


def _is_own(stage: Stage, clock: Clock, cpu_ns: Floats) -> bool:
    """Processor time is shown where it is asked for, means something, and was measured everywhere."""
    return clock is Clock.OWN and stage.stage_class is StageClass.COMPUTE and bool(len(cpu_ns) and (cpu_ns >= 0).all())
