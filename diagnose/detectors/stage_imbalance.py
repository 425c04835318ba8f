"""stage-imbalance: a pipeline stage that has more work than the others, on all of its ranks.

    work a step     pp0 |=====|
                    pp1 |=====|
                    pp2 |=====|
                    pp3 |=========|    The last stage computes the loss: every other stage waits for it.

No rank is a suspect: the model is divided into unequal stages.

A pipeline runs at the pace of its heaviest stage. So the work of that stage above the mean is lost in every step
(What-if analysis, OSDI'25: the last stage explains over half the slowdown in 39% of slow jobs). The lower median over
the ranks of a stage is used: one slow rank does not make its stage heavy.
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Basis, Evidence, Finding, Kind, Role, Severity, Suspect
from diagnose.model.operations import Floats
from diagnose.model.peers import Excess, log_ratios, lower_median, measure_excess, step_noise
from diagnose.model.view import RunView
from telemetry.stages import Stage

NAME = "stage-imbalance"
MIN_RATIO = 1.20
MIN_SHARE = 0.8
MIN_Z = 6.0
NOISE_FLOOR = 0.01


def detect_stage_imbalance(view: RunView) -> list[Finding]:
    """At most one finding: the heaviest stage, if it reaches ``MIN_RATIO``, ``MIN_SHARE`` and ``MIN_Z``."""
    if view.topology.pp < 2 or not view.work or len(view.steps) < MIN_STEPS:
        return []
    per_stage = _stage_work(view)
    if np.isnan(per_stage).all(axis=0).any():
        return []  # the records of a whole stage are missing: the pipeline is not known
    heaviest = int(np.nanargmax(np.nanmedian(per_stage, axis=0)))
    log_ratio = log_ratios(per_stage[:, heaviest], np.delete(per_stage, heaviest, axis=1).mean(axis=1))
    excess = measure_excess(log_ratio, above=np.log(MIN_RATIO) / 2, noise=step_noise(log_ratio[:, None], NOISE_FLOOR))
    if excess.num_rows < MIN_STEPS or excess.median < np.log(MIN_RATIO) or excess.share < MIN_SHARE or excess.z < MIN_Z:
        return []
    return [_finding(view, heaviest, per_stage, excess)]


def _stage_work(view: RunView) -> Floats:
    """Work of a typical rank of each pipeline stage: nanoseconds, [steps, stages]. NaN if it is unknown."""
    total: Floats = np.sum([work.ns for work in view.work.values()], axis=0)
    found = np.full((len(total), view.topology.pp), np.nan)
    for stage in range(view.topology.pp):
        ns = total[:, view.pp_of_rank == stage]
        known = ns[:, ~np.isnan(ns).all(axis=0)]
        if known.size:
            found[:, stage] = lower_median(known)
    return found


def _finding(view: RunView, heaviest: int, per_stage: Floats, excess: Excess) -> Finding:
    """The imbalance. If the stage has a single rank, the rank may be slow instead: insufficient evidence."""
    ratio = float(np.exp(excess.median))
    ranks = np.flatnonzero(view.pp_of_rank == heaviest).tolist()
    evidence: Evidence = {
        "pp": heaviest,
        "ratio": round(ratio, 3),
        "share_of_steps": round(excess.share, 3),
        "work_ms_by_stage": [round(float(ms), 3) for ms in np.nanmedian(per_stage, axis=0) / 1e6],
        "basis": str(next(iter(view.work.values())).basis),
    }
    if len(ranks) == 1:
        return Finding(
            detector=NAME,
            kind=Kind.INSUFFICIENT_EVIDENCE,
            severity=Severity.INFO,
            suspects=(Suspect(rank=view.number(ranks[0]), host=view.hosts[ranks[0]], role=Role.UNKNOWN),),
            stage=Stage.FORWARD_COMPUTE.label,
            window=view.window,
            seconds_lost=0.0,
            confidence=0.0,
            summary=f"pipeline stage pp{heaviest} computes {ratio:.2f}x as long as the others, but "
            f"{view.describe(ranks[0])} is its only rank: it may be a large stage or a slow rank",
            next_step="run with dp or tp of at least 2, or on another host, to distinguish the two",
            evidence=evidence,
        )
    lost_ns = float(np.nanmedian(per_stage[:, heaviest] - per_stage.mean(axis=1)))
    share_of_step = min(1.0, lost_ns / float(np.median(view.step_ns)))
    return Finding(
        detector=NAME,
        kind=Kind.STAGE_IMBALANCE,
        severity=Severity.WARNING if share_of_step >= 0.05 else Severity.INFO,
        stage=Stage.FORWARD_COMPUTE.label,
        window=view.window,
        seconds_lost=lost_ns * excess.num_rows / 1e9,
        share_lost=share_of_step,
        basis=Basis.EXCESS,
        confidence=round(excess.share * excess.num_rows / (excess.num_rows + 2), 2),
        summary=f"pipeline stage pp{heaviest} computes {ratio:.2f}x as long as the other stages "
        f"in {excess.share:.0%} of steps",
        next_step=f"move layers from pp{heaviest} to the other stages. "
        "The first and the last stage also hold embedding and loss: give them fewer layers",
        evidence=evidence,
    )
