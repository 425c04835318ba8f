"""Own work of each rank: its compute spans, waiting and garbage collection left out.

cpu   processor time of the recording thread, where every span has it
gpu   duration less the collectives of tensor, context and expert parallelism inside; where parameters are gathered
      inside, too, as ``gathers`` says

A collection is no compute: it strikes one rank, then another, and is told by who launches late.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.gathers import LEAST_GATHERS, are_exposed, cover_of, layered_work, layers_inside
from diagnose.model.line_of_ranks import LineOfRanks
from diagnose.model.operations import Int64s, Operations, summed
from diagnose.model.self_time import self_time_ns
from diagnose.model.view import Basis, FloatMatrix, IntVector, Work
from telemetry.stages import Stage, Stream

WORK_STAGES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
INNER_STAGES = (
    *(Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.TP_ALL_REDUCE, Stage.TP_ALL_TO_ALL),
    *(stage for stage in Stage if stage.stream in (Stream.CP, Stream.EP)),
)
"""Collectives inside a compute span, which always stop it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTime:
    """What each rank did by itself in each compute stage."""

    work: dict[Stage, Work]
    off_cpu: dict[Stage, FloatMatrix]
    """Own wall time less processor time, nanoseconds [steps, ranks]; empty where it was not measured."""
    overlap: dict[Stage, FloatMatrix]
    """How long collectives of parameters and gradients ran inside the computes, in own wall time, likewise. A rank may
    have waited for its peers all that time: DDP waits for its reduction of gradients inside the backward. Transfers
    along a pipeline do not count: a receive that is posted early is no wait."""


def compute_time_of(
    operations: Mapping[Stage, Operations],
    inner: Mapping[Stage, Operations],
    pp_of_rank: IntVector | None = None,
    *,
    on_device: bool = False,
) -> ComputeTime:
    """Own time in the compute stages of ``operations``; ``inner`` holds the collectives inside them. ``pp_of_rank``:
    pipeline stage of each rank, all one where left out. ``on_device``: a device measured the computes. The host issued
    them long before, so a collection that it made meanwhile was not inside."""
    if on_device:
        operations = {stage: one for stage, one in operations.items() if stage is not Stage.GC}
    compute = {stage: operations[stage] for stage in WORK_STAGES if stage in operations}
    own = without_inner(compute, inner) if compute else {}
    collected = _collected(compute, operations)
    if not compute or not all(bool((one.cpu_ns[one.present] >= 0).all()) for one in compute.values()):
        work = {stage: _work(one, own[stage] - collected[stage], Basis.SELF_TIME) for stage, one in compute.items()}
        return ComputeTime(work=_beside_gathers(work, compute, operations, inner, pp_of_rank), off_cpu={}, overlap={})
    beside = without_inner(compute, {**inner, **_of_gradients(operations)})
    return ComputeTime(
        work={stage: _work(one, one.cpu_ns - collected[stage], Basis.PROCESSOR_TIME) for stage, one in compute.items()},
        off_cpu={stage: summed(np.maximum(own[stage] - one.cpu_ns, 0), one.present) for stage, one in compute.items()},
        overlap={stage: summed(own[stage] - beside[stage], one.present) for stage, one in compute.items()},
    )


def _of_gradients(operations: Mapping[Stage, Operations]) -> dict[Stage, Operations]:
    return {stage: one for stage, one in operations.items() if stage.stream is Stream.DP}


def _collected(compute: Mapping[Stage, Operations], operations: Mapping[Stage, Operations]) -> dict[Stage, Int64s]:
    """Nanoseconds of garbage collection in each compute operation."""
    if Stage.GC not in operations:
        return {stage: np.zeros_like(one.duration_ns) for stage, one in compute.items()}
    left = without_inner(compute, {Stage.GC: operations[Stage.GC]})
    return {stage: np.where(one.present, one.duration_ns - left[stage], 0) for stage, one in compute.items()}


def _work(one: Operations, own_ns: Int64s, basis: Basis) -> Work:
    own_ns = np.maximum(own_ns, 0)
    each: npt.NDArray[np.float64] = np.where(one.present, own_ns, np.nan).astype(np.float64)
    return Work(ns=summed(own_ns, one.present), basis=basis, each_ns=each)


def _beside_gathers(
    work: dict[Stage, Work],
    compute: Mapping[Stage, Operations],
    operations: Mapping[Stage, Operations],
    inner: Mapping[Stage, Operations],
    pp_of_rank: IntVector | None,
) -> dict[Stage, Work]:
    """The same, where parameters are gathered inside computes: by layers, or without what is exposed."""
    gathers, reductions = operations.get(Stage.PARAMS_ALL_GATHER), operations.get(Stage.GRADS_REDUCE_SCATTER)
    if not compute or gathers is None or gathers.present.sum(axis=1).max(initial=0) < LEAST_GATHERS:
        return work
    stops = [*inner.values(), *(operations[stage] for stage in (Stage.GC,) if stage in operations)]
    line = LineOfRanks([*compute.values(), gathers, *stops, *([reductions] if reductions is not None else [])])
    layers = layers_inside(line, list(compute.values()), gathers, reductions, cover_of(line, stops))
    if layers is None:
        return work
    if are_exposed(layers):
        own = without_inner(compute, {**inner, Stage.PARAMS_ALL_GATHER: gathers})
        return {stage: _work(one, own[stage], Basis.SELF_TIME) for stage, one in compute.items()}
    pp = np.zeros(gathers.present.shape[2], dtype=np.int64) if pp_of_rank is None else pp_of_rank
    numbers = _numbers(line, compute)
    found = {}
    for stage, one in work.items():
        layered = layered_work(layers, compute, stage, numbers[stage], pp)
        each = one.each_ns if one.each_ns is not None else np.full(layered.each_ns.shape, np.nan)
        rest = np.where(np.isfinite(layered.each_ns), 0.0, np.nan_to_num(each)).sum(axis=1)
        found[stage] = Work(
            ns=np.where(np.isfinite(layered.total_ns), layered.total_ns + rest, one.ns),
            basis=one.basis,
            each_ns=np.where(np.isfinite(layered.each_ns), layered.each_ns, each),
        )
    return found


def _numbers(line: LineOfRanks, compute: Mapping[Stage, Operations]) -> dict[Stage, Int64s]:
    """Of each operation its number in the order of the line, [steps, occurrences, ranks]; -1 where there is none."""
    _, _, place = line.flat(list(compute.values()))
    number = np.empty(len(place), dtype=np.int64)
    number[place] = np.arange(len(place))
    return _by_stage(number, compute)


def _by_stage(values: Int64s, compute: Mapping[Stage, Operations]) -> dict[Stage, Int64s]:
    """``values`` of all operations, as they are stored one stage after another, by stage; -1 where there is none."""
    counts = np.cumsum([0, *(int(one.present.sum()) for one in compute.values())])
    answer: dict[Stage, Int64s] = {}
    for (stage, one), first, last in zip(compute.items(), counts[:-1], counts[1:], strict=True):
        answer[stage] = np.full(one.duration_ns.shape, -1, dtype=np.int64)
        answer[stage][one.present] = values[first:last]
    return answer


def without_inner(compute: Mapping[Stage, Operations], inner: Mapping[Stage, Operations]) -> dict[Stage, Int64s]:
    """Duration of each compute operation less the ``inner`` ones, [steps, occurrences, ranks] for each stage."""
    if not inner:
        return {stage: one.duration_ns for stage, one in compute.items()}
    line = LineOfRanks([*compute.values(), *inner.values()])
    outer_begin, outer_ns, place = line.flat(list(compute.values()))
    inner_begin, inner_ns, _ = line.flat(list(inner.values()))
    own = np.empty(len(outer_ns), dtype=np.int64)
    own[place] = self_time_ns(outer_begin, outer_ns, inner_begin, inner_ns)
    return _by_stage(own, compute)
