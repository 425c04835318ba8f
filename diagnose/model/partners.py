"""Spans that belong to one operation: a send and its receive, or the members of a collective.

    place       the sender and the receiver of a direction, or the group of a stage
    number      number of the operation at its place: as recorded, or the n-th of its rank in the step

    rank 0   |s 0|  |s 1|                  rank 0   |-- gather 7 ----|
    rank 2     |r 0--|r 1|                 rank 1         |= gather 7 =|

Recorded numbers are valid even if spans are missing. Otherwise spans are counted, in steps with all records.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.model.collectives import GROUP_STAGES, PAIRS
from diagnose.model.operations import NO_GROUP, Ints, SpanColumns, recorded_masks, usual_mask
from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.topology import Topology

NOBODY = -1
NOT_NUMBERED = 0
SENDS = tuple(send for send, _, _ in PAIRS)
TRANSFERS = tuple(stage for send, receive, _ in PAIRS for stage in (send, receive))
COLLECTIVES = (*GROUP_STAGES, Stage.EMBEDDING_GRADS_ALL_REDUCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The place of each span, [spans]."""

    place: Ints
    """Spans with the same number belong together. ``NOBODY``: the span has no partner."""
    size: Ints
    """Number of members of one operation at the place. 0 without a partner."""


def operation_places(
    spans: SpanColumns, topology: Topology, stages: tuple[Stage, ...] = (*TRANSFERS, *COLLECTIVES)
) -> Places:
    """The places of spans of ``stages``.

    Without a recorded peer, the partner of a transfer is the neighbour along the pipeline. The ends have none.
    """
    keys = np.full((3, len(spans)), NOBODY, dtype=np.int64)
    size = np.zeros(len(spans), dtype=np.int64)
    inside = spans.rank < topology.world_size
    for stage in (STAGE_BY_CODE[code] for code in np.intersect1d(stages, spans.stage).tolist()):
        rows = np.flatnonzero(inside & (spans.stage == stage))
        for found, between, members in _of_stage(spans, rows, stage, topology):
            keys[:, found] = between
            size[found] = members
    place = np.full(len(spans), NOBODY, dtype=np.int64)
    paired = np.flatnonzero(size)
    place[paired] = alike(*keys[:, paired])
    return Places(place=place, size=size)


def recorded_numbers(spans: SpanColumns) -> Ints:
    """The recorded number of each operation, [spans]. ``NOT_NUMBERED`` if there is none.

    For a transfer without a number, microbatch and chunk identify the operation.
    """
    labelled = np.isin(spans.stage, TRANSFERS) & (spans.microbatch >= 0)
    label = -2 - spans.microbatch * 2**16 - np.maximum(spans.chunk, 0)
    return np.where(spans.op_seq > 0, spans.op_seq, np.where(labelled, label, NOT_NUMBERED))


def whole_operations(spans: SpanColumns, places: Places) -> list[Ints]:
    """Rows of the members of each operation, [operations, members], one array for each number of members.

    An operation consists of the n-th span of every rank in a step. Senders come first. Members of a collective are
    ordered by rank. A place is left out of a step in which one rank has more or fewer records than the others.
    """
    rows = np.flatnonzero(places.place != NOBODY)
    place, size, step = places.place[rows], places.size[rows], spans.step[rows]
    number = _nth(spans, rows, place)
    order = np.lexsort((spans.rank[rows], ~np.isin(spans.stage[rows], SENDS), number, place, step))
    rows, place, size, step, number = (column[order] for column in (rows, place, size, step, number))
    block = _blocks(step, place)
    whole = np.bincount(block) == size[_firsts(block)] * (_highest(number, block) + 1)
    kept = whole[block]
    return [rows[kept & (size == members)].reshape(-1, members) for members in np.unique(size[kept]).tolist()]


def alike(*keys: Ints) -> Ints:
    """A number from 0 for each row: the same number for rows with the same keys."""
    order = np.lexsort(keys[::-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = _blocks(*(key[order] for key in keys))
    return number


def _of_stage(spans: SpanColumns, rows: Ints, stage: Stage, topology: Topology) -> Iterator[tuple[Ints, Ints, int]]:
    """Spans of a stage with partners: their rows, the key of their place, [3, rows], and the number of members."""
    if stage in TRANSFERS:
        yield _pairs(spans, rows, stage, topology)
    elif stage is Stage.EMBEDDING_GRADS_ALL_REDUCE:
        yield _ends(spans, rows, topology)
    else:
        recorded = recorded_masks(spans.peer[rows], topology)
        masks = np.where(recorded == NO_GROUP, usual_mask(stage, topology), recorded)
        for mask in np.unique(masks).tolist():
            yield _groups(spans, rows[masks == mask], stage, topology, mask)


def _pairs(spans: SpanColumns, rows: Ints, stage: Stage, topology: Topology) -> tuple[Ints, Ints, int]:
    """Transfers with another side: their rows, the key of their place, [3, rows], and two members."""
    send, towards = next((send, way) for send, receive, way in PAIRS if stage in (send, receive))
    sends = stage == send
    peers = _peers(spans, rows, topology, towards if sends else -towards)
    rows, peers = rows[peers >= 0], peers[peers >= 0]
    ends = (spans.rank[rows], peers) if sends else (peers, spans.rank[rows])
    return rows, np.stack([np.full(len(rows), int(send)), *ends]), 2


def _peers(spans: SpanColumns, rows: Ints, topology: Topology, towards: int) -> Ints:
    """The other side of each transfer, or ``NOBODY``."""
    rank, peer = spans.rank[rows], spans.peer[rows]
    return np.where(peer >= 0, peer, topology.neighbour(towards)[rank])


def _groups(spans: SpanColumns, rows: Ints, stage: Stage, topology: Topology, mask: int) -> tuple[Ints, Ints, int]:
    """Collectives along the axes in ``mask``."""
    ranks = topology.members(mask)
    if ranks.shape[1] < 2:
        rows = rows[:0]
    group = np.empty(topology.world_size, dtype=np.int64)
    group[ranks] = np.arange(len(ranks))[:, None]
    of_stage, of_mask = np.full(len(rows), int(stage)), np.full(len(rows), mask)
    return rows, np.stack([of_stage, of_mask, group[spans.rank[rows]]]), ranks.shape[1]


def _ends(spans: SpanColumns, rows: Ints, topology: Topology) -> tuple[Ints, Ints, int]:
    """The first and the last stage of each pipeline."""
    last = topology.pp - 1
    rows = rows[np.isin(topology.index["pp"][spans.rank[rows]], (0, last)) & (last > 0)]
    first = topology.grid[:, 0][topology.index["dp"], topology.index["tp"]][spans.rank[rows]]
    return rows, np.stack([np.full(len(rows), int(Stage.EMBEDDING_GRADS_ALL_REDUCE)), first, first]), 2


def _nth(spans: SpanColumns, rows: Ints, place: Ints) -> Ints:
    """Number of each row among those of its rank, place and step, from 0."""
    order = np.lexsort((spans.seq[rows], spans.start_ns[rows], spans.rank[rows], place, spans.step[rows]))
    block = _blocks(*(column[order] for column in (spans.step[rows], place, spans.rank[rows])))
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = np.arange(len(rows)) - _firsts(block)[block]
    return number


def _blocks(*keys: Ints) -> Ints:
    """Number of the block of equal keys for each row. Rows are ordered by the keys."""
    is_first = np.zeros(len(keys[0]), dtype=np.bool_)
    for key in keys:
        is_first[1:] |= key[1:] != key[:-1]
    return np.cumsum(is_first)


def _firsts(block: Ints) -> Ints:
    return np.flatnonzero(np.diff(block, prepend=-1))


def _highest(values: Ints, block: Ints) -> Ints:
    return np.asarray(np.maximum.reduceat(values, _firsts(block))) if len(values) else values
