"""Waiting chains: from a rank to the root cause, and the ranks that a rank delays."""

from collections.abc import Mapping
from dataclasses import dataclass

from diagnose.hang.evidence import HangEvidence
from diagnose.hang.verdict import HangVerdict
from diagnose.hang.waits import Wait, Why
from ui.dashboard.wording import ranks_in_words

WHY_IN_WORDS: Mapping[Why, str] = {
    Why.NEVER_ENTERED: "that rank has not issued this operation",
    Why.STUCK_EARLIER: "that rank issued this operation, but an earlier one has not ended",
    Why.NO_PARTNER: "that rank has not issued its half of the transfer",
    Why.NO_EVIDENCE: "no evidence from that rank, and no other rank of the group can be late",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One rank's wait for the next of the chain."""

    rank: int
    on: int | None
    """The rank it waits for, as the chain goes on; None where nobody is known to be late."""
    others: tuple[int, ...]
    """Further ranks that are late in the same operation."""
    operation: str
    """``all_reduce #41``."""
    group: str
    """``tp [2-3]``."""
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """Ranks that wait for one, ascending."""

    directly: tuple[int, ...]
    over_others: tuple[int, ...]
    """Those that wait for a rank that waits, and so on; without the direct ones."""

    @property
    def total(self) -> int:
        return len(self.directly) + len(self.over_others)


def hops(verdict: HangVerdict, rank: int) -> tuple[Hop, ...]:
    """The chain from a rank to the root, or once around where ranks wait for each other in a circle."""
    waits = verdict.chain(rank)
    if not waits:
        return ()
    after = [*(wait.rank for wait in waits[1:]), _late(verdict, waits[-1])]
    return tuple(
        Hop(
            rank=wait.rank,
            on=on,
            others=tuple(one for one in wait.on if one != on),
            operation=f"{wait.op} #{wait.seq}",
            group=group_in_words(verdict.evidence, wait.group),
            why=wait.why,
        )
        for wait, on in zip(waits, after, strict=True)
    )


def _late(verdict: HangVerdict, wait: Wait) -> int | None:
    """Whom the last wait of a chain is for: one that waits for nobody, where there is one."""
    return next((one for one in wait.on if one not in verdict.waits), wait.on[0] if wait.on else None)


def path(chain: tuple[Hop, ...]) -> tuple[int, ...]:
    """Its ranks in order, the root last."""
    if not chain:
        return ()
    root = chain[-1].on
    return (*(hop.rank for hop in chain), *([] if root is None else [root]))


def group_in_words(evidence: HangEvidence, index: int) -> str:
    """``tp [2-3]``, ``pp 0-4``: the group's name, and its members where the name leaves them open."""
    if not 0 <= index < len(evidence.groups):
        return "unknown group"
    group = evidence.groups[index]
    if any(letter.isdigit() for letter in group.name):
        return group.name
    members = ranks_in_words(group.members, limit=3)
    is_whole = group.complete or len(group.members) >= evidence.world_size
    return f"{group.name} [{members}]" + ("" if is_whole else " and possibly more")


def held_up(verdict: HangVerdict, rank: int) -> HeldUp:
    """Everybody who waits for a rank, directly or over others."""
    waiting_for: dict[int, list[int]] = {}
    for wait in verdict.waits.values():
        for on in wait.on:
            waiting_for.setdefault(on, []).append(wait.rank)
    direct = set(waiting_for.get(rank, ())) - {rank}
    reached, border = set(direct), list(direct)
    while border:
        for one in waiting_for.get(border.pop(), ()):
            if one not in reached and one != rank:
                reached.add(one)
                border.append(one)
    return HeldUp(directly=tuple(sorted(direct)), over_others=tuple(sorted(reached - direct)))
