"""Collectives of a group and transfers of a pair, split into waiting time and transfer time.

    dp0   |-----------------|     All members of a collective end together. So the one that starts last has the
    dp1        |------------|     shortest duration:
    dp2             |=======|     <- last        transfer = shortest duration,  wait of a member = its own - transfer

Times of different hosts are never compared. Durations are enough (MegaScale 6.3, Holmes). The same holds for the two
sides of a send.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import ABSENT, Floats, Ints, Operations, by_mask
from diagnose.model.peers import median_of_others
from telemetry.stages import Stage, Stream
from telemetry.topology import Axis, Topology

DP_STAGES = (
    Stage.PARAMS_ALL_GATHER,
    Stage.GRADS_REDUCE_SCATTER,
    Stage.GRADS_ALL_REDUCE,
    Stage.SEPARATE_GRADS_ALL_REDUCE,
)
"""Collectives of parameters and gradients: along all axes but pp and tp, if no group was recorded."""
TP_STAGES = tuple(stage for stage in Stage if stage.stream is Stream.TP)
"""Collectives along the tensor-parallel axis."""
INNER_GROUP_STAGES = tuple(
    stage for stage in Stage if stage.stream in (Stream.CP, Stream.EP) and stage is not Stage.CP_SEND_RECV
)
"""Collectives of context and expert parallelism. Their axes are a part of the grid's ``dp`` direction, or more."""
GROUP_STAGES = (*DP_STAGES, *TP_STAGES, *INNER_GROUP_STAGES)
"""Collectives of all ranks of a group along some axes of the mesh."""
PAIRS = ((Stage.FORWARD_SEND, Stage.FORWARD_RECV, 1), (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV, -1))
"""Send, receive, and the direction of the receiver along the pipeline if no peer was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """All collectives of one stage. NaN if one member did not record the collective."""

    stage: Stage
    duration_ns: Floats
    """[steps, occurrences, groups, members]."""
    ranks: Ints
    """Global ranks, [groups, members]. In a pair: the sender, then the receiver."""
    alike: Ints
    """[groups]: groups with the same number transfer the same amount of data (same pipeline stage, or edge)."""

    @property
    def transfer_ns(self) -> Floats:
        """Transfer time of each collective, [steps, occurrences, groups]."""
        return np.asarray(self.duration_ns.min(axis=3))

    def transfer_total_ns(self) -> Floats:
        """Transfer of each group in each step, [steps, groups]. NaN if collectives are missing or incomplete."""
        transfer = self.transfer_ns
        known = ~np.isnan(transfer)
        usual = known.sum(axis=1)
        total = np.where(known, transfer, 0.0).sum(axis=1)
        total[(usual == 0) | (usual < np.median(usual, axis=0))] = np.nan
        return np.asarray(total)


def group_axis(stage: Stage) -> Axis | None:
    """The axis of the grid along which the members of a collective lie.

    None for other stages, for ``INNER_GROUP_STAGES``, and for the reduction of embeddings, whose members are the ends
    of a pipeline.
    """
    return "dp" if stage in DP_STAGES else "tp" if stage in TP_STAGES else None


def all_collectives(operations: Mapping[Stage, Operations], topology: Topology) -> list[Collectives]:
    """The recorded collectives of parameters and gradients, and the recorded transfers along the pipeline."""
    groups = [
        of_groups
        for stage in DP_STAGES
        if stage in operations
        for of_groups in group_collectives(stage, operations[stage], topology)
    ]
    pairs = [
        pair_transfers(send, operations[send], operations[recv], topology, towards=towards)
        for send, recv, towards in PAIRS
        if send in operations and recv in operations
    ]
    return [collectives for collectives in (*groups, *pairs) if len(collectives.ranks)]


def group_collectives(stage: Stage, operations: Operations, topology: Topology) -> list[Collectives]:
    """Collectives of a stage, one entry for each set of axes: the recorded axes, otherwise those of the stage.

    The gradient norm is compared between replicas only. Groups of a single rank are left out.
    """
    found = []
    for mask, duration_ns in by_mask(stage, operations, topology):
        ranks = topology.members(mask)
        if ranks.shape[1] > 1:
            duration = complete(topology.grouped(duration_ns, mask))
            alike = topology.index["pp"][ranks[:, 0]]
            found.append(Collectives(stage=stage, duration_ns=duration, ranks=ranks, alike=alike))
    return found


def pair_transfers(
    stage: Stage, sends: Operations, receives: Operations, topology: Topology, *, towards: int
) -> Collectives:
    """Pair the n-th send of a rank to its peer with the n-th receive of that peer from it.

    Without recorded peers, the peer is the next (or previous) pipeline rank of the same dp and tp. Left out are ranks
    with several peers in this stage, and steps in which one side has more operations than the other.
    """
    receiver = _peers(sends, topology, towards)
    source = _peers(receives, topology, -towards)
    sender = np.flatnonzero(receiver != ABSENT)
    sender = sender[source[receiver[sender]] == sender]
    receiver = receiver[sender]
    most = min(sends.duration_ns.shape[1], receives.duration_ns.shape[1])
    duration = np.stack([sends.duration_ns[:, :most, sender], receives.duration_ns[:, :most, receiver]], axis=3)
    same = sends.present.sum(axis=1)[:, sender] == receives.present.sum(axis=1)[:, receiver]
    return Collectives(
        stage=stage,
        duration_ns=complete(np.where(same[:, None, :, None], duration, ABSENT)),
        ranks=np.stack([sender, receiver], axis=1),
        alike=topology.index["pp"][sender],
    )


def round_trips(operations: Mapping[Stage, Operations], topology: Topology) -> Collectives | None:
    """Round trips of pipeline neighbours, for gloo: a send ends when it is buffered, so its duration is no transfer.

        a   |send->|                   |<-recv |      there: from the start of the send to the end of the receive, by
        b       |recv->|      |<-send|                both clocks; back likewise. The clock difference cancels out.

    The shortest way of each step counts: other microbatches wait for a busy receiver. Each member gets half of the sum,
    so the transfer is the mean of both ways. (NTP's two-way exchange, RFC 5905 section 8.) None without round trips.
    """
    if not all(stage in operations for pair in PAIRS for stage in pair[:2]):
        return None
    there, back = (
        _shortest_ways(operations[send], operations[recv], topology, towards) for send, recv, towards in PAIRS
    )
    pairs = [(a, b) for a, b in there if (b, a) in back]
    if not pairs:
        return None
    half = np.stack([(there[a, b] + back[b, a]) / 2 for a, b in pairs], axis=1)
    half[half <= 0] = np.nan
    ranks = np.array(pairs, dtype=np.int64)
    return Collectives(
        stage=Stage.FORWARD_SEND,
        duration_ns=np.repeat(half[:, None, :, None], 2, axis=3),
        ranks=ranks,
        alike=topology.index["pp"][ranks[:, 0]],
    )


def _shortest_ways(
    sends: Operations, receives: Operations, topology: Topology, towards: int
) -> dict[tuple[int, int], Floats]:
    """(Sender, receiver) -> shortest time in each step from start of a send to end of its receive, [steps]."""
    receiver, source = _peers(sends, topology, towards), _peers(receives, topology, -towards)
    most = min(sends.duration_ns.shape[1], receives.duration_ns.shape[1])
    found: dict[tuple[int, int], Floats] = {}
    for a in np.flatnonzero(receiver != ABSENT).tolist():
        b = int(receiver[a])
        if source[b] == a:
            known = sends.present[:, :most, a] & receives.present[:, :most, b]
            way = np.where(known, receives.end_ns[:, :most, b] - sends.start_ns[:, :most, a], np.inf).min(axis=1)
            found[a, b] = np.where(np.isfinite(way), way, np.nan)
    return found


def _peers(operations: Operations, topology: Topology, towards: int) -> Ints:
    """The only peer of each rank in this stage, [ranks]. -1 for a rank without a peer or with several."""
    known = np.where(operations.present, np.maximum(operations.peer, ABSENT), ABSENT)
    peer: Ints = known.max(axis=(0, 1)).astype(np.int64)
    several = ((known != peer) & (known != ABSENT)).any(axis=(0, 1))
    unrecorded = operations.present.any(axis=(0, 1)) & (peer == ABSENT)
    peer[unrecorded] = topology.neighbour(towards)[unrecorded]
    peer[several | (peer >= topology.world_size)] = ABSENT
    return peer


def complete(duration_ns: Ints) -> Floats:
    """Durations as floats. NaN for all members (last axis) if one member has no duration."""
    whole = (duration_ns >= 0).all(axis=-1, keepdims=True)
    return np.where(whole, duration_ns, np.nan).astype(np.float64)


def starts_late_ns(collectives: Collectives) -> Floats:
    """How much later than the median of the others each member started, [steps, occurrences, groups, members].

    Negative if it started earlier. All members end together, so the latest has the shortest duration.
    """
    return median_of_others(collectives.duration_ns) - collectives.duration_ns
