"""Operations of a run as it goes: an array of every stage, filled slot by slot.

add(stage, pp, occurrence, begin, end)      lanes [steps, dp, tp] of one pipeline rank, seconds from the step's begin
operations(zero_ns)                         stage -> arrays [steps, occurrences, ranks], nanoseconds

From step to step: when each begins, and what happens at its end.

    step 0 |=== replay ===|                     step 1 |=== replay ===| snapshot |          step 2 |===
                           ~ 1 ms, all ranks ~                                    |-- write, in the background --|

The next snapshot waits for a rank's writer, and so does everybody else then.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import ABSENT, Int64s, Operations
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Conditions, Floats
from telemetry.group_names import peer_of_mask
from telemetry.stages import Stage
from telemetry.topology import Topology

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one slot did in every lane: seconds from the step's begin."""

    stage: Stage
    pp: int
    occurrence: int
    begin_s: Floats
    end_s: Floats
    chunk: int = -1
    microbatch: int = -1
    peer_pp: int = -1
    """Pipeline rank of the other side of a transfer."""
    mask: int = 0
    """Axes of the mesh that a collective's group lies along; 0: not recorded."""
    cpu_s: Floats | None = None
    present: npt.NDArray[np.bool_] | None = None
    """Lanes in which it took place; None: in all."""


class Book:
    """Everything that was written."""

    def __init__(self, topology: Topology, num_steps: int) -> None:
        self._topology = topology
        self._num_steps = num_steps
        self._slots: dict[Stage, list[Written]] = defaultdict(list)

    def add(self, slot: Written) -> None:
        self._slots[slot.stage].append(slot)

    def operations(self, zero_ns: Int64s) -> dict[Stage, Operations]:
        """All operations, with the steps' begins at ``zero_ns``; what was written is let go."""
        stages = sorted(self._slots)
        return {stage: self._of_stage(self._slots.pop(stage), zero_ns) for stage in stages}

    def _of_stage(self, slots: list[Written], zero_ns: Int64s) -> Operations:
        topology = self._topology
        num_occurrences = max(one.occurrence for one in slots) + 1
        grid = (self._num_steps, num_occurrences, topology.dp, topology.pp, topology.tp)
        columns = {
            name: np.full(grid, ABSENT, dtype=dtype)
            for name, dtype in (
                *(("start_ns", np.int64), ("duration_ns", np.int64), ("cpu_ns", np.int64)),
                *(("microbatch", np.int16), ("chunk", np.int16), ("peer", np.int32)),
            )
        }
        for one in slots:
            self._put(columns, one, zero_ns)
        return Operations(**{name: topology.by_rank(values) for name, values in columns.items()})

    def _put(self, columns: dict[str, npt.NDArray[np.signedinteger]], one: Written, zero_ns: Int64s) -> None:
        where = (slice(None), one.occurrence, slice(None), one.pp, slice(None))
        begin, end = ns_of(one.begin_s), ns_of(one.end_s)
        values: dict[str, npt.NDArray[np.int64] | int] = {
            "start_ns": zero_ns[:, None, None] + begin,
            "duration_ns": end - begin,
            "cpu_ns": ABSENT if one.cpu_s is None else ns_of(one.cpu_s),
            "microbatch": one.microbatch,
            "chunk": one.chunk,
            "peer": peer_of_mask(one.mask) if one.mask else self._peers(one.peer_pp),
        }
        for name, value in values.items():
            kept = columns[name][where]
            columns[name][where] = value if one.present is None else np.where(one.present, value, kept)

    def _peers(self, pp: int) -> npt.NDArray[np.int64] | int:
        """Rank on that pipeline rank in each lane."""
        if pp < 0:
            return ABSENT
        return self._topology.grid[None, :, pp, :]


def ns_of(seconds: Floats) -> Int64s:
    """Whole nanoseconds."""
    return np.rint(seconds * NS_PER_S).astype(np.int64)


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
