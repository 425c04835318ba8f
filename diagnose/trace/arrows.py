"""Who meets whom: from each send to its receive, and from the member that entered a collective last to the others.

    send   |--->                      last    |===|           a collective's members wait for the last one: the
    recv |-----v-|                    other |-^===|           arrow says who kept them

The n-th of a rank is matched with the n-th of the other side in the same step (as ``diagnose/meetings.py`` does); where
the two sides count differently in a step, a record is missing and no arrow of theirs is drawn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.meetings import DP_STAGES, PAIRS
from diagnose.span_columns import Ints, SpanColumns
from telemetry.stages import Stage, Stream
from telemetry.topology import Topology

TP_STAGES = tuple(stage for stage in Stage if stage.stream is Stream.TP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrows:
    """Rows of the spans that each arrow leads from and to, [arrows]."""

    source: Ints
    target: Ints

    def __len__(self) -> int:
        return len(self.source)


def transfers(spans: SpanColumns, topology: Topology) -> Arrows:
    """From each send to its receive. Where no peer was recorded the neighbour along the pipeline is meant."""
    pairs = [_pairs(spans, topology, *pair) for pair in PAIRS]
    return _joined(pairs)


def collectives(spans: SpanColumns, topology: Topology, hosts: Sequence[str]) -> Arrows:
    """From the member that entered last to each other one; of groups that are in ``spans`` as a whole.

    Who entered last is told by the starts where all members share a host, else by the durations: all members end
    together, so the last has the shortest. Stamps of different hosts are not compared.

    Args:
        hosts: of each rank.
    """
    host_number = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    places = [host_number[host] if host else -1 - rank for rank, host in enumerate(hosts)]
    place_of_host = np.array(places, dtype=np.int64)
    found = [
        _from_the_last(spans, members, place_of_host)
        for stage, group, size in _groups(topology)
        for members in _members(spans, stage, group, size)
    ]
    return _joined(found)


def _joined(parts: list[Arrows]) -> Arrows:
    nothing = np.zeros(0, dtype=np.int64)
    return Arrows(
        source=np.concatenate([nothing, *(one.source for one in parts)]),
        target=np.concatenate([nothing, *(one.target for one in parts)]),
    )


def _pairs(spans: SpanColumns, topology: Topology, send: Stage, receive: Stage, towards: int) -> Arrows:
    sends, receives = np.flatnonzero(spans.stage == send), np.flatnonzero(spans.stage == receive)
    to, by = _peers(spans, sends, topology, towards), _peers(spans, receives, topology, -towards)
    sends, to, receives, by = sends[to >= 0], to[to >= 0], receives[by >= 0], by[by >= 0]
    rows = np.concatenate([sends, receives])
    sender, receiver = np.concatenate([spans.rank[sends], by]), np.concatenate([to, spans.rank[receives]])
    receives_it = np.arange(len(rows)) >= len(sends)
    order = np.lexsort((spans.seq[rows], spans.start_ns[rows], receives_it, receiver, sender, spans.step[rows]))
    rows, receives_it = rows[order], receives_it[order]
    block = _blocks(spans.step[rows], sender[order], receiver[order])
    equal = (2 * np.bincount(block, receives_it) == np.bincount(block))[block]
    return Arrows(source=rows[equal & ~receives_it], target=rows[equal & receives_it])


def _peers(spans: SpanColumns, rows: Ints, topology: Topology, towards: int) -> Ints:
    """The other side of each transfer; -1: there is none."""
    rank, peer = spans.rank[rows], spans.peer[rows]
    pp = rank // topology.tp % topology.pp + towards
    neighbour = np.where((pp >= 0) & (pp < topology.pp), rank + towards * topology.tp, -1)
    return np.where(peer >= 0, peer, neighbour)


def _groups(topology: Topology) -> Iterator[tuple[Stage, Ints, int]]:
    """Each stage with the group of every rank (-1: none) and the size of a group."""
    rank = np.arange(topology.world_size)
    tp, pp, dp = rank % topology.tp, rank // topology.tp % topology.pp, rank // (topology.tp * topology.pp)
    along_dp, along_tp, along_pp = rank % (topology.tp * topology.pp), rank // topology.tp, dp * topology.tp + tp
    for stage in DP_STAGES:
        yield stage, along_dp, topology.dp
    for stage in TP_STAGES:
        yield stage, along_tp, topology.tp
    ends = (pp == 0) | (pp == topology.pp - 1)
    yield Stage.EMBEDDING_GRADS_ALL_REDUCE, np.where(ends, along_pp, -1), min(2, topology.pp)


def _members(spans: SpanColumns, stage: Stage, group: Ints, size: int) -> Iterator[Ints]:
    """Rows of the members of each collective, [collectives, members]; nothing of groups that are not whole."""
    rows = np.flatnonzero((spans.stage == stage) & (spans.rank < len(group)))
    rows = rows[group[spans.rank[rows]] >= 0]
    if size < 2 or not len(rows):
        return
    of_group = group[spans.rank[rows]]
    number = _numbers(spans, rows)
    order = np.lexsort((spans.rank[rows], number, of_group, spans.step[rows]))
    rows, number = rows[order], number[order]
    place = _blocks(spans.step[rows], of_group[order])
    whole = np.bincount(place) == size * (np.maximum.reduceat(number, _firsts(place)) + 1)
    kept = whole[place]
    yield rows[kept].reshape(-1, size)


def _numbers(spans: SpanColumns, rows: Ints) -> Ints:
    """The how-many-th of its rank and step each row is, from 0."""
    order = np.lexsort((spans.seq[rows], spans.start_ns[rows], spans.rank[rows], spans.step[rows]))
    block = _blocks(spans.step[rows][order], spans.rank[rows][order])
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = np.arange(len(rows)) - _firsts(block)[block]
    return number


def _blocks(*keys: Ints) -> Ints:
    """Number of the block of equal keys that each row lies in; rows come ordered by the keys."""
    news = np.zeros(len(keys[0]), dtype=np.bool_)
    for key in keys:
        news[1:] |= key[1:] != key[:-1]
    return np.cumsum(news)


def _firsts(block: Ints) -> Ints:
    return np.flatnonzero(np.diff(block, prepend=-1))


def _from_the_last(spans: SpanColumns, members: Ints, place_of_host: Ints) -> Arrows:
    host = place_of_host[spans.rank[members]]
    same_host = (host == host[:, :1]).all(axis=1)
    late = np.where(same_host[:, None], spans.start_ns[members], -spans.duration_ns[members])
    last = late.argmax(axis=1)
    others = np.ones(members.shape, dtype=np.bool_)
    others[np.arange(len(members)), last] = False
    source = members[np.arange(len(members)), last]
    return Arrows(source=np.repeat(source, members.shape[1] - 1), target=members[others])
