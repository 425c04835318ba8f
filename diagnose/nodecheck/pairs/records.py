"""The records of the paired test, and its verdict as JSON, between nodes and for ``--json``.

round 0    (0 1) (2 3) (4 5)        each pair does the same work; a pair is as slow as its slower member
round 1    (1 4) (0 5) (2 3) ...    the slowest with the fastest
verdict    bad: slow or failed in every pair, and one of its partners did well without it
"""

from dataclasses import asdict, dataclass
from math import inf
from statistics import median
from typing import Any

SLOW_RATIO = 1.5
"""A slow node takes more than this multiple of the usual time. A scatter of 20% in both directions cannot reach it
(1.2 / 0.8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRun:
    """The work of two nodes in a round."""

    round: int
    members: tuple[int, int]
    seconds: float | None
    """Duration of one iteration, of the slower member; None: at least one of them failed."""
    own_s: tuple[float, float] | None = None
    """Duration of the matrix product of each member."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadNode:
    """A node that was slow or failed with every partner."""

    node: int
    failed: bool
    """Whether it never finished. Otherwise it was slow."""
    ratio: float | None
    """Its best time divided by that of the usual node; None if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The bad nodes, and those that cannot be judged."""

    bad: tuple[BadNode, ...]
    undecided: tuple[int, ...]
    """Slow or failed, but without enough partners that did well with another node. They may be victims."""
    usual_s: float | None
    """The time of the usual node; None: no pair finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedVerdict:
    """The result of the whole test."""

    hosts: tuple[str, ...]
    """Host of each node, by the index of the node. Empty for a missing node."""
    runs: tuple[PairRun, ...]
    judgement: Judgement

    @property
    def absent(self) -> tuple[int, ...]:
        """Indices of missing nodes."""
        return tuple(node for node, host in enumerate(self.hosts) if not host)

    @property
    def num_rounds(self) -> int:
        return max((run.round for run in self.runs), default=-1) + 1

    @property
    def is_insufficient(self) -> bool:
        """Whether fewer than three nodes took part: a slow or failed pair does not show which node is the cause."""
        return len(self.hosts) - len(self.absent) < 3

    @property
    def is_amiss(self) -> bool:
        """Whether a node is bad or missing, or failed and may be a victim."""
        return bool(self.judgement.bad or self.absent or any(run.seconds is None for run in self.runs))

    def cause_of(self, bad: BadNode) -> str:
        """The likely cause of a bad node, as one clause.

        Slow products: it computes slowly. Products as fast as on other nodes: the time is lost in the all-reduce, by
        its network or because its processes were delayed there.
        """
        best: dict[int, float] = {}
        for run in self.runs:
            for node, seconds in zip(run.members, run.own_s or (), strict=False):
                best[node] = min(seconds, best.get(node, inf))
        if bad.failed or bad.node not in best:
            reasons = [run.reason for run in self.runs if bad.node in run.members and run.reason]
            return reasons[-1] if reasons else "no pair with it finished"
        ratio = best[bad.node] / median(best.values())
        if ratio > SLOW_RATIO:
            return f"its matrix products took {ratio:.1f}x as long as on other nodes"
        return "its matrix products are as fast as on other nodes: check its network, and what delays its processes"


def verdict_object(verdict: PairedVerdict) -> dict[str, Any]:
    """The verdict as JSON, with derived values for people."""
    judgement = verdict.judgement
    return {
        "hosts": list(verdict.hosts),
        "rounds": verdict.num_rounds,
        "bad": [asdict(bad) | {"cause": verdict.cause_of(bad)} for bad in judgement.bad],
        "undecided": list(judgement.undecided),
        "absent": list(verdict.absent),
        "insufficient": verdict.is_insufficient,
        "usual_s": judgement.usual_s,
        "runs": [asdict(run) for run in verdict.runs],
    }


def read_verdict(verdict: dict[str, Any]) -> PairedVerdict:
    """The verdict that :func:`verdict_object` wrote."""
    return PairedVerdict(
        hosts=tuple(verdict["hosts"]),
        runs=tuple(_read_run(run) for run in verdict["runs"]),
        judgement=Judgement(
            bad=tuple(BadNode(node=bad["node"], failed=bad["failed"], ratio=bad["ratio"]) for bad in verdict["bad"]),
            undecided=tuple(verdict["undecided"]),
            usual_s=verdict["usual_s"],
        ),
    )


def _read_run(run: dict[str, Any]) -> PairRun:
    first, second = run["members"]
    return PairRun(**{**run, "members": (first, second), "own_s": tuple(run["own_s"]) if run["own_s"] else None})
