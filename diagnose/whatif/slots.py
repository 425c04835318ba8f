"""The slots of a step: its operations, listed once for one pipeline.

    pp0   params-all-gather  forward 0  send 0  forward 1  ...  backward 0  ...  optimizer
    pp1   params-all-gather  recv 0  forward 0  ...

A training step repeats the same operations in every step and in every dp and tp replica. Only their times differ. A
*slot* is one of those operations: (pp, stage, occurrence). A *lane* is one place where a slot occurs: (step, dp, tp).

The times of all hosts are put on one clock: simultaneous events show the offsets between clocks.

    host a   ...... clip |           the gradient norm of all ranks ends on all of them at once: the difference of their
    host b   ........ clip |         stamps of that end is the difference of their clocks
                     -->| |<-- offset of b

The offset of a host is a line over the window (offset and drift) through the medians of its ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.gathers import gathers_by_layer
from diagnose.model.operations import Bools, Int64s, Operations
from diagnose.model.view import Work
from telemetry.stages import Stage
from telemetry.topology import Topology

FloatVector = npt.NDArray[np.float64]
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
run inside or beside these."""
NO_WORK: Mapping[Stage, Work] = {}
INSIDE_COMPUTES = (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER)
"""Stages that run inside computes if each layer gathers its parameters and reduces its gradients."""
SMALLEST_OFFSET_S = 5e-4
"""If the offsets of all hosts are below this, they are not corrected: ranks of one host differ as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Columns of equal length, ordered by pp, then by ``begin_s``."""

    pp: Int64s
    stage: Int64s
    """Codes of ``telemetry.stages.Stage``."""
    occurrence: Int64s
    """Number of the operation among those of its stage on its pipeline rank in a step, from 0."""
    chunk: Int64s
    microbatch: Int64s
    begin_s: FloatVector
    """Begin and end in the first lane, in seconds since the begin of the step. Slots are ordered by them."""
    end_s: FloatVector

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
    step_s: FloatVector
    """Begin of each step, in seconds since the begin of the first one. Times in ``begin_s`` and ``end_s`` are seconds
    since the begin of their step."""
    rows: Int64s
    """The complete steps, as rows of the window. Lanes exist for these steps only."""
    work_s: Lanes | None = None
    """For runs whose replicas wait for each other inside computes: compute time of each compute, without its waiting;
    NaN for other slots."""
    inner_groups: Int64s | None = None
    """Replicas that wait for each other inside computes, by index along dp: [groups, members]. None: all of them."""
    num_left_out: int
    """Number of steps in which some rank lacks an operation, or has an additional one."""


def step_times(
    operations: Mapping[Stage, Operations],
    topology: Topology,
    hosts: Sequence[str] = (),
    work: Mapping[Stage, Work] = NO_WORK,
) -> StepTimes | None:
    """The slots of a run and their times; None if no step is complete on all ranks.

    The operations of most replicas in most steps are the program of the step.

    Args:
        hosts: host of each rank, if their clocks may differ.
        work: compute times, as far as they are known.
    """
    chosen = {stage: operations[stage] for stage in REPLAYED if stage in operations}
    if Stage.GC in chosen and not _is_regular(chosen[Stage.GC], topology):
        del chosen[Stage.GC]
    if Stage.DATA_LOAD in chosen:
        loads = topology.arranged(chosen[Stage.DATA_LOAD].present)
        if not (loads == loads[..., :1]).all():  # in many jobs only the first rank of a tensor group loads data
            del chosen[Stage.DATA_LOAD]
    inside = gathers_by_layer(chosen)
    inner_groups = None if inside else inner_groups_of(topology)
    if inside:  # they run inside computes, as tensor-parallel collectives do
        chosen = {stage: of_stage for stage, of_stage in chosen.items() if stage not in INSIDE_COMPUTES}
    if not any(stage in WORK_STAGES for stage in chosen):
        return None
    usual = {stage: _usual(topology.arranged(of_stage.present)) for stage, of_stage in chosen.items()}
    complete = np.logical_and.reduce(
        [
            (topology.arranged(of_stage.present) == usual[stage]).all(axis=(1, 2, 3, 4))
            for stage, of_stage in chosen.items()
        ]
    )
    rows = np.flatnonzero(complete)
    if not len(rows):
        return None
    zero = _first_start(chosen, rows)
    parts = [_part(stage, of_stage, usual[stage], topology, rows, zero) for stage, of_stage in chosen.items()]
    slots, begin, end = _joined(parts)
    times = StepTimes(
        slots=slots,
        begin_s=begin,
        end_s=end,
        step_s=(zero - zero[0]) / 1e9,
        rows=rows,
        work_s=_work_lanes(slots, work, topology, rows) if inside or inner_groups is not None else None,
        inner_groups=inner_groups,
        num_left_out=int(len(complete) - len(rows)),
    )
    return _on_one_clock(times, hosts, topology) if hosts else times


def inner_groups_of(topology: Topology) -> Int64s | None:
    """Replicas that exchange data inside computes: those of one group of context and expert parallelism. By index along
    dp, [groups, members]. None without such axes."""
    mask = topology.wide_mask("cp", "ep")
    return np.unique(topology.index["dp"][topology.members(mask)], axis=0) if mask else None


def _work_lanes(slots: Slots, work: Mapping[Stage, Work], topology: Topology, rows: Int64s) -> Lanes | None:
    """Compute times in every lane, as in ``StepTimes.work_s``. None if that of some operation is unknown."""
    each_ns = {int(stage): of_stage.each_ns for stage, of_stage in work.items() if of_stage.each_ns is not None}
    lanes = np.full((len(slots), len(rows), topology.dp, topology.tp), np.nan)
    for slot in np.flatnonzero(np.isin(slots.stage, WORK_STAGES)).tolist():
        if (ns := each_ns.get(int(slots.stage[slot]))) is None:
            return None
        lanes[slot] = topology.arranged(ns[rows, slots.occurrence[slot]])[:, :, slots.pp[slot]] / 1e9
    return lanes


def _is_regular(operations: Operations, topology: Topology) -> bool:
    """Whether every rank has the operations in every step. Irregular garbage collection is part of the operation around
    it."""
    present = topology.arranged(operations.present)
    return bool((present == _usual(present)).all() and present.any())


def _usual(present: Bools) -> Bools:
    """Whether most lanes have an operation: [steps, occurrences, dp, pp, tp] to [1, occurrences, 1, pp, 1]."""
    return np.asarray(present.mean(axis=(0, 2, 4), keepdims=True) > 0.5)


def _first_start(chosen: Mapping[Stage, Operations], rows: Int64s) -> Int64s:
    """First start of an operation in each step over all ranks, [steps]."""
    never = np.iinfo(np.int64).max
    firsts = [
        np.where(of_stage.present[rows], of_stage.start_ns[rows], never).min(axis=(1, 2))
        for of_stage in chosen.values()
    ]
    return np.asarray(np.min(firsts, axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The slots of one stage."""

    columns: dict[str, Int64s]
    begin_s: Lanes
    end_s: Lanes


def _part(stage: Stage, operations: Operations, usual: Bools, topology: Topology, rows: Int64s, zero: Int64s) -> _Part:
    occurrence, pp = np.nonzero(usual[0, :, 0, :, 0])

    def lanes(values: Int64s) -> Int64s:
        """Rearrange [steps, occurrences, ranks] to [slots, steps, dp, tp]. A slot is an occurrence and a pp."""
        return topology.arranged(values[rows])[:, occurrence, :, pp, :]

    begin = (lanes(operations.start_ns) - zero[None, :, None, None]) / 1e9
    return _Part(
        columns={
            "pp": pp,
            "stage": np.full(len(pp), int(stage)),
            "occurrence": occurrence,
            "chunk": lanes(operations.chunk.astype(np.int64))[:, 0, 0, 0],
            "microbatch": lanes(operations.microbatch.astype(np.int64))[:, 0, 0, 0],
        },
        begin_s=begin,
        end_s=begin + lanes(operations.duration_ns) / 1e9,
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


def _on_one_clock(times: StepTimes, hosts: Sequence[str], topology: Topology) -> StepTimes:
    """``times`` without the offsets between the clocks of hosts. Unchanged if one host holds all ranks, if the clocks
    agree, or if nothing in a step ends on all ranks at once."""
    clips = [slot for pp in range(topology.pp) for slot in times.slots.of(pp, Stage.OPTIMIZER_CLIP)[-1:]]
    if len(clips) < topology.pp or len(set(hosts)) < 2:
        return times
    offsets = np.zeros((topology.pp, *times.begin_s.shape[1:]))
    ends = times.end_s[clips]
    ahead = ends - np.median(ends, axis=(0, 2, 3), keepdims=True)
    host_of = topology.arranged(np.array(hosts)).transpose(1, 0, 2)
    for host in np.unique(host_of):
        mine = host_of == host
        by_step = np.median(ahead.transpose(1, 0, 2, 3)[:, mine], axis=1)
        offsets.transpose(0, 2, 3, 1)[mine] = _line(times.step_s, by_step)
    if np.abs(offsets).max() < SMALLEST_OFFSET_S:
        return times
    of_slot = offsets[times.slots.pp]
    return replace(times, begin_s=times.begin_s - of_slot, end_s=times.end_s - of_slot)


def _line(at_s: FloatVector, values: FloatVector) -> FloatVector:
    """A line through the values by least squares. The median if there are too few values for a slope."""
    if len(values) < 3:
        return np.full(len(values), np.median(values))
    slope, base = np.polyfit(at_s - at_s[0], values, 1)
    return np.asarray(base + slope * (at_s - at_s[0]))
