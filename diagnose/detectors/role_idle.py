"""role-idle: a role of the job waits for another role in most of each step.

    rollout    |=================================|     The reward role has too little work for its ranks, or cannot
    actor      |============================|          begin before the others have ended.
    reward     |=====|...........................|

No rank is a suspect. The cost is what the waiting ranks would save if they took a part of the longest role's work. So a
small role that waits is not reported.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Finding, Kind, Severity
from diagnose.model.operations import Floats
from diagnose.model.peers import measure_excess, medians
from diagnose.model.roles import busy_ns, role_views
from diagnose.model.view import RunView

NAME = "role-idle"
MIN_IDLE = 0.5
"""Share of the step."""
MIN_SHARE = 0.8
"""Share of steps."""
MIN_EXPLAINED = 0.7
"""Share of the idle time that the work of the other roles must cover."""
MIN_COST = 0.05
NOISE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class _Busy:
    """A role, and its busy share of each step: median over its ranks."""

    role: str
    num_ranks: int
    share: Floats

    @property
    def typical(self) -> float:
        return float(np.median(self.share))


def detect_idle_roles(view: RunView) -> list[Finding]:
    """One finding for each role that waits. None for a job with one role, or with a role that records no work."""
    seen = role_views(view)
    if len(seen) < 2 or len(view.steps) < MIN_STEPS:
        return []
    roles = [_busy(each, view.step_ns) for each in seen]
    if any(not each.share.any() for each in roles):
        return []
    longest = max(roles, key=lambda each: each.typical)
    return [
        _finding(view, each, longest, cost)
        for each in roles
        if each is not longest and (cost := _cost(each, longest, roles)) >= MIN_COST
    ]


def _busy(view: RunView, step_ns: Floats) -> _Busy:
    share = medians(busy_ns(view), axis=1) / step_ns
    return _Busy(role=view.role, num_ranks=view.topology.world_size, share=np.minimum(share, 1.0))


def _cost(waiting: _Busy, longest: _Busy, roles: list[_Busy]) -> float:
    """Share of the step that the waiting ranks would save. 0 if the role does not wait for others in most steps."""
    idle = 1.0 - waiting.share
    excess = measure_excess(idle, above=MIN_IDLE, noise=NOISE)
    if excess.median < MIN_IDLE or excess.share < MIN_SHARE or not excess.persists(MIN_STEPS):
        return 0.0
    others = np.sum([each.share for each in roles if each is not waiting], axis=0)
    if float(np.median(np.minimum(others / idle, 1.0))) < MIN_EXPLAINED:
        return 0.0
    free = waiting.num_ranks * excess.median
    return longest.typical * free / (longest.num_ranks + free)


def _finding(view: RunView, waiting: _Busy, longest: _Busy, cost: float) -> Finding:
    idle = 1.0 - waiting.typical
    name, other = (each.role or "without a name" for each in (waiting, longest))
    lost_ns = cost * float(np.median(view.step_ns))
    return Finding(
        detector=NAME,
        kind=Kind.ROLE_IDLE,
        severity=Severity.WARNING,
        window=view.window,
        seconds_lost=lost_ns * len(view.steps) / 1e9,
        confidence=round(len(view.steps) / (len(view.steps) + 2), 2),
        summary=f"role {name} ({waiting.num_ranks} ranks) waits {idle:.0%} of each step, mainly for role {other}, "
        f"which works {longest.typical:.0%}; better use of its ranks saves up to {cost:.0%} of each step",
        next_step=f"move ranks from {name} to {other}, let both share GPUs, or let {name} work on the previous step's "
        "data",
        evidence={
            "role": name,
            "waits_for": other,
            "idle_share": round(idle, 3),
            "share_of_step_time": round(cost, 3),
            "busy_by_role": [f"{each.role or 'without a name'} {each.typical:.2f}" for each in _by_name(view)],
        },
    )


def _by_name(view: RunView) -> list[_Busy]:
    return [_busy(each, view.step_ns) for each in role_views(view)]
