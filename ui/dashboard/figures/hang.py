"""Hangs as values for figures and pages: the standing of each rank, and waiting chains.

A chain leads from a rank to the root cause. Each standing has a word, a symbol and a colour, and each of the three is
unambiguous alone. Colour-blind people can distinguish the colours (Okabe and Ito's, with different lightness), on white
and on black.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from diagnose.hang.evidence import HangEvidence, Process
from diagnose.hang.verdict import HangVerdict, State
from diagnose.hang.waits import Wait, Why
from ui.dashboard.figures.style import ON_DARK, ON_LIGHT
from ui.dashboard.wording import ranks_text


class Standing(StrEnum):
    """The states of ranks, in a hang and in a running job."""

    BEHIND = "behind"
    DEAD = "dead"
    SUSPECT = "suspect"
    WAITING = "waiting"
    MISSING = "missing"
    UNKNOWN = "unknown"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """How a standing is drawn."""

    symbol: str
    colour: str
    ink: str
    """Colour of text on ``colour``."""
    marker: str
    """plotly's name of the symbol, for cells that are too small for text."""
    means: str


SIGNS: Mapping[Standing, Sign] = {
    Standing.BEHIND: Sign(
        symbol="▶", colour="#d55e00", ink=ON_DARK, marker="triangle-right", means="delays other ranks: start here"
    ),
    Standing.DEAD: Sign(symbol="✕", colour="#6a1b6e", ink=ON_DARK, marker="x", means="the process is lost"),
    Standing.SUSPECT: Sign(
        symbol="▲", colour="#f08c00", ink=ON_LIGHT, marker="triangle-up", means="named by a finding: slow or faulty"
    ),
    Standing.WAITING: Sign(symbol="⋯", colour="#8fc7ee", ink=ON_LIGHT, marker="circle", means="waits for another rank"),
    Standing.MISSING: Sign(
        symbol="?", colour="#f0d43a", ink=ON_LIGHT, marker="diamond", means="no evidence from this rank"
    ),
    Standing.UNKNOWN: Sign(
        symbol="·",
        colour="#a9b0b7",
        ink=ON_LIGHT,
        marker="circle-open",
        means="the evidence shows neither a late rank nor a waiting rank",
    ),
    Standing.RUNNING: Sign(symbol="✓", colour="#3fae8c", ink=ON_LIGHT, marker="circle", means="completes steps"),
    Standing.ENDED: Sign(symbol="■", colour="#6f8fa8", ink=ON_LIGHT, marker="square", means="ended normally"),
}
REMARKABLE = (Standing.BEHIND, Standing.DEAD, Standing.SUSPECT, Standing.MISSING)
"""Standings that are marked in a large grid."""


def standing_of(verdict: HangVerdict, rank: int) -> Standing:
    """The standing of a rank in a verdict. UNKNOWN for a rank without evidence."""
    state = verdict.states.get(rank, State.UNKNOWN)
    known = verdict.evidence.ranks.get(rank)
    if verdict.kind is None and state is State.UNKNOWN and known is not None and known.process is Process.ALIVE:
        return Standing.RUNNING
    return Standing(state.value)


WHY_TEXT: Mapping[Why, str] = {
    Why.NEVER_ENTERED: "that rank has not issued this operation",
    Why.STUCK_EARLIER: "that rank issued this operation, but an earlier one has not ended",
    Why.NO_PARTNER: "that rank has not issued its half of the transfer",
    Why.NO_EVIDENCE: "no evidence from that rank, and no other rank of the group can be late",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """The wait of one rank for the next rank of the chain."""

    rank: int
    on: int | None
    """The next rank of the chain. None if no late rank is known."""
    others: tuple[int, ...]
    """Other late ranks of the same operation."""
    operation: str
    """Name and number of the operation, such as ``all_reduce #41``."""
    group: str
    """Name of the group, such as ``tp [2-3]``."""
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """Ranks that wait for a rank, ascending."""

    directly: tuple[int, ...]
    over_others: tuple[int, ...]
    """Ranks that wait indirectly."""

    @property
    def total(self) -> int:
        return len(self.directly) + len(self.over_others)


def hops(verdict: HangVerdict, rank: int) -> tuple[Hop, ...]:
    """The chain from a rank to the root cause. In a cycle, it goes around once."""
    waits = verdict.chain(rank)
    if not waits:
        return ()
    after = [*(wait.rank for wait in waits[1:]), _late(verdict, waits[-1])]
    return tuple(
        Hop(
            rank=wait.rank,
            on=on,
            others=tuple(other for other in wait.on if other != on),
            operation=f"{wait.op} #{wait.seq}",
            group=group_text(verdict.evidence, wait.group),
            why=wait.why,
        )
        for wait, on in zip(waits, after, strict=True)
    )


def _late(verdict: HangVerdict, wait: Wait) -> int | None:
    """The rank that the last wait of a chain is for: preferably one that waits for no rank."""
    return next((other for other in wait.on if other not in verdict.waits), wait.on[0] if wait.on else None)


def path(chain: tuple[Hop, ...]) -> tuple[int, ...]:
    """The ranks of the chain in order, the root last."""
    if not chain:
        return ()
    root = chain[-1].on
    return (*(hop.rank for hop in chain), *([] if root is None else [root]))


def group_text(evidence: HangEvidence, index: int) -> str:
    """``tp [2-3]``, ``pp 0-4``: the name of the group, with its members if the name does not contain them."""
    if not 0 <= index < len(evidence.groups):
        return "unknown group"
    group = evidence.groups[index]
    if any(letter.isdigit() for letter in group.name):
        return group.name
    members = ranks_text(group.members, limit=3)
    is_whole = group.complete or len(group.members) >= evidence.world_size
    return f"{group.name} [{members}]" + ("" if is_whole else " and possibly more")


def chain_starts(verdict: HangVerdict, rank: int) -> tuple[int, ...]:
    """The ranks at which the waiting chains that end at ``rank`` begin, ascending. No other rank waits for them. If
    there are none, as in a cycle, the ranks that wait for ``rank`` directly."""
    delayed = delayed_by(verdict, rank)
    awaited = {on for wait in verdict.waits.values() for on in wait.on}
    starts = {*delayed.directly, *delayed.over_others} - awaited
    return tuple(sorted(starts)) or delayed.directly


def delayed_by(verdict: HangVerdict, rank: int) -> Delayed:
    """All ranks that wait for a rank, directly or indirectly."""
    waiting_for: dict[int, list[int]] = {}
    for wait in verdict.waits.values():
        for on in wait.on:
            waiting_for.setdefault(on, []).append(wait.rank)
    direct = set(waiting_for.get(rank, ())) - {rank}
    reached, border = set(direct), list(direct)
    while border:
        for waiting in waiting_for.get(border.pop(), ()):
            if waiting not in reached and waiting != rank:
                reached.add(waiting)
                border.append(waiting)
    return Delayed(directly=tuple(sorted(direct)), over_others=tuple(sorted(reached - direct)))
