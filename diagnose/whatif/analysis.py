"""What a slowdown costs, and who is to blame: the figures of a what-if analysis.

    T        replay with the operations' own times       T_ideal   replay with everyone alike
    S        T / T_ideal                                 waste     1 - 1 / S
    S_X      replay with only X as it was / T_ideal      X: a stage, a pp rank, a dp replica
    S_w      min(S_dp, S_pp) of a worker (dp, pp)
    M_W      share of T - T_ideal that ideal times on the worst 3% of workers take away; M_S: on the last pp rank

Source: What-if analysis, arXiv 2505.05713, section 4.

One clock for all hosts: what must coincide tells how far they are apart.

    host a   ...... clip |           the gradient norm of all ranks ends on all of them at once: what their stamps of
    host b   ........ clip |         that end differ by is what their clocks differ by
                     -->| |<-- offset of b

A host's offset is a line over the window (offset and drift) through the medians of its ranks. Differences below what
ranks of one host differ by among themselves are left as they are: they are no clocks.

What operations took by themselves, and what they would take if nobody were slow.

    transfer = end - latest begin of the members     waiting is stripped from everything that meets

    ideal    = mean over all ranks and steps         compute: work is moved, not removed
             = median transfer                       communication: one bad transfer is no norm

Source: What-if analysis, arXiv 2505.05713, section 3.2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Bools, Int64s, Operations
from diagnose.model.view import Work
from diagnose.whatif.program import Across, Program, link
from diagnose.whatif.replay import Assumptions, StepSeconds
from diagnose.whatif.slots import NO_WORK, Lanes, StepTimes, step_times
from diagnose.whatif.transfers import match_transfers
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass
from telemetry.topology import Topology

ORDER_S = 1e-2
"""A member that seems to have ended before the last one began by more than this is taken to have needed no time."""


def own_times(times: StepTimes, program: Program) -> Lanes:
    """What each slot took in each lane, waiting left out: seconds, [slots, steps, dp, tp]."""
    own = times.duration_s
    for one in program.rounds:
        if not one.meets:
            if one.across is not Across.NONE and times.work_s is not None:
                own[one.slots[0]] = _gathering(times, one.slots[0])
            continue
        members = list(one.slots)
        latest = times.begin_s[members].max(axis=0)
        if one.across is not Across.NONE:
            latest = latest.max(axis=1 if one.across is Across.DP else (1, 2), keepdims=True)
        own[members] = times.end_s[members] - latest
    own[own <= -ORDER_S] = 0.0
    return own


def _gathering(times: StepTimes, slot: int) -> npt.NDArray[np.float64]:
    """Of a compute that gathers parameters inside: own work, and what the last lane took beyond, [steps, dp, tp]."""
    assert times.work_s is not None
    work, begin, end = times.work_s[slot], times.begin_s[slot], times.end_s[slot]
    last = end.max(axis=(1, 2), keepdims=True) - (begin + work).max(axis=(1, 2), keepdims=True)
    return np.asarray(work + last)


def ideal_times(own: Lanes, program: Program) -> npt.NDArray[np.float64]:
    """What each slot would take: seconds, [slots]."""
    ideal = np.zeros(len(own))
    for code in np.unique(program.slots.stage).tolist():
        same = program.slots.stage == code
        ideal[same] = np.median(own[same]) if _is_communication(STAGE_BY_CODE[code]) else own[same].mean()
    return ideal


def _is_communication(stage: Stage) -> bool:
    """The norm of all gradients is a collective in all but its class."""
    return stage.stage_class is StageClass.COMMUNICATION or stage is Stage.OPTIMIZER_CLIP


SMALLEST_S = 5e-4
"""Offsets of all hosts below this are not worth a correction."""


def on_one_clock(times: StepTimes, hosts: Sequence[str], topology: Topology) -> StepTimes:
    """``times`` with the difference between hosts' clocks taken away."""
    offsets = clock_offsets(times, hosts, topology)[times.slots.pp]
    return replace(times, begin_s=times.begin_s - offsets, end_s=times.end_s - offsets)


def clock_offsets(times: StepTimes, hosts: Sequence[str], topology: Topology) -> Lanes:
    """How far each rank's clock is ahead of the others': seconds, [pp, steps, dp, tp].

    Zero everywhere where one host holds all ranks, where they agree closely, or where nothing in a step ends on all of
    them at once.
    """
    clips = [slot for pp in range(topology.pp) for slot in times.slots.of(pp, Stage.OPTIMIZER_CLIP)[-1:]]
    offsets = np.zeros((topology.pp, *times.begin_s.shape[1:]))
    if len(clips) < topology.pp or len(set(hosts)) < 2:
        return offsets
    ends = times.end_s[clips]
    ahead = ends - np.median(ends, axis=(0, 2, 3), keepdims=True)
    host_of = topology.arranged(np.array(hosts)).transpose(1, 0, 2)
    for host in np.unique(host_of):
        mine = host_of == host
        by_step = np.median(ahead.transpose(1, 0, 2, 3)[:, mine], axis=1)
        offsets.transpose(0, 2, 3, 1)[mine] = _line(times.step_s, by_step)
    return offsets if np.abs(offsets).max() >= SMALLEST_S else np.zeros_like(offsets)


def _line(at_s: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Least squares; the median where there are too few points for a slope."""
    if len(values) < 3:
        return np.full(len(values), np.median(values))
    slope, base = np.polyfit(at_s - at_s[0], values, 1)
    return np.asarray(base + slope * (at_s - at_s[0]))


FloatVector = npt.NDArray[np.float64]

WORST_WORKERS = 0.03
WORTH_EXPLAINING = 1.03
"""Below this there is no slowdown to take apart."""

_MERGED = {
    Stage.FORWARD_SEND: "forward-pp-comm",
    Stage.FORWARD_RECV: "forward-pp-comm",
    Stage.BACKWARD_SEND: "backward-pp-comm",
    Stage.BACKWARD_RECV: "backward-pp-comm",
}
"""Both sides of a transfer are one operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Figures of one window. Ratios are of mean step times."""

    topology: Topology
    rows: npt.NDArray[np.int64]
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
    """None where there is no slowdown to take apart."""

    @property
    def slowdown(self) -> float:
        return float(self.step_s.mean() / self.ideal_step_s.mean())

    @property
    def waste(self) -> float:
        return 1 - 1 / self.slowdown

    @property
    def by_worker(self) -> npt.NDArray[np.float64]:
        """[dp, pp]."""
        return np.minimum(self.by_dp[:, None], self.by_pp[None, :])

    @property
    def worst_first(self) -> Int64s:
        """Workers (dp, pp), the slowest first; of equals, that of the lowest rank: [workers, 2]."""
        return worst_first(self.by_worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A run ready for questions."""

    times: StepTimes
    assumptions: Assumptions


def replayed(
    operations: Mapping[Stage, Operations],
    topology: Topology,
    hosts: Sequence[str] = (),
    work: Mapping[Stage, Work] = NO_WORK,
) -> Replayed | None:
    """The dependency graph of a run and its operations' own times; None where no step is complete.

    ``hosts``: of each rank, where their clocks may differ. ``work``: own work in the computes, for runs that gather
    parameters inside them: there a replica that is done waits inside its compute for the slowest.

    Raises:
        CircularProgramError: the operations cannot have happened in this order.
    """
    times = step_times(operations, topology, work)
    if times is None:
        return None
    if hosts:
        times = on_one_clock(times, hosts, topology)
    transfers, in_step = match_transfers(times.slots, topology.pp), times.work_s is not None
    program = link(times.slots, transfers, topology.pp, topology.dp, in_step=in_step)
    own = own_times(times, program)
    return Replayed(times=times, assumptions=Assumptions(program=program, own_s=own, ideal_s=ideal_times(own, program)))


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
    worth = own.mean() / ideal.mean() >= WORTH_EXPLAINING
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
        m_w=_explained(assume, own, ideal, _worst_workers(by_dp, by_pp, slots.pp)) if worth else None,
        m_s=_explained(assume, own, ideal, _last_stage(slots.pp, topology)) if worth else None,
    )


def worst_first(by_worker: FloatVector) -> Int64s:
    """Places in [dp, pp] by falling value: [workers, 2]."""
    order = np.argsort(-by_worker, axis=None, kind="stable")
    return np.stack(np.unravel_index(order, by_worker.shape), axis=1)


def slots_of(workers: Int64s, pp_of_slot: Int64s, num_dp: int) -> Bools:
    """Slots of some workers [workers, 2], as [slots, dp]."""
    chosen = np.zeros((int(pp_of_slot.max()) + 1, num_dp), dtype=bool)
    chosen[workers[:, 1], workers[:, 0]] = True
    return np.asarray(chosen[pp_of_slot])


def _explained(assume: Assumptions, own: StepSeconds, ideal: StepSeconds, where: Bools) -> float:
    """Share of the slowdown that goes away with ideal times ``where``: [slots, dp]."""
    return float((own.mean() - assume.fixing(where).mean()) / (own.mean() - ideal.mean()))


def _worst_workers(by_dp: FloatVector, by_pp: FloatVector, pp_of_slot: Int64s) -> Bools:
    score = np.minimum(by_dp[:, None], by_pp[None, :])
    return slots_of(worst_first(score)[: math.ceil(score.size * WORST_WORKERS)], pp_of_slot, len(by_dp))


def _last_stage(pp_of_slot: npt.NDArray[np.int64], topology: Topology) -> Bools:
    return np.broadcast_to((pp_of_slot == topology.pp - 1)[:, None], (len(pp_of_slot), topology.dp))
