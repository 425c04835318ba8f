"""Compute time of each rank: its compute spans without waiting and without garbage collection.

    CPU   CPU time of the recording thread, if every span has it
    GPU   duration without the collectives of tensor, context and expert parallelism inside. If parameters are gathered
          inside as well: see ``gathers``

Garbage collection is not compute. It affects one rank, then another, and is reported by late-launch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.model.gathers import LEAST_GATHERS, are_exposed, layered_work, layers_inside
from diagnose.model.operations import Floats, Ints, Operations, summed
from diagnose.model.self_time import LineOfRanks, by_stage, without_inner
from diagnose.model.view import Basis, Work
from telemetry.stages import Stage, Stream

WORK_STAGES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
INNER_STAGES = (
    *(Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.TP_ALL_REDUCE, Stage.TP_ALL_TO_ALL),
    *(stage for stage in Stage if stage.stream in (Stream.CP, Stream.EP)),
)
"""Collectives inside a compute span. Compute always stops for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTime:
    """Compute time of each rank in each compute stage."""

    work: dict[Stage, Work]
    off_cpu: dict[Stage, Floats]
    """Self time without CPU time, nanoseconds [steps, ranks]. Empty if CPU time was not measured."""
    overlap: dict[Stage, Floats]
    """Self time that collectives of parameters and gradients cover, [steps, ranks].

    A rank may have waited for its peers in all this time: DDP waits for its gradients inside the backward. Pipeline
    transfers do not count, because a receive that is posted early is no wait.
    """
    waiting_ns: Floats | None = None
    """Time in compute spans in which the rank waited for parameters, [steps, ranks]: self time without compute time.
    None: no parameters are gathered inside, or CPU time was measured, which does not contain waiting."""


def compute_time_of(
    operations: Mapping[Stage, Operations],
    inner: Mapping[Stage, Operations],
    pp_of_rank: Ints | None = None,
    *,
    on_device: bool = False,
) -> ComputeTime:
    """Compute time in the compute stages of ``operations``.

    Args:
        operations: the operations of each stage.
        inner: the collectives inside compute spans.
        pp_of_rank: pipeline stage of each rank, and its role. None: all ranks have the same one.
        on_device: whether a device measured the compute spans. The host issued them long before, so a garbage
            collection of the host at that time was not inside.
    """
    if on_device:
        operations = {stage: each for stage, each in operations.items() if stage is not Stage.GC}
    compute = {stage: operations[stage] for stage in WORK_STAGES if stage in operations}
    own = without_inner(compute, inner) if compute else {}
    collected = _collected(compute, operations)
    if not compute or not all(bool((each.cpu_ns[each.present] >= 0).all()) for each in compute.values()):
        usual = {stage: _work(each, own[stage] - collected[stage], Basis.SELF_TIME) for stage, each in compute.items()}
        work = _without_gathers(usual, compute, operations, inner, pp_of_rank)
        waiting = None if work is usual else _waiting_ns(usual, work)
        return ComputeTime(work=work, off_cpu={}, overlap={}, waiting_ns=waiting)
    of_gradients = {stage: each for stage, each in operations.items() if stage.stream is Stream.DP}
    uncovered = without_inner(compute, {**inner, **of_gradients})
    return ComputeTime(
        work={
            stage: _work(each, each.cpu_ns - collected[stage], Basis.PROCESSOR_TIME) for stage, each in compute.items()
        },
        off_cpu={
            stage: summed(np.maximum(own[stage] - each.cpu_ns, 0), each.present) for stage, each in compute.items()
        },
        overlap={stage: summed(own[stage] - uncovered[stage], each.present) for stage, each in compute.items()},
    )


def _collected(compute: Mapping[Stage, Operations], operations: Mapping[Stage, Operations]) -> dict[Stage, Ints]:
    """Nanoseconds of garbage collection in each compute operation."""
    if Stage.GC not in operations:
        return {stage: np.zeros_like(each.duration_ns) for stage, each in compute.items()}
    left = without_inner(compute, {Stage.GC: operations[Stage.GC]})
    return {stage: np.where(each.present, each.duration_ns - left[stage], 0) for stage, each in compute.items()}


def _work(operations: Operations, own_ns: Ints, basis: Basis) -> Work:
    own_ns = np.maximum(own_ns, 0)
    each: Floats = np.where(operations.present, own_ns, np.nan).astype(np.float64)
    return Work(ns=summed(own_ns, operations.present), basis=basis, each_ns=each)


def _waiting_ns(usual: Mapping[Stage, Work], corrected: Mapping[Stage, Work]) -> Floats:
    """The time that the correction removed, [steps, ranks]. 0 if a rank has no compute span."""
    removed = [np.nan_to_num(np.maximum(usual[stage].ns - work.ns, 0.0)) for stage, work in corrected.items()]
    return np.asarray(np.sum(removed, axis=0))


def _without_gathers(
    work: dict[Stage, Work],
    compute: Mapping[Stage, Operations],
    operations: Mapping[Stage, Operations],
    inner: Mapping[Stage, Operations],
    pp_of_rank: Ints | None,
) -> dict[Stage, Work]:
    """``work``, corrected if parameters are gathered inside compute: by layers, or without exposed gathers."""
    gathers, reductions = operations.get(Stage.PARAMS_ALL_GATHER), operations.get(Stage.GRADS_REDUCE_SCATTER)
    if not compute or gathers is None or gathers.present.sum(axis=1).max(initial=0) < LEAST_GATHERS:
        return work
    stops = [*inner.values(), *(operations[stage] for stage in (Stage.GC,) if stage in operations)]
    line = LineOfRanks([*compute.values(), gathers, *stops, *([reductions] if reductions is not None else [])])
    layers = layers_inside(line, compute, gathers, reductions, line.covered(stops))
    if layers is None:
        return work
    if are_exposed(layers):
        own = without_inner(compute, {**inner, Stage.PARAMS_ALL_GATHER: gathers})
        return {stage: _work(each, own[stage], Basis.SELF_TIME) for stage, each in compute.items()}
    pp = np.zeros(gathers.present.shape[2], dtype=np.int64) if pp_of_rank is None else pp_of_rank
    place = line.flat(compute.values())[2]
    number = np.empty_like(place)
    number[place] = np.arange(len(place))
    numbers = by_stage(number, compute)
    found = {}
    for stage, usual in work.items():
        layered = layered_work(layers, compute[stage], numbers[stage], pp)
        each = usual.each_ns if usual.each_ns is not None else np.full(layered.each_ns.shape, np.nan)
        rest = np.where(np.isfinite(layered.each_ns), 0.0, np.nan_to_num(each)).sum(axis=1)
        found[stage] = Work(
            ns=np.where(np.isfinite(layered.total_ns), layered.total_ns + rest, usual.ns),
            basis=usual.basis,
            each_ns=np.where(np.isfinite(layered.each_ns), layered.each_ns, each),
        )
    return found
