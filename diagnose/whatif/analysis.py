"""The figures of a what-if analysis: the cost of a slowdown, and the workers that cause it.

    T        replay with the operations' own times       T_ideal   replay with all workers alike
    S        T / T_ideal                                 waste     1 - 1 / S
    S_X      replay with only X as recorded / T_ideal    X: a stage, a pp rank, a dp replica
    S_w      min(S_dp, S_pp) of a worker (dp, pp); S_dp without a pipeline, S_pp without replicas
    M_W      share of T - T_ideal that ideal times on the worst 3% of workers remove; M_S: on the last pp rank

Source: What-if analysis, arXiv 2505.05713, section 4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.operations import Bools, Int64s, Operations
from diagnose.model.roles import role_views
from diagnose.model.view import RunView, Work
from diagnose.whatif.program import CircularProgramError, link, match_transfers
from diagnose.whatif.replay import Assumptions, StepSeconds, ideal_times, own_times
from diagnose.whatif.slots import NO_WORK, FloatVector, StepTimes, step_times
from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.topology import Topology

WORST_WORKERS = 0.03
WORTH_EXPLAINING = 1.03
"""Least slowdown that is explained."""
MAX_REPLAY_ERROR = 0.05
_MERGED = {
    Stage.FORWARD_SEND: "forward-pp-comm",
    Stage.FORWARD_RECV: "forward-pp-comm",
    Stage.BACKWARD_SEND: "backward-pp-comm",
    Stage.BACKWARD_RECV: "backward-pp-comm",
}
"""Stage -> its name in the figures. Both sides of a transfer have one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Figures of one window. Ratios are of mean step times."""

    topology: Topology
    rows: Int64s
    """Rows of the window that were replayed."""
    num_left_out: int
    num_operations: int
    step_s: FloatVector
    """Replayed step times, [steps], and ideal ones."""
    ideal_step_s: FloatVector
    by_stage: Mapping[str, float]
    by_pp: FloatVector
    by_dp: FloatVector
    m_w: float | None
    m_s: float | None
    """None if the slowdown is too small to explain."""

    @property
    def slowdown(self) -> float:
        return float(self.step_s.mean() / self.ideal_step_s.mean())

    @property
    def waste(self) -> float:
        return 1 - 1 / self.slowdown

    @property
    def by_worker(self) -> FloatVector:
        """Ratio of each worker, [dp, pp]. It is an upper bound: a slow transfer or collective counts for all its
        members."""
        return _by_worker(self.by_dp, self.by_pp)

    @property
    def shared(self) -> float:
        """The lowest ratio of a worker. All workers have at least this ratio, as with a slow collective, so no single
        worker causes it."""
        return float(self.by_worker.min())

    @property
    def num_worst(self) -> int:
        """Number of workers that ``m_w`` covers: at least one."""
        return _num_worst(self.by_worker.size)

    @property
    def worst_first(self) -> Int64s:
        """Workers (dp, pp), the slowest first, [workers, 2]. Equal workers are in the order of their ranks."""
        return _worst_first(self.by_worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A run that can be replayed under assumptions."""

    times: StepTimes
    assumptions: Assumptions


def replayed(
    operations: Mapping[Stage, Operations],
    topology: Topology,
    hosts: Sequence[str] = (),
    work: Mapping[Stage, Work] = NO_WORK,
) -> Replayed | None:
    """The dependency graph of a run and its operations' own times; None if no step is complete.

    ``hosts``: host of each rank, if their clocks may differ. ``work``: compute times, for runs that gather parameters
    or exchange data of context and expert parallelism inside computes: there a replica waits inside for the slowest.

    Raises:
        CircularProgramError: the operations cannot have run in this order.
    """
    times = step_times(operations, topology, hosts, work)
    if times is None:
        return None
    transfers, in_step = match_transfers(times.slots, topology.pp), times.work_s is not None
    linked = link(times.slots, transfers, topology.pp, topology.dp, in_step=in_step)
    program = replace(linked, inner_groups=times.inner_groups)
    own = own_times(times, program)
    ideal = ideal_times(own, program, times.work_s)
    return Replayed(times=times, assumptions=Assumptions(program=program, own_s=own, ideal_s=ideal))


def replay_of(view: RunView) -> tuple[Replayed | None, str]:
    """The replay of a view and an empty text, or None and the reason."""
    roles = role_views(view)
    if len(roles) > 1:
        names = ", ".join(each.role or "without a name" for each in roles)
        return None, f"the ranks have several roles ({names}), and each role runs another program"
    try:
        run = replayed(view.operations, view.topology, view.hosts, view.work)
    except CircularProgramError:
        return None, "the recorded operations wait for each other in a cycle: some are missing or have a wrong name"
    return run, "" if run is not None else "no step has the same operations on every rank"


def missed(error: float) -> str:
    """Why there is no conclusion from a replay. ``error``: its error as a share of the measured time."""
    return f"the replay differs from the measured step times by {error:.1%}: important operations are not recorded"


def analyse(run: Replayed, topology: Topology) -> WhatIf:
    """All figures of a run."""
    assume, slots = run.assumptions, run.assumptions.program.slots
    stages = [STAGE_BY_CODE[code] for code in slots.stage.tolist()]
    labels = [_MERGED.get(stage, stage.label) for stage in stages]
    names = sorted(set(labels))
    kept = np.array(
        [
            np.ones(len(slots), dtype=bool),
            np.zeros(len(slots), dtype=bool),
            *([label == name for label in labels] for name in names),
            *(slots.pp == pp for pp in range(topology.pp)),
        ]
    )
    all_times = assume.keeping(kept)
    own, ideal = all_times[0], all_times[1]
    ratios = all_times[2:].mean(axis=1) / ideal.mean()
    by_pp, by_dp = ratios[len(names) :], assume.keeping_replica().mean(axis=1) / ideal.mean()
    is_worth = own.mean() / ideal.mean() >= WORTH_EXPLAINING
    workers = _worst_first(_by_worker(by_dp, by_pp))
    worst = slots_of(workers[: _num_worst(len(workers))], slots.pp, len(by_dp))
    last_stage = np.broadcast_to((slots.pp == topology.pp - 1)[:, None], (len(slots), topology.dp))
    return WhatIf(
        topology=topology,
        rows=run.times.rows,
        num_left_out=run.times.num_left_out,
        num_operations=assume.own_s.size,
        step_s=own,
        ideal_step_s=ideal,
        by_stage=dict(zip(names, ratios[: len(names)].tolist(), strict=True)),
        by_pp=by_pp,
        by_dp=by_dp,
        m_w=_explained(assume, own, ideal, worst) if is_worth else None,
        m_s=_explained(assume, own, ideal, last_stage) if is_worth else None,
    )


def _by_worker(by_dp: FloatVector, by_pp: FloatVector) -> FloatVector:
    """Ratio of each worker, [dp, pp]. Without a pipeline, a replica is a worker. Without replicas, a pipeline rank is a
    worker."""
    if len(by_pp) == 1:
        return by_dp[:, None]
    if len(by_dp) == 1:
        return by_pp[None, :]
    return np.minimum(by_dp[:, None], by_pp[None, :])


def _worst_first(by_worker: FloatVector) -> Int64s:
    """Places (dp, pp) in the order of falling values, [workers, 2]."""
    order = np.argsort(-by_worker, axis=None, kind="stable")
    return np.stack(np.unravel_index(order, by_worker.shape), axis=1)


def _num_worst(num_workers: int) -> int:
    return math.ceil(num_workers * WORST_WORKERS)


def slots_of(workers: Int64s, pp_of_slot: Int64s, num_dp: int) -> Bools:
    """Whether a slot in a replica is of one of ``workers`` [workers, 2]: [slots, dp]."""
    chosen = np.zeros((int(pp_of_slot.max()) + 1, num_dp), dtype=bool)
    chosen[workers[:, 1], workers[:, 0]] = True
    return np.asarray(chosen[pp_of_slot])


def _explained(assume: Assumptions, own: StepSeconds, ideal: StepSeconds, where: Bools) -> float:
    """Share of the slowdown that ideal times in ``where`` [slots, dp] remove."""
    return float((own.mean() - assume.fixing(where).mean()) / (own.mean() - ideal.mean()))
