"""Traces of the PyTorch profiler (libkineto): one Chrome JSON a rank.

    in the file                                             becomes
    ProfilerStep#N                                          step, number N
    no ProfilerStep                                         one step, number 0, that contains everything
    kernels on the GPU except NCCL's; CPU operators if      forward-compute, backward-compute, optimizer
    there is no GPU
    NCCL's kernels; gloo: ranges if there is no GPU         collectives and transfers
    the launch of a kernel                                  issue_ns

The mesh comes from groups with known descriptions (``mesh_tp``, ``TENSOR_MODEL_PARALLEL_GROUP`` ...), or from --mesh or
--dp, --pp, --tp. Without either, all ranks are replicas. Ranks without a file are missing in the run. Collectives
without a stage are left out, and the run's metadata holds their number.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from telemetry.errors import UnreadableError
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.intervals import Ints, Ranges
from telemetry.imports.kineto_file import TraceFile, read_trace
from telemetry.imports.kineto_grid import by_rank, find_files, grid_of
from telemetry.imports.kineto_work import exchange, is_nccl, step_at, work_of
from telemetry.imports.span_rows import Rows, name_of, refuse_meta
from telemetry.stages import Stage
from telemetry.topology import Topology

FORMAT = "kineto"
_GLOO = "gloo:"


def import_kineto(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in the traces of its ranks: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = find_files(paths)
    traces = by_rank([_sound(path) for path in files])
    return run_of_traces(traces, grid_of(traces, options), options, format_name=FORMAT, found_name=name_of(files))


def run_of_traces(
    traces: Mapping[int, TraceFile], topology: Topology, options: ImportOptions, *, format_name: str, found_name: str
) -> ImportedRun:
    """The run of ranks whose steps, kernels and ranges are known."""
    rows = Rows()
    num_left_out = 0
    for rank, trace in traces.items():
        _add_steps(rows, trace, rank)
        _add_work(rows, trace, rank)
        num_left_out += _add_exchanges(rows, trace, rank, topology)
    return rows.run(
        options,
        found_name,
        topology=topology,
        hosts={rank: trace.host for rank, trace in traces.items()},
        meta={"imported_from": format_name, "files": str(len(traces)), "exchanges_left_out": str(num_left_out)},
    )


def _sound(path: Path) -> TraceFile:
    """The trace in a file. Refuses content that no profiler writes: numbers beyond all bounds, lists for numbers."""
    try:
        trace = read_trace(path)
        trace.host.encode()
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{path} was not written by the PyTorch profiler: {str(error)[:200]}",
            hint="record it again with torch.profiler",
        ) from error
    return trace


def _add_steps(rows: Rows, trace: TraceFile, rank: int) -> None:
    num = len(trace.step_numbers)
    rows.add(
        rank=np.full(num, rank),
        stage=np.full(num, int(Stage.STEP)),
        step=trace.step_numbers,
        start_ns=trace.steps.begin_ns,
        duration_ns=trace.steps.end_ns - trace.steps.begin_ns,
    )


def _add_work(rows: Rows, trace: TraceFile, rank: int) -> None:
    work = work_of(trace)
    rows.add(
        rank=np.full(len(work.step), rank),
        stage=work.stage.astype(np.int64),
        step=work.step,
        start_ns=work.begin_ns,
        duration_ns=work.end_ns - work.begin_ns,
        issue_ns=work.issue_ns,
    )


def _add_exchanges(rows: Rows, trace: TraceFile, rank: int, topology: Topology) -> int:
    """Add collectives and transfers. Returns the number of operations without a stage, which are not added."""
    ranges, issue_ns, args = _exchanges(trace)
    order = np.argsort(ranges.begin_ns, kind="stable")
    step = step_at(trace, np.where(issue_ns > 0, issue_ns, ranges.begin_ns))
    counted: dict[str, int] = {}
    found: list[tuple[int, ...]] = []
    num_left_out = 0
    for place in order.tolist():
        operation = exchange(ranges.name[place], args[place], trace.groups, rank, topology)
        if operation is None or step[place] < 0:
            num_left_out += operation is None
            continue
        counted[operation.line] = operation.seq or counted.get(operation.line, 0) + 1
        found.append((place, int(operation.stage), operation.peer, counted[operation.line], operation.size_bytes))
    place, stage, peer, op_seq, size_bytes = np.array(found, dtype=np.int64).reshape(-1, 5).T
    rows.add(
        rank=np.full(len(found), rank),
        stage=stage,
        step=step[place],
        start_ns=ranges.begin_ns[place],
        duration_ns=ranges.end_ns[place] - ranges.begin_ns[place],
        peer=peer,
        op_seq=op_seq,
        issue_ns=issue_ns[place],
        size_bytes=size_bytes,
    )
    return num_left_out


def _exchanges(trace: TraceFile) -> tuple[Ranges, Ints, Sequence[Mapping[str, Any]]]:
    """Collectives and transfers: their times, their launch times, and their arguments."""
    kernels = trace.kernels
    if not kernels.ranges.name:
        ranges = trace.annotations.named(_GLOO)
        return ranges, np.zeros(len(ranges.name), dtype=np.int64), [{}] * len(ranges.name)
    places = [place for place, name in enumerate(kernels.ranges.name) if is_nccl(name)]
    args = [kernels.args[place] for place in places]
    return kernels.ranges.select(places), kernels.issue_ns[np.array(places, dtype=np.int64)], args
