"""Clock offsets between hosts, from the collectives of their ranks: offset, drift and an error bound for each host.

    ends     collectives end on all members at (nearly) the same instant;      host-1  |-------|      the ends differ by
             the difference is estimated                                       host-2      |---|      the clock offset

    order    no member ends before the last has begun, and no message is       host-1  |->            sent before
             received before it was sent: bounds from both sides               host-2        ->|      received

    pings    agent and collector: the offset lies within half of the round trip

Hosts are nodes of a graph. Offsets are relative to the *reference*, the host of rank 0. Offsets and bounds are added
along the path with the smallest bound (a tree). A clock that jumped begins a new window. A host without any bound is
rejected, with the reason.

    reading of a host's clock = reading of the reference's + offset + drift * (own reading - middle of the window)

Bounds after Cristian (Distributed Computing 3, 1989) and NTP (RFC 5905, section 8), from messages of the job itself
after Duda et al. (ICDCS 1987). Why a tree: docs/adr/0015.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from telemetry.clocks.align_evidence import (
    DISPUTED,
    ENDS,
    ORDER,
    PINGS,
    REFERENCE,
    Bools,
    Evidence,
    Gathering,
    HostClock,
    Int64s,
    Piece,
    Pings,
    Sights,
    Source,
    Transfers,
)
from telemetry.clocks.align_pair import pieces_of

GOOD_NS = 100_000.0
"""Single transfers and pings are not used for a host if they can improve its bound by no more than this."""
_WEAKER = {REFERENCE: 0, ENDS: 1, ORDER: 2, PINGS: 3}
"""Method -> how weak it is. The method of an offset is the weakest method along its path."""
_ALWAYS = Piece(
    first_ns=-(2**62), last_ns=2**62, at_ns=0, offset_ns=0.0, drift=0.0, bound_ns=0.0, num_events=0, method=REFERENCE
)

NOTHING_SHARED = "no collective, transfer or ping shared with an aligned host"
Node = str
"""A host or a collector: see ``Pings.hosts``."""
Pieces = Mapping[Node, Sequence[Piece]]


def align(evidence: Evidence) -> list[HostClock]:
    """The clocks of all hosts, in the order of ``evidence.hosts``.

    An aligned host has one clock for each window. Another host has one clock with the reason why it is not aligned.
    """
    if not evidence.hosts:
        return []
    reference = evidence.reference
    everything, by_pings = _tree(reference, evidence.sources), _tree(reference, evidence.pings)
    clocks: list[HostClock] = []
    for host in evidence.hosts:
        if host == reference:
            clocks.append(_of_reference(evidence, reference))
        elif pieces := everything.get(host):
            for piece in sorted(pieces, key=lambda piece: piece.first_ns):
                clocks.append(_checked_by_pings(_clock(host, reference, piece), by_pings.get(host, ())))
        else:
            shares = any(host in source.hosts for source in evidence.sources)
            reason = (
                "the events shared with aligned hosts do not limit the clock offset of this host"
                if shares
                else NOTHING_SHARED
            )
            clocks.append(HostClock(host=host, reference=reference, reason=reason))
    return clocks


def _tree(reference: Node, sources: Iterable[Source]) -> Pieces:
    """Offsets of every node that can be reached from the reference. Each is along the path with the smallest bound
    (Dijkstra)."""
    graph = _Graph(sources)
    paths: list[tuple[float, int, Node, Sequence[Piece]]] = [(0.0, 0, reference, [_ALWAYS])]
    known = {reference: 0.0}
    settled: dict[Node, Sequence[Piece]] = {}
    numbers = count(1)
    while paths:
        _, _, node, pieces = heapq.heappop(paths)
        if node in settled:
            continue
        settled[node] = pieces
        for other, shared in graph.around(node, settled, known).items():
            found = [further for piece in pieces for further in _beyond(piece, node, other, shared)]
            cost = max((further.bound_ns for further in found), default=np.inf)
            if cost < known.get(other, np.inf):
                known[other] = cost
                heapq.heappush(paths, (cost, next(numbers), other, found))
    return settled


class _Graph:
    """The events that hosts share."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._groups: dict[Node, list[Gathering]] = defaultdict(list)
        self._pairs: dict[Node, dict[Node, list[Source]]] = defaultdict(lambda: defaultdict(list))
        self._used: set[int] = set()
        for source in sources:
            if isinstance(source, Gathering):
                for host in source.hosts:
                    self._groups[host].append(source)
            else:
                a, b = source.hosts
                self._pairs[a][b].append(source)
                self._pairs[b][a].append(source)

    def around(
        self, node: Node, settled: Mapping[Node, object], known: Mapping[Node, float]
    ) -> dict[Node, list[Source]]:
        """For each neighbour of ``node`` that has no final offset yet, the events that both share.

        Nodes must be passed in the order of their bounds, the best first. The collectives of a group are returned for
        its first member only. From the other members, they would give the same offsets with wider bounds.

        Args:
            settled: nodes that have their final offset.
            known: the best bound so far of each node, nanoseconds.
        """
        found: dict[Node, list[Source]] = defaultdict(list)
        for group in self._groups[node]:
            if id(group) not in self._used:
                self._used.add(id(group))
                for other in group.hosts:
                    if other not in settled:
                        found[other].append(group)
        for other, shared in self._pairs[node].items():
            if other not in settled and (other in found or known.get(other, np.inf) > known[node] + GOOD_NS):
                found[other] += shared
        return found


def _beyond(piece: Piece, node: Node, other: Node, sources: Sequence[Source]) -> list[Piece]:
    """Pieces of ``other`` in the time of ``piece``, from the events of ``sources`` that it shares with ``node``."""
    parts: list[Sights] = []
    for source in sources:
        if isinstance(source, Gathering):
            parts.append(_of_gathering(piece, source.hosts.index(node), source.hosts.index(other), source))
        elif isinstance(source, Transfers):
            parts.append(_of_transfers(piece, source, forwards=source.sender == node))
        else:
            parts.append(_of_pings(piece, source, outwards=source.host == node))
    rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Sights.__slots__}
    order = np.lexsort((rows["reading_ns"], rows["step"]))
    sights = Sights(**{name: column[order] for name, column in rows.items()})
    if not len(sights):
        return []
    method = PINGS if isinstance(sources[0], Pings) else ORDER
    return [
        replace(
            further,
            bound_ns=further.bound_ns + piece.bound_ns,
            method=max(further.method, piece.method, key=_WEAKER.__getitem__),
        )
        for further in pieces_of(sights, method)
    ]


def _of_gathering(piece: Piece, mine: int, its: int, source: Gathering) -> Sights:
    began, ended = source.start_ns[:, mine], source.end_ns[:, mine]
    both = (began >= 0) & (source.start_ns[:, its] >= 0) & _within(piece, ended)
    began, ended = _true(piece, began[both]), _true(piece, ended[both])
    its_begin, its_end = source.start_ns[both, its], source.end_ns[both, its]
    step = source.step[both]
    nothing = np.full(len(step), np.inf)
    return Sights(
        step=np.concatenate([step, step]),
        reading_ns=np.concatenate([its_begin, its_end]),
        ends_ns=np.concatenate([np.full(len(step), np.nan), its_end - ended]),
        low_ns=np.concatenate([its_begin - ended, -nothing]),
        high_ns=np.concatenate([nothing, its_end - began]),
    )


def _of_transfers(piece: Piece, source: Transfers, *, forwards: bool) -> Sights:
    mine, its = (source.sent_ns, source.received_ns) if forwards else (source.received_ns, source.sent_ns)
    known = _within(piece, mine)
    its = its[known]
    bound, nothing = (its - _true(piece, mine[known])).astype(np.float64), np.full(len(its), np.inf)
    return Sights(
        step=source.step[known],
        reading_ns=its,
        ends_ns=np.full(len(its), np.nan),
        low_ns=-nothing if forwards else bound,
        high_ns=bound if forwards else nothing,
    )


def _of_pings(piece: Piece, source: Pings, *, outwards: bool) -> Sights:
    by_collector = source.at_ns + source.offset_ns
    mine, its = (source.at_ns, by_collector) if outwards else (by_collector, source.at_ns)
    known = _within(piece, mine)
    its, half = its[known], source.round_trip_ns[known] / 2
    between = (its - _true(piece, mine[known])).astype(np.float64)
    return Sights(
        step=np.zeros(len(its), dtype=np.int64),
        reading_ns=its,
        ends_ns=np.full(len(its), np.nan),
        low_ns=between - half,
        high_ns=between + half,
    )


def _within(piece: Piece, reading_ns: Int64s) -> Bools:
    return (reading_ns >= piece.first_ns) & (reading_ns <= piece.last_ns)


def _true(piece: Piece, reading_ns: Int64s) -> Int64s:
    """Readings of the reference at the same moments."""
    return reading_ns - piece.offsets_ns(reading_ns)


def _clock(host: str, reference: str, piece: Piece) -> HostClock:
    middle = (piece.first_ns + piece.last_ns) // 2
    return HostClock(
        host=host,
        reference=reference,
        first_ns=piece.first_ns,
        last_ns=piece.last_ns,
        offset_ns=int(piece.offsets_ns(np.array([middle]))[0]),
        drift_ppm=piece.drift * 1e6,
        bound_ns=int(np.ceil(piece.bound_ns)),
        num_events=piece.num_events,
        method=piece.method,
    )


def _of_reference(evidence: Evidence, reference: str) -> HostClock:
    """The clock of the reference: its offset is 0 by definition, from its first event to its last."""
    ends = [times.end_ns[:, times.hosts.index(reference)] for times in evidence.gatherings if reference in times.hosts]
    ends += [times.sent_ns for times in evidence.transfers if times.sender == reference]
    ends += [times.received_ns for times in evidence.transfers if times.receiver == reference]
    ends += [times.at_ns for times in evidence.pings if times.host == reference]
    stamps = np.concatenate([np.zeros(0, dtype=np.int64), *(times[times >= 0] for times in ends)])
    return HostClock(
        host=reference,
        reference=reference,
        first_ns=int(stamps.min()) if len(stamps) else 0,
        last_ns=int(stamps.max()) if len(stamps) else 0,
        bound_ns=0,
        num_events=len(stamps),
        method=REFERENCE,
    )


def _checked_by_pings(clock: HostClock, by_pings: Sequence[Piece]) -> HostClock:
    """The clock. If pings contradict it, its bound is widened to include their offset and bound."""
    if clock.method == PINGS:
        return clock
    middle = (clock.first_ns + clock.last_ns) // 2
    for piece in by_pings:
        if piece.first_ns <= middle <= piece.last_ns:
            apart_ns = abs(float(piece.offsets_ns(np.array([middle]))[0]) - clock.offset_ns)
            if apart_ns > clock.bound_ns + piece.bound_ns:
                return replace(
                    clock,
                    bound_ns=int(np.ceil(apart_ns + piece.bound_ns)),
                    method=DISPUTED,
                    reason=f"the offset from pings differs by {apart_ns / 1e6:.3f} ms from the offset from collectives",
                )
    return clock
