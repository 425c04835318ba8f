"""What the paired test of nodes is told and what it says.

round 0    (0 1) (2 3) (4 5)        each pair does the same work; a pair is as slow as the slower of its two
round 1    (1 4) (0 5) (2 3) ...    the slowest with the fastest
verdict    bad: slow or failed in every pair, one of them with a partner that did well elsewhere
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRun:
    """Two nodes that worked together in a round."""

    round: int
    members: tuple[int, int]
    seconds: float | None
    """One iteration of the work, of the slower of the two; None: at least one of them failed."""
    own_s: tuple[float, float] | None = None
    """What of it was the own product of each member."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadNode:
    """A node that did badly with every partner."""

    node: int
    failed: bool
    """It never finished; otherwise it was slow."""
    ratio: float | None
    """Its best time over that of the usual node; None when it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Who is bad, and of whom nothing can be said."""

    bad: tuple[BadNode, ...]
    undecided: tuple[int, ...]
    """Did badly, but nobody who did well elsewhere was their partner, or too rarely: they may be victims."""
    usual_s: float | None
    """The time of the usual node; None: no pair finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedVerdict:
    """What the whole test found."""

    hosts: tuple[str, ...]
    """Of each node by its index; empty for one that did not come."""
    runs: tuple[PairRun, ...]
    judgement: Judgement

    @property
    def absent(self) -> tuple[int, ...]:
        """Nodes that did not come."""
        return tuple(node for node, host in enumerate(self.hosts) if not host)

    @property
    def num_rounds(self) -> int:
        return max((run.round for run in self.runs), default=-1) + 1

    @property
    def is_insufficient(self) -> bool:
        """Fewer than three nodes came: a slow or failed pair does not tell which of the two it was."""
        return len(self.hosts) - len(self.absent) < 3

    @property
    def is_amiss(self) -> bool:
        """Somebody is bad or did not come, or failed and cannot be told from a victim."""
        return bool(self.judgement.bad or self.absent or any(run.seconds is None for run in self.runs))
