"""The time of each stage in a step. Metrics and exports use this definition.

    rank 0   forward 3 ms + forward 5 ms        8 ms
    rank 1   forward 4 ms + forward 6 ms       10 ms      forward-compute of this step: the mean, 9 ms
    rank 2   (another role: no forward)         -

It is wall time, including waiting for other ranks. Stages can contain or overlap each other: tensor-parallel
collectives lie inside of compute, and several collectives run at once. So the sum over the stages can exceed the step
time.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import StageSteps

NS_PER_S = 1_000_000_000
RECENT_STEPS = 50


def stage_seconds_by_step(rows: pa.Table) -> dict[int, dict[Stage, float]]:
    """Step -> stage -> seconds, from the rows of ``StageSteps``. Without ``step`` itself and stages of newer versions.

    The mean is over the ranks that have the stage in this step.
    """
    found: dict[int, dict[Stage, float]] = {}
    for row in rows.to_pylist():
        stage = STAGE_BY_CODE.get(row["stage"])
        if stage is not None and stage is not Stage.STEP:
            found.setdefault(row["step"], {})[stage] = row["duration_ns"] / row["ranks"] / NS_PER_S
    return found


def recent_stage_seconds(
    reader: Reader, run_id: str, attempt: int, *, first_step: int, last_step: int
) -> dict[Stage, float]:
    """Mean seconds of each stage in a step, over the 50 steps before ``last_step``. Empty if there is no such step.

    ``last_step`` is not included, because some ranks may still work on it. A step without the stage counts as 0.

    Args:
        first_step: the first completed step of the attempt.
        last_step: the newest completed step of any rank.
    """
    first, last = max(first_step, last_step - RECENT_STEPS), last_step - 1
    if last < first:
        return {}
    by_step = stage_seconds_by_step(
        reader.read(StageSteps(run_id=run_id, attempt=attempt, first_step=first, last_step=last))
    )
    return _means(by_step.values())


def _means(steps: Iterable[dict[Stage, float]]) -> dict[Stage, float]:
    rows = list(steps)
    stages = sorted({stage for row in rows for stage in row})
    return {stage: float(np.mean([row.get(stage, 0.0) for row in rows])) for stage in stages}
