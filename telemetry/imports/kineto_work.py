"""When a rank computed, and what: from kernels on the GPU, or from operators where there is none.

    host     |- forward: launches -|- autograd: launches -|- Optimizer.step: launches -|
    GPU          |k|k|k| nccl |k|k|      |k|k|  |k|k|          |k|
    spans        |-----|      |---|      |---|  |---|          |-|
                 forward-compute         backward-compute      optimizer

A kernel belongs to the step and the phase in which the host launched it: ``optimizer`` inside torch's own
``Optimizer.*`` ranges; ``backward-compute`` inside a range that somebody named so, or where autograd calls its
functions; everything else is ``forward-compute``. Kernels that follow each other at once are one span, so that no span
holds a wait for another rank. Copies and fills are no work.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.imports.intervals import Ints, inside, merged, without
from telemetry.imports.kineto_file import Ranges, TraceFile
from telemetry.imports.kineto_stages import is_nccl
from telemetry.stages import Stage

GAP_NS = 20_000
"""Between two kernels of one span at most: what a launch takes, and less than any wait worth seeing."""

_OPTIMIZER = "Optimizer."
_AUTOGRAD = "autograd::engine::evaluate_function"
_EXCHANGES = ("c10d::", "gloo:", "nccl:")
PHASES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.OPTIMIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Stretches of computing. ``issue_ns``: when the host launched the first kernel; 0 on a host."""

    stage: npt.NDArray[np.uint8]
    step: Ints
    begin_ns: Ints
    end_ns: Ints
    issue_ns: Ints


def work_of(trace: TraceFile) -> Work:
    """The work of a rank in its steps; what lies in none is left out."""
    on_gpu = bool(trace.kernels.ranges.name)
    begin, end, at, thread = _kernels(trace) if on_gpu else _operators(trace)
    step = step_at(trace, at)
    phase = _phases(trace, at, thread)
    parts = [
        _busy(stage, number, begin[chosen], end[chosen], at[chosen] if on_gpu else np.zeros(chosen.sum(), np.int64))
        for stage in PHASES
        for number in np.unique(step[step >= 0]).tolist()
        if (chosen := (phase == int(stage)) & (step == number)).any()
    ]
    return _joined(parts)


def step_at(trace: TraceFile, at_ns: Ints) -> Ints:
    """Number of the step that each moment lies in; -1: none."""
    order = np.argsort(trace.steps.begin_ns)
    begin, end, number = trace.steps.begin_ns[order], trace.steps.end_ns[order], trace.step_numbers[order]
    place = np.searchsorted(begin, at_ns, side="right") - 1
    return np.where((place >= 0) & (at_ns < end[place]), number[place], -1)


_Pieces = tuple[Ints, Ints, Ints, Ints]
"""Begin, end, when and where the host asked for it."""


def _kernels(trace: TraceFile) -> _Pieces:
    ranges = trace.kernels.ranges
    own = np.array([not is_nccl(name) for name in ranges.name], dtype=bool)
    begin = ranges.begin_ns[own]
    issued = trace.kernels.issue_ns[own]
    at = np.where(issued > 0, issued, begin)
    return begin, ranges.end_ns[own], at, trace.kernels.issue_thread[own]


def _operators(trace: TraceFile) -> _Pieces:
    """Operators that no other one called, without the time of collectives inside."""
    exchanges = [ranges.named(*_EXCHANGES) for ranges in (trace.ops, trace.annotations)]
    pieces: list[_Pieces] = []
    for thread in np.unique(trace.ops.thread).tolist():
        ops = trace.ops.select(trace.ops.thread == thread)
        apart = [one.select(one.thread == thread) for one in exchanges]
        begin, end = without(
            ops.begin_ns,
            ops.end_ns,
            np.concatenate([one.begin_ns for one in apart]),
            np.concatenate([one.end_ns for one in apart]),
        )
        pieces.append((begin, end, begin, np.full(len(begin), thread)))
    if not pieces:
        return (np.zeros(0, np.int64),) * 4
    begin, end, at, where = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return begin, end, at, where


def _phases(trace: TraceFile, at: Ints, thread: Ints) -> npt.NDArray[np.uint8]:
    phase = np.full(len(at), int(Stage.FORWARD_COMPUTE), dtype=np.uint8)
    named = trace.annotations.select(np.array([_means_backward(name) for name in trace.annotations.name], dtype=bool))
    phase[inside(at, named.begin_ns, named.end_ns)] = int(Stage.BACKWARD_COMPUTE)
    phase[_inside_on_thread(at, thread, trace.ops.named(_AUTOGRAD))] = int(Stage.BACKWARD_COMPUTE)
    phase[_inside_on_thread(at, thread, trace.annotations.named(_OPTIMIZER))] = int(Stage.OPTIMIZER)
    return phase


def _means_backward(name: str) -> bool:
    """``backward``, but not ``forward_backward``: that is the whole schedule."""
    lower = name.lower()
    return "backward" in lower and "forward" not in lower


def _inside_on_thread(at: Ints, thread: Ints, ranges: Ranges) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(at), dtype=bool)
    for one in np.unique(ranges.thread).tolist():
        here, mine = ranges.thread == one, thread == one
        found[mine] = inside(at[mine], ranges.begin_ns[here], ranges.end_ns[here])
    return found


def _busy(stage: Stage, step: int, begin: Ints, end: Ints, issue: Ints) -> Work:
    first, last = merged(begin, end, gap_ns=GAP_NS)
    order = np.argsort(begin, kind="stable")
    return Work(
        stage=np.full(len(first), int(stage), dtype=np.uint8),
        step=np.full(len(first), step),
        begin_ns=first,
        end_ns=last,
        issue_ns=issue[order][np.searchsorted(begin[order], first)],
    )


def _joined(parts: list[Work]) -> Work:
    def column(name: str) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)]).astype(np.int64)

    return Work(
        stage=column("stage").astype(np.uint8),
        step=column("step"),
        begin_ns=column("begin_ns"),
        end_ns=column("end_ns"),
        issue_ns=column("issue_ns"),
    )
