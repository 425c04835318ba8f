"""role-idle: a role of the job waits for another role in most of each step.

    rollout    |=================================|     The reward role has too little work for its ranks, or cannot
    actor      |============================|          begin before the others have ended.
    reward     |=====|...........................|

No rank is a suspect. The cost is what the waiting ranks would save if they took a part of the longest role's work. So a
small role that waits is not reported.
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Finding, Kind, Severity
from diagnose.model.peers import measure_excess
from diagnose.model.roles import Busy, busy_by_role, role_views
from diagnose.model.view import RunView

NAME = "role-idle"
MIN_IDLE = 0.65
"""Share of the step. Roles of a healthy job differ: one that works half as long as another one is natural."""
MIN_SHARE = 0.8
"""Share of steps."""
MIN_EXPLAINED = 0.7
"""Share of the idle time that the work of the other roles must cover."""
MIN_COST = 0.05
NOISE = 0.01


def detect_idle_roles(view: RunView) -> list[Finding]:
    """One finding for each role that waits. No finding for a job with one role, or with a role that records no work."""
    if len(role_views(view)) < 2 or len(view.steps) < MIN_STEPS:
        return []
    roles = busy_by_role(view)
    if any(not each.share.any() for each in roles):
        return []
    longest = max(roles, key=lambda each: each.typical)
    costs = [(each, _cost(each, longest, roles)) for each in roles if each is not longest]
    return [_finding(view, each, longest, cost, roles) for each, cost in costs if cost >= MIN_COST]


def _cost(waiting: Busy, longest: Busy, roles: list[Busy]) -> float:
    """Share of the step that the waiting ranks would save. 0 if the role does not wait for others in most steps."""
    idle = 1.0 - waiting.share
    excess = measure_excess(idle, above=MIN_IDLE, noise=NOISE)
    if excess.median < MIN_IDLE or excess.share < MIN_SHARE or not excess.persists(MIN_STEPS):
        return 0.0
    others = np.sum([each.share for each in roles if each is not waiting], axis=0)
    if float(np.median(others)) < MIN_EXPLAINED * excess.median:
        return 0.0
    free = waiting.num_ranks * excess.median
    return longest.typical * free / (longest.num_ranks + free)


def _finding(view: RunView, waiting: Busy, longest: Busy, cost: float, roles: list[Busy]) -> Finding:
    idle, name, other = 1.0 - waiting.typical, waiting.role, longest.role
    return Finding(
        detector=NAME,
        kind=Kind.ROLE_IDLE,
        severity=Severity.WARNING,
        window=view.window,
        seconds_lost=cost * float(view.step_ns.sum()) / 1e9,
        share_lost=cost,
        confidence=round(len(view.steps) / (len(view.steps) + 2), 2),
        summary=f"role {name} ({waiting.num_ranks} ranks) waits {idle:.0%} of each step, mainly for role {other}, "
        f"which works for {longest.typical:.0%} of the step; the cost is the time that a better use of ranks saves",
        next_step=f"move ranks from {name} to {other}, let both share GPUs, or let {name} work on the previous step's "
        "data",
        evidence={
            "role": name,
            "waits_for": other,
            "idle_share": round(idle, 3),
            "busy_by_role": [f"{each.role} {each.typical:.2f}" for each in roles],
        },
    )
