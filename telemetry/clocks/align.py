"""Clock offsets between hosts, from the collectives of their ranks: offset, drift and an error bound for each host.

    ends     collectives end on all members at (nearly) the same instant;      host-1  |-------|      the ends differ by
             how nearly is estimated, not assumed                              host-2      |---|      the clock offset

    order    no member ends before the last has begun, and no message is       host-1  |->            sent before
             received before it was sent: bounds from both sides               host-2        ->|      received

    pings    agent and collector: the offset lies within half of the round trip

Hosts are nodes of a graph. Offsets are relative to the *reference*, the host of rank 0. They are added along the tree
of tightest bounds, and so are the bounds. A clock that jumped begins a new window. A host without any bound is
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
    Evidence,
    Gathering,
    HostClock,
    Int64s,
    Piece,
    Pings,
    Sights,
    Transfers,
)
from telemetry.clocks.align_pair import pieces_of

GOOD_NS = 100_000.0
"""A host is not tried by single transfers and pings, too, where they could gain no more than this."""
_WEAKER = {REFERENCE: 0, ENDS: 1, ORDER: 2, PINGS: 3}
"""An offset rests on the weakest link of its way."""
_ALWAYS = Piece(
    first_ns=-(2**62), last_ns=2**62, at_ns=0, offset_ns=0.0, drift=0.0, bound_ns=0.0, num_events=0, method=REFERENCE
)

Node = str
"""A host; or a collector, behind a mark that no host begins with."""
_COLLECTOR = "\0"
Source = Gathering | Transfers | Pings
Pieces = Mapping[Node, Sequence[Piece]]


def align(evidence: Evidence) -> list[HostClock]:
    """The clock of every host, in their order: one or several windows of what is bound, one refusal of what is not."""
    if not evidence.hosts:
        return []
    reference = evidence.reference
    everything = _tree(reference, (*evidence.gatherings, *evidence.transfers, *evidence.pings))
    by_pings = _tree(reference, evidence.pings)
    clocks_found: list[HostClock] = []
    for host in evidence.hosts:
        if host == reference:
            clocks_found.append(_of_reference(evidence, reference))
        elif pieces := everything.get(host):
            clocks = [_clock(host, reference, piece) for piece in sorted(pieces, key=lambda piece: piece.first_ns)]
            clocks_found += [_held_against(clock, by_pings.get(host, ())) for clock in clocks]
        else:
            clocks_found.append(HostClock(host=host, reference=reference, reason=_why_not(evidence, host)))
    return clocks_found


def _tree(reference: Node, sources: Iterable[Source]) -> Pieces:
    """Pieces of every node that can be reached, each by the way that bounds it best."""
    graph = _Graph(sources)
    ways: list[tuple[float, int, Node, Sequence[Piece]]] = [(0.0, 0, reference, [_ALWAYS])]
    known = {reference: 0.0}
    settled: dict[Node, Sequence[Piece]] = {}
    numbers = count(1)
    while ways:
        _, _, node, pieces = heapq.heappop(ways)
        if node in settled:
            continue
        settled[node] = pieces
        for other, seen in graph.around(node, settled, known).items():
            found = [piece_found for piece in pieces for piece_found in _beyond(piece, node, other, seen)]
            cost = max((piece_found.bound_ns for piece_found in found), default=np.inf)
            if cost < known.get(other, np.inf):
                known[other] = cost
                heapq.heappush(ways, (cost, next(numbers), other, found))
    return settled


class _Graph:
    """Which hosts share which events."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._groups: dict[Node, list[Gathering]] = defaultdict(list)
        self._pairs: dict[Node, dict[Node, list[Source]]] = defaultdict(lambda: defaultdict(list))
        self._seen: set[int] = set()
        for source in sources:
            if isinstance(source, Gathering):
                for host in source.hosts:
                    self._groups[host].append(source)
            else:
                a, b = _sides(source)
                self._pairs[a][b].append(source)
                self._pairs[b][a].append(source)

    def around(
        self, node: Node, settled: Mapping[Node, object], known: Mapping[Node, float]
    ) -> dict[Node, list[Source]]:
        """Nodes that are still open, with all that they share with ``node``. A group is asked once: of the member that
        is known best; the others would say the same, less exactly."""
        found: dict[Node, list[Source]] = defaultdict(list)
        for group in self._groups[node]:
            if id(group) not in self._seen:
                self._seen.add(id(group))
                for other in group.hosts:
                    if other not in settled:
                        found[other].append(group)
        for other, seen in self._pairs[node].items():
            if other not in settled and (other in found or known.get(other, np.inf) > known[node] + GOOD_NS):
                found[other] += seen
        return found


def _sides(source: Transfers | Pings) -> tuple[Node, Node]:
    return (
        (source.sender, source.receiver)
        if isinstance(source, Transfers)
        else (source.host, _COLLECTOR + source.collector)
    )


def _beyond(piece: Piece, node: Node, other: Node, sources: Sequence[Source]) -> list[Piece]:
    """Pieces of ``other`` as long as ``piece`` of ``node`` holds."""
    parts = [_sights(piece, node, other, source) for source in sources]
    step = np.concatenate([part[0] for part in parts])
    columns = [[getattr(part[1], name) for part in parts] for name in Sights.__slots__]
    reading, *values = (np.concatenate(column) for column in columns)
    order = np.lexsort((reading, step))
    sights = Sights(**dict(zip(Sights.__slots__, (column[order] for column in (reading, *values)), strict=True)))
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


def _sights(piece: Piece, node: Node, other: Node, source: Source) -> tuple[Int64s, Sights]:
    """Step of each row, and what ``one`` says of the clock of ``other``."""
    if isinstance(source, Gathering):
        return _of_gathering(piece, source.hosts.index(node), source.hosts.index(other), source)
    if isinstance(source, Transfers):
        return _of_transfers(piece, source, forwards=source.sender == node)
    return _of_pings(piece, source, outwards=source.host == node)


def _of_gathering(piece: Piece, mine: int, its: int, source: Gathering) -> tuple[Int64s, Sights]:
    began, ended = source.start_ns[:, mine], source.end_ns[:, mine]
    both = (began >= 0) & (source.start_ns[:, its] >= 0) & _within(piece, ended)
    began, ended = _true(piece, began[both]), _true(piece, ended[both])
    its_begin, its_end = source.start_ns[both, its], source.end_ns[both, its]
    step = source.step[both]
    nothing = np.full(len(step), np.nan)
    return np.concatenate([step, step]), Sights(
        reading_ns=np.concatenate([its_begin, its_end]),
        ends_ns=np.concatenate([nothing, its_end - ended]),
        low_ns=np.concatenate([its_begin - ended, np.full(len(step), -np.inf)]),
        high_ns=np.concatenate([np.full(len(step), np.inf), its_end - began]),
    )


def _of_transfers(piece: Piece, source: Transfers, *, forwards: bool) -> tuple[Int64s, Sights]:
    mine, its = (source.sent_ns, source.received_ns) if forwards else (source.received_ns, source.sent_ns)
    known = _within(piece, mine)
    mine, its = _true(piece, mine[known]), its[known]
    bound, none = (its - mine).astype(np.float64), np.full(len(its), np.inf)
    return source.step[known], Sights(
        reading_ns=its,
        ends_ns=np.full(len(its), np.nan),
        low_ns=-none if forwards else bound,
        high_ns=bound if forwards else none,
    )


def _of_pings(piece: Piece, source: Pings, *, outwards: bool) -> tuple[Int64s, Sights]:
    by_collector = source.at_ns + source.offset_ns
    mine, its = (source.at_ns, by_collector) if outwards else (by_collector, source.at_ns)
    known = _within(piece, mine)
    between = (its[known] - _true(piece, mine[known])).astype(np.float64)
    half = source.round_trip_ns[known] / 2
    return np.zeros(len(half), dtype=np.int64), Sights(
        reading_ns=its[known],
        ends_ns=np.full(len(half), np.nan),
        low_ns=between - half,
        high_ns=between + half,
    )


def _within(piece: Piece, reading_ns: Int64s) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (reading_ns >= piece.first_ns) & (reading_ns <= piece.last_ns)


def _true(piece: Piece, reading_ns: Int64s) -> Int64s:
    """What the reference read then."""
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
    """Right by definition, as long as anything is known of it."""
    ends = [times.end_ns[:, times.hosts.index(reference)] for times in evidence.gatherings if reference in times.hosts]
    ends += [times.sent_ns for times in evidence.transfers if times.sender == reference]
    ends += [times.at_ns for times in evidence.pings if times.host == reference]
    seen = np.concatenate([np.zeros(0, dtype=np.int64), *(times[times >= 0] for times in ends)])
    return HostClock(
        host=reference,
        reference=reference,
        first_ns=int(seen.min()) if len(seen) else 0,
        last_ns=int(seen.max()) if len(seen) else 0,
        bound_ns=0,
        num_events=len(seen),
        method=REFERENCE,
    )


def _held_against(clock: HostClock, by_pings: Sequence[Piece]) -> HostClock:
    """What pings say beside it: where they contradict, the bound reaches to the farther end of theirs."""
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
                    reason=f"pings lie {apart_ns / 1e6:.3f} ms apart from the offset of its collectives",
                )
    return clock


def _why_not(evidence: Evidence, host: str) -> str:
    met = (
        any(host in source.hosts for source in evidence.gatherings)
        or any(host in (source.sender, source.receiver) for source in evidence.transfers)
        or any(host == source.host for source in evidence.pings)
    )
    if met:
        return "its events shared with aligned hosts do not bound its clock"
    return "no collective, transfer or ping shared with an aligned host"
