"""Converts operations of ranks, with place, stages and times from a file, to spans.

A step of a rank lasts from its first to its last operation, unless the file states when the step began and ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from telemetry.errors import UnreadableError
from telemetry.imports.interface import ImportOptions
from telemetry.imports.span_rows import MAX_INDEX, Rows
from telemetry.imports.stated_grid import Places, neighbour, topology_of_options, topology_of_places
from telemetry.stages import Stage
from telemetry.topology import Topology

NUMBERED = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
"""Stages whose operations are numbered as microbatches, in each step from 0."""
TOWARDS = {Stage.FORWARD_SEND: 1, Stage.BACKWARD_RECV: 1, Stage.BACKWARD_SEND: -1, Stage.FORWARD_RECV: -1}
"""Stage of a transfer -> direction of its peer along the pipeline: 1 for the next stage, -1 for the previous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one rank."""

    places: Places
    stages: tuple[Stage, ...]
    """A batch of a send and a receive has two stages. Empty if no stage fits. ``step``: this is the step itself."""
    step: int
    start_ns: int
    duration_ns: int
    size_bytes: int = 0


def topology_of(operations: Iterable[Operation], options: ImportOptions) -> Topology:
    """The mesh that the user gave, otherwise the mesh in the file."""
    by_rank = {operation.places.rank: operation.places for operation in operations}
    return topology_of_options(options, max(by_rank) + 1) or topology_of_places(list(by_rank.values()))


def add_operations(rows: Rows, operations: Sequence[Operation], topology: Topology) -> int:
    """Add the spans and steps of ``operations``. Returns the number of operations without a stage.

    Raises:
        UnreadableError: a rank begins a step again, or a value is impossible.
    """
    microbatches: dict[tuple[int, int, Stage], int] = {}
    ordered = sorted(operations, key=lambda operation: operation.start_ns)
    _refuse_several_starts(ordered)
    for operation in ordered:
        rank = operation.places.rank
        for stage in operation.stages:
            microbatch = -1
            if stage in NUMBERED:
                microbatch = microbatches.get((rank, operation.step, stage), 0)
                microbatches[rank, operation.step, stage] = microbatch + 1
            _append(
                rows,
                operation,
                stage,
                peer=neighbour(topology, rank, TOWARDS[stage]) if stage in TOWARDS else -1,
                microbatch=min(microbatch, MAX_INDEX),
            )
    for (rank, step), (begin_ns, end_ns) in _steps(ordered).items():
        rows.append(rank=rank, stage=Stage.STEP, step=step, start_ns=begin_ns, duration_ns=end_ns - begin_ns)
    return sum(not operation.stages for operation in ordered)


def _refuse_several_starts(ordered: Iterable[Operation]) -> None:
    """Refuse several attempts. A job that continues from a checkpoint repeats steps, which cannot be distinguished.

    Raises:
        UnreadableError: a rank computes for an earlier step after a later one.
    """
    newest: dict[int, int] = {}
    for operation in ordered:
        if not {Stage.STEP, *NUMBERED}.intersection(operation.stages):
            continue
        rank, step = operation.places.rank, operation.step
        if step < newest.get(rank, step):
            raise UnreadableError(
                f"rank {rank} continues with step {step} after step {newest[rank]}: the files are of several attempts",
                hint="import only the files, or the lines, of one attempt of the job",
            )
        newest[rank] = step


def _append(rows: Rows, operation: Operation, stage: Stage, **others: int) -> None:
    if stage is Stage.STEP:
        return
    rows.append(
        rank=operation.places.rank,
        stage=stage,
        step=operation.step,
        start_ns=operation.start_ns,
        duration_ns=operation.duration_ns,
        size_bytes=operation.size_bytes,
        **others,
    )


def _steps(operations: Iterable[Operation]) -> Mapping[tuple[int, int], tuple[int, int]]:
    """(rank, step) -> begin and end. If the file states a step, its times are used."""
    stated: dict[tuple[int, int], tuple[int, int]] = {}
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for operation in operations:
        key = operation.places.rank, operation.step
        start_ns, end_ns = operation.start_ns, operation.start_ns + operation.duration_ns
        if operation.stages == (Stage.STEP,):
            stated.setdefault(key, (start_ns, end_ns))
        begin_ns, last_ns = found.get(key, (start_ns, end_ns))
        found[key] = min(begin_ns, start_ns), max(last_ns, end_ns)
    return found | stated
