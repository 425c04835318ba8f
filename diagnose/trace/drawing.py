"""The content of a trace, for all file formats. Times are nanoseconds since the epoch, on the reference clock.

Process  rank 5 · gpu-01 · dp1 pp0 tp1
  Thread  compute      |- forward-compute -|   |- forward-compute -|      slices
  Thread  pp-forward                       |- forward-send -|--.          an arrow leaves
Process  rank 7 · gpu-02 · dp1 pp1 tp1                         v
  Thread  pp-forward          |--------- forward-recv ---------|          and arrives

A track of a trace may only contain slices that follow each other or are nested. Other overlapping slices of a stream
get further lanes:

lane 0   |===== a =====|      |== d ==|        d begins after b, so it gets the first free lane
           |= c =|                             c is inside a: same lane, below a
lane 1         |====== b ======|               b begins inside a and ends after it

A slice has a name, a category and further values. These are the same in all formats.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Ints, SpanColumns
from telemetry.stages import STAGE_BY_CODE, StageClass


def nesting_order(start_ns: Ints, end_ns: Ints) -> Ints:
    """Rows ordered by start. With equal starts the longer slice is first, so a slice is before the slices inside it."""
    return np.lexsort((-end_ns, start_ns))


def lanes_of(start_ns: Ints, end_ns: Ints, *, nests: bool) -> Ints:
    """Lane of each slice, from 0. The slices come in :func:`nesting_order`.

    Args:
        nests: a slice may be inside another one of its lane. Otherwise slices follow each other, so that an arrow
            points to exactly one slice.
    """
    lanes = np.zeros(len(start_ns), dtype=np.int64)
    if len(start_ns) < 2 or (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return lanes
    open_until: list[list[int]] = []
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        lanes[row] = _lane(open_until, start, end, nests)
    return lanes


def _lane(open_until: list[list[int]], start: int, end: int, nests: bool) -> int:
    """The first lane that has space for a slice. Updates the open slices of the lanes."""
    for lane, ends in enumerate(open_until):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or (nests and end <= ends[-1]):
            ends.append(end)
            return lane
    open_until.append([end])
    return len(open_until) - 1


Words = Mapping[str, str | int]
"""Further values of an event: name -> value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A rank, or the run itself."""

    pid: int
    name: str
    order: int
    """Position from the top."""
    note: str = ""
    """A warning. Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A stream of a rank, or a further lane of it. ``tid`` is unique in the whole trace."""

    tid: int
    name: str
    order: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """An event at a time."""

    at_ns: int
    name: str
    words: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A metric over time."""

    metric: str
    at_ns: Ints
    value: npt.NDArray[np.float64]
    """Only finite values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowEnds:
    """Ends of arrows in the slices of a rank, [ends]."""

    row: Ints
    """Row of the slice."""
    number: Ints
    """Number of the arrow, from 1. Both ends have the same number."""
    at_ns: Ints
    """A time inside the slice. The end of an arrow is at least one nanosecond after its begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDrawing:
    """All drawings of a rank."""

    process: Process
    threads: tuple[Thread, ...]
    slices: SpanColumns
    """Ordered by start; with equal starts the longer first. On each thread, slices are nested or follow each other."""
    thread: Ints
    """Index of the thread of each slice."""
    recorded_ns: Ints
    """Duration of each slice by the clock of its host. The duration in ``slices`` is by the reference clock."""
    leaving: ArrowEnds
    arriving: ArrowEnds
    marks: tuple[Instant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDrawing:
    """All drawings of a Kineto trace, in the process of its rank."""

    pid: int
    about: Instant
    """Description of the Kineto trace, at its first time."""
    threads: tuple[Thread, ...]
    thread: Ints
    """Index of the thread of each slice. The slices are ordered and nested as in :class:`RankDrawing`."""
    start_ns: Ints
    end_ns: Ints
    name: Sequence[str]
    category: Sequence[str]
    args: Sequence[str]
    """A JSON object as text."""
    leaving: ArrowEnds
    arriving: ArrowEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDrawing:
    """Drawings that belong to the whole run."""

    process: Process
    about: Instant
    """Description of the trace: run, window, clocks."""
    counters: tuple[Counter, ...] = ()
    instants: tuple[Instant, ...] = ()


UNKNOWN = "unknown"
CATEGORIES = (*(kind.name.lower() for kind in StageClass), UNKNOWN)
WORDS = (
    "step", "microbatch", "chunk", "peer", "op_seq", "processor_ns", "bytes", "issued_before_ns", "recorded_ns",
)  # fmt: skip
"""Names of all values that :func:`words_of` may return."""


def name_of(stage: int) -> str:
    """Label of a stage. Stages of newer versions are named by their code."""
    known = STAGE_BY_CODE.get(stage)
    return known.label if known else f"stage {stage}"


def category_of(stage: int) -> str:
    """Class of a stage, one of ``CATEGORIES``."""
    known = STAGE_BY_CODE.get(stage)
    return known.stage_class.name.lower() if known else UNKNOWN


def words_of(rank: RankDrawing) -> Iterator[tuple[str, Ints, npt.NDArray[np.bool_]]]:
    """Name, value of each slice, and whether the slice has this value, in the order of ``WORDS``.

    ``issued_before_ns``: time from the launch by the host to the start. ``recorded_ns``: duration by the clock of its
    host, if it differs from the duration by the reference clock.
    """
    slices = rank.slices
    yield "step", slices.step, np.ones(len(slices), dtype=np.bool_)
    yield "microbatch", slices.microbatch, slices.microbatch >= 0
    yield "chunk", slices.chunk, slices.chunk >= 0
    yield "peer", slices.peer, slices.peer >= 0
    yield "op_seq", slices.op_seq, slices.op_seq > 0
    yield "processor_ns", slices.cpu_ns, slices.cpu_ns >= 0
    yield "bytes", slices.size_bytes, slices.size_bytes > 0
    yield "issued_before_ns", slices.start_ns - slices.issue_ns, slices.issue_ns > 0
    yield "recorded_ns", rank.recorded_ns, rank.recorded_ns != slices.duration_ns
