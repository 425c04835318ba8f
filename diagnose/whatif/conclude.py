"""From figures to findings: what the detectors say, with the cost that a replay gives it.

Nothing is concluded from a replay that does not meet the measured step times: then the graph misses something that
matters.

What would be gained: the run replayed with one thing put right.

a rank like its peers     the computes of its worker, all tp ranks, take what they take on the other replicas
balanced stages           every pp rank has the same mean compute
equal microbatches        every microbatch takes what a microbatch of its worker takes on average
planned collections       all ranks collect garbage at the same time
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.detectors.evidence import insufficient
from diagnose.findings import Finding, Kind, limit_by_cost
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.operations import Ints, Operations, step_time_ns
from diagnose.model.self_time import without_inner
from diagnose.model.view import RunView
from diagnose.pipeline import Report, diagnose_view, worst_first
from diagnose.whatif.analysis import Replayed, WhatIf, analyse, replayed
from diagnose.whatif.program import CircularProgramError
from diagnose.whatif.slots import Lanes, Slots
from diagnose.whatif.worst_workers import WorstWorkers, fix_the_worst
from telemetry.stages import Stage
from telemetry.topology import Topology

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One thing put right, and what that gains over the replayed steps."""

    change: str
    saved_s: float
    """Of all replayed steps together; below zero where it would cost."""
    share: float
    """Of their time."""

    @property
    def gains(self) -> bool:
        """Whether there is a gain to be told: below zero the noise of the steps is larger than it."""
        return self.saved_s > 0


def rank_like_peers(run: Replayed, topology: Topology, rank: int) -> Fix | None:
    """None where no other replica does the same work."""
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
    """Lasting differences between workers stay: only what differs from one microbatch to the next goes."""
    slots, own = run.times.slots, run.assumptions.own_s.copy()
    for same in _alike(slots):
        own[same] = own[same].mean(axis=(0, 1), keepdims=True)
    return _fix(run, own, "equal microbatches")


def planned_collections(run: Replayed, operations: Mapping[Stage, Operations], topology: Topology) -> Fix | None:
    """None where no garbage was collected within a compute, or computes gather parameters inside."""
    compute = {stage: operations[stage] for stage in WORK_STAGES if stage in operations}
    if Stage.GC not in operations or not compute or run.times.work_s is not None:  # own work has no collections in it
        return None
    collecting = {
        stage: operations[stage].duration_ns - left
        for stage, left in without_inner(compute, {Stage.GC: operations[Stage.GC]}).items()
    }
    own = run.assumptions.own_s.copy()
    for slot in np.flatnonzero(_is_compute(run.times.slots)).tolist():
        own[slot] -= _lanes(collecting, run, topology, slot) / 1e9
    each_rank_ns = sum(float(ns[run.times.rows].sum()) for ns in collecting.values()) / topology.world_size
    if each_rank_ns == 0:
        return None
    return _fix(run, np.maximum(own, 0), "garbage collection in the same step on all ranks", costs_s=each_rank_ns / 1e9)


def _lanes(collecting: Mapping[Stage, Array], run: Replayed, topology: Topology, slot: int) -> Array:
    """Nanoseconds of collection in a slot: [steps, dp, tp]."""
    slots = run.times.slots
    stage = next(stage for stage in collecting if stage == slots.stage[slot])
    ns = collecting[stage][run.times.rows][:, slots.occurrence[slot]]
    return np.asarray(topology.arranged(ns)[:, :, slots.pp[slot]])


def _alike(slots: Slots) -> Iterator[Array]:
    """Computes that differ in the microbatch alone."""
    for stage in WORK_STAGES:
        for pp in np.unique(slots.pp):
            for chunk in np.unique(slots.chunk):
                same = (slots.stage == stage) & (slots.pp == pp) & (slots.chunk == chunk)
                if same.any():
                    yield same


def _is_compute(slots: Slots) -> Array:
    return np.isin(slots.stage, WORK_STAGES)


def _fix(run: Replayed, own: Lanes, change: str, costs_s: float = 0.0) -> Fix:
    before = run.assumptions.with_times(run.assumptions.own_s).sum()
    saved = float(before - run.assumptions.with_times(own).sum()) - costs_s
    return Fix(change=change, saved_s=saved, share=saved / float(before))


NAME = "what-if"
MAX_REPLAY_ERROR = 0.05
MOST_SUSPECTS = 8
"""Of which the remedy is priced: the worst."""
NO_STEPS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """A what-if analysis of one window, as far as it goes."""

    report: Report
    figures: WhatIf | None
    """None where nothing could be replayed; the first finding says why."""
    steps: Ints
    """Numbers of the steps that were replayed."""
    replay_error: float | None
    """By how much the replayed step times miss the measured ones; None where nothing was replayed."""
    fixes: tuple[Fix, ...]
    step_s: float = np.nan
    """Step time over the replayed steps, as measured; NaN where nothing was replayed."""
    worst_workers: WorstWorkers | None = None
    """None also where there is no slowdown to take apart."""

    @property
    def holds(self) -> bool:
        """Whether the replay meets the measured steps, so that its figures mean something."""
        return self.replay_error is not None and self.replay_error <= MAX_REPLAY_ERROR

    @property
    def ideal_step_s(self) -> float:
        """What a step would take with all workers alike: the step time over the slowdown."""
        return np.nan if self.figures is None else self.step_s / self.figures.slowdown


def conclude(view: RunView) -> Conclusion:
    """Replay a view and explain its slowdown."""
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
    cures = _cures(run, view, report)
    priced = tuple(worst_first(limit_by_cost(_priced(finding, cures)) for finding in report.findings))
    return Conclusion(
        report=replace(report, findings=priced),
        figures=figures,
        steps=steps,
        replay_error=error,
        fixes=tuple(cures.values()),
        step_s=measured_s,
        worst_workers=fix_the_worst(run, figures),
    )


def replay_of(view: RunView) -> tuple[Replayed | None, str]:
    """A view ready for questions, and why it is not where it is None."""
    try:
        return replayed(
            view.operations, view.topology, view.hosts, view.work
        ), "no step has the same operations on every rank"
    except CircularProgramError:
        return None, "the recorded operations wait for each other in a cycle: some are missing or have a wrong name"


def missed(error: float) -> str:
    """Why nothing is concluded from a replay that is so far off, as a share of the measured time."""
    return f"the replay differs from the measured step times by {error:.1%}: important operations are not recorded"


def _refused(report: Report, view: RunView, why: str) -> Report:
    finding = insufficient(view, f"no what-if: {why}", _RECORD, detector=NAME)
    return replace(report, findings=(finding, *report.findings))


_RECORD = (
    "record compute, pipeline and data-parallel stages on every rank, or choose steps without checkpoint and "
    "evaluation (--first-step, --last-step). `rankscope diagnose` works without"
)


def _cures(run: Replayed, view: RunView, report: Report) -> dict[int | Kind, Fix]:
    """What each remedy gains, by the rank or the kind of finding that it cures; each is replayed once."""
    compute = (one for one in report.findings if one.kind in (Kind.COMPUTE_STRAGGLER, Kind.HOST_CONTENTION))
    suspects = [*dict.fromkeys(rank for one in compute for rank in one.ranks)][:MOST_SUSPECTS]
    cures: dict[int | Kind, Fix | None] = {
        **{rank: rank_like_peers(run, view.topology, rank) for rank in suspects},
        Kind.STAGE_IMBALANCE: balanced_stages(run),
        Kind.DATA_IMBALANCE: equal_microbatches(run),
        Kind.LATE_LAUNCH: planned_collections(run, view.operations, view.topology),
    }
    return {what: fix for what, fix in cures.items() if fix is not None}


def _priced(finding: Finding, cures: Mapping[int | Kind, Fix]) -> Finding:
    """With what putting it right would gain in place of the detector's estimate."""
    alone = finding.kind is Kind.COMPUTE_STRAGGLER and len(finding.ranks) == 1
    by_kind = finding.kind in (Kind.STAGE_IMBALANCE, Kind.DATA_IMBALANCE)
    fix = cures.get(finding.ranks[0]) if alone else cures.get(finding.kind) if by_kind else None
    if fix is None:
        return finding
    saved = f"{fix.share:.1%} of step time" if fix.gains else "too small to measure"
    return replace(
        finding,
        seconds_lost=max(fix.saved_s, 0.0),
        evidence={**finding.evidence, "saved_if_put_right": saved},
    )
