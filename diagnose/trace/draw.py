"""The second reading of a window, rank by rank: spans, arrows and marks on the tracks of a trace.

Samples become counters of the run. Marks become instants of their ranks.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose.model.host_clocks import ReferenceClock
from diagnose.model.operations import Ints, SpanColumns
from diagnose.trace.choice import Choice
from diagnose.trace.drawing import ArrowEnds, Counter, Instant, Process, RankDrawing, Thread, lanes_of, nesting_order
from diagnose.trace.survey import Ends, Survey
from telemetry.stages import Stream
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Marks, Samples
from telemetry.topology import MAX_RANKS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MAX_MARKS = 1_000_000
"""Number of marks that are drawn: the newest of the window."""


class SamplesAndMarks:
    """Samples and marks in the steps of a window. They are read once.

    Samples are of the whole run, marks of the chosen ranks.
    """

    def __init__(self, reader: Reader, choice: Choice, seen: Survey) -> None:
        self._hosts = choice.hosts
        run_id, attempt = choice.run_id, choice.attempt
        first, last = seen.first_step, seen.last_step
        samples = reader.read(Samples(run_id=run_id, attempt=attempt, first_step=first, last_step=last))
        self._samples = samples.filter(pa.array(samples["rank"].to_numpy() < len(self._hosts)))
        marks = reader.read(Marks(run_id=run_id, attempt=attempt, limit=MAX_MARKS, first_step=first, last_step=last))
        self._marks = marks.filter(pa.array(np.isin(marks["rank"].to_numpy(), choice.ranks)))

    def reach(self) -> dict[str, tuple[int, int]]:
        """Host -> first and last time of its samples and marks, by its own clock."""
        reach: dict[str, tuple[int, int]] = {}
        for rows in (self._samples, self._marks):
            for rank, at_ns in zip(rows["rank"].to_pylist(), rows["at_ns"].to_pylist(), strict=True):
                first, last = reach.get(self._hosts[rank], (at_ns, at_ns))
                reach[self._hosts[rank]] = (min(first, at_ns), max(last, at_ns))
        return reach

    def counters(self, clock: ReferenceClock) -> tuple[Counter, ...]:
        """A counter for each metric, with its finite values."""
        return tuple(
            Counter(metric=metric, at_ns=at_ns[finite], value=value[finite])
            for metric, at_ns, value, finite in self._metrics(clock)
            if finite.any()
        )

    def not_finite(self, clock: ReferenceClock) -> tuple[Instant, ...]:
        """Values that no counter can show: ``loss is nan``."""
        return tuple(
            Instant(at_ns=at, name=f"{metric} is {value}", words={})
            for metric, at_ns, values, finite in self._metrics(clock)
            for at, value in zip(at_ns[~finite].tolist(), values[~finite].tolist(), strict=True)
        )

    def marks(self, clock: ReferenceClock) -> dict[int, tuple[Instant, ...]]:
        """The marks of each rank that has any, in the order of time."""
        found: dict[int, list[Instant]] = defaultdict(list)
        for row in self._marks.to_pylist():
            words = {"step": row["step"]} | ({"text": row["text"]} if row["text"] else {})
            at_ns = int(clock.aligned(np.array([row["at_ns"]]), self._hosts[row["rank"]])[0])
            found[row["rank"]].append(Instant(at_ns=at_ns, name=row["name"], words=words))
        return {rank: tuple(marks) for rank, marks in found.items()}

    def _metrics(self, clock: ReferenceClock) -> Iterator[tuple[str, Ints, Floats, Bools]]:
        """Each metric with its times, its values, and which of them are finite."""
        rows = self._samples
        metrics = rows["metric"].to_numpy(zero_copy_only=False)
        value, rank = rows["value"].to_numpy(), rows["rank"].to_numpy()
        at_ns = self._aligned(np.asarray(rows["at_ns"].to_numpy(), dtype=np.int64), rank, clock)
        for metric in dict.fromkeys(metrics.tolist()):
            mine = metrics == metric
            yield metric, at_ns[mine], value[mine], np.isfinite(value[mine])

    def _aligned(self, at_ns: Ints, rank: Ints, clock: ReferenceClock) -> Ints:
        aligned = at_ns.copy()
        for one in np.unique(rank).tolist():
            aligned[rank == one] = clock.aligned(at_ns[rank == one], self._hosts[one])
        return aligned


FIRST_TID = 2 * MAX_RANKS
"""First number of a thread. It is larger than the number of any process: viewers take a thread with the number of its
process for the main thread."""
MEETING_STREAMS = (Stream.TP, Stream.CP, Stream.EP, Stream.PP_FORWARD, Stream.PP_BACKWARD, Stream.DP)
"""Streams whose slices are never nested: operations that run at the same time are no calls of each other, and an arrow
belongs to the innermost slice at its time."""
STREAM_ORDER = (
    Stream.HOST,
    Stream.COMPUTE,
    Stream.TP,
    Stream.CP,
    Stream.EP,
    Stream.PP_FORWARD,
    Stream.PP_BACKWARD,
    Stream.DP,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flights:
    """The arrows that can be drawn, on the reference clock. Arrows that would end before they begin are left out."""

    ends: Ends
    leaves_ns: Ints
    arrives_ns: Ints
    num_backward: int
    """Number of arrows that are left out: by the known clocks, the receiver ended before the sender began."""


def flights(ends: Ends, clock: ReferenceClock, hosts: Sequence[str]) -> Flights:
    """The arrows with these ends, on the reference clock."""
    leaves = _aligned(ends.source_start_ns, ends.source_rank, clock, hosts)
    begins = _aligned(ends.target_start_ns, ends.target_rank, clock, hosts)
    over = _aligned(ends.target_end_ns, ends.target_rank, clock, hosts)
    forward = leaves < over
    return Flights(
        ends=ends.where(forward),
        leaves_ns=leaves[forward],
        arrives_ns=np.maximum(leaves + 1, begins)[forward],
        num_backward=int(len(ends) - forward.sum()),
    )


def _aligned(at_ns: Ints, rank: Ints, clock: ReferenceClock, hosts: Sequence[str]) -> Ints:
    number = {host: place for place, host in enumerate(dict.fromkeys(hosts))}
    host_of_rank = np.array([number[host] for host in hosts], dtype=np.int64)
    order = np.argsort(host_of_rank[rank], kind="stable")
    bounds = np.searchsorted(host_of_rank[rank][order], np.arange(len(number) + 1)).tolist()
    aligned = at_ns.copy()
    for host, first, stop in zip(number, bounds[:-1], bounds[1:], strict=True):
        mine = order[first:stop]
        aligned[mine] = clock.aligned(at_ns[mine], host)
    return aligned


class RankPainter:
    """Draws one rank after another.

    Args:
        marks: the marks of each rank.
    """

    def __init__(
        self, choice: Choice, clock: ReferenceClock, flights: Flights, marks: dict[int, tuple[Instant, ...]]
    ) -> None:
        self._choice, self._clock, self._marks = choice, clock, marks
        self._next_tid = FIRST_TID
        ends = flights.ends
        number = np.arange(1, len(ends) + 1)
        self._leaving = _Sorted.by_rank(ends.source_rank, ends.source_seq, number, flights.leaves_ns)
        self._arriving = _Sorted.by_rank(ends.target_rank, ends.target_seq, number, flights.arrives_ns)

    def draw(self, spans: SpanColumns) -> RankDrawing:
        """All spans of one rank in the window, at least one."""
        rank = int(spans.rank[0])
        host = self._choice.hosts[rank]
        start, end = self._clock.aligned(spans.start_ns, host), self._clock.aligned(spans.end_ns, host)
        order = nesting_order(start, end)
        spans, start, end = spans.where(order), start[order], end[order]
        threads, thread = self._threads(spans, start, end)
        return RankDrawing(
            process=self._process(rank, host),
            threads=threads,
            slices=replace(spans, start_ns=start, duration_ns=end - start, issue_ns=self._issued(spans, start)),
            thread=thread,
            recorded_ns=spans.duration_ns,
            leaving=self._leaving.of_rank(rank, spans.seq),
            arriving=self._arriving.of_rank(rank, spans.seq),
            marks=self._marks.get(rank, ()),
        )

    def _process(self, rank: int, host: str) -> Process:
        name = f"rank {rank} · {host or 'unknown'} · {self._choice.topology.describe(rank)}"
        shifted = (host or "unknown") in self._clock.alignment.unaligned
        return Process(pid=rank + 1, name=name, order=rank + 1, note="clock not aligned" if shifted else "")

    @staticmethod
    def _issued(spans: SpanColumns, start_ns: Ints) -> Ints:
        """Launch times. The time from launch to start is measured by the clock of the host."""
        return np.where(spans.issue_ns > 0, start_ns - (spans.start_ns - spans.issue_ns), 0)

    def _threads(self, spans: SpanColumns, start_ns: Ints, end_ns: Ints) -> tuple[tuple[Thread, ...], Ints]:
        threads: list[Thread] = []
        thread = np.zeros(len(spans), dtype=np.int64)
        for stream in _streams(spans):
            mine = np.flatnonzero(spans.stream == stream)
            lanes = lanes_of(start_ns[mine], end_ns[mine], nests=stream not in MEETING_STREAMS)
            thread[mine] = len(threads) + lanes
            for lane in range(int(lanes.max()) + 1):
                name = _stream_name(stream) + (f" ({lane + 1})" if lane else "")
                threads.append(Thread(tid=self._next_tid, name=name, order=len(threads)))
                self._next_tid += 1
        return tuple(threads), thread


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sorted:
    """Ends of arrows by rank."""

    rank: Ints
    seq: Ints
    number: Ints
    at_ns: Ints

    @staticmethod
    def by_rank(rank: Ints, seq: Ints, number: Ints, at_ns: Ints) -> "_Sorted":
        order = np.argsort(rank, kind="stable")
        return _Sorted(rank=rank[order], seq=seq[order], number=number[order], at_ns=at_ns[order])

    def of_rank(self, rank: int, seq: Ints) -> ArrowEnds:
        """The ends of arrows in the slices of a rank. ``seq``: number of each slice of the rank, each once."""
        rows = slice(*np.searchsorted(self.rank, [rank, rank + 1]).tolist())
        order = np.argsort(seq)
        row = order[np.searchsorted(seq, self.seq[rows], sorter=order)]
        return ArrowEnds(row=row, number=self.number[rows], at_ns=self.at_ns[rows])


def _streams(spans: SpanColumns) -> list[int]:
    """The streams of the spans, in the order from the top. Streams that this version does not know come last."""
    there = np.unique(spans.stream).tolist()
    known = [int(stream) for stream in STREAM_ORDER if stream in there]
    return known + [stream for stream in there if stream not in known]


def _stream_name(stream: int) -> str:
    return Stream(stream).label if stream in list(Stream) else f"stream {stream}"
