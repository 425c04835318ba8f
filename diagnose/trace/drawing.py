"""What is drawn, whatever form it is written in. All stamps are nanoseconds since the epoch, on the reference's clock.

Process  rank 5 · gpu-01 · dp1 pp0 tp1
  Thread  compute      |- forward-compute -|   |- forward-compute -|      slices
  Thread  pp-forward                       |- forward-send -|--.          an arrow leaves
Process  rank 7 · gpu-02 · dp1 pp1 tp1                         v
  Thread  pp-forward          |--------- forward-recv ---------|          and arrives

Slices of one stream side by side where they overlap: a track of a trace holds slices that nest, or follow.

lane 0   |===== a =====|      |== d ==|        d begins after b, too, and takes the first lane that is free
           |= c =|                             c lies inside a: below it, in the same lane
lane 1         |====== b ======|               b begins inside a and ends after it

What is told of a slice: its name, its category, and what stands beside it, in every form of a trace.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Ints, SpanColumns
from telemetry.stages import STAGE_BY_CODE, StageClass


def nesting_order(start_ns: Ints, end_ns: Ints) -> Ints:
    """Rows by start, of equal starts the longer first: what contains comes before what it contains."""
    return np.lexsort((-end_ns, start_ns))


def lanes_of(start_ns: Ints, end_ns: Ints, *, nests: bool) -> Ints:
    """Lane of each slice, from 0. The slices come in :func:`nesting_order`.

    Args:
        nests: a slice may lie inside another of its lane; else they follow each other, so that whatever points into a
            slice points at no other.
    """
    lanes = np.zeros(len(start_ns), dtype=np.int64)
    if len(start_ns) < 2 or (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return lanes
    open_until: list[list[int]] = []
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        lanes[row] = _lane(open_until, start, end, nests)
    return lanes


def _lane(open_until: list[list[int]], start: int, end: int, nests: bool) -> int:
    """The first lane that takes a slice; what is open there is brought up to date."""
    for lane, ends in enumerate(open_until):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or (nests and end <= ends[-1]):
            ends.append(end)
            return lane
    open_until.append([end])
    return len(open_until) - 1


Words = Mapping[str, str | int]
"""What is told of an event beside its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A rank, or the run itself."""

    pid: int
    name: str
    order: int
    """From the top."""
    note: str = ""
    """What to beware of; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A stream of a rank, or a further lane of it. ``tid`` is unique in the whole trace."""

    tid: int
    name: str
    order: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Something that happened."""

    at_ns: int
    name: str
    words: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A metric over time."""

    metric: str
    at_ns: Ints
    value: npt.NDArray[np.float64]
    """Finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowEnds:
    """Where arrows touch the slices of a rank, [ends]."""

    row: Ints
    """Of the slice."""
    number: Ints
    """Of the arrow, from 1: both ends bear the same."""
    at_ns: Ints
    """Inside the slice. No arrow arrives before it leaves, nor at the same nanosecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDrawing:
    """All that is drawn of a rank."""

    process: Process
    threads: tuple[Thread, ...]
    slices: SpanColumns
    """Ordered by start, of equal starts the longer first. On each thread any two nest, or follow each other."""
    thread: Ints
    """Index of the thread of each slice."""
    recorded_ns: Ints
    """Duration of each slice as its host's clock measured it; the slice's is by the reference's."""
    leaving: ArrowEnds
    arriving: ArrowEnds
    marks: tuple[Instant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDrawing:
    """All that is drawn of the run as a whole."""

    process: Process
    about: Instant
    """What this trace is: run, window, clocks."""
    counters: tuple[Counter, ...] = ()
    instants: tuple[Instant, ...] = ()


UNKNOWN = "unknown"
CATEGORIES = (*(kind.name.lower() for kind in StageClass), UNKNOWN)
WORDS = (
    "step", "microbatch", "chunk", "peer", "op_seq", "processor_ns", "bytes", "issued_before_ns", "recorded_ns",
)  # fmt: skip
"""All that :func:`words_of` may tell."""


def name_of(stage: int) -> str:
    """Label of a stage; stages of newer versions bear their code."""
    known = STAGE_BY_CODE.get(stage)
    return known.label if known else f"stage {stage}"


def category_of(stage: int) -> str:
    """Class of a stage, one of ``CATEGORIES``."""
    known = STAGE_BY_CODE.get(stage)
    return known.stage_class.name.lower() if known else UNKNOWN


def words_of(rank: RankDrawing) -> Iterator[tuple[str, Ints, npt.NDArray[np.bool_]]]:
    """Name, value of each slice, and whether there is one, in the order of ``WORDS``.

    ``issued_before_ns``: how long before its start the host asked for it. ``recorded_ns``: its duration by the clock of
    its own host, where that is another than by the reference's.
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
