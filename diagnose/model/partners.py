"""Which spans are one operation: a send and its receive, or the members of a collective.

    place       who meets: the sender and the receiver of a direction, or the group of a stage
    number      which of the collectives there it is:   as it was recorded, or the n-th of its rank in the step

    rank 0   |s 0|  |s 1|                  rank 0   |-- gather 7 ----|
    rank 2     |r 0--|r 1|                 rank 1         |= gather 7 =|

Recorded numbers hold where spans are left out, too; the n-th hold where nothing was numbered, in steps of which every
record is there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.model.collectives import DP_STAGES, PAIRS, TP_STAGES
from diagnose.model.operations import NO_GROUP, Ints, SpanColumns, recorded_masks, usual_mask
from telemetry.stages import STAGE_BY_CODE, Stage, Stream
from telemetry.topology import Topology

NOBODY = -1
NOT_NUMBERED = 0
SENDS = tuple(send for send, _, _ in PAIRS)
TRANSFERS = tuple(stage for send, receive, _ in PAIRS for stage in (send, receive))
COLLECTIVES = (
    *DP_STAGES,
    *TP_STAGES,
    Stage.EMBEDDING_GRADS_ALL_REDUCE,
    *(stage for stage in Stage if stage.stream in (Stream.CP, Stream.EP) and stage is not Stage.CP_SEND_RECV),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where each span meets others, [spans]."""

    place: Ints
    """Spans of equal number meet each other; ``NOBODY`` where there is nobody to meet."""
    size: Ints
    """How many belong to one collective there; 0 for nobody."""


def meeting_places(
    spans: SpanColumns, topology: Topology, stages: tuple[Stage, ...] = (*TRANSFERS, *COLLECTIVES)
) -> Places:
    """Who meets whom in ``stages``. Where no peer of a transfer was recorded, the neighbour along the pipeline is
    meant; the ends of the pipeline have none."""
    keys = np.full((3, len(spans)), NOBODY, dtype=np.int64)
    size = np.zeros(len(spans), dtype=np.int64)
    inside = spans.rank < topology.world_size
    for stage in (STAGE_BY_CODE[code] for code in np.intersect1d(stages, spans.stage).tolist()):
        rows = np.flatnonzero(inside & (spans.stage == stage))
        for found, between, members in _of_stage(spans, rows, stage, topology):
            keys[:, found] = between
            size[found] = members
    place = np.full(len(spans), NOBODY, dtype=np.int64)
    meets = np.flatnonzero(size)
    place[meets] = alike(*keys[:, meets])
    return Places(place=place, size=size)


def recorded_numbers(spans: SpanColumns) -> Ints:
    """The number that each span's recorder gave its operation, [spans]: of a transfer without one its microbatch and
    chunk tell as much; ``NOT_NUMBERED`` where nothing does."""
    labelled = np.isin(spans.stage, TRANSFERS) & (spans.microbatch >= 0)
    label = -2 - spans.microbatch * 2**16 - np.maximum(spans.chunk, 0)
    return np.where(spans.op_seq > 0, spans.op_seq, np.where(labelled, label, NOT_NUMBERED))


def whole_operations(spans: SpanColumns, places: Places) -> list[Ints]:
    """Rows of the members of each operation, [operations, members], an array for each size of operation: the n-th of
    every rank in a step. Senders come first; the members of a collective come by rank. Nothing of a place where
    somebody has a record more or less than the others in that step."""
    rows = np.flatnonzero(places.place != NOBODY)
    place, size, step = places.place[rows], places.size[rows], spans.step[rows]
    number = _nth(spans, rows, place)
    order = np.lexsort((spans.rank[rows], ~np.isin(spans.stage[rows], SENDS), number, place, step))
    rows, place, size, step, number = (one[order] for one in (rows, place, size, step, number))
    block = _blocks(step, place)
    whole = np.bincount(block) == size[_firsts(block)] * (_highest(number, block) + 1)
    kept = whole[block]
    return [rows[kept & (size == one)].reshape(-1, one) for one in np.unique(size[kept]).tolist()]


def alike(*keys: Ints) -> Ints:
    """A number from 0 for each row, the same for rows of the same keys."""
    order = np.lexsort(keys[::-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = _blocks(*(key[order] for key in keys))
    return number


def _of_stage(spans: SpanColumns, rows: Ints, stage: Stage, topology: Topology) -> Iterator[tuple[Ints, Ints, int]]:
    """Of the spans of a stage that have company: their rows, what they share with it, [3, rows], and how many meet."""
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
    """Of the transfers that have another side: their rows, what they share with it, [3, rows], and two."""
    send, towards = next((send, way) for send, receive, way in PAIRS if stage in (send, receive))
    sends = stage == send
    peers = _peers(spans, rows, topology, towards if sends else -towards)
    rows, peers = rows[peers >= 0], peers[peers >= 0]
    ends = (spans.rank[rows], peers) if sends else (peers, spans.rank[rows])
    return rows, np.stack([np.full(len(rows), int(send)), *ends]), 2


def _peers(spans: SpanColumns, rows: Ints, topology: Topology, towards: int) -> Ints:
    """The other side of each transfer; ``NOBODY``: there is none."""
    rank, peer = spans.rank[rows], spans.peer[rows]
    return np.where(peer >= 0, peer, topology.neighbour(towards)[rank])


def _groups(spans: SpanColumns, rows: Ints, stage: Stage, topology: Topology, mask: int) -> tuple[Ints, Ints, int]:
    """Those along the axes in ``mask``."""
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
    """The how-many-th of its rank at its place in its step each row is, from 0."""
    order = np.lexsort((spans.seq[rows], spans.start_ns[rows], spans.rank[rows], place, spans.step[rows]))
    block = _blocks(*(one[order] for one in (spans.step[rows], place, spans.rank[rows])))
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


def _highest(values: Ints, block: Ints) -> Ints:
    return np.asarray(np.maximum.reduceat(values, _firsts(block))) if len(values) else values
