"""Which stage a kernel of NCCL, or a ``gloo:`` range, is: from its name and from what kineto records beside it.

    ncclKernel_AllReduce_RING_LL_Sum_float              NCCL up to 2.18
    ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)        since
    ncclDevKernel_Generic_4(...)                        "Collective name" tells what it is

    args: "Collective name": "_allgather_base", "In msg nelems": 1048576, "dtype": "BFloat16", "Seq": 7,
          "Process Group Name": "12", "Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 1]",
          "Src Rank": 0, "Dst Rank": 1

The axis of a group is what its description says, else where its ranks lie in the grid. Where neither is told (gloo,
old files) it is the only axis there is, else dp. A group that is known to lie along no axis has no stage, nor has a
transfer whose other side is not told.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from telemetry.imports.kineto_file import Group, listed_ranks
from telemetry.integrations.stage_names import Operation, axis_of, collective_stage, transfer_stage
from telemetry.stages import Stage
from telemetry.topology import AXES, Axis, Topology

_OPERATIONS = (
    ("reducescatter", Operation.REDUCE_SCATTER),
    ("allreduce", Operation.ALL_REDUCE),
    ("allgather", Operation.ALL_GATHER),
    ("alltoall", Operation.OTHER),
    ("sendrecv", Operation.OTHER),
    ("send", Operation.SEND),
    ("recv", Operation.RECV),
)
"""What the letters of a name hold; the first that fits."""
_AXES: Mapping[str, Axis] = {
    **dict.fromkeys(("tp", "mesh_tp", "tensor_model_parallel_group"), "tp"),
    **dict.fromkeys(("pp", "mesh_pp", "pipeline_model_parallel_group"), "pp"),
    **dict.fromkeys(("dp", "mesh_dp", "mesh_fsdp", "mesh_dp_shard", "mesh_dp_replicate"), "dp"),
    **dict.fromkeys(("data_parallel_group", "data_parallel_group_with_cp"), "dp"),
}
"""Descriptions that DeviceMesh and Megatron give their groups."""
_EMBEDDING = "embedding_group"
_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A collective or a transfer, as it is stored."""

    stage: Stage
    line: str
    """What its number counts along: the group, the kind, and the other side."""
    seq: int
    """Its number as the group counts; 0: not told."""
    peer: int
    size_bytes: int


def is_nccl(name: str) -> bool:
    return "nccl" in name[:32].lower()


def axis_described(desc: str) -> Axis | None:
    """The axis that a group's description names."""
    return _AXES.get(desc.lower())


def exchange(
    name: str, args: Mapping[str, Any], groups: Mapping[str, Group], rank: int, topology: Topology
) -> Exchange | None:
    """What a kernel or range of that name does; None where that has no stage."""
    operation = _operation(str(args.get("Collective name") or ""), name)
    key = str(args.get("Process Group Name", ""))
    group = _group(args, groups.get(key, Group()))
    stage, peer = _stage_and_peer(operation, group, args, rank, topology)
    if stage is None:
        return None
    return Exchange(
        stage=stage,
        line=f"{key} {stage} {peer}",
        seq=_count(args.get("Seq"), most=2**32 - 2),
        peer=peer,
        size_bytes=_count(args.get("In msg nelems"), most=2**50) * _BYTES.get(str(args.get("dtype")), 0),
    )


def _operation(collective: str, kernel: str) -> Operation:
    for name in (collective, kernel.partition("(")[0]):
        letters = re.sub("[^a-z]", "", name.lower())
        found = next((operation for part, operation in _OPERATIONS if part in letters), None)
        if found is not None:
            return found
    return Operation.OTHER


def _group(args: Mapping[str, Any], told: Group) -> Group:
    """What the event says of its group, and the list of groups where it does not."""
    return Group(
        desc=str(args.get("Process Group Description") or told.desc),
        ranks=listed_ranks(args.get("Process Group Ranks")) or told.ranks,
    )


def _stage_and_peer(
    operation: Operation, group: Group, args: Mapping[str, Any], rank: int, topology: Topology
) -> tuple[Stage | None, int]:
    if operation in (Operation.SEND, Operation.RECV):
        return _transfer(operation, group, args, rank, topology)
    if group.desc.lower() == _EMBEDDING:
        return (Stage.EMBEDDING_GRADS_ALL_REDUCE if operation is Operation.ALL_REDUCE else None), -1
    return collective_stage(_axis(group, rank, topology), operation), -1


def _axis(group: Group, rank: int, topology: Topology) -> Axis | None:
    described = axis_described(group.desc)
    if described is not None:
        return described
    if group.ranks:
        return axis_of(group.ranks, rank, topology)
    wide = [axis for axis in AXES if getattr(topology, axis) > 1]
    return wide[0] if len(wide) == 1 else "dp"


def _transfer(
    operation: Operation, group: Group, args: Mapping[str, Any], rank: int, topology: Topology
) -> tuple[Stage | None, int]:
    sends = operation is Operation.SEND
    told = args.get("Dst Rank" if sends else "Src Rank")
    pipeline = topology.group(rank, along="pp")
    others = [one for one in group.ranks or pipeline if one != rank]
    peer = told if isinstance(told, int) else others[0] if len(others) == 1 else -1
    if peer == rank or peer not in pipeline:
        return None, -1
    return transfer_stage(pipeline.index(rank), pipeline.index(peer), len(pipeline), sends=sends), peer


def _count(value: Any, *, most: int) -> int:
    """A count from 0 to ``most``; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else 0
