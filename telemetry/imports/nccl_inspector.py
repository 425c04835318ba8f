"""Logs of NCCL Inspector, NCCL's profiler plugin: ``HOST-pidN.log``, one file of JSON lines for each process.

    {"header": {"id": "0x7f8c", "comm_name": "mesh_tp", "rank": 2, "n_ranks": 8, "nnodes": 1},
     "metadata": {"hostname": "gpu-01", "pid": 163, "dump_timestamp_us": 1748030377748202, ...},
     "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 4096, "coll_exec_time_us": 61974,
                   "event_trace_ts": {"coll_start_ts": us, "kernel_events": [{"kernel_start_ts": us, ...}, ...]}}}
    or  "p2p_perf": {"p2p": "Send", "p2p_sn": 3, "p2p_peer": 1, "p2p_msg_size_bytes": ..., "p2p_exec_time_us": ...}

The ranks in a header count within its communicator. The rank of a process is its rank in the largest communicator that
all processes share. Other communicators are process groups: their members show the mesh.

``event_trace_ts`` exists with NCCL_INSPECTOR_DUMP_VERBOSE=1. Without it the begin of an operation is unknown: it is
drawn directly before the next one, and ends at its ``dump_timestamp_us`` at the latest. Durations and sizes are exact.

The logs contain no steps and no compute: everything is step 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.kineto_file import Group
from telemetry.imports.kineto_grid import learned_mesh
from telemetry.imports.kineto_work import exchange
from telemetry.imports.span_rows import LAST_NS, Rows, name_of, refuse_meta, whole
from telemetry.imports.stated_grid import topology_of_options
from telemetry.imports.text_input import find_inputs, objects_of, text
from telemetry.stages import SpanClock, Stage
from telemetry.topology import MAX_RANKS, Topology

FORMAT = "nccl-inspector"
HINT = "give the HOST-pidN.log files in NCCL_INSPECTOR_DUMP_DIR, or the folder"
RANKS_HINT = "import the files of one job; use its default process group at least once, with 8192 bytes or more"
LAST_US = LAST_NS // 1000
_Process = tuple[str, int]
"""Host and process id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """One record. Times in microseconds."""

    communicator: str
    kind: str
    number: int
    peer: int | None
    size_bytes: int
    duration_us: int
    dumped_us: int
    start_us: int | None
    issue_us: int


@dataclass(slots=True)
class _Records:
    """The records of all files."""

    operations: dict[_Process, list[_Operation]] = field(default_factory=dict)
    members: dict[str, dict[int, _Process]] = field(default_factory=dict)
    """Communicator -> rank in it -> process."""
    sizes: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def import_nccl_inspector(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in the logs of its processes: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = find_inputs(paths, (".log", ".log.gz", ".jsonl", ".json"), "the .log of each process")
    records = _Records()
    for path in files:
        for number, record in objects_of(path, HINT):
            _take(records, record, f"{path}, line {number}")
    if not records.operations:
        raise UnreadableError(f"{files[0]} has no operation", hint=HINT)
    ranks, world_size = _ranks(records)
    groups = {name: _group(records, name, ranks) for name in records.members}
    by_rank = {rank: [groups[name] for name in groups if rank in groups[name].ranks] for rank in ranks.values()}
    topology = topology_of_options(options, world_size) or learned_mesh(by_rank, world_size) or Topology(dp=world_size)
    rows = Rows()
    num_left_out = sum(
        _add(rows, ranks[process], operations, groups, topology) for process, operations in records.operations.items()
    )
    return rows.run(
        options,
        name_of(files),
        topology=topology,
        hosts={rank: host for (host, _), rank in ranks.items()},
        meta={"imported_from": FORMAT, "files": str(len(files)), "exchanges_left_out": str(num_left_out)},
    )


def _take(records: _Records, record: Mapping[str, Any], where: str) -> None:
    header, metadata = _object(record, "header", where), _object(record, "metadata", where)
    name, process = text(header.get("id")), (text(metadata.get("hostname")), _count(metadata, "pid", where))
    rank, size = _count(header, "rank", where, most=MAX_RANKS - 1), _count(header, "n_ranks", where, most=MAX_RANKS)
    if records.members.setdefault(name, {}).setdefault(rank, process) != process or rank >= size:
        raise UnreadableError(f"{where}: two processes are rank {rank} of {name}", hint=RANKS_HINT)
    records.sizes[name] = max(size, records.sizes.get(name, 0))
    records.names[name] = text(header.get("comm_name"))
    prefix = "coll" if "coll_perf" in record else "p2p"
    perf = _object(record, f"{prefix}_perf", where)
    start_us, issue_us = _start(perf, prefix)
    records.operations.setdefault(process, []).append(
        _Operation(
            communicator=name,
            kind=text(perf.get(prefix)),
            number=_count(perf, f"{prefix}_sn", where, most=2**32 - 3),
            peer=whole(perf.get("p2p_peer"), most=MAX_RANKS - 1),
            size_bytes=_count(perf, f"{prefix}_msg_size_bytes", where, most=2**50),
            duration_us=_count(perf, f"{prefix}_exec_time_us", where),
            dumped_us=_count(metadata, "dump_timestamp_us", where),
            start_us=start_us,
            issue_us=issue_us,
        )
    )


def _object(record: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    found = record.get(name)
    if not isinstance(found, dict):
        raise UnreadableError(f"{where} has no {name}", hint=HINT)
    return found


def _count(values: Mapping[str, Any], name: str, where: str, *, most: int = LAST_US) -> int:
    found = whole(values.get(name), most=most)
    if found is None:
        raise UnreadableError(f"{where}: {name} is {str(values.get(name))[:40]}", hint=HINT)
    return found


def _start(perf: Mapping[str, Any], prefix: str) -> tuple[int | None, int]:
    """When the first kernel began, and when the host issued the operation; None and 0 if the log lacks these times."""
    trace = perf.get("event_trace_ts")
    trace = trace if isinstance(trace, dict) else {}
    events = trace.get("kernel_events")
    events = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    starts = [whole(event.get("kernel_start_ts"), most=LAST_US) for event in events]
    known = [start for start in starts if start]
    return min(known, default=None), whole(trace.get(f"{prefix}_start_ts"), most=LAST_US) or 0


def _ranks(records: _Records) -> tuple[dict[_Process, int], int]:
    """The rank of each process, and the number of ranks.

    Raises:
        UnreadableError: no communicator contains all processes, or several do and number them differently.
    """
    processes = set(records.operations)
    shared = [name for name, members in records.members.items() if set(members.values()) >= processes]
    if not shared:
        raise UnreadableError(f"no communicator contains all {len(processes)} processes", hint=RANKS_HINT)
    world = max(shared, key=lambda name: (records.sizes[name], name))
    largest = [records.members[name] for name in shared if records.sizes[name] == records.sizes[world]]
    if any(members != records.members[world] for members in largest):
        raise UnreadableError(
            "several communicators contain all processes, but number them differently", hint=RANKS_HINT
        )
    return {process: rank for rank, process in records.members[world].items()}, records.sizes[world]


def _group(records: _Records, name: str, ranks: Mapping[_Process, int]) -> Group:
    """A communicator as a process group. Its ranks are unknown if a file is missing."""
    members = records.members[name]
    complete = len(members) == records.sizes[name]
    known = tuple(ranks[members[rank]] for rank in sorted(members)) if complete else ()
    return Group(desc=records.names[name], ranks=known)


def _add(
    rows: Rows, rank: int, operations: Sequence[_Operation], groups: Mapping[str, Group], topology: Topology
) -> int:
    """Add the spans of a rank. Returns the number of operations without a stage."""
    num_left_out = 0
    starts_us = _starts(operations)
    for operation, start_us in zip(operations, starts_us, strict=True):
        found = exchange(operation.kind, _args(operation, groups[operation.communicator]), groups, rank, topology)
        num_left_out += found is None
        if found is not None:
            rows.append(
                rank=rank,
                stage=found.stage,
                step=0,
                start_ns=start_us * 1000,
                duration_ns=operation.duration_us * 1000,
                peer=found.peer,
                op_seq=found.seq,
                issue_ns=operation.issue_us * 1000,
                size_bytes=found.size_bytes,
                clock=int(SpanClock.DEVICE),
            )
    last_us = max(start + operation.duration_us for operation, start in zip(operations, starts_us, strict=True))
    first_us = min(starts_us)
    duration_ns = (last_us - first_us) * 1000
    rows.append(rank=rank, stage=Stage.STEP, step=0, start_ns=first_us * 1000, duration_ns=duration_ns)
    return num_left_out


def _starts(operations: Sequence[_Operation]) -> list[int]:
    """When each operation began, in microseconds. Operations without a time directly follow each other."""
    starts = [0] * len(operations)
    next_us = LAST_US
    for place in sorted(range(len(operations)), key=lambda place: -operations[place].dumped_us):
        operation = operations[place]
        if operation.start_us is not None:
            starts[place] = operation.start_us
        else:
            next_us = max(min(next_us, operation.dumped_us) - operation.duration_us, 0)
            starts[place] = next_us
    return starts


def _args(operation: _Operation, group: Group) -> dict[str, Any]:
    """The arguments that the PyTorch profiler would record. A collective has the number that its communicator gave."""
    args: dict[str, Any] = {
        "Collective name": operation.kind,
        "Process Group Name": operation.communicator,
        "In msg nelems": operation.size_bytes,
        "dtype": "Byte",
        "Seq": operation.number + 1 if operation.peer is None else 0,
    }
    if operation.peer is not None and operation.peer < len(group.ranks):
        args |= {"Src Rank": group.ranks[operation.peer], "Dst Rank": group.ranks[operation.peer]}
    return args
