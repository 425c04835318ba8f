"""Every operation of a run as arrays: what detectors and what-if compute on.

    operations[Stage.FORWARD_COMPUTE].duration_ns[step, occurrence, rank]

             rank 0      rank 1      rank 2
    step 0   [0] [1]     [0] [1]     [0] --      an *occurrence* is the n-th time that a rank is in the stage in that
    step 1   [0] [1]     [0] [1]     [0] --      step; a rank that is in it less often has -1 behind its last

No object stands for a single operation: ten million of them are five arrays.

Along which axes of the mesh the members of a collective lie: as it was recorded (``peer``, see
``telemetry/topology.py``), or as its stage implies.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.errors import UsageError
from telemetry.group_names import GROUP_BASE, masks_of_peers, resolved_peers
from telemetry.stages import Stage, StageClass, Stream
from telemetry.topology import Topology

Int64s = npt.NDArray[np.int64]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

ABSENT = -1
MAX_CELLS = 200_000_000
"""Of one stage; each takes 38 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """All operations of one stage. Every array has the shape [steps, occurrences, ranks]."""

    start_ns: Int64s
    """Wall clock of the rank's host, raw; -1 where there is no operation."""
    duration_ns: Int64s
    """-1 where there is no operation."""
    cpu_ns: Int64s
    """Processor time of the recording thread inside; -1 where it was not measured, or there is no operation."""
    microbatch: Int16s
    """-1: none."""
    chunk: Int16s
    """Model chunk within the pipeline stage; -1: none."""
    peer: Int32s
    """Global rank of the other side of a send or receive; -1: none, or a group."""

    @property
    def present(self) -> Bools:
        return self.duration_ns >= 0

    @property
    def end_ns(self) -> Int64s:
        return self.start_ns + self.duration_ns

    def newest(self, num_steps: int) -> "Operations":
        """Of the last so many steps."""
        return Operations(**{field.name: getattr(self, field.name)[-num_steps:] for field in fields(self)})

    def total_ns(self) -> npt.NDArray[np.float64]:
        """Time of each rank in the stage in each step, [steps, ranks]; NaN where it never was in it."""
        return summed(self.duration_ns, self.present)


def summed(values: Int64s, present: Bools) -> npt.NDArray[np.float64]:
    """Sum over occurrences, [steps, ranks]; NaN where there is none."""
    total: npt.NDArray[np.float64] = np.where(present, values, 0).sum(axis=1).astype(np.float64)
    total[~present.any(axis=1)] = np.nan
    return total


def operations_of(rows: pa.Table, steps: Int64s, num_ranks: int) -> dict[Stage, Operations]:
    """Arrays of each stage in ``rows``: the columns of the query ``OperationColumns``, in its order.

    Rows of other steps than ``steps`` (ascending), of ranks beyond the grid and of unknown stages are left out, and so
    is a stage of which nothing remains.

    Raises:
        UsageError: one rank has so many operations in one step that the arrays would not fit into memory.
    """
    stage = rows["stage"].to_numpy()
    bounds = np.flatnonzero(np.diff(stage, prepend=-1, append=-1))
    known = {int(one): one for one in Stage}
    found = {
        known[int(stage[first])]: _one_stage(rows.slice(first, last - first), steps, num_ranks)
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        if int(stage[first]) in known
    }
    return {one: operations for one, operations in found.items() if operations.duration_ns.size}


def _one_stage(rows: pa.Table, steps: Int64s, num_ranks: int) -> Operations:
    step = rows["step"].to_numpy().astype(np.int64)
    rank = rows["rank"].to_numpy().astype(np.int64)
    row = np.searchsorted(steps, step)
    inside = (row < len(steps)) & (rank < num_ranks)
    inside[inside] = steps[row[inside]] == step[inside]
    occurrence = _occurrence(step, rank)
    shape = (len(steps), int(occurrence[inside].max(initial=-1)) + 1, num_ranks)
    if (cells := int(np.prod(shape))) > MAX_CELLS:
        raise UsageError(
            f"a rank has {shape[1]:,} operations of one stage in one step: {cells:,} places for all ranks and steps",
            hint="choose fewer steps: --first-step, --last-step",
        )
    cell = ((row * shape[1] + occurrence) * num_ranks + rank)[inside]
    return Operations(
        **{
            name: _placed(rows[name].to_numpy()[inside], cell, shape, dtype)
            for name, dtype in (
                ("start_ns", np.int64),
                ("duration_ns", np.int64),
                ("cpu_ns", np.int64),
                ("microbatch", np.int16),
                ("chunk", np.int16),
                ("peer", np.int32),
            )
        }
    )


def _occurrence(step: Int64s, rank: Int64s) -> Int64s:
    """Number of each row among those of its step and rank; rows come ordered by step, then rank."""
    begins = np.empty(len(step), dtype=bool)
    begins[:1] = True
    begins[1:] = (step[1:] != step[:-1]) | (rank[1:] != rank[:-1])
    first = np.flatnonzero(begins)
    return np.arange(len(step)) - np.repeat(first, np.diff(first, append=len(step)))


def _placed(values: Any, cell: Int64s, shape: tuple[int, int, int], dtype: type) -> Any:
    placed: npt.NDArray[Any] = np.full(shape[0] * shape[1] * shape[2], ABSENT, dtype=dtype)
    placed[cell] = values
    return placed.reshape(shape)


NO_GROUP = 0
"""A mask without axes."""
TRANSFERS = (
    Stage.FORWARD_SEND,
    Stage.FORWARD_RECV,
    Stage.BACKWARD_SEND,
    Stage.BACKWARD_RECV,
    Stage.CP_SEND_RECV,
)
"""Between two ranks."""


def recorded_masks(peer: npt.NDArray[np.signedinteger], topology: Topology) -> Int64s:
    """The mask of each group code, shape as given; ``NO_GROUP`` for ranks, and for axes that the mesh does not have."""
    mask = masks_of_peers(resolved_peers(peer, topology))
    return np.where(mask <= topology.whole_mask, mask, NO_GROUP)


def usual_mask(stage: Stage, topology: Topology) -> int:
    """The axes along which a stage's members lie where nothing was recorded: parameters and gradients along all axes
    but pp and tp, and so does the gradient norm as far as it is looked at; the others along the axis in their name.
    As in recorded masks there is no axis of degree 1.
    ``NO_GROUP`` for transfers, and for the reduction of embeddings, whose members are the ends of a pipeline."""
    if stage in TRANSFERS or stage is Stage.EMBEDDING_GRADS_ALL_REDUCE:
        return NO_GROUP
    if stage is not Stage.OPTIMIZER_CLIP and stage.stage_class is not StageClass.COMMUNICATION:
        return NO_GROUP
    axis = {Stream.TP: "tp", Stream.CP: "cp", Stream.EP: "ep"}.get(stage.stream)
    return topology.replica_mask if axis is None else topology.wide_mask(axis)


def by_mask(stage: Stage, one: Operations, topology: Topology) -> Iterator[tuple[int, Int64s]]:
    """Each mask of a stage's operations with the durations of those along it, [steps, occurrences, ranks]; -1 where
    there is none. Operations of one mask are numbered by themselves where a stage has several."""
    usual = usual_mask(stage, topology)
    if not (one.peer < GROUP_BASE).any():
        yield usual, one.duration_ns
        return
    recorded = recorded_masks(one.peer, topology)
    masks = np.where(recorded != NO_GROUP, recorded, usual)
    numbers = np.flatnonzero(np.bincount(masks[one.present]))
    for mask in numbers.tolist():
        duration = np.where(masks == mask, one.duration_ns, ABSENT)
        yield mask, duration if len(numbers) == 1 else _numbered(duration)


def _numbered(duration_ns: Int64s) -> Int64s:
    """The operations of each rank and step moved to the front, in order."""
    order = np.argsort(duration_ns < 0, axis=1, kind="stable")
    most = int((duration_ns >= 0).sum(axis=1).max())
    return np.take_along_axis(duration_ns, order, axis=1)[:, :most]
