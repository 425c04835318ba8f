"""Who waits for whom: from each rank's oldest pending operation to the ranks that are late in it.

    rank 8 --all_to_all #20947 of [8..11]--> rank 10     entered 20946 of 20947: never entered
    rank 0 --recv from 12-----------------> rank 12 --all_to_all #20947 of [12..15]--> rank 15

A rank that others wait for and that waits for nobody is a *root*. So is one that stands in an operation which another
member has ended: it is stuck in its own device. NCCL runs a communicator in order, so the oldest pending operation
decides. (After the flight-recorder attribution of NVRx: groups in the order of who waits for whom,
and only the first one's late ranks are suspects.)
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from diagnose.hang.evidence import WHOLE_GROUP, Front, HangEvidence, Pending, Process, RankEvidence
from diagnose.hang.verdict import Wait, Why

NOT_WAITING = (Process.DEAD, Process.STOPPED, Process.ENDED)
"""Whatever is pending in such a process, it is not what it waits for."""
_NOTHING = Front(entered=0, completed=0)
NAMELESS = "collective"
"""An operation of which no more is known."""
EARLY_ENDS = ("broadcast", "scatter", "reduce", "gather", NAMELESS)
"""Operations that a member may end before another has entered."""

_Key = tuple[int, int]
"""A collective: group, number."""


@dataclass(slots=True, kw_only=True, eq=False)
class WaitGraph:
    """Edges between ranks. A rank has one :class:`Wait` or none."""

    blocked: Mapping[int, Pending]
    """By rank: the operation it stands in."""
    waits: dict[int, Wait] = field(default_factory=dict)
    stuck: dict[_Key, tuple[int, ...]] = field(default_factory=dict)
    """Operations in which nobody is late: who has not ended them."""
    device_stuck: set[int] = field(default_factory=set)
    """Ranks that stand in a collective which another member has ended."""

    def roots(self) -> set[int]:
        """Ranks that hold others up and wait for nobody."""
        late = {rank for on, _ in self._waiters() for rank in on}
        return (late - self.waits.keys() - self.blocked.keys()) | self.device_stuck

    def reaching(self, roots: Iterable[int]) -> set[int]:
        """Ranks that wait, directly or over others, for one of ``roots``."""
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
        """Those waited for, and who waits for them. Waits in one collective share their tuple: thousands of ranks may
        wait for thousands."""
        by_identity: dict[int, tuple[tuple[int, ...], list[int]]] = {}
        for rank, wait in self.waits.items():
            by_identity.setdefault(id(wait.on), (wait.on, []))[1].append(rank)
        return by_identity.values()


def wait_graph(evidence: HangEvidence, *, without_sends: bool = False) -> WaitGraph:
    """The graph of ``evidence``. ``without_sends``: a rank whose only pending operations are sends waits for nobody."""
    blocked = {rank: op for rank, one in evidence.ranks.items() if (op := _standing_in(one, without_sends)) is not None}
    graph = WaitGraph(blocked=blocked)
    by_collective: dict[_Key, list[int]] = defaultdict(list)
    for rank, op in blocked.items():
        if op.is_transfer:
            _add_transfer(graph, evidence, rank, op)
        else:
            by_collective[op.group, op.seq].append(rank)
    furthest = _furthest(evidence)
    for (group, seq), ranks in by_collective.items():
        _add_collective(graph, evidence, group, seq, ranks, furthest)
    return graph


def _standing_in(rank: RankEvidence, without_sends: bool) -> Pending | None:
    """A send seldom holds up its sender, so the oldest of the others comes first."""
    if rank.process in NOT_WAITING or rank.on_host:
        return None
    first = next((op for op in rank.pending if op.op != "send"), None)
    if first is None and not without_sends and rank.pending:
        return rank.pending[0]
    return first


def _add_transfer(graph: WaitGraph, evidence: HangEvidence, rank: int, op: Pending) -> None:
    if op.peer == WHOLE_GROUP:
        return
    other = evidence.ranks.get(op.peer)
    theirs = graph.blocked.get(op.peer)
    if other is None:
        why = Why.NO_EVIDENCE
    elif theirs is None:
        why = Why.NO_PARTNER
    elif theirs.is_transfer and theirs.peer == rank and (theirs.op != op.op or op.op == "transfer"):
        graph.stuck[op.group, op.seq] = tuple(sorted((rank, op.peer)))
        return  # both stand in the two halves of one transfer: it is the way between them that is stuck
    else:
        why = Why.STUCK_EARLIER
    graph.waits[rank] = Wait(rank=rank, on=(op.peer,), group=op.group, op=op.op, seq=op.seq, why=why)


def _add_collective(
    graph: WaitGraph,
    evidence: HangEvidence,
    group: int,
    seq: int,
    ranks: list[int],
    furthest: Mapping[int, int],
) -> None:
    """``ranks`` all stand in the ``seq``-th collective of ``group``."""
    op = next((graph.blocked[rank].op for rank in ranks if graph.blocked[rank].op != NAMELESS), NAMELESS)
    late = _late(evidence, group, seq, ranks)
    if late.ended and not late.ranks and _ends_together(op):
        graph.device_stuck |= set(ranks)
        return
    if late.why is Why.NO_EVIDENCE:
        overtaken = {rank for rank in ranks if _is_overtaken(evidence.ranks[rank], furthest)}
        graph.device_stuck |= overtaken
        ranks = [rank for rank in ranks if rank not in overtaken]
    if not late.ranks:
        graph.stuck[group, seq] = tuple(sorted(ranks))
        return
    on = tuple(sorted(late.ranks))
    for rank in ranks:
        graph.waits[rank] = Wait(rank=rank, on=on, group=group, op=op, seq=seq, why=late.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Late:
    """Members that hold a collective up, and the plainest reason."""

    ranks: frozenset[int]
    why: Why
    ended: bool
    """Some member has ended it."""


def _late(evidence: HangEvidence, group: int, seq: int, here: Collection[int]) -> _Late:
    never, elsewhere, missing, ended = set(), set(), set(), False
    for rank in set(evidence.groups[group].members).difference(here):
        one = evidence.ranks.get(rank)
        if one is None:
            missing.add(rank)
            continue
        front = one.fronts.get(group)
        if front is None:
            # Of a group whose members are guessed, a rank that knows nothing of it may be none.
            if evidence.groups[group].complete or one.process in NOT_WAITING:
                never.add(rank)
        elif front.entered < seq:
            never.add(rank)
        elif front.completed >= seq:
            ended = True
        else:
            elsewhere.add(rank)
    if never:
        return _Late(ranks=frozenset(never | elsewhere), why=Why.NEVER_ENTERED, ended=ended)
    if elsewhere or ended:
        return _Late(ranks=frozenset(elsewhere), why=Why.STUCK_EARLIER, ended=ended)
    return _Late(ranks=frozenset(missing), why=Why.NO_EVIDENCE, ended=False)


def _furthest(evidence: HangEvidence) -> dict[int, int]:
    """By group: the largest number that any member has completed."""
    furthest: dict[int, int] = {}
    for one in evidence.ranks.values():
        for group, front in one.fronts.items():
            furthest[group] = max(furthest.get(group, 0), front.completed)
    return furthest


def _is_overtaken(one: RankEvidence, furthest: Mapping[int, int]) -> bool:
    """Whether another member has ended an operation that is still pending here: the rank took part in it, so what it
    stands in is over as well, and only its own device does not say so."""
    return any(
        furthest.get(op.group, 0) >= op.seq
        and one.fronts.get(op.group, _NOTHING).completed < op.seq
        and not op.is_transfer
        and _ends_together(op.op)
        for op in one.pending
    )


def _ends_together(op: str) -> bool:
    return op.strip("_").removesuffix("_oop") not in EARLY_ENDS
