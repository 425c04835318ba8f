"""stage-imbalance: a pipeline stage that has more work than the others, on all of its ranks.

    work a step     pp0 |=====|
                    pp1 |=====|
                    pp2 |=====|
                    pp3 |=========|    the last stage carries the loss: every other stage waits for it

No rank is a suspect: the split of the model into stages is uneven.

A pipeline runs at the pace of its heaviest stage, so what the heaviest has over the mean is lost in every step
(What-if analysis, OSDI'25: the last stage explains over half the slowdown in 39% of slow jobs). The lower median
over a stage's ranks keeps one slow rank from making its stage look heavy.
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Evidence, Finding, Kind, Role, Severity, Suspect
from diagnose.model.peers import Excess, measure_excess, step_noise
from diagnose.model.view import FloatMatrix, FloatVector, RunView
from telemetry.stages import Stage

NAME = "stage-imbalance"
MIN_RATIO = 1.20
MIN_SHARE = 0.8
MIN_Z = 6.0
NOISE_FLOOR = 0.01


def detect_stage_imbalance(view: RunView) -> list[Finding]:
    """At most one finding: the heaviest stage, when it is clearly and persistently heavier than the rest."""
    if view.topology.pp < 2 or not view.work or len(view.steps) < MIN_STEPS:
        return []
    per_stage = stage_work(view)
    if np.isnan(per_stage).all(axis=0).any():
        return []  # a whole stage left nothing: what the others do is not all of the pipeline
    heaviest = int(np.nanargmax(np.nanmedian(per_stage, axis=0)))
    others = np.delete(per_stage, heaviest, axis=1).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(per_stage[:, heaviest] / others)
    excess = measure_excess(log_ratio, above=np.log(MIN_RATIO) / 2, noise=step_noise(log_ratio[:, None], NOISE_FLOOR))
    if excess.num_rows < MIN_STEPS or excess.median < np.log(MIN_RATIO) or excess.share < MIN_SHARE or excess.z < MIN_Z:
        return []
    alone = int(np.sum(view.pp_of_rank == heaviest)) == 1
    return [(_cannot_tell if alone else _imbalance)(view, heaviest, per_stage, excess)]


def stage_work(view: RunView) -> FloatMatrix:
    """Own work of a typical rank of each pipeline stage: nanoseconds, [steps, stages], NaN where a rank has none."""
    total: FloatMatrix = np.sum([work.ns for work in view.work.values()], axis=0)
    stages = [total[:, view.pp_of_rank == stage] for stage in range(view.topology.pp)]
    return np.stack([_lower_median(ns) for ns in stages], axis=1)


def _lower_median(ns: FloatMatrix) -> FloatVector:
    """Of the ranks that are there, [steps]; NaN where none is."""
    known = ns[:, ~np.isnan(ns).all(axis=0)]
    if not known.size:
        return np.full(len(ns), np.nan)
    return np.asarray(np.quantile(known, 0.5, axis=1, method="lower"))


def _imbalance(view: RunView, heaviest: int, per_stage: FloatMatrix, excess: Excess) -> Finding:
    lost_ns = float(np.nanmedian(per_stage[:, heaviest] - per_stage.mean(axis=1)))
    share_of_step = min(1.0, lost_ns / float(np.median(view.step_ns)))
    return Finding(
        detector=NAME,
        kind=Kind.STAGE_IMBALANCE,
        severity=Severity.WARNING if share_of_step >= 0.05 else Severity.INFO,
        suspects=(),
        stage=Stage.FORWARD_COMPUTE.label,
        window=view.window,
        seconds_lost=lost_ns * excess.num_rows / 1e9,
        confidence=round(excess.share * excess.num_rows / (excess.num_rows + 2), 2),
        summary=f"pipeline stage pp{heaviest} computes {np.exp(excess.median):.2f}x as long as the other stages "
        f"in {excess.share:.0%} of steps; costs {share_of_step:.0%} of each step",
        next_step=f"move layers from pp{heaviest} to the other stages. "
        "The first and the last stage also hold embedding and loss: give them fewer layers",
        evidence=_evidence(view, heaviest, per_stage, excess),
    )


def _cannot_tell(view: RunView, heaviest: int, per_stage: FloatMatrix, excess: Excess) -> Finding:
    rank = int(np.flatnonzero(view.pp_of_rank == heaviest)[0])
    return Finding(
        detector=NAME,
        kind=Kind.INSUFFICIENT_EVIDENCE,
        severity=Severity.INFO,
        suspects=(Suspect(rank=rank, host=view.hosts[rank], role=Role.UNKNOWN),),
        stage=Stage.FORWARD_COMPUTE.label,
        window=view.window,
        seconds_lost=0.0,
        confidence=0.0,
        summary=f"pipeline stage pp{heaviest} computes {np.exp(excess.median):.2f}x as long as the others, but "
        f"{view.describe(rank)} is its only rank: it may be a large stage or a slow rank",
        next_step="run with dp or tp of at least 2, or on another host, to distinguish the two",
        evidence=_evidence(view, heaviest, per_stage, excess),
    )


def _evidence(view: RunView, heaviest: int, per_stage: FloatMatrix, excess: Excess) -> Evidence:
    return {
        "pp": heaviest,
        "ratio": round(float(np.exp(excess.median)), 3),
        "share_of_steps": round(excess.share, 3),
        "work_ms_by_stage": [round(float(ms), 3) for ms in np.nanmedian(per_stage, axis=0) / 1e6],
        "basis": str(next(iter(view.work.values())).basis),
    }
