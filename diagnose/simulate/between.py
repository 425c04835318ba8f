"""From step to step: when each begins, and what happens at its end.

    step 0 |=== replay ===|                     step 1 |=== replay ===| snapshot |          step 2 |===
                           ~ 1 ms, all ranks ~                                    |-- write, in the background --|

The next snapshot waits for a rank's writer, and so does everybody else then.
"""

import numpy as np

from diagnose.model.operations import Int64s
from diagnose.simulate.conditions import Conditions
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Floats
from diagnose.simulate.written import NS_PER_S, Book, Written
from telemetry.stages import Stage

BETWEEN_STEPS_S = 1e-3
SNAPSHOT_DRAW, WRITE_DRAW = 1, 2


def between_steps(plan: SimulatedRun, conditions: Conditions, draws: Draws, ended_s: Floats, book: Book) -> Int64s:
    """When each step begins, nanoseconds from the run's begin: [steps].

    ``ended_s``: when each rank has ended what it does in a step, seconds from the step's begin, [steps, ranks]. Writes
    ``step`` spans and checkpoints into ``book``.
    """
    is_checkpoint = _checkpoints(plan)
    snapshot_s = plan.seconds(Stage.CHECKPOINT_SNAPSHOT) * _scatter(plan, draws, SNAPSHOT_DRAW)
    write_s = plan.seconds(Stage.CHECKPOINT_WRITE) * _scatter(plan, draws, WRITE_DRAW) * conditions.write
    begin_s = np.zeros(plan.num_steps)
    snapped_s, all_ended_s = ended_s.copy(), ended_s.copy()
    written_until_s = np.zeros(plan.topology.world_size)
    for row in range(plan.num_steps):
        begin_s[row] = begin_s[row - 1] + all_ended_s[row - 1].max() + BETWEEN_STEPS_S if row else 0.0
        if is_checkpoint[row]:
            snapped_s[row] = np.maximum(ended_s[row], written_until_s - begin_s[row])
            all_ended_s[row] = snapped_s[row] + snapshot_s[row]
            written_until_s = begin_s[row] + all_ended_s[row] + write_s[row]
    _write(plan, book, Stage.STEP, np.zeros_like(ended_s), all_ended_s)
    if is_checkpoint.any():
        _write(plan, book, Stage.CHECKPOINT_SNAPSHOT, snapped_s, all_ended_s, is_checkpoint)
        _write(plan, book, Stage.CHECKPOINT_WRITE, all_ended_s, all_ended_s + write_s, is_checkpoint)
    return np.rint(begin_s * NS_PER_S).astype(np.int64)


def _checkpoints(plan: SimulatedRun) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which steps end with a checkpoint, [steps]."""
    if not plan.checkpoint_every:
        return np.zeros(plan.num_steps, dtype=bool)
    return np.asarray((plan.scene.steps + 1) % plan.checkpoint_every == 0)


def _scatter(plan: SimulatedRun, draws: Draws, number: int) -> Floats:
    spread = plan.noise.gather_spread
    return np.exp(draws.of(number).normal(0.0, spread, (plan.num_steps, plan.topology.world_size)))


def _write(
    plan: SimulatedRun,
    book: Book,
    stage: Stage,
    begin_s: Floats,
    end_s: Floats,
    in_step: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | None = None,
) -> None:
    """One span a step and rank; ``in_step``: only in these steps."""
    topology = plan.topology
    begins, ends = topology.arranged(begin_s), topology.arranged(end_s)
    for pp in range(topology.pp):
        begin, end = begins[:, :, pp], ends[:, :, pp]
        present = None if in_step is None else np.broadcast_to(in_step[:, None, None], begin.shape)
        book.add(Written(stage=stage, pp=pp, occurrence=0, begin_s=begin, end_s=end, present=present))
