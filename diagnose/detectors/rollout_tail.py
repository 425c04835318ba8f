"""rollout-tail: the last rollouts of a step take at least 1.5 times as long as typical ones, and all others wait.

    rank 0   |== rollouts ==|........................|     Other ranks in each step: some sequences are much longer. No
    rank 1   |== rollouts ==========================|      rank is a suspect.
    rank 2   |== rollouts ===|.......................|

A rank that needs more time per byte in all steps is slow: compute-straggler reports it, and here it is divided out.
(Long tails of rollouts: RollPacker, arXiv 2509.21009.)
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Finding, Kind, Severity
from diagnose.model.operations import Bools, Floats, Ints
from diagnose.model.peers import medians
from diagnose.model.roles import busy_ns, role_views
from diagnose.model.rollouts import rollout_time_ns
from diagnose.model.view import RunView
from telemetry.stages import Stage

NAME = "rollout-tail"
MIN_RATIO = 1.5
"""Time of the last rank over that of a typical one."""
MIN_SHARE = 0.5
"""Share of steps."""
MIN_COST = 0.05
MIN_RANKS = 3
MOST_NAMED = 5


def detect_rollout_tail(view: RunView) -> list[Finding]:
    """At most one finding, without suspects."""
    rollouts = view.operations.get(Stage.ROLLOUT)
    if rollouts is None or len(view.steps) < MIN_STEPS:
        return []
    ranks = np.flatnonzero(rollouts.present.any(axis=(0, 1)))
    if len(ranks) < MIN_RANKS:
        return []
    time_ns = rollout_time_ns(rollouts.chosen(ranks=ranks))
    last, typical = np.nan_to_num(time_ns).max(axis=1), medians(time_ns, axis=1)
    is_tail = last >= MIN_RATIO * typical
    lost_ns = np.where(is_tail, np.minimum(last - typical, _waiting_ns(view, int(ranks[0]))), 0.0)
    if is_tail.mean() < MIN_SHARE or is_tail.sum() < MIN_STEPS or lost_ns.sum() < MIN_COST * view.step_ns.sum():
        return []
    return [_finding(view, is_tail, ranks[np.nan_to_num(time_ns).argmax(axis=1)], last / typical, lost_ns)]


def _waiting_ns(view: RunView, rank: int) -> Floats:
    """Time in each step in which all other roles wait, [steps]. The whole step in a job with one role."""
    others = [each for each in role_views(view) if each.rank_numbers and rank not in each.rank_numbers]
    busy = [medians(busy_ns(each), axis=1) for each in others]
    return np.asarray(np.maximum(view.step_ns - np.max(busy, axis=0), 0.0)) if busy else view.step_ns


def _finding(view: RunView, is_tail: Bools, last_rank: Ints, ratio: Floats, lost_ns: Floats) -> Finding:
    numbers, counts = np.unique(last_rank[is_tail], return_counts=True)
    share_of_step = float(lost_ns.sum() / view.step_ns.sum())
    worst, rows = int(np.argmax(np.where(is_tail, ratio, 0.0))), np.flatnonzero(is_tail)
    typical = float(np.median(ratio[is_tail]))
    return Finding(
        detector=NAME,
        kind=Kind.ROLLOUT_TAIL,
        severity=Severity.WARNING,
        stage=Stage.ROLLOUT.label,
        window=view.between(int(rows[0]), int(rows[-1])),
        seconds_lost=float(lost_ns.sum()) / 1e9,
        share_lost=share_of_step,
        confidence=round(float(is_tail.mean()) * len(rows) / (len(rows) + 2), 2),
        summary=f"the last rollouts take {typical:.1f}x as long as those of a typical rank in {is_tail.mean():.0%} of "
        "steps, and all other ranks wait; the last rank is not always the same",
        next_step="limit the length of responses, start more prompts than needed and drop the last ones, or continue "
        "long rollouts in the next step",
        evidence={
            "last_ranks": [f"rank {numbers[at]} in {counts[at]} steps" for at in np.argsort(-counts)[:MOST_NAMED]],
            "longest": f"rank {last_rank[worst]} in step {view.steps[worst]}: {ratio[worst]:.1f}x",
            "ratio": round(typical, 3),
            "share_of_steps": round(float(is_tail.mean()), 3),
        },
    )
