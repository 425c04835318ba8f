"""The verdict on a stalled job, as commands and pages show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from diagnose.findings import Kind
from diagnose.hang.evidence import HangEvidence
from diagnose.hang.network import CutOff


class State(StrEnum):
    """What a rank is to the hang."""

    BEHIND = "behind"
    """It holds others up: initiating."""
    DEAD = "dead"
    """Likewise, and its process is gone."""
    WAITING = "waiting"
    """A victim: it waits, directly or over others, for one that is behind."""
    MISSING = "missing"
    """It left no records."""
    UNKNOWN = "unknown"
    """Neither is shown."""


class Why(StrEnum):
    """Why one rank waits for another."""

    NEVER_ENTERED = "never entered"
    """The other has not issued the operation."""
    STUCK_EARLIER = "stuck earlier"
    """The other issued it behind one that has not ended."""
    NO_PARTNER = "no partner"
    """The other side of a transfer has not issued its half."""
    NO_EVIDENCE = "no evidence"
    """The other left nothing, and is the only member that can be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One rank's oldest pending operation and whom it waits for in it."""

    rank: int
    on: tuple[int, ...]
    group: int
    """Index into the evidence's groups."""
    op: str
    seq: int
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class HangVerdict:
    """Which ranks block the job. A pure function of the evidence."""

    evidence: HangEvidence
    kind: Kind | None
    """None: nothing is stalled."""
    initiating: tuple[int, ...]
    states: Mapping[int, State]
    """Of every rank of the job."""
    waits: Mapping[int, Wait]
    """By rank that waits."""
    headline: str
    next_step: str
    confidence: float
    """0 to 1."""
    cut_off: CutOff | None = None
    """The link that explains it, where one does."""

    def chain(self, rank: int) -> tuple[Wait, ...]:
        """From ``rank`` to the root: each wait is for the rank of the next."""
        found: list[Wait] = []
        seen = {rank}
        while (wait := self.waits.get(rank)) is not None:
            found.append(wait)
            rank = next((one for one in wait.on if one not in self.waits), wait.on[0]) if wait.on else rank
            if rank in seen:
                break
            seen.add(rank)
        return tuple(found)
