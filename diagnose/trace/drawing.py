"""What is drawn, whatever form it is written in. All stamps are nanoseconds since the epoch, on the reference's clock.

Process  rank 5 · gpu-01 · dp1 pp0 tp1
  Thread  compute      |- forward-compute -|   |- forward-compute -|      slices
  Thread  pp-forward                       |- forward-send -|--.          an arrow leaves
Process  rank 7 · gpu-02 · dp1 pp1 tp1                         v
  Thread  pp-forward          |--------- forward-recv ---------|          and arrives
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.span_columns import Ints, SpanColumns

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
