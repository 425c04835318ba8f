"""Which spans are one operation, and how long each of them waited for the others.

rank 0   |-- all-gather 7 ----|         one collective: the same stage, group and number
rank 1          |= all-gather 7 =|      rank 0 waited until rank 1 came: the pale part
         ^^^^^^^

rank 1   |s|                            one transfer: sender, receiver and number, or microbatch where none was counted
rank 3 |r---|
"""

import numpy as np
import numpy.typing as npt

from telemetry.ship.clock_places import TRANSFERS
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass, Stream
from telemetry.topology import Topology
from ui.records import Ints, SpanColumns

NO_FLOW = 0
SENDS = {int(send): (int(send), 1 if send is Stage.FORWARD_SEND else -1) for send, _ in TRANSFERS}
RECEIVES = {int(receive): (int(send), 1 if send is Stage.FORWARD_SEND else -1) for send, receive in TRANSFERS}
"""Stage -> the send's stage, and the way along the pipeline."""
WITHOUT_A_GROUP = frozenset({Stage.EMBEDDING_GRADS_ALL_REDUCE})
"""Joins ends of the pipeline: no axis of the grid says which."""


def flows(spans: SpanColumns, topology: Topology) -> Ints:
    """The operation of each span, numbered from 1; ``NO_FLOW`` where it is nobody's partner among ``spans``."""
    keys = np.full((len(spans), 4), -1, dtype=np.int64)
    for stage in np.unique(spans.stage).tolist():
        rows = np.flatnonzero(spans.stage == stage)
        keys[rows] = _keys(spans.where(rows), STAGE_BY_CODE[stage], topology)
    order = np.lexsort(keys.T)
    news = np.ones(len(order), dtype=np.bool_)
    news[1:] = (np.diff(keys[order], axis=0) != 0).any(axis=1)
    operation = np.empty(len(order), dtype=np.int64)
    operation[order] = np.cumsum(news) - 1
    shared = (np.bincount(operation, minlength=1)[operation] > 1) & (keys[:, 0] >= 0)
    found = np.full(len(order), NO_FLOW, dtype=np.int64)
    found[shared] = np.unique(operation[shared], return_inverse=True)[1] + 1
    return found


def waited_ns(spans: SpanColumns, flow: Ints, clock: Ints, bound_ns: int) -> Ints:
    """How long each span waited for the last of its partners to come; 0 where that is not known for sure.

    ``clock``: of each span, which clock its stamps are of; 0: aligned with others within ``bound_ns``. A partner that
    came after a span had ended was not waited for.
    """
    waited = np.zeros(len(spans), dtype=np.int64)
    members = np.flatnonzero(flow != NO_FLOW)
    if not len(members):
        return waited
    of, start = flow[members], spans.start_ns[members]
    latest = np.full(int(of.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, of, start)
    wait = latest[of] - start
    known = (wait > bound_ns) & (wait < spans.duration_ns[members]) & _on_one_clock(of, clock[members])
    waited[members] = np.where(known, wait, 0)
    return waited


def _on_one_clock(of: Ints, clock: Ints) -> npt.NDArray[np.bool_]:
    """Of each member: whether all members of its operation have stamps of the same clock."""
    lowest = np.full(int(of.max()) + 1, np.iinfo(np.int64).max)
    highest = np.full(len(lowest), np.iinfo(np.int64).min)
    np.minimum.at(lowest, of, clock)
    np.maximum.at(highest, of, clock)
    return np.asarray(lowest[of] == highest[of])


def _keys(spans: SpanColumns, stage: Stage, topology: Topology) -> Ints:
    """What spans of one operation have in common: four numbers a span; the first is -1 where it has no partner."""
    if stage in SENDS or stage in RECEIVES:
        return _transfer_keys(spans, stage, topology)
    keys = np.full((len(spans), 4), -1, dtype=np.int64)
    if stage.stage_class is not StageClass.COMMUNICATION or stage in WITHOUT_A_GROUP:
        return keys
    counted = spans.op_seq > 0
    across = topology.pp * topology.tp
    group = spans.rank // topology.tp if stage.stream is Stream.TP else spans.rank % across
    keys[counted] = np.column_stack([np.full(len(spans), int(stage)), group, group, spans.op_seq])[counted]
    return keys


def _transfer_keys(spans: SpanColumns, stage: Stage, topology: Topology) -> Ints:
    """Without a recorded peer the neighbour along the pipeline is meant."""
    sends = stage in SENDS
    send, way = SENDS[stage] if sends else RECEIVES[stage]
    peer = np.where(spans.peer >= 0, spans.peer, _neighbour(spans.rank, topology, way if sends else -way))
    sender, receiver = (spans.rank, peer) if sends else (peer, spans.rank)
    number = np.where(spans.op_seq > 0, spans.op_seq, -2 - spans.microbatch * 2**16 - np.maximum(spans.chunk, 0))
    named = (spans.op_seq > 0) | (spans.microbatch >= 0)
    keys = np.column_stack([np.full(len(spans), send), sender, receiver, number])
    keys[~named] = -1
    return keys


def _neighbour(rank: Ints, topology: Topology, way: int) -> Ints:
    pp = rank // topology.tp % topology.pp
    return np.asarray(rank + ((pp + way) % topology.pp - pp) * topology.tp)
