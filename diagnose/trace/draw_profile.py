"""Draws Kineto traces into the processes of their ranks, on the reference clock.

rank 5   compute                        |- forward-compute -|       spans
         kineto: thread 812 (python)    |= aten::addmm =|--.        slices and flows of the profiler: threads of the
         kineto: stream 7                                  v        host, streams of the GPU
                                              |== gemm ==|
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.host_clocks import ReferenceClock
from diagnose.model.operations import Ints
from diagnose.trace.choice import Choice
from diagnose.trace.drawing import ArrowEnds, Instant, ProfileDrawing, Thread, Words, lanes_of, nesting_order
from diagnose.trace.profiles import RankProfile, check_room
from telemetry.errors import UsageError

MOST_APART_NS = 3600 * 10**9
"""A drawn event begins and ends within this time of the exported steps. Otherwise a single wrong time would make the
trace too long to see the steps."""
FIRST_TID = 2**30
"""First number of a thread. It is larger than the numbers of the threads of spans."""
FIRST_ORDER = 10_000
"""Position of the first thread of a profile: below the threads of spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnProfile:
    """A profile in the exported steps."""

    profile: RankProfile
    rows: Ints
    """The events of the profile that are drawn."""
    first_ns: int
    """Begin of the first drawn event, by the clock of its host."""


def profiles_within(
    profiles: Sequence[RankProfile], choice: Choice, reach: dict[str, tuple[int, int]], max_events: int
) -> dict[int, list[DrawnProfile]]:
    """Rank -> its profiles, with the events that overlap the exported steps.

    Args:
        reach: host -> its first and last time in these steps, by its own clock.

    Raises:
        UsageError: a rank is not exported, a profile has no event in these steps, or they have too many events.
    """
    found: dict[int, list[DrawnProfile]] = {}
    num_events = 0
    for profile in profiles:
        drawn = _within(profile, choice, reach)
        num_events += len(drawn.rows)
        found.setdefault(profile.rank, []).append(drawn)
    check_room(num_events, choice.num_spans, max_events)
    return found


def _within(profile: RankProfile, choice: Choice, reach: dict[str, tuple[int, int]]) -> DrawnProfile:
    if profile.rank not in choice.ranks:
        raise UsageError(
            f"{profile.source} is of rank {profile.rank}, which has no spans in this trace",
            hint="check --ranks and --host, or omit the file",
        )
    first_ns, last_ns = reach[choice.hosts[profile.rank]]
    events = profile.events
    overlaps = (events.end_ns >= first_ns) & (events.begin_ns <= last_ns)
    near = (events.begin_ns >= first_ns - MOST_APART_NS) & (events.end_ns <= last_ns + MOST_APART_NS)
    rows = np.flatnonzero(overlaps & near)
    if not len(rows):
        apart_s = max(0, first_ns - int(events.end_ns.max()), int(events.begin_ns.min()) - last_ns) / 1e9
        raise UsageError(
            f"{profile.source} has no event in the exported steps of rank {profile.rank}: its events are "
            f"{apart_s:,.1f} s away",
            hint="use a file of these steps, or omit --first-step and --last-step to export the steps of the file",
        )
    return DrawnProfile(profile=profile, rows=rows, first_ns=int(events.begin_ns[rows].min()))


class ProfilePainter:
    """Draws one profile after another.

    Args:
        first_number: the number of the first arrow. Those of spans are lower.
    """

    def __init__(self, choice: Choice, clock: ReferenceClock, first_number: int) -> None:
        self._choice, self._clock = choice, clock
        self._next_tid, self._next_number, self._next_order = FIRST_TID, first_number, FIRST_ORDER

    def draw(self, drawn: DrawnProfile) -> ProfileDrawing:
        """The drawing of one profile."""
        events, rank = drawn.profile.events, drawn.profile.rank
        host = self._choice.hosts[rank]
        start = self._clock.aligned(events.begin_ns[drawn.rows], host)
        end = self._clock.aligned(events.end_ns[drawn.rows], host)
        order = nesting_order(start, end)
        rows, start, end = drawn.rows[order], start[order], end[order]
        threads, thread = self._threads(events.threads, events.thread[rows], start, end)
        leaving, arriving = self._arrows(drawn, rows, start, end)
        return ProfileDrawing(
            pid=rank + 1,
            about=Instant(at_ns=int(start[0]), name="kineto trace", words=_about(drawn.profile)),
            threads=threads,
            thread=thread,
            start_ns=start,
            end_ns=end,
            name=[events.name[row] for row in rows.tolist()],
            category=[events.category[row] for row in rows.tolist()],
            args=[events.args[row] for row in rows.tolist()],
            leaving=leaving,
            arriving=arriving,
        )

    def _threads(
        self, names: Sequence[str], of_event: Ints, start_ns: Ints, end_ns: Ints
    ) -> tuple[tuple[Thread, ...], Ints]:
        threads: list[Thread] = []
        thread = np.zeros(len(of_event), dtype=np.int64)
        by_thread = np.argsort(of_event, kind="stable")
        bounds = np.flatnonzero(np.diff(of_event[by_thread], prepend=-1, append=-1))
        for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            mine = by_thread[first:stop]
            lanes = lanes_of(start_ns[mine], end_ns[mine], nests=True)
            thread[mine] = len(threads) + lanes
            for lane in range(int(lanes.max()) + 1):
                name = f"kineto: {names[of_event[mine[0]]]}" + (f" ({lane + 1})" if lane else "")
                threads.append(Thread(tid=self._next_tid, name=name, order=self._next_order))
                self._next_tid, self._next_order = self._next_tid + 1, self._next_order + 1
        return tuple(threads), thread

    def _arrows(self, drawn: DrawnProfile, rows: Ints, start_ns: Ints, end_ns: Ints) -> tuple[ArrowEnds, ArrowEnds]:
        """Both ends of the flows between drawn events. A flow that would end before it begins is left out."""
        events = drawn.profile.events
        place = np.full(len(events), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        source, target = place[events.source], place[events.target]
        inside = (source >= 0) & (target >= 0)
        source, target = source[inside], target[inside]
        forward = start_ns[source] < end_ns[target]
        source, target = source[forward], target[forward]
        number = self._next_number + np.arange(len(source))
        self._next_number += len(source)
        leaves = start_ns[source]
        arriving = ArrowEnds(row=target, number=number, at_ns=np.maximum(leaves + 1, start_ns[target]))
        return replace(arriving, row=source, at_ns=leaves), arriving


def _about(profile: RankProfile) -> Words:
    error_ns = profile.clock_error_ns
    return {"source": profile.source, "clock error, ns": "not measured" if error_ns is None else error_ns}
