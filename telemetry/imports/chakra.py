"""Execution traces of Chakra: one file for each rank, ``chakra.0.et``, ``chakra.1.et`` ...

    node                                            becomes
    operations on the device; those of the host     forward-compute, backward-compute, optimizer
    if there is none
    collectives and transfers                       the stage of their kind and group
    ``ProfilerStep#N`` with times                   step N; without any, everything is step 0

A trace is a graph of dependencies. Many writers leave out when a node began. The importer then assumes that a node
begins when all nodes that it depends on have ended, as in a simulator with unlimited resources. So durations are
measured, and begins are not.

The phase of a node is that of the host operation that called it: ``autograd::engine`` or ``backward`` in its name is
the backward, ``Optimizer`` the optimizer, everything else the forward.
"""

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.errors import UnreadableError
from telemetry.imports.chakra_file import COMM_TYPES, HINT, Node, read_nodes
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.intervals import Ints, Ranges
from telemetry.imports.kineto import run_of_traces
from telemetry.imports.kineto_document import rank_in_name
from telemetry.imports.kineto_file import Group, Kernels, TraceFile, listed_ranks, one_step
from telemetry.imports.kineto_grid import learned_mesh
from telemetry.imports.span_rows import LAST_NS, name_of, refuse_meta, whole
from telemetry.imports.stated_grid import topology_of_options
from telemetry.imports.text_input import find_inputs
from telemetry.stages import Stage
from telemetry.stores.queries import LAST_STEP
from telemetry.topology import MAX_RANKS, Topology

FORMAT = "chakra"
_RANK = re.compile(r"\.(\d{1,7})\.(?:et|json)(?:\.gz)?$")
_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
LINK_HINT = "PyTorch's execution trace has no times: link it with the profiler's trace (chakra_trace_link)"
_EXCHANGES = ("collective", "send", "recv")
_GROUPS = "process_group:init"


def import_chakra(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in the traces of its ranks: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = find_inputs(paths, (".et", ".json", ".et.gz", ".json.gz"), "the .et or .json of each rank")
    traces = _by_rank(files)
    stated = max(len(group.ranks) for trace in traces.values() for group in (Group(), *trace.groups.values()))
    world_size = max(max(traces) + 1, stated)
    groups = {rank: trace.groups.values() for rank, trace in traces.items()}
    topology = topology_of_options(options, world_size) or learned_mesh(groups, world_size) or Topology(dp=world_size)
    return run_of_traces(traces, topology, options, format_name=FORMAT, found_name=name_of(files))


def _by_rank(files: Sequence[Path]) -> dict[int, TraceFile]:
    found: dict[int, TraceFile] = {}
    for path in files:
        match = _RANK.search(path.name)
        rank = 0 if len(files) == 1 else int(match[1]) if match else rank_in_name(path)
        if rank is None or rank in found or rank >= MAX_RANKS:
            what = "does not contain its rank" if rank is None else f"is of rank {rank}, and so is another file"
            raise UnreadableError(f"{path} {what}", hint="put the rank into the name of each file: chakra.3.et")
        found[rank] = _trace(path, rank)
    return dict(sorted(found.items()))


def _trace(path: Path, rank: int) -> TraceFile:
    nodes = read_nodes(path)
    if not (used := _used(nodes)):
        raise UnreadableError(f"{path} has no operation with a duration", hint=LINK_HINT)
    begin_ns = _begins(path, nodes)
    chosen = [nodes[place] for place in used]
    kernels = Kernels(
        ranges=_ranges(path, [(place, _name(nodes[place])) for place in used], nodes, begin_ns),
        issue_ns=np.zeros(len(used), dtype=np.int64),
        issue_thread=np.zeros(len(used), dtype=np.int64),
        args=tuple(_args(node, rank) for node in chosen),
        phase=_phases(chosen, nodes),
    )
    stated = [(place, node.name) for place, node in enumerate(nodes) if _is_step(node)]
    steps = _ranges(path, stated, nodes, begin_ns)
    numbers = np.array([int(name.partition("#")[2]) for _, name in stated], dtype=np.int64)
    if len(set(numbers.tolist())) < len(numbers):
        raise UnreadableError(f"{path}: a ProfilerStep occurs twice", hint=HINT)
    steps, numbers = (steps, numbers) if len(numbers) else one_step(path, kernels)
    return TraceFile(
        path=path,
        rank=rank,
        world_size=None,
        host="",
        groups=dict(found for node in nodes if _GROUPS in node.name for found in _groups(node.values)),
        steps=steps,
        step_numbers=numbers,
        annotations=steps.select([]),
        ops=steps.select([]),
        kernels=kernels,
    )


def _is_step(node: Node) -> bool:
    match = _STEP.fullmatch(node.name)
    return bool(match and node.start_us and node.duration_us and int(match[1]) < LAST_STEP)


def _used(nodes: Sequence[Node]) -> list[int]:
    """Indices of the operations with a duration: those on the device, or those of the host if there is none."""
    timed = [place for place, node in enumerate(nodes) if node.duration_us and node.kind in ("compute", *_EXCHANGES)]
    on_device = [place for place in timed if nodes[place].is_on_device]
    callers = {parent for node in nodes for parent in node.parents}
    return on_device or [place for place in timed if nodes[place].number not in callers]


def _begins(path: Path, nodes: Sequence[Node]) -> Ints:
    """When each node began, in nanoseconds: as stated, otherwise after all nodes that it depends on.

    The converter writes the order of execution into the data dependencies. Control dependencies name the caller, which
    may itself wait for a node that it called. They are used only in a trace without data dependencies.
    """
    if any(node.start_us for node in nodes):
        return np.array([node.start_us * 1000 for node in nodes], dtype=np.int64)
    by_data = any(node.inputs for node in nodes)
    place_of = {node.number: place for place, node in enumerate(nodes)}
    begin_us, waiting = [0] * len(nodes), [0] * len(nodes)
    followers: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for number in set(node.inputs if by_data else node.parents) - {node.number}:
            if (before := place_of.get(number)) is not None:
                followers[before].append(place)
                waiting[place] += 1
    ready = deque(place for place, number in enumerate(waiting) if not number)
    num_done = 0
    while ready:
        place, num_done = ready.popleft(), num_done + 1
        for follower in followers[place]:
            begin_us[follower] = max(begin_us[follower], begin_us[place] + nodes[place].duration_us)
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    if num_done < len(nodes) or max(begin_us) > LAST_NS // 4000:
        raise UnreadableError(f"{path}: dependencies of nodes form a cycle, or durations are too long", hint=HINT)
    started_us = max(int(path.stat().st_mtime_ns // 1000) - max(begin_us), 0)
    return np.array([(started_us + begin) * 1000 for begin in begin_us], dtype=np.int64)


def _ranges(path: Path, named: Sequence[tuple[int, str]], nodes: Sequence[Node], begin_ns: Ints) -> Ranges:
    places = np.array([place for place, _ in named], dtype=np.int64)
    begin = begin_ns[places]
    end = begin + np.array([nodes[place].duration_us * 1000 for place, _ in named], dtype=np.int64)
    if len(end) and (int(end.max()) > LAST_NS or int(end.min()) < 0):
        raise UnreadableError(f"{path}: a node ends beyond all times", hint=HINT)
    return Ranges(
        name=tuple(name for _, name in named),
        begin_ns=begin,
        end_ns=end,
        thread=np.array([whole(nodes[place].attributes.get("stream")) or 0 for place, _ in named], dtype=np.int64),
    )


def _name(node: Node) -> str:
    """The name of a node for ``kineto.py``, which takes kernels with ``nccl`` in their names for communication."""
    if node.kind in _EXCHANGES:
        return node.name if "nccl" in node.name[:32].lower() else f"nccl:{node.name}"
    return node.name.replace("nccl", "", 1) if "nccl" in node.name[:32].lower() else node.name


def _args(node: Node, rank: int) -> Mapping[str, Any]:
    """The arguments that the PyTorch profiler would record for the operation. Empty for compute."""
    if node.kind not in _EXCHANGES:
        return {}
    attributes = node.attributes
    code = whole(attributes.get("comm_type"), most=len(COMM_TYPES) - 1)
    kind = node.kind if node.kind != "collective" else COMM_TYPES[code] if code is not None else ""
    return {
        "Collective name": kind,
        "Process Group Name": str(attributes.get("pg_name") or ""),
        "In msg nelems": whole(attributes.get("comm_size"), most=2**50) or 0,
        "dtype": "Byte",
        "Src Rank": whole(attributes.get("comm_src"), most=MAX_RANKS),
        "Dst Rank": whole(attributes.get("comm_dst"), most=MAX_RANKS),
    }


def _phases(chosen: Sequence[Node], nodes: Sequence[Node]) -> npt.NDArray[np.uint8]:
    """The phase of each node of ``chosen``: from its name, otherwise from the names of its callers, nearest first."""
    by_number = {node.number: node for node in nodes}
    known: dict[int, Stage] = {}
    for node in chosen:
        path: list[int] = []
        current: Node | None = node
        phase: Stage | None = None
        while current is not None and phase is None:
            # A node that is its own caller ends the search.
            phase = known.get(current.number) or _phase_named(current.name)
            known[current.number] = phase or Stage.FORWARD_COMPUTE
            path.append(current.number)
            current = by_number.get(current.parents[0]) if current.parents else None
        known.update(dict.fromkeys(path, phase or Stage.FORWARD_COMPUTE))
    return np.array([int(known[node.number]) for node in chosen], dtype=np.uint8)


def _phase_named(name: str) -> Stage | None:
    lower = name.lower()
    if "optimizer" in lower:
        return Stage.OPTIMIZER
    if "autograd::engine" in lower or ("backward" in lower and "forward" not in lower):
        return Stage.BACKWARD_COMPUTE
    return None


def _groups(values: str) -> list[tuple[str, Group]]:
    """The process groups in the node that PyTorch writes at the begin of a trace."""
    try:
        listed = json.loads(values)
        if isinstance(listed, list) and listed and isinstance(listed[0], str):
            listed = json.loads(listed[0])
    except (ValueError, RecursionError):
        return []
    groups = [group for group in listed if isinstance(group, dict)] if isinstance(listed, list) else []
    return [
        (
            str(group.get("pg_name")),
            Group(desc=str(group.get("pg_desc") or ""), ranks=listed_ranks(group.get("ranks"))),
        )
        for group in groups
    ]
