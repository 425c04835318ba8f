"""The slots of a step: what happens in it, written down once for one pipeline.

    pp0   params-all-gather  forward 0  send 0  forward 1  ...  backward 0  ...  optimizer
    pp1   params-all-gather  recv 0  forward 0  ...

A training step repeats the same operations in every step and in every dp and tp replica; only their times differ. A
*slot* is one of those operations: (pp, stage, occurrence). A *lane* is one place where a slot happens: (step, dp, tp).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.gathers import gathers_by_layer
from diagnose.model.operations import Bools, Int64s, Operations
from diagnose.model.view import Work
from telemetry.stages import Stage
from telemetry.topology import Topology

Lanes = npt.NDArray[np.float64]
"""Seconds in every lane of every slot, [slots, steps, dp, tp]."""

REPLAYED = (
    Stage.DATA_LOAD,
    Stage.FORWARD_COMPUTE,
    Stage.BACKWARD_COMPUTE,
    Stage.FORWARD_SEND,
    Stage.FORWARD_RECV,
    Stage.BACKWARD_SEND,
    Stage.BACKWARD_RECV,
    Stage.PARAMS_ALL_GATHER,
    Stage.GRADS_REDUCE_SCATTER,
    Stage.GRADS_ALL_REDUCE,
    Stage.SEPARATE_GRADS_ALL_REDUCE,
    Stage.EMBEDDING_GRADS_ALL_REDUCE,
    Stage.LAYERNORM_GRADS_ALL_REDUCE,
    Stage.OPTIMIZER_CLIP,
    Stage.OPTIMIZER,
    Stage.GC,
)
"""Stages that are part of a step's dependency graph. The others (tensor-parallel collectives, checkpoints, evaluation)
happen inside or beside these."""
NO_WORK: Mapping[Stage, Work] = {}
INSIDE_COMPUTES = (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER)
"""Where each layer gathers its parameters and reduces its gradients by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Columns of equal length, ordered by pp, then by ``begin_s``."""

    pp: Int64s
    stage: Int64s
    """Codes of ``telemetry.stages.Stage``."""
    occurrence: Int64s
    """The how-many-th operation of that stage on that pipeline rank in a step."""
    chunk: Int64s
    microbatch: Int64s
    begin_s: npt.NDArray[np.float64]
    """When it began and ended in the lane that was read, seconds from that step's begin: the order of things."""
    end_s: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.pp)

    def of(self, pp: int, *stages: Stage) -> list[int]:
        """Slots of these stages on one pipeline rank, in order of time."""
        return np.flatnonzero((self.pp == pp) & np.isin(self.stage, stages)).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Slots and their times in every lane."""

    slots: Slots
    begin_s: Lanes
    end_s: Lanes
    step_s: npt.NDArray[np.float64]
    """When each step began, seconds since the first one: what ``begin_s`` counts from."""
    rows: Int64s
    """Rows of the window that are complete: the lanes' steps."""
    work_s: Lanes | None = None
    """Where parameters are gathered inside computes: own work of each compute, without what it waited for inside; NaN
    for other slots."""
    num_left_out: int
    """Steps in which some rank lacks an operation, or has one more."""

    @property
    def duration_s(self) -> Lanes:
        return self.end_s - self.begin_s


def step_times(
    operations: Mapping[Stage, Operations], topology: Topology, work: Mapping[Stage, Work] = NO_WORK
) -> StepTimes | None:
    """The slots of a run and their times; None where no step is complete on all ranks. ``work``: own work of computes,
    as far as it is known.

    What most replicas do in most steps is taken for the step's programme.
    """
    chosen = {stage: operations[stage] for stage in REPLAYED if stage in operations}
    if Stage.GC in chosen and not _is_regular(chosen[Stage.GC], topology):
        del chosen[Stage.GC]
    if Stage.DATA_LOAD in chosen and not _is_alike_along_tp(chosen[Stage.DATA_LOAD], topology):
        del chosen[Stage.DATA_LOAD]
    inside = gathers_by_layer(chosen)
    if inside:  # they happen inside computes, as tensor-parallel collectives do
        chosen = {stage: one for stage, one in chosen.items() if stage not in INSIDE_COMPUTES}
    if not any(stage in WORK_STAGES for stage in chosen):
        return None
    usual = {stage: _usual(one.present, topology) for stage, one in chosen.items()}
    complete = np.logical_and.reduce(
        [(_grid(one.present, topology) == usual[stage]).all(axis=(1, 2, 3, 4)) for stage, one in chosen.items()]
    )
    rows = np.flatnonzero(complete)
    if not len(rows):
        return None
    zero = _first_start(chosen, rows)
    parts = [_part(stage, one, usual[stage], topology, rows, zero) for stage, one in chosen.items()]
    slots, begin, end = _joined(parts)
    return StepTimes(
        slots=slots,
        begin_s=begin,
        end_s=end,
        step_s=(zero - zero[0]) / 1e9,
        rows=rows,
        work_s=_work_lanes(slots, work, topology, rows) if inside else None,
        num_left_out=int(len(complete) - len(rows)),
    )


def _work_lanes(slots: Slots, work: Mapping[Stage, Work], topology: Topology, rows: Int64s) -> Lanes | None:
    """None where some compute's own work is not known operation by operation."""
    each = {int(stage): one.each_ns for stage, one in work.items() if one.each_ns is not None}
    lanes = np.full((len(slots), len(rows), topology.dp, topology.tp), np.nan)
    for slot in np.flatnonzero(np.isin(slots.stage, WORK_STAGES)).tolist():
        if (ns := each.get(int(slots.stage[slot]))) is None:
            return None
        lanes[slot] = topology.arranged(ns[rows, slots.occurrence[slot]])[:, :, slots.pp[slot]] / 1e9
    return lanes


def _is_regular(one: Operations, topology: Topology) -> bool:
    """Whether every rank does it in every step; a collection that strikes here and there is part of what it strikes."""
    return bool((_grid(one.present, topology) == _usual(one.present, topology)).all()) and bool(one.present.any())


def _is_alike_along_tp(one: Operations, topology: Topology) -> bool:
    """Whether all of a tensor group do it; in many jobs only the first of them loads data."""
    present = _grid(one.present, topology)
    return bool((present == present[..., :1]).all())


def _grid(values: npt.NDArray[np.bool_], topology: Topology) -> Bools:
    """[steps, occurrences, ranks] as [steps, occurrences, dp, pp, tp]."""
    return topology.arranged(values)


def _usual(present: Bools, topology: Topology) -> Bools:
    """What most lanes hold, [1, occurrences, 1, pp, 1]."""
    return np.asarray(_grid(present, topology).mean(axis=(0, 2, 4), keepdims=True) > 0.5)


def _first_start(chosen: Mapping[Stage, Operations], rows: Int64s) -> Int64s:
    """First stamp of each step over all ranks, [steps]: what the lanes' seconds count from."""
    never = np.iinfo(np.int64).max
    firsts = [np.where(one.present[rows], one.start_ns[rows], never).min(axis=(1, 2)) for one in chosen.values()]
    return np.asarray(np.min(firsts, axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The slots of one stage."""

    columns: dict[str, Int64s]
    begin_s: Lanes
    end_s: Lanes


def _part(stage: Stage, one: Operations, usual: Bools, topology: Topology, rows: Int64s, zero: Int64s) -> _Part:
    occurrence, pp = np.nonzero(usual[0, :, 0, :, 0])

    def lanes(values: Int64s) -> Int64s:
        """[steps, occurrences, ranks] as [slots, steps, dp, tp]."""
        return topology.arranged(values[rows])[:, occurrence, :, pp, :]

    begin = (lanes(one.start_ns) - zero[None, :, None, None]) / 1e9
    return _Part(
        columns={
            "pp": pp,
            "stage": np.full(len(pp), int(stage)),
            "occurrence": occurrence,
            "chunk": lanes(one.chunk.astype(np.int64))[:, 0, 0, 0],
            "microbatch": lanes(one.microbatch.astype(np.int64))[:, 0, 0, 0],
        },
        begin_s=begin,
        end_s=begin + lanes(one.duration_ns) / 1e9,
    )


def _joined(parts: list[_Part]) -> tuple[Slots, Lanes, Lanes]:
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    begin = np.concatenate([part.begin_s for part in parts])
    end = np.concatenate([part.end_s for part in parts])
    order = np.lexsort((columns["stage"], columns["occurrence"], begin[:, 0, 0, 0], columns["pp"]))
    slots = Slots(
        **{name: values[order] for name, values in columns.items()},
        begin_s=begin[order, 0, 0, 0],
        end_s=end[order, 0, 0, 0],
    )
    return slots, begin[order], end[order]
