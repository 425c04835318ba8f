"""Which stage a kernel of NCCL, or a ``gloo:`` range, is: from its name and from what kineto records beside it.

    ncclKernel_AllReduce_RING_LL_Sum_float              NCCL up to 2.18
    ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)        since
    ncclDevKernel_Generic_4(...)                        "Collective name" tells what it is

    args: "Collective name": "_allgather_base", "In msg nelems": 1048576, "dtype": "BFloat16", "Seq": 7,
          "Process Group Name": "12", "Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 1]",
          "Src Rank": 0, "Dst Rank": 1

The stages are those of live runs (``telemetry/record/collectives/stage_names.py``): by where the ranks of a group lie
in the mesh, else by its description. If neither is known (gloo, old files), the group is along the only axis there is,
else dp. A group that is known to lie along no axis has no stage, nor has a transfer whose other side is not known.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from telemetry.group_names import EMBEDDING_GROUPS, axes_described, purpose_of, spans_whole_axes
from telemetry.imports.kineto_file import Group, listed_ranks
from telemetry.record.collectives.stage_names import Operation, Place, place_of, transfer_stage, transfer_stage_in_mesh
from telemetry.stages import Stage
from telemetry.topology import NO_PEER, Topology, peer_of_mask

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
    place = _place(group, topology)
    if operation in (Operation.SEND, Operation.RECV):
        return _transfer(operation, group, place, args, rank, topology)
    return place.collective_stage(operation), peer_of_mask(place.mask)


def _place(group: Group, topology: Topology) -> Place:
    """Where a group lies: as in live runs where its ranks are told, else as its description says."""
    if group.ranks:
        return place_of(group.ranks, group.desc, topology)
    if group.desc.lower() in EMBEDDING_GROUPS:
        return Place(embedding=True)
    described = axes_described(group.desc)
    if described:
        whole = described if spans_whole_axes(group.desc) else ()
        return Place(mask=topology.wide_mask(*whole), purpose=purpose_of(described))
    purposes = {purpose_of((name,)) for name, degree in topology.mesh if degree > 1}
    return Place(purpose=purposes.pop() if len(purposes) == 1 else "dp")


def _transfer(
    operation: Operation, group: Group, place: Place, args: Mapping[str, Any], rank: int, topology: Topology
) -> tuple[Stage | None, int]:
    sends = operation is Operation.SEND
    told = args.get("Dst Rank" if sends else "Src Rank")
    others = [one for one in group.ranks or topology.group(rank, along="pp") if one != rank]
    peer = told if isinstance(told, int) else others[0] if len(others) == 1 else -1
    if peer == rank or not 0 <= peer < topology.world_size or (group.ranks and peer not in others):
        return None, NO_PEER
    stage = _transfer_stage(place, group.ranks, rank, peer, topology, sends=sends)
    return stage, NO_PEER if stage is None else peer


def _transfer_stage(
    place: Place, ranks: Sequence[int], rank: int, peer: int, topology: Topology, *, sends: bool
) -> Stage | None:
    if place.purpose == "cp":
        return Stage.CP_SEND_RECV
    if place.purpose == "pp" and rank in ranks:
        return transfer_stage(ranks.index(rank), ranks.index(peer), len(ranks), sends=sends)
    return transfer_stage_in_mesh(rank, peer, topology, sends=sends)


def _count(value: Any, *, most: int) -> int:
    """A count from 0 to ``most``; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else 0
