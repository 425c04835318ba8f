"""Own work of each rank: its compute spans, waiting and garbage collection left out.

cpu   processor time of the recording thread, where every span has it
gpu   duration less the tensor-parallel collectives inside

A collection is no compute: it strikes one rank, then another, and is told by who launches late.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.operations import Int64s, Operations, summed
from diagnose.self_time import self_time_ns
from diagnose.view import Basis, FloatMatrix, Work
from telemetry.errors import UsageError
from telemetry.stages import Stage

WORK_STAGES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
INNER_STAGES = (Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.TP_ALL_REDUCE)
"""Collectives inside a compute span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTime:
    """What each rank did by itself in each compute stage."""

    work: dict[Stage, Work]
    off_cpu: dict[Stage, FloatMatrix]
    """Own wall time less processor time, nanoseconds [steps, ranks]; empty where it was not measured."""


def own_time(operations: Mapping[Stage, Operations], inner: Mapping[Stage, Operations]) -> OwnTime:
    """Own time in the compute stages of ``operations``; ``inner`` holds the collectives inside them."""
    compute = {stage: operations[stage] for stage in WORK_STAGES if stage in operations}
    own = without_inner(compute, inner) if compute else {}
    collected = _collected(compute, operations)
    if not compute or not all(bool((one.cpu_ns[one.present] >= 0).all()) for one in compute.values()):
        return OwnTime(
            work={stage: _work(one, own[stage] - collected[stage], Basis.SELF_TIME) for stage, one in compute.items()},
            off_cpu={},
        )
    return OwnTime(
        work={stage: _work(one, one.cpu_ns - collected[stage], Basis.PROCESSOR_TIME) for stage, one in compute.items()},
        off_cpu={stage: summed(np.maximum(own[stage] - one.cpu_ns, 0), one.present) for stage, one in compute.items()},
    )


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


def without_inner(
    compute: Mapping[Stage, Operations], inner: Mapping[Stage, Operations]
) -> dict[Stage, npt.NDArray[np.int64]]:
    """Duration of each compute operation less the ``inner`` ones, [steps, occurrences, ranks] for each stage."""
    if not inner:
        return {stage: one.duration_ns for stage, one in compute.items()}
    line = _Line([*compute.values(), *inner.values()])
    outer_begin, outer_ns, place = line.flat(list(compute.values()))
    inner_begin, inner_ns, _ = line.flat(list(inner.values()))
    own = np.empty(len(outer_ns), dtype=np.int64)
    own[place] = self_time_ns(outer_begin, outer_ns, inner_begin, inner_ns)
    counts = np.cumsum([0, *(int(one.present.sum()) for one in compute.values())])
    answer: dict[Stage, npt.NDArray[np.int64]] = {}
    for (stage, one), first, last in zip(compute.items(), counts[:-1], counts[1:], strict=True):
        answer[stage] = np.full(one.duration_ns.shape, -1, dtype=np.int64)
        answer[stage][one.present] = own[first:last]
    return answer


class _Line:
    """All ranks one behind the other on one line of time, so that they are searched at once."""

    def __init__(self, everything: list[Operations]) -> None:
        self._zero = min(int(one.start_ns[one.present].min()) for one in everything)
        end = max(int(one.end_ns[one.present].max()) for one in everything)
        self._length = end - self._zero + 1
        if self._length * everything[0].start_ns.shape[2] >= 2**62:
            raise UsageError(
                f"steps that lie {self._length / 8.64e13:.1f} days apart, on {everything[0].start_ns.shape[2]} ranks",
                hint="look at fewer steps: --first-step, --last-step",
            )

    def flat(self, some: list[Operations]) -> tuple[Int64s, Int64s, Int64s]:
        """Begins and durations in order of the line, and the place of each among ``some`` as they are stored."""
        begin = np.concatenate([self._begin(one) for one in some])
        duration = np.concatenate([one.duration_ns[one.present] for one in some])
        order = np.argsort(begin, kind="stable")
        return begin[order], duration[order], order

    def _begin(self, one: Operations) -> Int64s:
        rank = np.nonzero(one.present)[2]
        return np.asarray(one.start_ns[one.present] - self._zero + rank * self._length)
