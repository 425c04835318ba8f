"""Which rank waits for which: from the oldest pending operation of each rank to the ranks that are late in it.

    rank 8 --all_to_all #20947 of [8..11]--> rank 10     entered 20946 of 20947: never entered
    rank 0 --recv from 12-----------------> rank 12 --all_to_all #20947 of [12..15]--> rank 15

A rank is a *root* if others wait for it and it waits for none. A rank in an operation that another member has ended is
also a root: its own device is stuck. NCCL runs a communicator in order, so the oldest pending operation decides. (After
the flight-recorder attribution of NVRx: groups in wait order, and only the late ranks of the first one are suspects.)

A missing rank is never a certain root. It may have entered the operation while a device or the network is stuck.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from diagnose.hang.evidence import NAMELESS, WHOLE_GROUP, Front, HangEvidence, Pending, Process, RankEvidence

NOT_WAITING = (Process.DEAD, Process.STOPPED, Process.ENDED)
"""Such a process does not wait for its pending operations."""
EARLY_ENDS = ("broadcast", "scatter", "reduce", "gather", NAMELESS)
"""Operations that a member may end before another has entered."""
_NOTHING = Front(entered=0, completed=0)
_Collective = tuple[int, int]
"""Group and number."""


class Why(StrEnum):
    """Why one rank waits for another."""

    NEVER_ENTERED = "never entered"
    """The other rank has not issued the operation."""
    STUCK_EARLIER = "stuck earlier"
    """The other rank issued the operation after one that has not ended."""
    NO_PARTNER = "no partner"
    """The other side of a transfer has not issued its half."""
    NO_EVIDENCE = "no evidence"
    """There is no evidence of the other, and no other member is known to be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The oldest pending operation of a rank and the ranks that it waits for in it."""

    rank: int
    on: tuple[int, ...]
    group: int
    """Index into the evidence's groups."""
    op: str
    seq: int
    why: Why


@dataclass(slots=True, kw_only=True, eq=False)
class WaitGraph:
    """Edges between ranks. A rank has at most one :class:`Wait`."""

    blocked: Mapping[int, Pending]
    """Rank -> the operation in which it is blocked."""
    waits: dict[int, Wait] = field(default_factory=dict)
    stuck: dict[_Collective, tuple[int, ...]] = field(default_factory=dict)
    """Operation in which no rank is late -> the ranks that have not ended it."""
    device_stuck: set[int] = field(default_factory=set)
    """Ranks blocked in a collective that another member has ended."""

    def roots(self) -> set[int]:
        """Ranks that others wait for and that wait for none."""
        late = {rank for on, _ in self._waiters() for rank in on}
        return (late - self.waits.keys() - self.blocked.keys()) | self.device_stuck

    def reaching(self, roots: Iterable[int]) -> set[int]:
        """Ranks that wait, directly or through others, for one of ``roots``."""
        waiting_for: dict[int, list[list[int]]] = defaultdict(list)
        for on, waiters in self._waiters():
            for other in on:
                waiting_for[other].append(waiters)
        found: set[int] = set()
        ahead = list(roots)
        while ahead:
            for waiters in waiting_for.pop(ahead.pop(), ()):
                new = [rank for rank in waiters if rank not in found]
                found.update(new)
                ahead.extend(new)
                waiters.clear()
        return found

    def _waiters(self) -> Iterable[tuple[tuple[int, ...], list[int]]]:
        """Late ranks, and the ranks that wait for them. Waits in one collective share the tuple of late ranks, because
        thousands of ranks may wait for thousands."""
        by_identity: dict[int, tuple[tuple[int, ...], list[int]]] = {}
        for rank, wait in self.waits.items():
            by_identity.setdefault(id(wait.on), (wait.on, []))[1].append(rank)
        return by_identity.values()


def wait_graph(evidence: HangEvidence, *, without_sends: bool = False) -> WaitGraph:
    """The graph of ``evidence``. ``without_sends``: a rank whose pending operations are all sends waits for no rank."""
    oldest = {rank: _blocked_in(of_rank, without_sends) for rank, of_rank in evidence.ranks.items()}
    graph = WaitGraph(blocked={rank: op for rank, op in oldest.items() if op is not None})
    by_collective: dict[_Collective, list[int]] = defaultdict(list)
    for rank, op in graph.blocked.items():
        if op.is_transfer:
            _add_transfer(graph, evidence, rank, op)
        else:
            by_collective[op.group, op.seq].append(rank)
    furthest: dict[int, int] = {}
    for of_rank in evidence.ranks.values():
        for group, front in of_rank.fronts.items():
            furthest[group] = max(furthest.get(group, 0), front.completed)
    for (group, seq), ranks in by_collective.items():
        _add_collective(graph, evidence, group, seq, ranks, furthest)
    return graph


def _blocked_in(rank: RankEvidence, without_sends: bool) -> Pending | None:
    """The operation in which a rank is blocked, or None. A send seldom blocks its sender, so the oldest of the other
    operations comes first."""
    if rank.process in NOT_WAITING or rank.on_host:
        return None
    first = next((op for op in rank.pending if op.op != "send"), None)
    if first is None and not without_sends and rank.pending:
        return rank.pending[0]
    return first


def _add_transfer(graph: WaitGraph, evidence: HangEvidence, rank: int, op: Pending) -> None:
    if op.peer == WHOLE_GROUP:
        return
    theirs = graph.blocked.get(op.peer)
    if op.peer not in evidence.ranks:
        why = Why.NO_EVIDENCE
    elif theirs is None:
        why = Why.NO_PARTNER
    elif theirs.is_transfer and theirs.peer == rank and (theirs.op != op.op or op.op == "transfer"):
        graph.stuck[op.group, op.seq] = tuple(sorted((rank, op.peer)))
        return  # both are in the two halves of one transfer: the connection between them is stuck
    else:
        why = Why.STUCK_EARLIER
    graph.waits[rank] = Wait(rank=rank, on=(op.peer,), group=op.group, op=op.op, seq=op.seq, why=why)


def _add_collective(
    graph: WaitGraph, evidence: HangEvidence, group: int, seq: int, ranks: list[int], furthest: Mapping[int, int]
) -> None:
    """Add the waits of ``ranks``, which are all in the ``seq``-th collective of ``group``.

    ``furthest``: group -> the largest number that any member has completed.
    """
    op = next((graph.blocked[rank].op for rank in ranks if graph.blocked[rank].op != NAMELESS), NAMELESS)
    late, why, has_ended = _late(evidence, group, seq, ranks)
    if has_ended and not late and _ends_together(op):
        graph.device_stuck |= set(ranks)
        return
    if why is Why.NO_EVIDENCE:
        overtaken = {rank for rank in ranks if _is_overtaken(evidence.ranks[rank], furthest)}
        graph.device_stuck |= overtaken
        ranks = [rank for rank in ranks if rank not in overtaken]
    if not late:
        graph.stuck[group, seq] = tuple(sorted(ranks))
        return
    on = tuple(sorted(late))
    for rank in ranks:
        graph.waits[rank] = Wait(rank=rank, on=on, group=group, op=op, seq=seq, why=why)


def _late(evidence: HangEvidence, group: int, seq: int, here: Collection[int]) -> tuple[set[int], Why, bool]:
    """Members that block a collective, the reason, and whether some member has ended it."""
    never, elsewhere, missing, has_ended = set(), set(), set(), False
    for rank in set(evidence.groups[group].members).difference(here):
        of_rank = evidence.ranks.get(rank)
        if of_rank is None:
            missing.add(rank)
            continue
        front = of_rank.fronts.get(group)
        if front is None:
            # If the members of a group are guessed, a rank that does not know the group may not be a member.
            if evidence.groups[group].complete or of_rank.process in NOT_WAITING:
                never.add(rank)
        elif front.entered < seq:
            never.add(rank)
        elif front.completed >= seq:
            has_ended = True
        else:
            elsewhere.add(rank)
    if never:
        return never | elsewhere, Why.NEVER_ENTERED, has_ended
    if elsewhere or has_ended:
        return elsewhere, Why.STUCK_EARLIER, has_ended
    return missing, Why.NO_EVIDENCE, False


def _is_overtaken(of_rank: RankEvidence, furthest: Mapping[int, int]) -> bool:
    """Whether another member has ended an operation that is still pending here: the rank took part in it, so its
    present operation is over, too, and only its own device does not report it."""
    return any(
        furthest.get(op.group, 0) >= op.seq
        and of_rank.fronts.get(op.group, _NOTHING).completed < op.seq
        and not op.is_transfer
        and _ends_together(op.op)
        for op in of_rank.pending
    )


def _ends_together(op: str) -> bool:
    return op.strip("_").removesuffix("_oop") not in EARLY_ENDS
