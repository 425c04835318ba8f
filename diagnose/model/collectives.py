"""Where ranks meet: collectives of a group and transfers of a pair, split into waiting and transfer without a clock.

    dp0   |-----------------|     all members of a collective end together, so the one that starts last has the
    dp1        |------------|     shortest duration:
    dp2             |=======|     <- last        transfer = the shortest,  wait of a member = its own less the transfer

Stamps of different hosts are never compared (the late-arriver rule on durations alone: algorithm 4 of the field's
list; MegaScale 6.3, Holmes). The same holds for the two sides of a send.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import ABSENT, Operations, by_mask
from diagnose.model.peers import MEDIAN_EFFICIENCY, robust_sigma
from diagnose.model.view import IntVector
from telemetry.stages import Stage, Stream
from telemetry.topology import Axis, Topology

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DP_STAGES = (
    Stage.PARAMS_ALL_GATHER,
    Stage.GRADS_REDUCE_SCATTER,
    Stage.GRADS_ALL_REDUCE,
    Stage.SEPARATE_GRADS_ALL_REDUCE,
)
"""Collectives of parameters and gradients: along all axes but pp and tp, where nothing else was recorded."""
TP_STAGES = tuple(stage for stage in Stage if stage.stream is Stream.TP)
"""Collectives along the tensor-parallel axis."""
COLUMNS_THAT_TELL = 1024
"""So many show how much all of them scatter."""
PAIRS = ((Stage.FORWARD_SEND, Stage.FORWARD_RECV, 1), (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV, -1))
"""Send, receive, and where the receiver lies along the pipeline where no peer was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """All collectives of one stage. A collective that not every member recorded is left out: NaN."""

    stage: Stage
    duration_ns: Floats
    """[steps, occurrences, groups, members]."""
    ranks: Ints
    """Global ranks, [groups, members]; of a pair the sender, then the receiver."""
    alike: IntVector
    """[groups]: groups of equal number carry the same amount of data (the same pipeline stage, or edge)."""

    @property
    def transfer_ns(self) -> Floats:
        """[steps, occurrences, groups]."""
        return np.asarray(self.duration_ns.min(axis=3))

    def transfer_total_ns(self) -> Floats:
        """Transfer of each group in each step, [steps, groups]; NaN where it never met, or not completely."""
        transfer = self.transfer_ns
        known = ~np.isnan(transfer)
        usual = known.sum(axis=1)
        total = np.where(known, transfer, 0.0).sum(axis=1)
        total[(usual == 0) | (usual < np.median(usual, axis=0))] = np.nan
        return np.asarray(total)


def met_along(stage: Stage) -> Axis | None:
    """The axis of the grid along which the members of a collective lie; None of every other stage, and of the reduction
    of embeddings, whose members are the ends of a pipeline."""
    return "dp" if stage in DP_STAGES else "tp" if stage in TP_STAGES else None


def all_collectives(operations: Mapping[Stage, Operations], topology: Topology) -> list[Collectives]:
    """Collectives of parameters and gradients, and transfers along the pipeline, as far as they were recorded."""
    groups = [
        one
        for stage in DP_STAGES
        if stage in operations
        for one in group_collectives(stage, operations[stage], topology)
    ]
    pairs = [
        pair_transfers(send, operations[send], operations[recv], topology, towards=towards)
        for send, recv, towards in PAIRS
        if send in operations and recv in operations
    ]
    return [one for one in (*groups, *pairs) if len(one.ranks)]


def group_collectives(stage: Stage, one: Operations, topology: Topology) -> list[Collectives]:
    """Collectives of the groups of a collective, one entry for each set of axes that such groups lie along: those that
    were recorded, else those of the stage. The gradient norm is seen by the replicas of each place alone. Groups of a
    single rank are left out."""
    found = []
    for mask, duration_ns in by_mask(stage, one, topology):
        ranks = topology.members(mask)
        if ranks.shape[1] > 1:
            duration = complete(topology.grouped(duration_ns, mask))
            alike = topology.index["pp"][ranks[:, 0]]
            found.append(Collectives(stage=stage, duration_ns=duration, ranks=ranks, alike=alike))
    return found


def pair_transfers(
    stage: Stage, sends: Operations, receives: Operations, topology: Topology, *, towards: int
) -> Collectives:
    """The n-th send of a rank to its peer with the n-th receive of that peer from it.

    Without recorded peers the next (or previous) pipeline rank of the same dp and tp is meant. Left out are ranks
    that send to, or receive from, several peers in this stage, and steps in which one side counts more than the other.
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
    """Pairs of pipeline neighbours, where a send ends as soon as it is buffered (gloo), so that no duration tells how
    long the transfer took; None where there are none.

        a   |send->|                   |<-recv |      there: from the send's start to the receive's end, by the clocks
        b       |recv->|      |<-send|                of both; back likewise: in the sum their difference drops out

    Of each way the shortest in a step: other microbatches wait for a receiver that is busy. Both members get half of
    the sum, so that the transfer is the mean of there and back. (After NTP's two-way exchange, RFC 5905 section 8.)
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
    """By sender and receiver: from a send's start to its receive's end, the shortest of each step, [steps]."""
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


def _peers(one: Operations, topology: Topology, towards: int) -> Ints:
    """The one peer of each rank in this stage, [ranks]; -1: none, or several."""
    known = np.where(one.present, np.maximum(one.peer, ABSENT), ABSENT)
    peer: Ints = known.max(axis=(0, 1)).astype(np.int64)
    several = ((known != peer) & (known != ABSENT)).any(axis=(0, 1))
    silent = one.present.any(axis=(0, 1)) & (peer == ABSENT)
    peer[silent] = topology.neighbour(towards)[silent]
    peer[several | (peer >= topology.world_size)] = ABSENT
    return peer


def complete(duration_ns: npt.NDArray[np.int64]) -> Floats:
    """Durations as floats; NaN for all members (the last axis) where one of them has none."""
    whole = (duration_ns >= 0).all(axis=-1, keepdims=True)
    return np.where(whole, duration_ns, np.nan).astype(np.float64)


def median_of_others(values: Floats) -> Floats:
    """Along the last axis, for each member the median of all others; shape as given. NaN where one member is NaN.

    With one member there are no others: NaN.
    """
    count = values.shape[-1]
    if count < 2:
        return np.full(values.shape, np.nan)
    ordered = np.sort(values, axis=-1)
    middle = count // 2
    if count % 2 == 0:
        low, high = ordered[..., middle - 1, None], ordered[..., middle, None]
        others = np.where(values <= low, high, low)
    else:
        low, mid, high = (ordered[..., middle + by, None] for by in (-1, 0, 1))
        others = np.where(values < mid, mid + high, np.where(values > mid, low + mid, low + high)) / 2
    return np.asarray(np.where(np.isnan(ordered[..., -1:]), np.nan, others))


def noise_between_steps(values: Floats, floor: float) -> float:
    """How much a column of ``values`` [steps, columns] moves from step to step, a robust standard deviation.

    By differences of neighbouring steps: where a column's level changes within the window, that is no noise. It
    matters where columns are few, and one that jumps is half of them. Of very many columns some tell of all.
    """
    change = np.diff(values[:, :: max(1, values.shape[1] // COLUMNS_THAT_TELL)], axis=0).ravel()
    return robust_sigma(change, floor * np.sqrt(2.0)) / float(np.sqrt(2.0))


def least_excess(z: float, noise: float, num_rows: int) -> float:
    """The median that ``z`` standard errors ask for at least: that of a stretch over all rows."""
    return float(z * MEDIAN_EFFICIENCY * noise / np.sqrt(max(num_rows, 1)))


def starts_late_ns(collectives: Collectives) -> Floats:
    """How much later than the median of the others each member started, [steps, occurrences, groups, members].

    Negative for one that started earlier. All members end together: who started later has the shorter duration.
    """
    return median_of_others(collectives.duration_ns) - collectives.duration_ns
