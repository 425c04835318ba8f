"""Which stage an operation of a process group is: from the group's place in the grid and the kind of operation.

tp   all-gather, reduce-scatter, all-reduce                  pp   rank i-1  -- forward -->  rank i  -- forward -->  i+1
dp   params-all-gather, grads-reduce-scatter, -all-reduce                  <-- backward --         <-- backward --
"""

from collections.abc import Sequence
from enum import Enum

from telemetry.stages import Stage
from telemetry.topology import AXES, Axis, Topology


class Operation(Enum):
    """Kinds of operation that can be a stage; OTHER is every one that is not."""

    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_REDUCE = "all-reduce"
    SEND = "send"
    RECV = "recv"
    ALL_TO_ALL = "all-to-all"
    OTHER = "other"


COLLECTIVE_STAGES: dict[tuple[Axis | None, Operation], Stage] = {
    ("tp", Operation.ALL_GATHER): Stage.TP_ALL_GATHER,
    ("tp", Operation.REDUCE_SCATTER): Stage.TP_REDUCE_SCATTER,
    ("tp", Operation.ALL_REDUCE): Stage.TP_ALL_REDUCE,
    ("dp", Operation.ALL_GATHER): Stage.PARAMS_ALL_GATHER,
    ("dp", Operation.REDUCE_SCATTER): Stage.GRADS_REDUCE_SCATTER,
    ("dp", Operation.ALL_REDUCE): Stage.GRADS_ALL_REDUCE,
}


def axis_of(ranks: Sequence[int], rank: int, topology: Topology) -> Axis | None:
    """The axis along which a group of global ranks lies, as seen by one of them; None where it is no axis of more than
    one rank."""
    if len(ranks) < 2 or not set(ranks) <= set(range(topology.world_size)):
        return None
    return next(
        (axis for axis in AXES if tuple(sorted(ranks)) == tuple(sorted(topology.group(rank, along=axis)))), None
    )


def axis_named(group_desc: str) -> Axis | None:
    """The axis in the name that a DeviceMesh gives its groups: ``mesh_tp``."""
    return next((axis for axis in AXES if group_desc == f"mesh_{axis}"), None)


def collective_stage(axis: Axis | None, operation: Operation) -> Stage | None:
    """The stage of a collective; None where none is named after it."""
    return COLLECTIVE_STAGES.get((axis, operation))


def transfer_stage(index: int, peer_index: int, group_size: int, *, sends: bool) -> Stage:
    """The stage of a send or receive between two places of a pipeline group.

    A neighbour's direction is known; between the two ends it is the wrap-around of an interleaved schedule. With two
    ranks in the group the wrap-around cannot be told from the direct way: see ``describe_transfer``.
    """
    to_next = peer_index == index + 1 or (index == group_size - 1 and peer_index == 0 and group_size > 2)
    if sends:
        return Stage.FORWARD_SEND if to_next else Stage.BACKWARD_SEND
    return Stage.BACKWARD_RECV if to_next else Stage.FORWARD_RECV
