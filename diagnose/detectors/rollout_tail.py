"""rollout-tail: the last rollouts of each step take far longer than the typical ones, and all others wait for them.

    rank 0   |== rollouts ==|........................|     Other ranks in each step: some sequences are much longer. No
    rank 1   |== rollouts ==========================|      rank is a suspect.
    rank 2   |== rollouts ===|.......................|

A rank that needs more time per byte in all steps is slow: compute-straggler reports it, and here it is divided out.
(Long tails of rollouts: RollPacker, arXiv 2509.21009.)
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Finding, Kind, Severity, severity_of
from diagnose.model.operations import Floats, Operations
from diagnose.model.peers import medians
from diagnose.model.roles import busy_ns, role_views
from diagnose.model.rollouts import time_per_byte
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
    time_ns = rollouts.chosen(ranks=ranks).total_ns() / _slowness(rollouts.chosen(ranks=ranks))
    typical, last = medians(time_ns, axis=1), np.nanmax(np.nan_to_num(time_ns), axis=1)
    is_tail = last >= MIN_RATIO * typical
    lost_ns = np.where(is_tail, np.minimum(last - typical, _waiting_ns(view, int(ranks[0]))), 0.0)
    share_of_step = float(lost_ns.sum() / view.step_ns.sum())
    if is_tail.mean() < MIN_SHARE or is_tail.sum() < MIN_STEPS or share_of_step < MIN_COST:
        return []
    last_rank = ranks[np.argmax(np.nan_to_num(time_ns), axis=1)]
    return [_finding(view, is_tail, last_rank, last / typical, lost_ns)]


def _slowness(rollouts: Operations) -> Floats:
    """How much slower each rank is than the typical one in the whole window, [ranks]: by its time per byte. Without
    sizes: by its time. Then a rank that is always last is no tail."""
    each = time_per_byte(rollouts)
    of_rank = medians(rollouts.total_ns() if each is None else each.reshape(-1, each.shape[2]), axis=0)
    return np.asarray(of_rank / np.nanmedian(of_rank))


def _waiting_ns(view: RunView, rank: int) -> Floats:
    """Time in each step in which all other roles wait, [steps]. The whole step in a job with one role."""
    others = [each for each in role_views(view) if rank not in each.numbers(range(each.topology.world_size))]
    if not others:
        return view.step_ns
    longest = np.max([medians(busy_ns(each), axis=1) for each in others], axis=0)
    return np.asarray(np.maximum(view.step_ns - longest, 0.0))


def _finding(view: RunView, is_tail: Floats, last_rank: Floats, ratio: Floats, lost_ns: Floats) -> Finding:
    numbers, counts = np.unique(last_rank[is_tail], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_NAMED]
    share_of_step = float(lost_ns.sum() / view.step_ns.sum())
    worst = int(np.argmax(np.where(is_tail, ratio, 0.0)))
    rows = np.flatnonzero(is_tail)
    named = [f"rank {numbers[at]} in {counts[at]} steps" for at in order]
    return Finding(
        detector=NAME,
        kind=Kind.ROLLOUT_TAIL,
        severity=min(severity_of(share_of_step), Severity.WARNING, key=[*Severity][::-1].index),
        stage=Stage.ROLLOUT.label,
        window=view.between(int(rows[0]), int(rows[-1])),
        seconds_lost=float(lost_ns.sum()) / 1e9,
        confidence=round(float(is_tail.mean()) * len(rows) / (len(rows) + 2), 2),
        summary=f"the last rollouts take {float(np.median(ratio[is_tail])):.1f}x as long as those of a typical rank in "
        f"{is_tail.mean():.0%} of steps, on changing ranks; all others wait; costs {share_of_step:.0%} of each step",
        next_step="limit the length of responses, start more prompts than needed and drop the last ones, or continue "
        "long rollouts in the next step",
        evidence={
            "last_ranks": named,
            "ratio": round(float(np.median(ratio[is_tail])), 3),
            "longest": f"rank {last_rank[worst]} in step {view.steps[worst]}: {ratio[worst]:.1f}x",
            "share_of_steps": round(float(is_tail.mean()), 3),
            "share_of_step_time": round(share_of_step, 3),
        },
    )
