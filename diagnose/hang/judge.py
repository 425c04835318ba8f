"""From evidence to verdict: which ranks block the job.

mismatch?          members disagree on an operation: the minority
link down?         a host without its link, if the job stopped as it was lost
died first?        a process that ended while the others still moved
roots of waiting   ranks that others wait for and that wait for nobody; those missing that must be such
nobody?            a deadlock, resolved by who left a collective out; else a stuck operation, or too little evidence

Ranks whose host stopped issuing before their peers' did, though they stand in the same operation as these.

With NCCL the host runs ahead of the device. Ranks of one program that stand in one collective run on to the same point
and wait there; a second culprit among them has issued less:

    rank 8   all_to_all #20947 pending, 9 more issued behind it      a victim
    rank 9   all_to_all #20947 pending, 9 more                       a victim, as far as 8
    rank 11  all_to_all #20947 pending, 2 more                       its host stands still, too
    rank 10                                                          never entered it

A deadlock among ranks that all wait for one another: who left a collective out.

Ranks of one pipeline stage run one program (so the topology must be known), and go through their groups in one order. A
rank that is as far as a witness in one group, and behind it in another that the witness entered *earlier*, has left an
operation out:

    witness   tp #7   then   dp #3
    rank      tp #6          dp #3        it entered dp #3 without tp #7
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from diagnose.findings import Kind
from diagnose.hang.cut_off import certain_roots, cut_off_headline, cut_off_next_step, find_cut_off
from diagnose.hang.deaths import UNSEEN, as_it_stood, fell_over_mismatch, first_to_fall
from diagnose.hang.evidence import WHOLE_GROUP, Front, HangEvidence, Process, RankEvidence
from diagnose.hang.mismatch import Mismatch, find_mismatch
from diagnose.hang.network import CutOff
from diagnose.hang.verdict import HangVerdict, State
from diagnose.hang.waits import WaitGraph, wait_graph
from diagnose.hang.words import Cause, headline, next_step

_Fronts = dict[str, Front]
LEAST_WITNESSES = 2
"""One alone may be the one that left something out."""


def find_left_out(evidence: HangEvidence, among: Collection[int]) -> dict[int, str]:
    """Ranks of ``among`` that left an operation out, each with the name of the group it is missing in."""
    fronts = {rank: _by_name(evidence, one) for rank, one in evidence.ranks.items()}
    found: dict[int, str] = {}
    for rank in among:
        witnesses = [fronts[other] for other in _same_program(evidence, rank) if other in fronts]
        names = [name for one in witnesses if (name := _left_out(fronts[rank], one))]
        if len(names) >= LEAST_WITNESSES:
            found[rank] = names[0]
    return found


def _by_name(evidence: HangEvidence, one: RankEvidence) -> _Fronts:
    """A rank is in one group of each name: its tp group, its dp group."""
    return {evidence.groups[index].name: front for index, front in one.fronts.items()}


def _same_program(evidence: HangEvidence, rank: int) -> list[int]:
    topology = evidence.topology
    if topology is None:
        return []
    alike = np.flatnonzero(topology.index["pp"] == topology.index["pp"][rank])
    return [other for other in alike.tolist() if other != rank]


def _left_out(mine: _Fronts, witness: _Fronts) -> str | None:
    for name, front in witness.items():
        own = mine.get(name)
        if own is None or own.entered >= front.entered or not front.entered_ns:
            continue
        later = [
            other
            for other, theirs in witness.items()
            if theirs.entered_ns > front.entered_ns and other in mine and mine[other].entered >= theirs.entered
        ]
        if later:
            return name
    return None


LEAST_PEERS = 2


def stopped_short(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks that are behind peers which all, two at least, are exactly as far as one another. Says nothing of ranks
    whose host is known to wait."""
    standing: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, wait in graph.waits.items():
        if graph.blocked[rank].peer == WHOLE_GROUP and evidence.ranks[rank].on_host is None:
            standing[wait.group, wait.seq].append(rank)
    return {short for ranks in standing.values() for short in _short_of(evidence, ranks)}


def _short_of(evidence: HangEvidence, ranks: list[int]) -> set[int]:
    """The minority of ``ranks`` that is behind in some group and ahead in none."""
    as_far: dict[frozenset[tuple[str, int]], list[int]] = defaultdict(list)
    for rank in ranks:
        as_far[_issued(evidence, rank)].append(rank)
    ahead = max(as_far.values(), key=len)
    if len(as_far) != 2 or len(ahead) < max(LEAST_PEERS, len(ranks) - 1):
        return set()
    if len({_been_through(evidence, rank) for rank in ranks}) > 1:
        return set()  # of another pipeline stage, or elsewhere in the program
    furthest = dict(_issued(evidence, ahead[0]))
    (short,) = (rank for rank in ranks if rank not in ahead)
    issued = dict(_issued(evidence, short))
    same_groups = issued.keys() == furthest.keys()
    return {short} if same_groups and all(issued[name] <= furthest[name] for name in furthest) else set()


def _issued(evidence: HangEvidence, rank: int) -> frozenset[tuple[str, int]]:
    fronts = evidence.ranks[rank].fronts
    return frozenset((evidence.groups[index].name, front.entered) for index, front in fronts.items())


def _been_through(evidence: HangEvidence, rank: int) -> frozenset[tuple[str, int]]:
    """What tells a program and a place in it: collectives completed in each group, transfers under way."""
    one = evidence.ranks[rank]
    completed = {(evidence.groups[index].name, front.completed) for index, front in one.fronts.items()}
    return frozenset(completed | set(Counter(op.op for op in one.pending if op.is_transfer).items()))


SURE, LIKELY, DEDUCED = 0.95, 0.8, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blame:
    ranks: tuple[int, ...]
    kind: Kind | None
    cause: Cause
    confidence: float


def judge(evidence: HangEvidence) -> HangVerdict:
    """The verdict. It accuses nobody without evidence, and none for waiting alone."""
    evidence = as_it_stood(evidence)
    graph = _resolved(evidence)
    mismatch = find_mismatch(evidence)
    cut_off = find_cut_off(evidence, graph) if mismatch is None else None
    blame = _by_mismatch(mismatch) or _by_network(cut_off) or _by_death(evidence) or _by_waiting(evidence, graph)
    blamed = frozenset(blame.ranks)
    waits = {rank: wait for rank, wait in graph.waits.items() if rank not in blamed}
    return HangVerdict(
        evidence=evidence,
        kind=blame.kind,
        initiating=blame.ranks,
        states=_states(evidence, graph, blamed),
        waits=waits,
        headline=cut_off_headline(evidence, cut_off)
        if cut_off
        else headline(evidence, graph, blame.ranks, blame.cause, mismatch),
        next_step=cut_off_next_step(cut_off) if cut_off else next_step(evidence, blame.ranks, blame.cause),
        cut_off=cut_off,
        confidence=round(blame.confidence * _seen(evidence) * (0.5 if UNSEEN in evidence.notes else 1), 2),
    )


def _resolved(evidence: HangEvidence) -> WaitGraph:
    """Where waiting goes in a circle, pending sends are what can be looked through."""
    graph = wait_graph(evidence)
    if graph.waits and not graph.roots() and not graph.stuck:
        return wait_graph(evidence, without_sends=True)
    return graph


def _by_mismatch(mismatch: Mismatch | None) -> _Blame | None:
    if mismatch is None:
        return None
    confidence = SURE if mismatch.by_majority else LIKELY if mismatch.odd else LIKELY / 2
    return _Blame(ranks=mismatch.odd, kind=Kind.COLLECTIVE_MISMATCH, cause=Cause.MISMATCH, confidence=confidence)


def _by_network(found: CutOff | None) -> _Blame | None:
    if found is None:
        return None
    kind = Kind.NIC_FLAP if found.is_flap else Kind.HUNG_COLLECTIVE
    return _Blame(ranks=found.ranks, kind=kind, cause=Cause.CUT_OFF, confidence=LIKELY)


def _by_death(evidence: HangEvidence) -> _Blame | None:
    first = first_to_fall(evidence)
    if fell_over_mismatch(evidence, first):
        return _Blame(ranks=(), kind=Kind.COLLECTIVE_MISMATCH, cause=Cause.FELL_OVER_MISMATCH, confidence=LIKELY / 2)
    if len(first) > 1:
        return _Blame(ranks=(), kind=Kind.DEAD_RANK, cause=Cause.DIED_TOGETHER, confidence=LIKELY / 2)
    return _blame(first, Kind.DEAD_RANK, Cause.DEAD, SURE) if first else None


def _by_waiting(evidence: HangEvidence, graph: WaitGraph) -> _Blame:
    roots = graph.roots()
    stopped = {rank for rank, one in evidence.ranks.items() if one.process is Process.STOPPED}
    seen = (roots & evidence.ranks.keys()) | stopped
    if not seen and not roots and graph.waits and not graph.stuck:
        seen = set(find_left_out(evidence, _circle(evidence, graph)))
        if seen:
            return _blame(seen, Kind.COLLECTIVE_MISMATCH, Cause.LEFT_OUT, LIKELY)
    if seen:
        seen |= stopped_short(evidence, graph)
    unseen = certain_roots(evidence, graph, seen)
    if not seen | unseen:
        return _nobody(evidence, graph, roots)
    cause = _cause(evidence, graph, seen or unseen)
    ended = any(evidence.ranks[rank].process in (Process.DEAD, Process.ENDED) for rank in seen)
    return _blame(seen | unseen, Kind.DEAD_RANK if ended else Kind.HUNG_COLLECTIVE, cause, SURE if seen else DEDUCED)


def _blame(ranks: Iterable[int], kind: Kind | None, cause: Cause, confidence: float) -> _Blame:
    return _Blame(ranks=tuple(sorted(ranks)), kind=kind, cause=cause, confidence=confidence)


def _circle(evidence: HangEvidence, graph: WaitGraph) -> set[int]:
    """Ranks that wait and are waited for."""
    return {rank for wait in graph.waits.values() for rank in wait.on if rank in evidence.ranks}


def _nobody(evidence: HangEvidence, graph: WaitGraph, roots: set[int]) -> _Blame:
    if roots or (graph.waits and not graph.stuck):
        cause = Cause.MISSING if roots else Cause.CIRCLE
        return _blame((), Kind.INSUFFICIENT_EVIDENCE, cause, LIKELY / 2)
    if graph.stuck:
        return _blame((), Kind.HUNG_COLLECTIVE, Cause.ALL_ENTERED, LIKELY / 2)
    return _blame((), None, Cause.NOTHING, 1.0)


def _cause(evidence: HangEvidence, graph: WaitGraph, ranks: set[int]) -> Cause:
    if not ranks & evidence.ranks.keys():
        return Cause.MISSING
    if any(evidence.ranks[rank].process is Process.STOPPED for rank in ranks):
        return Cause.STOPPED
    if any(evidence.ranks[rank].process in (Process.DEAD, Process.ENDED) for rank in ranks):
        return Cause.DEAD
    return Cause.DEVICE if ranks <= graph.device_stuck else Cause.NEVER_ENTERED


def _states(evidence: HangEvidence, graph: WaitGraph, blamed: frozenset[int]) -> dict[int, State]:
    victims = graph.reaching(blamed)
    known = range(evidence.world_size) if evidence.world_size else sorted(evidence.ranks)
    return {rank: _state(evidence, rank, rank in blamed, rank in victims) for rank in known}


def _state(evidence: HangEvidence, rank: int, blamed: bool, victim: bool) -> State:
    one = evidence.ranks.get(rank)
    if blamed:
        return State.DEAD if one is not None and one.process is Process.DEAD else State.BEHIND
    if one is None:
        return State.MISSING
    return State.WAITING if victim else State.UNKNOWN


def _seen(evidence: HangEvidence) -> float:
    """Share of the ranks that left something, softened: one in a hundred missing changes little."""
    if not evidence.world_size:
        return 1.0
    return 0.5 + 0.5 * len(evidence.ranks) / evidence.world_size
