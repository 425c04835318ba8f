"""The stage of a process group's operation: from the purpose of the group and the kind of operation.

tp   all-gather, reduce-scatter, all-reduce, all-to-all      pp   rank i-1  -- forward -->  rank i  -- forward -->  i+1
dp   params-all-gather, grads-reduce-scatter, -all-reduce                  <-- backward --         <-- backward --
cp   all-gather, reduce-scatter, all-reduce, all-to-all, send-recv
ep   all-to-all, all-gather, reduce-scatter

An all-to-all among data-parallel ranks exchanges tokens of experts: expert parallelism often has no axis of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from telemetry.group_names import (
    EMBEDDING_GROUPS,
    NO_PEER,
    Purpose,
    axes_described,
    peer_of_axes,
    purpose_of,
    spans_whole_axes,
)
from telemetry.stages import Stage
from telemetry.topology import Topology


class Operation(Enum):
    """Kinds of operations that can be a stage. OTHER is any other operation."""

    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_REDUCE = "all-reduce"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    SEND = "send"
    RECV = "recv"
    OTHER = "other"


COLLECTIVE_STAGES: dict[tuple[Purpose | None, Operation], Stage] = {
    ("tp", Operation.ALL_GATHER): Stage.TP_ALL_GATHER,
    ("tp", Operation.REDUCE_SCATTER): Stage.TP_REDUCE_SCATTER,
    ("tp", Operation.ALL_REDUCE): Stage.TP_ALL_REDUCE,
    ("tp", Operation.ALL_TO_ALL): Stage.TP_ALL_TO_ALL,
    ("dp", Operation.ALL_GATHER): Stage.PARAMS_ALL_GATHER,
    ("dp", Operation.REDUCE_SCATTER): Stage.GRADS_REDUCE_SCATTER,
    ("dp", Operation.ALL_REDUCE): Stage.GRADS_ALL_REDUCE,
    ("dp", Operation.ALL_TO_ALL): Stage.EP_ALL_TO_ALL,
    ("cp", Operation.ALL_GATHER): Stage.CP_ALL_GATHER,
    ("cp", Operation.REDUCE_SCATTER): Stage.CP_REDUCE_SCATTER,
    ("cp", Operation.ALL_REDUCE): Stage.CP_ALL_REDUCE,
    ("cp", Operation.ALL_TO_ALL): Stage.CP_ALL_TO_ALL,
    ("ep", Operation.ALL_TO_ALL): Stage.EP_ALL_TO_ALL,
    ("ep", Operation.ALL_GATHER): Stage.EP_ALL_GATHER,
    ("ep", Operation.REDUCE_SCATTER): Stage.EP_REDUCE_SCATTER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a group lies in the mesh."""

    mask: int = 0
    """Bit mask of its axes; 0 if not known."""
    name: int = NO_PEER
    """``peer`` of its spans while the mesh is not known."""
    purpose: Purpose | None = None
    embedding: bool = False
    """Whether the group has both ends of a pipeline, for the gradients of an embedding that they share."""

    def collective_stage(self, operation: Operation) -> Stage | None:
        """The stage of a collective; None if there is no such stage."""
        if self.embedding:
            return Stage.EMBEDDING_GRADS_ALL_REDUCE if operation is Operation.ALL_REDUCE else None
        return COLLECTIVE_STAGES.get((self.purpose, operation))

    def transfer_stage(
        self, ranks: Sequence[int], index: int, peer_index: int, topology: Topology, *, sends: bool
    ) -> Stage | None:
        """The stage of a send or receive between two of the ``ranks`` of the group; None if it has none."""
        if self.purpose == "pp":
            return transfer_stage(index, peer_index, len(ranks), sends=sends)
        if self.purpose == "cp":
            return Stage.CP_SEND_RECV
        return transfer_stage_in_mesh(ranks[index], ranks[peer_index], topology, sends=sends)


def place_of(ranks: Sequence[int], description: str, topology: Topology) -> Place:
    """The place of the group of these global ranks: by the mesh, or by its description if it lies along no axes of the
    mesh. A description of expert parallelism has priority: its groups often lie along the axes of data parallelism."""
    if len(ranks) < 2:
        return Place()
    if description.lower() in EMBEDDING_GROUPS:
        return Place(embedding=True)
    described = axes_described(description)
    mask = topology.mask_of(ranks)
    name = peer_of_axes(described, len(ranks)) if spans_whole_axes(description) else NO_PEER
    axes = described if "ep" in described or not mask else topology.axes_of(mask)
    return Place(mask=mask, name=name, purpose=purpose_of(axes))


def transfer_stage(index: int, peer_index: int, group_size: int, *, sends: bool) -> Stage:
    """The stage of a send or receive between two places of a pipeline group.

    The two ends exchange data in the wrap-around of an interleaved schedule. In a group of two ranks the
    wrap-around and the direct way look the same: see ``describe_transfer``.
    """
    to_next = peer_index == index + 1 or (index == group_size - 1 and peer_index == 0 and group_size > 2)
    if sends:
        return Stage.FORWARD_SEND if to_next else Stage.BACKWARD_SEND
    return Stage.BACKWARD_RECV if to_next else Stage.FORWARD_RECV


def transfer_stage_in_mesh(rank: int, peer: int, topology: Topology, *, sends: bool) -> Stage | None:
    """The stage of a send or receive in a group that lies along no axis, such as the group of all ranks. None unless
    the two global ranks differ along ``pp`` alone, or along ``cp`` alone."""
    if not 0 <= max(rank, peer) < topology.world_size:
        return None
    here, there = topology.coordinates(rank), topology.coordinates(peer)
    differing = [name for name in here if here[name] != there[name]]
    if differing == ["cp"]:
        return Stage.CP_SEND_RECV
    if differing == ["pp"]:
        return transfer_stage(here["pp"], there["pp"], topology.pp, sends=sends)
    return None
