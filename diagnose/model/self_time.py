"""Self time: the time of a compute span without the collectives inside it.

    compute   |=================|      |==========|
    tp           |--|    |---|            |--|
    ep                     |---|
    self      |==|  |====|     ||      |==|  |=====|

The spans of all ranks are placed one after the other on one line of time, so that one search serves all ranks:

    rank 0 |-- its spans --|  rank 1 |-- its spans --|  rank 2 |--
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import Ints, Operations
from telemetry.errors import UsageError
from telemetry.stages import Stage

RANKS_AT_ONCE = 512
"""Ranks whose spans are examined together: they fit into the cache of a processor, so each search is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The time that some spans cover. Where several spans overlap, it counts once."""

    begin_ns: Ints
    """Begin of each covered interval, ascending. The intervals do not touch."""
    end_ns: Ints
    before_ns: Ints
    """Covered time before each interval. The last entry is all covered time."""

    def until(self, at_ns: Ints) -> Ints:
        """Covered time before each moment."""
        if not len(self.begin_ns):
            return np.zeros_like(at_ns)
        begun = np.searchsorted(self.begin_ns, at_ns, side="right")
        ahead = np.maximum(self.end_ns[np.maximum(begun - 1, 0)] - at_ns, 0)
        return np.asarray(self.before_ns[begun] - np.where(begun > 0, ahead, 0))


def covered(start_ns: Ints, duration_ns: Ints) -> Covered:
    """The time that spans cover. They must be ordered by their start."""
    end_ns = np.maximum.accumulate(start_ns + duration_ns)
    apart = np.ones(len(start_ns), dtype=np.bool_)
    apart[1:] = start_ns[1:] > end_ns[:-1]
    first = np.flatnonzero(apart)
    begin, end = start_ns[first], end_ns[np.append(first[1:], len(start_ns)) - 1] if len(first) else end_ns
    return Covered(begin_ns=begin, end_ns=end, before_ns=np.concatenate([[0], np.cumsum(end - begin)]))


def self_time_ns(start_ns: Ints, duration_ns: Ints, inner_start_ns: Ints, inner_duration_ns: Ints) -> Ints:
    """Self time of each span, in nanoseconds.

    Inner spans must be ordered by their start. They may overlap. Only the part inside a span counts.
    """
    inner = covered(inner_start_ns, inner_duration_ns)
    return np.asarray(duration_ns - (inner.until(start_ns + duration_ns) - inner.until(start_ns)))


def blocks_of_ranks(num_ranks: int) -> Iterator[slice]:
    """Blocks of at most ``RANKS_AT_ONCE`` ranks."""
    for first in range(0, num_ranks, RANKS_AT_ONCE):
        yield slice(first, first + RANKS_AT_ONCE)


class LineOfRanks:
    """One line of time on which the spans of each rank follow those of the rank before.

    Raises:
        UsageError: the operations are so far apart that the line does not fit into 64 bits.
    """

    def __init__(self, operations: list[Operations]) -> None:
        self._zero = min(int(each.start_ns[each.present].min()) for each in operations)
        end = max(int(each.end_ns[each.present].max()) for each in operations)
        self._length = end - self._zero + 1
        num_ranks = operations[0].start_ns.shape[2]
        if self._length * num_ranks >= 2**62:
            raise UsageError(
                f"the steps are {self._length / 8.64e13:.1f} days apart, on {num_ranks} ranks",
                hint="choose fewer steps: --first-step, --last-step",
            )

    def flat(self, operations: Iterable[Operations]) -> tuple[Ints, Ints, Ints]:
        """Begins and durations in the order of the line, and the index of each among ``operations`` as stored."""
        parts = list(operations)
        begin = np.concatenate([self._begin(each) for each in parts])
        duration = np.concatenate([each.duration_ns[each.present] for each in parts])
        order = np.argsort(begin, kind="stable")
        return begin[order], duration[order], order

    def covered(self, operations: list[Operations]) -> Covered:
        """The time that operations cover."""
        if not operations:
            return covered(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        begin, duration, _ = self.flat(operations)
        return covered(begin, duration)

    def _begin(self, operations: Operations) -> Ints:
        rank = np.nonzero(operations.present)[2]
        return np.asarray(operations.start_ns[operations.present] - self._zero + rank * self._length)


def by_stage(values: Ints, compute: Mapping[Stage, Operations]) -> dict[Stage, Ints]:
    """Stage -> array of ``values``, which are in the order of stages and operations. -1 without an operation."""
    counts = np.cumsum([0, *(each.count for each in compute.values())])
    dense: dict[Stage, Ints] = {}
    for (stage, each), first, last in zip(compute.items(), counts[:-1], counts[1:], strict=True):
        dense[stage] = np.full(each.duration_ns.shape, -1, dtype=np.int64)
        dense[stage][each.present] = values[first:last]
    return dense


def without_inner(compute: Mapping[Stage, Operations], inner: Mapping[Stage, Operations]) -> dict[Stage, Ints]:
    """Duration of each compute operation without those of ``inner``, [steps, occurrences, ranks] for each stage."""
    own = {stage: each.duration_ns.copy() for stage, each in compute.items()}
    num_ranks = max((each.present.shape[2] for each in compute.values()), default=0)
    for ranks in blocks_of_ranks(num_ranks if inner else 0):
        outer, within = (
            {stage: part for stage, each in all_ranks.items() if (part := each.chosen(ranks=ranks)).count}
            for all_ranks in (compute, inner)
        )
        if outer and within:
            for stage, own_ns in _own_of_ranks(outer, within).items():
                own[stage][:, :, ranks] = own_ns
    return own


def _own_of_ranks(compute: Mapping[Stage, Operations], inner: Mapping[Stage, Operations]) -> dict[Stage, Ints]:
    """The same for a block of ranks that has operations of each stage."""
    line = LineOfRanks([*compute.values(), *inner.values()])
    outer_begin, outer_ns, place = line.flat(compute.values())
    inner_begin, inner_ns, _ = line.flat(inner.values())
    own = np.empty(len(outer_ns), dtype=np.int64)
    own[place] = self_time_ns(outer_begin, outer_ns, inner_begin, inner_ns)
    return by_stage(own, compute)
