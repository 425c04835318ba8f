"""Which stage a kernel of NCCL, or a ``gloo:`` range, is: from its name and from what kineto records beside it.

    ncclKernel_AllReduce_RING_LL_Sum_float              NCCL up to 2.18
    ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)        since
    ncclDevKernel_Generic_4(...)                        "Collective name" tells what it is

    args: "Collective name": "_allgather_base", "In msg nelems": 1048576, "dtype": "BFloat16", "Seq": 7,
          "Process Group Name": "12", "Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 1]",
          "Src Rank": 0, "Dst Rank": 1

What a group is for is what its description says (``telemetry/group_names.py``), else where its ranks lie in the mesh.
Where neither is told (gloo, old files) it is the only axis there is, else dp. A group that is known to lie along no
axis has no stage, nor has a transfer whose other side is not told.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from telemetry.group_names import EMBEDDING_GROUPS, Purpose, axes_described, purpose_of, spans_whole_axes
from telemetry.imports.kineto_file import Group, listed_ranks
from telemetry.integrations.stage_names import Operation, transfer_stage
from telemetry.stages import Stage
from telemetry.tables import GROUP_BASE, NO_PEER
from telemetry.topology import Topology

_OPERATIONS = (
    ("reducescatter", Operation.REDUCE_SCATTER),
    ("allreduce", Operation.ALL_REDUCE),
    ("allgather", Operation.ALL_GATHER),
    ("alltoall", Operation.ALL_TO_ALL),
    ("sendrecv", Operation.OTHER),
    ("send", Operation.SEND),
    ("recv", Operation.RECV),
)
"""What the letters of a name hold; the first that fits."""
_STAGES: Mapping[tuple[Purpose, Operation], Stage] = {
    ("cp", Operation.ALL_GATHER): Stage.CP_ALL_GATHER,
    ("cp", Operation.REDUCE_SCATTER): Stage.CP_REDUCE_SCATTER,
    ("cp", Operation.ALL_REDUCE): Stage.CP_ALL_REDUCE,
    ("cp", Operation.ALL_TO_ALL): Stage.CP_ALL_TO_ALL,
    ("ep", Operation.ALL_TO_ALL): Stage.EP_ALL_TO_ALL,
    ("ep", Operation.ALL_GATHER): Stage.EP_ALL_GATHER,
    ("ep", Operation.REDUCE_SCATTER): Stage.EP_REDUCE_SCATTER,
    ("tp", Operation.ALL_TO_ALL): Stage.TP_ALL_TO_ALL,
    ("tp", Operation.ALL_GATHER): Stage.TP_ALL_GATHER,
    ("tp", Operation.REDUCE_SCATTER): Stage.TP_REDUCE_SCATTER,
    ("tp", Operation.ALL_REDUCE): Stage.TP_ALL_REDUCE,
    ("dp", Operation.ALL_GATHER): Stage.PARAMS_ALL_GATHER,
    ("dp", Operation.REDUCE_SCATTER): Stage.GRADS_REDUCE_SCATTER,
    ("dp", Operation.ALL_REDUCE): Stage.GRADS_ALL_REDUCE,
}
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
    if group.desc.lower() in EMBEDDING_GROUPS:
        return (Stage.EMBEDDING_GRADS_ALL_REDUCE if operation is Operation.ALL_REDUCE else None), NO_PEER
    purpose, mask = _purpose(group, topology), _mask(group, topology)
    stage = None if purpose is None else _STAGES.get((purpose, operation))
    return stage, GROUP_BASE - mask if mask else NO_PEER


def _purpose(group: Group, topology: Topology) -> Purpose | None:
    described = axes_described(group.desc)
    if described or group.ranks:
        return purpose_of(described or topology.axes_of(topology.mask_of(group.ranks)))
    wide = {purpose_of((name,)) for name, degree in topology.mesh if degree > 1}
    return wide.pop() if len(wide) == 1 else "dp"


def _mask(group: Group, topology: Topology) -> int:
    """The axes of the mesh along which the group lies; 0 where that is not known."""
    if group.ranks:
        return topology.mask_of(group.ranks)
    named = axes_described(group.desc) if spans_whole_axes(group.desc) else ()
    return topology.mask(*(name for name, degree in topology.mesh if name in named and degree > 1))


def _transfer(
    operation: Operation, group: Group, args: Mapping[str, Any], rank: int, topology: Topology
) -> tuple[Stage | None, int]:
    sends = operation is Operation.SEND
    told = args.get("Dst Rank" if sends else "Src Rank")
    pipeline = topology.group(rank, along="pp")
    others = [one for one in group.ranks or pipeline if one != rank]
    peer = told if isinstance(told, int) else others[0] if len(others) == 1 else -1
    if axes_described(group.desc) == ("cp",):
        return (Stage.CP_SEND_RECV, peer) if 0 <= peer < topology.world_size and peer != rank else (None, NO_PEER)
    if peer == rank or peer not in pipeline:
        return None, -1
    return transfer_stage(pipeline.index(rank), pipeline.index(peer), len(pipeline), sends=sends), peer


def _count(value: Any, *, most: int) -> int:
    """A count from 0 to ``most``; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else 0
