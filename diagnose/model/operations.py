"""The recorded operations of a run as arrays, and the step time.

    operations[Stage.FORWARD_COMPUTE].duration_ns[step, occurrence, rank]

             rank 0      rank 1      rank 2
    step 0   [0] [1]     [0] [1]     [0] --      An *occurrence* is the n-th operation of a rank in this stage and step.
    step 1   [0] [1]     [0] [1]     [0] --      A rank with fewer operations has -1 after its last one.

There is no object for a single operation: ten million operations are six arrays. Detectors and what-if use these dense
arrays (``Operations``). Timelines and traces use plain columns (``SpanColumns``).

The axes of a collective are recorded (``peer``, see ``telemetry/topology.py``), or follow from its stage.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.errors import UsageError
from telemetry.group_names import GROUP_BASE, masks_of_peers, resolved_peers
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass, Stream
from telemetry.topology import Topology

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Int64s = Ints

ABSENT = -1
MAX_CELLS = 200_000_000
"""Limit of the cells [step, occurrence, rank] of one stage. A cell takes 32 bytes in all arrays, 40 with sizes."""
NO_GROUP = 0
"""A mask without axes."""
TRANSFERS = (
    Stage.FORWARD_SEND,
    Stage.FORWARD_RECV,
    Stage.BACKWARD_SEND,
    Stage.BACKWARD_RECV,
    Stage.CP_SEND_RECV,
)
"""Stages between two ranks."""


def step_time_ns(duration_ns: Floats | Ints, num_spans: Floats | Ints | None = None) -> float:
    """The step time over several steps, in nanoseconds. NaN without a step. Command and pages use this definition.

        rank 0   |--- step 7: 100 ms ---|  |--- step 8: 104 ms ----|
        rank 1   |-- step 7: 90 ms --|     |-- step 8: 94 ms --|      step 7: 95 ms, step 8: 99 ms, both: 97 ms

    The step time of one step is the mean of the ``step`` spans of its ranks. The step time of several steps is the
    mean of all these spans. A step that an error interrupted is not counted. A mean can be computed from the sums and
    counts of a roll-up. Step time times number of steps is the total time. A median over ranks has neither property.

    Args:
        duration_ns: the step time of each step.
        num_spans: number of ``step`` spans of each step. None: the number is equal in all steps.
    """
    if not len(duration_ns):
        return float("nan")
    return float(np.average(duration_ns, weights=num_spans))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanColumns:
    """Spans as columns, ordered by rank, then start. Units and -1 as in ``telemetry.tables.SPANS``."""

    rank: Ints
    seq: Ints
    stage: Ints
    stream: Ints
    step: Ints
    microbatch: Ints
    chunk: Ints
    peer: Ints
    op_seq: Ints
    start_ns: Ints
    duration_ns: Ints
    cpu_ns: Ints
    issue_ns: Ints
    size_bytes: Ints

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def end_ns(self) -> Ints:
        return self.start_ns + self.duration_ns

    def where(self, chosen: Bools | Ints | slice) -> "SpanColumns":
        """The chosen rows, by mask, by index or by slice."""
        return SpanColumns(**{name: getattr(self, name)[chosen] for name in SPAN_COLUMNS})


SPAN_COLUMNS: tuple[str, ...] = SpanColumns.__slots__


def columns_of(spans: pa.Table) -> SpanColumns:
    """The answer to the query ``Spans`` as columns, in its order."""
    return SpanColumns(**{name: np.asarray(spans[name].to_numpy(), dtype=np.int64) for name in SPAN_COLUMNS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """All operations of one stage. Every array has the shape [steps, occurrences, ranks]."""

    start_ns: Ints
    """Wall clock of the rank's host, not corrected. -1 without an operation."""
    duration_ns: Ints
    """-1 without an operation."""
    cpu_ns: Ints
    """CPU time of the recording thread in the operation. -1 if it was not measured, or without an operation."""
    microbatch: npt.NDArray[np.int16]
    """Number of the microbatch. -1: none."""
    chunk: npt.NDArray[np.int16]
    """Model chunk within the pipeline stage. -1: none."""
    peer: npt.NDArray[np.int32]
    """Global rank of the other side of a send or receive. -1: none. Below -1: a group."""
    size_bytes: Ints | None = None
    """-1 without an operation. None: sizes of this stage are not loaded."""

    @property
    def count(self) -> int:
        """Number of operations."""
        return int(np.count_nonzero(self.present))

    @property
    def present(self) -> Bools:
        return self.duration_ns >= 0

    @property
    def end_ns(self) -> Ints:
        return self.start_ns + self.duration_ns

    def chosen(self, steps: "Ints | slice" = slice(None), ranks: "Ints | slice" = slice(None)) -> "Operations":
        """The operations of some steps and ranks."""
        return self.changed(lambda values: values[steps][:, :, ranks])

    def changed(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> "Operations":
        """The operations, with every array changed in the same way."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {name: None if a is None else change(a) for name, a in arrays.items()}
        return Operations(**changed)

    def total_ns(self) -> Floats:
        """Time of each rank in the stage in each step, [steps, ranks]. NaN without an operation."""
        return summed(self.duration_ns, self.present)


SIZED = (Stage.EP_ALL_TO_ALL, Stage.ROLLOUT)
"""Stages whose sizes are loaded: bytes that a rank received from other experts, and what a rollout generated."""
_TYPES = {"start_ns": "i8", "duration_ns": "i8", "cpu_ns": "i8", "microbatch": "i2", "chunk": "i2", "peer": "i4"}


def summed(values: Ints, present: Bools) -> Floats:
    """Sum over occurrences, [steps, ranks]. NaN without an occurrence."""
    total: Floats = np.where(present, values, 0).sum(axis=1).astype(np.float64)
    total[~present.any(axis=1)] = np.nan
    return total


def operations_of(rows: pa.Table, steps: Ints, num_ranks: int) -> dict[Stage, Operations]:
    """Arrays of each stage in ``rows``: the columns of the query ``OperationColumns``, in its order.

    Rows of steps outside ``steps`` (ascending), of ranks outside the grid and of unknown stages are left out. A stage
    without remaining rows is left out.

    Raises:
        UsageError: one rank has so many operations in one step that the arrays would not fit into memory.
    """
    codes = rows["stage"].to_numpy()
    bounds = np.flatnonzero(np.diff(codes, prepend=-1, append=-1)).tolist()
    found = {
        stage: _of_stage(rows.slice(first, last - first), steps, num_ranks)
        for first, last in pairwise(bounds)
        if (stage := STAGE_BY_CODE.get(int(codes[first]))) is not None
    }
    return {stage: operations for stage, operations in found.items() if operations.duration_ns.size}


def _of_stage(rows: pa.Table, steps: Ints, num_ranks: int) -> Operations:
    step = rows["step"].to_numpy().astype(np.int64)
    rank = rows["rank"].to_numpy().astype(np.int64)
    row = np.searchsorted(steps, step)
    inside = (row < len(steps)) & (rank < num_ranks)
    inside[inside] = steps[row[inside]] == step[inside]
    occurrence = _occurrence(step, rank)
    shape = (len(steps), int(occurrence[inside].max(initial=-1)) + 1, num_ranks)
    if (cells := int(np.prod(shape))) > MAX_CELLS:
        raise UsageError(
            f"a rank has {shape[1]:,} operations of one stage in one step: too many for so many ranks and steps",
            hint="choose fewer steps: --first-step, --last-step",
        )
    cell = ((row * shape[1] + occurrence) * num_ranks + rank)[inside]

    def placed(name: str, kind: str) -> npt.NDArray[Any]:
        dense = np.full(cells, ABSENT, dtype=kind)
        dense[cell] = rows[name].to_numpy()[inside]
        return dense.reshape(shape)

    sizes = placed("size_bytes", "i8") if "size_bytes" in rows.column_names else None
    return Operations(**{name: placed(name, kind) for name, kind in _TYPES.items()}, size_bytes=sizes)


def _occurrence(step: Ints, rank: Ints) -> Ints:
    """Number of each row among the rows of its step and rank. Rows are ordered by step, then rank."""
    begins = np.ones(len(step), dtype=bool)
    begins[1:] = (step[1:] != step[:-1]) | (rank[1:] != rank[:-1])
    first = np.flatnonzero(begins)
    return np.arange(len(step)) - np.repeat(first, np.diff(first, append=len(step)))


def recorded_masks(peer: npt.NDArray[np.signedinteger], topology: Topology) -> Ints:
    """The mask of each group code, shape as given. ``NO_GROUP`` for ranks, and for axes that the mesh does not have."""
    mask = masks_of_peers(resolved_peers(peer, topology))
    return np.where(mask <= topology.whole_mask, mask, NO_GROUP)


def usual_mask(stage: Stage, topology: Topology) -> int:
    """The axes of a stage's groups if no group was recorded. Axes of degree 1 are left out, as in recorded masks.

    Collectives of parameters, gradients and the gradient norm: all axes but pp and tp. Others: the axis in their name.
    ``NO_GROUP`` for transfers, and for the reduction of embeddings, whose members are the ends of a pipeline.
    """
    if stage in TRANSFERS or stage is Stage.EMBEDDING_GRADS_ALL_REDUCE:
        return NO_GROUP
    if stage is not Stage.OPTIMIZER_CLIP and stage.stage_class is not StageClass.COMMUNICATION:
        return NO_GROUP
    axis = {Stream.TP: "tp", Stream.CP: "cp", Stream.EP: "ep"}.get(stage.stream)
    return topology.replica_mask if axis is None else topology.wide_mask(axis)


def by_mask(stage: Stage, operations: Operations, topology: Topology) -> Iterator[tuple[int, Ints]]:
    """Each mask of a stage with the durations of its operations, [steps, occurrences, ranks]; -1 without an operation.

    If a stage has several masks, the operations of each mask are numbered separately.
    """
    usual = usual_mask(stage, topology)
    if not (operations.peer < GROUP_BASE).any():
        yield usual, operations.duration_ns
        return
    recorded = recorded_masks(operations.peer, topology)
    masks = np.where(recorded != NO_GROUP, recorded, usual)
    numbers = np.flatnonzero(np.bincount(masks[operations.present]))
    for mask in numbers.tolist():
        duration = np.where(masks == mask, operations.duration_ns, ABSENT)
        yield mask, duration if len(numbers) == 1 else _moved_to_front(duration)


def _moved_to_front(duration_ns: Ints) -> Ints:
    """Move the operations of each rank and step to the front, in order."""
    order = np.argsort(duration_ns < 0, axis=1, kind="stable")
    most = int((duration_ns >= 0).sum(axis=1).max())
    return np.take_along_axis(duration_ns, order, axis=1)[:, :most]
