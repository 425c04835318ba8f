"""Who meets whom: from each send to its receive, and from the member that entered a collective last to the others.

    send   |--->                      last    |===|           a collective's members wait for the last one: the
    recv |-----v-|                    other |-^===|           arrow says who kept them

Where the two sides count differently in a step, a record is missing and no arrow of theirs is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import Ints, SpanColumns
from diagnose.model.partners import COLLECTIVES, TRANSFERS, operation_places, whole_operations
from telemetry.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrows:
    """Rows of the spans that each arrow leads from and to, [arrows]."""

    source: Ints
    target: Ints

    def __len__(self) -> int:
        return len(self.source)


def transfers(spans: SpanColumns, topology: Topology) -> Arrows:
    """From each send to its receive. Where no peer was recorded the neighbour along the pipeline is meant."""
    pairs = whole_operations(spans, operation_places(spans, topology, TRANSFERS))
    return _joined([Arrows(source=rows[:, 0], target=rows[:, 1]) for rows in pairs])


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
    met = whole_operations(spans, operation_places(spans, topology, COLLECTIVES))
    return _joined([_from_the_last(spans, members, place_of_host) for members in met])


def _joined(parts: list[Arrows]) -> Arrows:
    nothing = np.zeros(0, dtype=np.int64)
    return Arrows(
        source=np.concatenate([nothing, *(one.source for one in parts)]),
        target=np.concatenate([nothing, *(one.target for one in parts)]),
    )


def _from_the_last(spans: SpanColumns, members: Ints, place_of_host: Ints) -> Arrows:
    host = place_of_host[spans.rank[members]]
    same_host = (host == host[:, :1]).all(axis=1)
    late = np.where(same_host[:, None], spans.start_ns[members], -spans.duration_ns[members])
    last = late.argmax(axis=1)
    others = np.ones(members.shape, dtype=np.bool_)
    others[np.arange(len(members)), last] = False
    source = members[np.arange(len(members)), last]
    return Arrows(source=np.repeat(source, members.shape[1] - 1), target=members[others])
