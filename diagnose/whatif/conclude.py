"""From figures to findings: the findings of the detectors, with the cost that a replay gives them.

There is no conclusion from a replay that differs from the measured step times: then important operations are missing
in the graph.

The gain of a fix is computed by a replay with one thing changed:

a rank like its peers     the computes of its worker, all tp ranks, take their time on the other replicas
balanced stages           every pp rank has the same mean compute
equal microbatches        every microbatch takes the mean time of a microbatch of its worker
planned collections       all ranks collect garbage at the same time

So is the gain of fixing the worst worker, the two worst, and so on:

step time |*                            a steep fall: a few workers are slow
          |  *   *    *       *         a flat line: all workers are slow
ideal     |- - - - - - - - - - - -
           0 1   2    4       8         workers with ideal times
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.detectors.evidence import insufficient
from diagnose.findings import Finding, Kind, limit_by_cost
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.operations import Int64s, Ints, Operations, step_time_ns
from diagnose.model.self_time import without_inner
from diagnose.model.view import RunView
from diagnose.pipeline import Report, diagnose_view, worst_first
from diagnose.whatif.analysis import (
    MAX_REPLAY_ERROR,
    WORTH_EXPLAINING,
    Replayed,
    WhatIf,
    analyse,
    missed,
    replay_of,
    slots_of,
)
from diagnose.whatif.slots import FloatVector, Lanes, Slots
from telemetry.stages import Stage
from telemetry.topology import Topology

Array = npt.NDArray[Any]
NUMBERS_FIXED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MOST_SUSPECTS = 8
"""Fixes are computed for the worst ranks only."""
NO_STEPS = np.zeros(0, dtype=np.int64)
_RECORD = (
    "record compute, pipeline and data-parallel stages on every rank, or choose steps without checkpoint and "
    "evaluation (--first-step, --last-step). `rankscope diagnose` works without them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One change, and what it saves over the replayed steps."""

    change: str
    saved_s: float
    """Seconds saved in all replayed steps. Negative if the fix would cost time."""
    share: float
    """Share of the time of these steps."""

    @property
    def gains(self) -> bool:
        """A negative value is smaller than the noise of the steps."""
        return self.saved_s > 0


def rank_like_peers(run: Replayed, topology: Topology, rank: int) -> Fix | None:
    """None if no other replica does the same work."""
    place = topology.place(rank)
    if topology.dp < 2:
        return None
    mine = np.flatnonzero(_is_compute(run.times.slots) & (run.times.slots.pp == place.pp))
    own = run.assumptions.own_s.copy()
    others = np.delete(own[mine], place.dp, axis=2)
    own[mine, :, place.dp] = others.mean(axis=2)
    return _fix(run, own, f"rank {rank} like its peers")


def balanced_stages(run: Replayed) -> Fix | None:
    """None without a pipeline."""
    slots = run.times.slots
    if len(np.unique(slots.pp)) < 2:
        return None
    own = run.assumptions.own_s.copy()
    for stage in WORK_STAGES:
        of_stage = slots.stage == stage
        if of_stage.any():
            for pp in np.unique(slots.pp):
                mine = of_stage & (slots.pp == pp)
                own[mine] *= own[of_stage].mean() / own[mine].mean()
    return _fix(run, own, "balanced pipeline stages")


def equal_microbatches(run: Replayed) -> Fix:
    """Removes differences between microbatches. Lasting differences between workers stay."""
    slots, own = run.times.slots, run.assumptions.own_s.copy()
    of_compute = _is_compute(slots)
    for key in np.unique(np.stack([slots.stage, slots.pp, slots.chunk])[:, of_compute], axis=1).T:
        same = (slots.stage == key[0]) & (slots.pp == key[1]) & (slots.chunk == key[2])
        own[same] = own[same].mean(axis=(0, 1), keepdims=True)
    return _fix(run, own, "equal microbatches")


def planned_collections(run: Replayed, operations: Mapping[Stage, Operations], topology: Topology) -> Fix | None:
    """None if no garbage was collected within a compute, or if computes gather parameters inside."""
    slots, rows = run.times.slots, run.times.rows
    compute = {stage: operations[stage] for stage in WORK_STAGES if stage in operations}
    if Stage.GC not in operations or not compute or run.times.work_s is not None:  # compute time excludes collections
        return None
    collecting_ns = {
        stage: operations[stage].duration_ns - left
        for stage, left in without_inner(compute, {Stage.GC: operations[Stage.GC]}).items()
    }
    own = run.assumptions.own_s.copy()
    for slot in np.flatnonzero(_is_compute(slots)).tolist():
        stage = next(stage for stage in collecting_ns if stage == slots.stage[slot])
        of_slot_ns = topology.arranged(collecting_ns[stage][rows][:, slots.occurrence[slot]])[:, :, slots.pp[slot]]
        own[slot] -= of_slot_ns / 1e9
    each_rank_ns = sum(float(ns[rows].sum()) for ns in collecting_ns.values()) / topology.world_size
    if each_rank_ns == 0:
        return None
    return _fix(run, np.maximum(own, 0), "garbage collection in the same step on all ranks", costs_s=each_rank_ns / 1e9)


def _is_compute(slots: Slots) -> Array:
    return np.isin(slots.stage, WORK_STAGES)


def _fix(run: Replayed, own: Lanes, change: str, costs_s: float = 0.0) -> Fix:
    before = run.assumptions.with_times(run.assumptions.own_s).sum()
    saved = float(before - run.assumptions.with_times(own).sum()) - costs_s
    return Fix(change=change, saved_s=saved, share=saved / float(before))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstWorkers:
    """Mean step times with ideal times on the worst workers."""

    workers: Int64s
    """(dp, pp), the worst first, [workers, 2]."""
    num_fixed: Int64s
    """Number of them with ideal times, from 0."""
    step_s: FloatVector

    def share_gone(self, ideal_s: float) -> FloatVector:
        """Share of the slowdown that is removed. ``ideal_s``: mean step time with all workers ideal."""
        return np.asarray((self.step_s[0] - self.step_s) / (self.step_s[0] - ideal_s))


def fix_the_worst(run: Replayed, figures: WhatIf) -> WorstWorkers | None:
    """None if the slowdown is too small to explain."""
    if figures.slowdown < WORTH_EXPLAINING:
        return None
    workers = figures.worst_first
    num_fixed = [0, *(number for number in NUMBERS_FIXED if number <= len(workers))]
    pp, num_dp = run.assumptions.program.slots.pp, figures.topology.dp
    means = [float(run.assumptions.fixing(slots_of(workers[:number], pp, num_dp)).mean()) for number in num_fixed]
    return WorstWorkers(
        workers=workers[: num_fixed[-1]], num_fixed=np.array(num_fixed, dtype=np.int64), step_s=np.array(means)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """A what-if analysis of one window, as far as it goes."""

    report: Report
    figures: WhatIf | None
    """None if the run could not be replayed; the first finding has the reason."""
    steps: Ints
    """Numbers of the steps that were replayed."""
    replay_error: float | None
    """Relative difference between replayed and measured step times; None if nothing was replayed."""
    fixes: tuple[Fix, ...]
    step_s: float = np.nan
    """Measured step time over the replayed steps; NaN if nothing was replayed."""
    worst_workers: WorstWorkers | None = None
    """None also if the slowdown is too small to explain."""

    @property
    def holds(self) -> bool:
        """Whether the replay agrees with the measured steps: else its figures mean nothing."""
        return self.replay_error is not None and self.replay_error <= MAX_REPLAY_ERROR

    @property
    def ideal_step_s(self) -> float:
        """Step time with all workers alike: the step time over the slowdown."""
        return np.nan if self.figures is None else self.step_s / self.figures.slowdown


def conclude(view: RunView) -> Conclusion:
    """Replay a view and explain its slowdown."""
    view = view.without_profiled()
    report = diagnose_view(view)
    run, refusal = replay_of(view)
    if run is None:
        return Conclusion(
            report=_refused(report, view, refusal), figures=None, steps=NO_STEPS, replay_error=None, fixes=()
        )
    figures = analyse(run, view.topology)
    steps = view.steps[figures.rows]
    measured_s = step_time_ns(view.step_ns[figures.rows]) / 1e9
    error = abs(float(figures.step_s.mean() / measured_s) - 1)
    if error > MAX_REPLAY_ERROR:
        return Conclusion(
            report=_refused(report, view, missed(error)),
            figures=figures,
            steps=steps,
            replay_error=error,
            fixes=(),
            step_s=measured_s,
        )
    fixes = _fixes(run, view, report)
    priced = tuple(worst_first(limit_by_cost(_priced(finding, fixes)) for finding in report.findings))
    return Conclusion(
        report=replace(report, findings=priced),
        figures=figures,
        steps=steps,
        replay_error=error,
        fixes=tuple(fixes.values()),
        step_s=measured_s,
        worst_workers=fix_the_worst(run, figures),
    )


def _refused(report: Report, view: RunView, why: str) -> Report:
    finding = insufficient(view, f"no what-if: {why}", _RECORD, detector="what-if")
    return replace(report, findings=(finding, *report.findings))


def _fixes(run: Replayed, view: RunView, report: Report) -> dict[int | Kind, Fix]:
    """The gain of each fix, by the rank or the kind of finding that it is for. Each is replayed once."""
    of_ranks = (
        finding for finding in report.findings if finding.kind in (Kind.COMPUTE_STRAGGLER, Kind.HOST_CONTENTION)
    )
    suspects = [*dict.fromkeys(rank for finding in of_ranks for rank in finding.ranks)][:MOST_SUSPECTS]
    fixes: dict[int | Kind, Fix | None] = {
        **{rank: rank_like_peers(run, view.topology, rank) for rank in suspects},
        Kind.STAGE_IMBALANCE: balanced_stages(run),
        Kind.DATA_IMBALANCE: equal_microbatches(run),
        Kind.LATE_LAUNCH: planned_collections(run, view.operations, view.topology),
    }
    return {target: fix for target, fix in fixes.items() if fix is not None}


def _priced(finding: Finding, fixes: Mapping[int | Kind, Fix]) -> Finding:
    """With the gain of its fix in place of the detector's estimate."""
    alone = finding.kind is Kind.COMPUTE_STRAGGLER and len(finding.ranks) == 1
    by_kind = finding.kind in (Kind.STAGE_IMBALANCE, Kind.DATA_IMBALANCE)
    fix = fixes.get(finding.ranks[0]) if alone else fixes.get(finding.kind) if by_kind else None
    if fix is None:
        return finding
    saved = f"{fix.share:.1%} of step time" if fix.gains else "too small to measure"
    return replace(
        finding,
        seconds_lost=max(fix.saved_s, 0.0),
        evidence={**finding.evidence, "saved_if_put_right": saved},
    )
