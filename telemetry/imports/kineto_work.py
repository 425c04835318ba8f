"""Compute spans and collectives of a rank: from GPU kernels, or from CPU operators if there is no GPU.

    host     |- forward: launches -|- autograd: launches -|- Optimizer.step: launches -|
    GPU          |k|k|k| nccl |k|k|      |k|k|  |k|k|          |k|
    spans        |-----|      |---|      |---|  |---|          |-|
                 forward-compute         backward-compute      optimizer

A kernel belongs to the step and the phase in which the host launched it: ``optimizer`` inside torch's own
``Optimizer.*`` ranges; ``backward-compute`` inside a user's range of that name, or where autograd calls its functions;
everything else is ``forward-compute``. Kernels that directly follow each other are one span, so no span contains a wait
for another rank. Copies and fills do not count as compute.

The stage of an NCCL kernel, or of a ``gloo:`` range, comes from its name and from the arguments beside it:

    ncclKernel_AllReduce_RING_LL_Sum_float              NCCL up to 2.18
    ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)        since
    ncclDevKernel_Generic_4(...)                        "Collective name" has the kind

    args: "Collective name": "_allgather_base", "In msg nelems": 1048576, "dtype": "BFloat16", "Seq": 7,
          "Process Group Name": "12", "Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 1]",
          "Src Rank": 0, "Dst Rank": 1

The stages are those of live runs (``telemetry/record/collectives/stage_names.py``): by the axes that the ranks of a
group span, otherwise by its description. If neither is known (gloo, old files), the group is along the only axis of the
mesh, otherwise along dp. A broadcast has one stage in all groups. In a group along no axis, or along axes of different
purposes, an all-to-all is ``ep-all-to-all``. Other operations there, and transfers to unknown peers, have no stage.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.group_names import EMBEDDING_GROUPS, NO_PEER, axes_described, peer_of_mask, purpose_of, spans_whole_axes
from telemetry.imports.intervals import Ints, Ranges, inside, merged, without
from telemetry.imports.kineto_file import Group, TraceFile, listed_ranks
from telemetry.record.collectives.stage_names import Operation, Place, place_of, transfer_stage, transfer_stage_in_mesh
from telemetry.stages import Stage
from telemetry.topology import Topology

_OPERATIONS = (
    ("reducescatter", Operation.REDUCE_SCATTER),
    ("allreduce", Operation.ALL_REDUCE),
    ("allgather", Operation.ALL_GATHER),
    ("alltoall", Operation.ALL_TO_ALL),
    ("broadcast", Operation.BROADCAST),
    ("sendrecv", Operation.OTHER),
    ("send", Operation.SEND),
    ("recv", Operation.RECV),
)
"""Part of a name -> its meaning. The first match is used."""
UNPLACED = "unplaced"
"""Description of a group that may lie along any axis."""
_ANY_GROUP = {Operation.ALL_TO_ALL: Stage.EP_ALL_TO_ALL, Operation.BROADCAST: Stage.BROADCAST}
"""Stages of operations in groups along no axis, or along axes of different purposes."""
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
    """Key of operations that are numbered together: group, stage and peer."""
    seq: int
    """Its number within the group; 0 if unknown."""
    peer: int
    size_bytes: int


def is_nccl(name: str) -> bool:
    return "nccl" in name[:32].lower()


def exchange(
    name: str, args: Mapping[str, Any], groups: Mapping[str, Group], rank: int, topology: Topology
) -> Exchange | None:
    """The operation of a kernel or range with that name. None if it has no stage."""
    operation = _operation(str(args.get("Collective name") or ""), name)
    key = str(args.get("Process Group Name", ""))
    group = _group(args, groups.get(key, Group()))
    stage, peer = _stage_and_peer(operation, group, args, rank, topology)
    if stage is None:
        return None
    counted = "Out msg nelems" if operation is Operation.ALL_TO_ALL else "In msg nelems"
    return Exchange(
        stage=stage,
        line=f"{key} {stage} {peer}",
        seq=_count(args.get("Seq"), most=2**32 - 2),
        peer=peer,
        size_bytes=_count(args.get(counted), most=2**50) * _BYTES.get(str(args.get("dtype")), 0),
    )


def _operation(collective: str, kernel: str) -> Operation:
    for name in (collective, kernel.partition("(")[0]):
        letters = re.sub("[^a-z]", "", name.lower())
        found = next((operation for part, operation in _OPERATIONS if part in letters), None)
        if found is not None:
            return found
    return Operation.OTHER


def _group(args: Mapping[str, Any], known: Group) -> Group:
    """The group of an event. Missing values are read from the list of groups."""
    return Group(
        desc=str(args.get("Process Group Description") or known.desc),
        ranks=listed_ranks(args.get("Process Group Ranks")) or known.ranks,
    )


def _stage_and_peer(
    operation: Operation, group: Group, args: Mapping[str, Any], rank: int, topology: Topology
) -> tuple[Stage | None, int]:
    place = _place(group, topology)
    if operation in (Operation.SEND, Operation.RECV):
        return _transfer(operation, group, place, args, rank, topology)
    return place.collective_stage(operation) or _ANY_GROUP.get(operation), peer_of_mask(place.mask)


def _place(group: Group, topology: Topology) -> Place:
    """The place of a group: from its ranks as in live runs, or from its description if the ranks are missing."""
    if group.ranks:
        return place_of(group.ranks, group.desc, topology)
    if group.desc == UNPLACED:
        return Place()
    if group.desc.lower() in EMBEDDING_GROUPS:
        return Place(embedding=True)
    if described := axes_described(group.desc):
        whole = described if spans_whole_axes(group.desc) else ()
        return Place(mask=topology.wide_mask(*whole), purpose=purpose_of(described))
    purposes = {purpose_of((name,)) for name, degree in topology.mesh if degree > 1}
    return Place(purpose=purposes.pop() if len(purposes) == 1 else "dp")


def _transfer(
    operation: Operation, group: Group, place: Place, args: Mapping[str, Any], rank: int, topology: Topology
) -> tuple[Stage | None, int]:
    sends = operation is Operation.SEND
    stated = args.get("Dst Rank" if sends else "Src Rank")
    others = [other for other in group.ranks or topology.group(rank, along="pp") if other != rank]
    peer = stated if isinstance(stated, int) else others[0] if len(others) == 1 else -1
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
    """A number from 0 to ``most``. 0 if it is invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else 0


GAP_NS = 20_000
"""Largest gap between two kernels of one span. A launch takes up to this time. Relevant waits are longer."""

_OPTIMIZER = "Optimizer."
_AUTOGRAD = "autograd::engine::evaluate_function"
_EXCHANGES = ("c10d::", "gloo:", "nccl:")
PHASES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.OPTIMIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Compute spans. ``issue_ns``: when the host launched the first kernel; 0 for CPU operators."""

    stage: npt.NDArray[np.uint8]
    step: Ints
    begin_ns: Ints
    end_ns: Ints
    issue_ns: Ints


def work_of(trace: TraceFile) -> Work:
    """Compute spans of a rank inside its steps; kernels outside of steps are left out."""
    on_gpu = bool(trace.kernels.ranges.name)
    begin, end, at, thread = _kernels(trace) if on_gpu else _operators(trace)
    step = step_at(trace, at)
    stated = trace.kernels.phase
    phase = _phases(trace, at, thread) if stated is None else stated[_computes(trace)]
    parts = [
        _busy(stage, number, begin[chosen], end[chosen], at[chosen] if on_gpu else np.zeros(chosen.sum(), np.int64))
        for stage in PHASES
        for number in np.unique(step[step >= 0]).tolist()
        if (chosen := (phase == int(stage)) & (step == number)).any()
    ]
    return _joined(parts)


def step_at(trace: TraceFile, at_ns: Ints) -> Ints:
    """Number of the step that contains each moment; -1 if no step does."""
    order = np.argsort(trace.steps.begin_ns)
    begin, end, number = trace.steps.begin_ns[order], trace.steps.end_ns[order], trace.step_numbers[order]
    place = np.searchsorted(begin, at_ns, side="right") - 1
    return np.where((place >= 0) & (at_ns < end[place]), number[place], -1)


_Pieces = tuple[Ints, Ints, Ints, Ints]
"""Begin, end, and the time and the thread of the launch on the host."""


def _kernels(trace: TraceFile) -> _Pieces:
    ranges = trace.kernels.ranges
    own = _computes(trace)
    begin = ranges.begin_ns[own]
    issued = trace.kernels.issue_ns[own]
    at = np.where(issued > 0, issued, begin)
    return begin, ranges.end_ns[own], at, trace.kernels.issue_thread[own]


def _computes(trace: TraceFile) -> npt.NDArray[np.bool_]:
    """For each kernel, whether it computes."""
    return np.array([not is_nccl(name) for name in trace.kernels.ranges.name], dtype=bool)


def _operators(trace: TraceFile) -> _Pieces:
    """The time in operators on each thread, without the time of collectives inside."""
    exchanges = [ranges.named(*_EXCHANGES) for ranges in (trace.ops, trace.annotations)]
    pieces: list[_Pieces] = []
    for thread in np.unique(trace.ops.thread).tolist():
        ops = trace.ops.select(trace.ops.thread == thread)
        apart = [stream.select(stream.thread == thread) for stream in exchanges]
        begin, end = without(
            ops.begin_ns,
            ops.end_ns,
            np.concatenate([stream.begin_ns for stream in apart]),
            np.concatenate([stream.end_ns for stream in apart]),
        )
        pieces.append((begin, end, begin, np.full(len(begin), thread)))
    if not pieces:
        return (np.zeros(0, np.int64),) * 4
    begin, end, at, where = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return begin, end, at, where


def _phases(trace: TraceFile, at: Ints, thread: Ints) -> npt.NDArray[np.uint8]:
    phase = np.full(len(at), int(Stage.FORWARD_COMPUTE), dtype=np.uint8)
    named = trace.annotations.select(np.array([_means_backward(name) for name in trace.annotations.name], dtype=bool))
    phase[inside(at, named.begin_ns, named.end_ns)] = int(Stage.BACKWARD_COMPUTE)
    phase[_inside_on_thread(at, thread, trace.ops.named(_AUTOGRAD))] = int(Stage.BACKWARD_COMPUTE)
    phase[_inside_on_thread(at, thread, trace.annotations.named(_OPTIMIZER))] = int(Stage.OPTIMIZER)
    return phase


def _means_backward(name: str) -> bool:
    """``backward``, but not ``forward_backward``: that is the whole schedule."""
    lower = name.lower()
    return "backward" in lower and "forward" not in lower


def _inside_on_thread(at: Ints, thread: Ints, ranges: Ranges) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(at), dtype=bool)
    for number in np.unique(ranges.thread).tolist():
        here, mine = ranges.thread == number, thread == number
        found[mine] = inside(at[mine], ranges.begin_ns[here], ranges.end_ns[here])
    return found


def _busy(stage: Stage, step: int, begin: Ints, end: Ints, issue: Ints) -> Work:
    first, last = merged(begin, end, gap_ns=GAP_NS)
    order = np.argsort(begin, kind="stable")
    return Work(
        stage=np.full(len(first), int(stage), dtype=np.uint8),
        step=np.full(len(first), step),
        begin_ns=first,
        end_ns=last,
        issue_ns=issue[order][np.searchsorted(begin[order], first)],
    )


def _joined(parts: list[Work]) -> Work:
    def column(name: str) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)]).astype(np.int64)

    return Work(
        stage=column("stage").astype(np.uint8),
        step=column("step"),
        begin_ns=column("begin_ns"),
        end_ns=column("end_ns"),
        issue_ns=column("issue_ns"),
    )
