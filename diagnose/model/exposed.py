"""Exposed communication: the time in which a rank communicates and does not compute.

    device    compute   |=======|       |====|            An operation lasts from its start to the end of its transfer.
              dp             |------|                     Exposed is what no compute of the same rank covers.
              exposed           |###|

    host      compute   |================|                The rank is one thread. It computes until it waits.
              dp           |--------|                     issue ... return of wait()
              wait              |---|                     the span ``communication-wait``
              exposed           |###|

Computes stop for some operations inside of them. On the host, these are all operations that lie wholly inside one
compute span, from the begin of their wait. On a device, they are those of tensor, context and expert parallelism: which
kernels run beside them is not recorded. If parameters are gathered inside a compute span of a device, the time in which
compute waits for them is exposed too: the span without its compute time (``compute_time.py``).

Where several operations of an axis overlap, the time counts once, for the one that began first. Operations of different
axes are independent of each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.model.compute_time import INNER_STAGES
from diagnose.model.operations import Bools, Floats, Ints, Operations, summed
from diagnose.model.self_time import Covered, LineOfRanks, blocks_of_ranks, by_stage, covered
from diagnose.model.view import RunView
from telemetry.stages import Stage, StageClass, Stream

_AXIS_OF_STREAM = {
    Stream.DP: "dp",
    Stream.PP_FORWARD: "pp",
    Stream.PP_BACKWARD: "pp",
    Stream.TP: "tp",
    Stream.CP: "cp",
    Stream.EP: "ep",
}
AXIS_OF_STAGE = {stage: _AXIS_OF_STREAM[stage.stream] for stage in Stage if stage.stream in _AXIS_OF_STREAM}
"""The axis along which a communication stage moves data."""
AXIS_OF_STAGE[Stage.EMBEDDING_GRADS_ALL_REDUCE] = "pp"  # between the ends of each pipeline
AXES = tuple(dict.fromkeys(_AXIS_OF_STREAM.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedAxis:
    """Exposed communication along one axis: the mean over ranks and steps."""

    seconds: float
    """Exposed time in one step."""
    share: float
    """Exposed time as a share of the step time."""


def stages_of_axis(axis: str) -> tuple[Stage, ...]:
    """The communication stages along an axis: ``dp``, ``pp``, ``tp``, ``cp`` or ``ep``."""
    return tuple(stage for stage, along in AXIS_OF_STAGE.items() if along == axis)


def exposed_of(
    operations: Mapping[Stage, Operations],
    waits: Operations | None,
    *,
    on_device: bool,
    waiting_ns: Floats | None = None,
) -> dict[Stage, Floats]:
    """Exposed nanoseconds of each communication stage, [steps, ranks]. NaN if a rank has no operation of the stage.

    Empty without compute spans: then it is not known what covers the communication.

    Args:
        operations: all operations, also those inside compute spans.
        waits: the waits for asynchronous operations of the host (``Stage.COMMUNICATION_WAIT``).
        on_device: whether a device measured the compute spans.
        waiting_ns: time inside compute spans in which ranks waited for parameters (``ComputeTime.waiting_ns``).
    """
    moving = {stage: each for stage, each in operations.items() if stage in AXIS_OF_STAGE}
    compute = [each for stage, each in operations.items() if stage.stage_class is StageClass.COMPUTE]
    if not moving or not compute:
        return {}
    blocks = [
        _exposed_of_ranks(
            {stage: each.chosen(ranks=ranks) for stage, each in moving.items()},
            [each.chosen(ranks=ranks) for each in compute],
            None if waits is None else waits.chosen(ranks=ranks),
            on_device=on_device,
        )
        for ranks in blocks_of_ranks(compute[0].present.shape[2])
    ]
    found = {stage: np.concatenate([block[stage] for block in blocks], axis=1) for stage in moving}
    if on_device and waiting_ns is not None:  # on the host, operations inside compute spans are counted above
        found[Stage.PARAMS_ALL_GATHER] = found[Stage.PARAMS_ALL_GATHER] + waiting_ns
    return found


def _exposed_of_ranks(
    moving: Mapping[Stage, Operations], compute: list[Operations], waits: Operations | None, *, on_device: bool
) -> dict[Stage, Floats]:
    """The same for a block of ranks. They may have no operation of a stage, no compute spans and no waits."""
    parts = [each for each in (*moving.values(), *compute, *([waits] if waits is not None else [])) if each.count]
    if not parts:
        return {stage: each.total_ns() for stage, each in moving.items()}
    line = LineOfRanks(parts)
    begin, duration, place = line.flat(moving.values())
    end = begin + duration
    begin = _waited_since(begin, end, line, waits if waits is not None and waits.count else None)
    stage = np.repeat([int(stage) for stage in moving], [each.count for each in moving.values()])[place]
    cover = line.covered(compute)
    stops = _inside(begin, end, cover)
    if on_device:
        stops &= _is_among(INNER_STAGES)[stage]
    stopped = _covered_by(begin[stops], end[stops])
    exposed = np.empty(len(begin), dtype=np.int64)
    for axis in AXES:
        mine = np.flatnonzero(_is_among(stages_of_axis(axis))[stage])
        exposed[place[mine]] = _uncovered(begin[mine], end[mine], cover, stopped)
    dense = by_stage(exposed, moving)
    return {stage: summed(dense[stage], each.present) for stage, each in moving.items()}


def exposed_along(view: RunView) -> dict[str, Floats]:
    """Exposed nanoseconds of each axis that the run has, [steps, ranks]. NaN if a rank has no operation along it."""
    found: dict[str, Floats] = {}
    for axis in AXES:
        parts = [view.exposed[stage] for stage in stages_of_axis(axis) if stage in view.exposed]
        if parts:
            together = np.stack(parts)
            found[axis] = np.where(np.isnan(together).all(axis=0), np.nan, np.nansum(together, axis=0))
    return found


def exposed_figures(view: RunView) -> dict[str, ExposedAxis]:
    """The figure of each axis. An axis without complete data in any step is left out."""
    figures = {}
    for axis, ns in exposed_along(view).items():
        known = ~np.isnan(ns)
        if known.any():
            step_ns = np.broadcast_to(view.step_ns[:, None], ns.shape)[known].mean()
            mean_ns = float(ns[known].mean())
            figures[axis] = ExposedAxis(seconds=mean_ns / 1e9, share=mean_ns / float(step_ns) if step_ns else 0.0)
    return figures


def _is_among(stages: Iterable[Stage]) -> Bools:
    """For each code of a stage, whether it is one of ``stages``."""
    found = np.zeros(256, dtype=np.bool_)
    found[[int(stage) for stage in stages]] = True
    return found


def _waited_since(begin_ns: Ints, end_ns: Ints, line: LineOfRanks, waits: Operations | None) -> Ints:
    """The begin of each operation, or of the wait for it. An operation and its wait end at the same time."""
    if waits is None:
        return begin_ns
    wait_begin, wait_ns, _ = line.flat([waits])
    wait_end = wait_begin + wait_ns
    order = np.argsort(wait_end, kind="stable")
    found = order[np.minimum(np.searchsorted(wait_end[order], end_ns), len(order) - 1)]
    return np.where(wait_end[found] == end_ns, np.maximum(begin_ns, wait_begin[found]), begin_ns)


def _inside(begin_ns: Ints, end_ns: Ints, cover: Covered) -> Bools:
    """Whether each interval lies wholly inside one covered interval."""
    if not len(cover.begin_ns):
        return np.zeros(len(begin_ns), dtype=np.bool_)
    around = np.searchsorted(cover.begin_ns, begin_ns, side="right") - 1
    return np.asarray((around >= 0) & (end_ns <= cover.end_ns[np.maximum(around, 0)]))


def _covered_by(begin_ns: Ints, end_ns: Ints) -> Covered:
    order = np.argsort(begin_ns, kind="stable")
    return covered(begin_ns[order], (end_ns - begin_ns)[order])


def _uncovered(begin_ns: Ints, end_ns: Ints, cover: Covered, stopped: Covered) -> Ints:
    """The part of each interval that no running compute and no earlier interval covers."""
    order = np.argsort(begin_ns, kind="stable")
    begin, end = begin_ns[order], end_ns[order]
    latest = np.maximum.accumulate(end)
    begin[1:] = np.maximum(begin[1:], latest[:-1])
    end = np.maximum(begin, end)
    computed = cover.until(end) - cover.until(begin) - (stopped.until(end) - stopped.until(begin))
    exposed = np.empty(len(begin), dtype=np.int64)
    exposed[order] = end - begin - computed
    return exposed
