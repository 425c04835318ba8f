"""Queries about hosts: their samples and events over some steps, and the number of faults of each host."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnose.detectors.gpu_throttled import COUNTERS
from diagnose.model.fleet import HostEvent, HostSeries, series_by_metric
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening, Metric
from telemetry.stores.interface import Query
from telemetry.stores.queries import RankSteps
from telemetry.stores.queries.hosts import LAST_NS, HostEventCounts, HostEvents, HostGrowth, HostSamples
from telemetry.stores.queries.windows import column_steps
from ui.dashboard.data.columns import ints
from ui.dashboard.data.core import Reads
from ui.dashboard.records import MarkRow, RankSpans, RunFacts, RunSummary
from ui.dashboard.view_state import StepRange
from ui.dashboard.wording import NS_PER_S

MAX_POINTS = 500
"""Largest number of points in one series. Longer windows use longer periods."""
MAX_PERIODS = 50
"""Number of periods for a counter whose total growth is shown. There can be tens of thousands of such counters."""
MAX_EVENTS = 2_000
MAX_MARKS = 1_000
REFRESH_NS = 10 * NS_PER_S
"""Host data is queried at most this often while the job makes no progress."""
MARGIN_NS = 60 * NS_PER_S
"""Events this long before and after the steps are included, because clocks of hosts differ."""
SINCE_NS = 15 * 60 * NS_PER_S
"""Events this long after the newest step are included: the job may be stalled."""
LEAST_NS = 20 * NS_PER_S
"""Shares of the time are measured over at least this long: samples are seconds apart."""
RECOVERIES = (Happening.LINK_UP, Happening.RANK_CONTINUED, Happening.GPU_SEEN)
OFTEN = (Happening.BUSY_PROCESS, Happening.MEMORY_SHORT)
TROUBLES = tuple(str(name) for name in Happening if name not in (*RECOVERIES, *OFTEN))
"""Events that count in the table of hosts."""
FLAPS = (Happening.LINK_DOWN, Happening.LINK_FLAPS)
HELD_DOWN = tuple(str(metric) for metrics in COUNTERS.values() for metric in metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTrouble:
    """The faults of one host over some steps."""

    events: int = 0
    """Fault events (:func:`is_trouble`)."""
    flaps: int = 0
    """Link losses, including those that only the kernel counted."""
    throttled: float = 0.0
    """Share of the time in which the worst GPU was throttled for one reason, 0 to 1."""
    throttled_by: str = ""
    """That reason, as the finding ``gpu-throttled`` names it."""
    cpu_pressure: float = float("nan")
    """Share of the time in which a thread waited for a core, 0 to 1. NaN if it was not sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostScene:
    """The samples, events and marks of one host over some steps, and the steps of its ranks. Times are those of
    the host's clock."""

    first_ns: int
    last_ns: int
    ranks: tuple[RankSpans, ...]
    series: tuple[tuple[str, HostSeries], ...]
    """Pairs of metric and series."""
    events: tuple[HostEvent, ...]
    """Ordered by time."""
    marks: tuple[MarkRow, ...]
    """Marks of the ranks of the host."""


def is_trouble(event: HostEvent) -> bool:
    """Whether an event counts as a fault. Link losses before the agent started do not count."""
    return event.name in TROUBLES and not event.text.startswith(LINK_ALREADY_DOWN)


def agents_freshness(reads: Reads, run: RunSummary) -> int:
    """A value that changes when there can be newer host data although the job makes no progress."""
    return reads.heard_ns(run) // REFRESH_NS


def troubles(reads: Reads, facts: RunFacts, steps: StepRange) -> dict[str, HostTrouble]:
    """Faults by host. A host without data is left out."""
    run = facts.summary
    first_ns, last_ns = _time_of(facts, steps)
    counts = HostEventCounts(**run.key, names=TROUBLES, first_ns=first_ns, last_ns=last_ns)
    from_ns, to_ns = _time_of_shares(facts, steps)
    growth = HostGrowth(
        **run.key,
        metrics=(*HELD_DOWN, str(Metric.HOST_PRESSURE_CPU_NS)),
        first_ns=from_ns,
        last_ns=to_ns,
        period_ns=max(NS_PER_S, (to_ns - from_ns) // MAX_PERIODS),
    )
    events: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in _ask(reads, run, counts).to_pylist():
        events[row["host"]][row["name"]] = row["events"], row["times"]
    grown: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    for row in _ask(reads, run, growth).to_pylist():
        grown[row["host"]][row["metric"]] = row["growth"], row["lasted_ns"]
    return {host: _trouble(events[host], grown[host]) for host in sorted({*events, *grown})}


def _trouble(events: dict[str, tuple[int, int]], grown: dict[str, tuple[float, int]]) -> HostTrouble:
    """The faults of a host. NVML has several counters for some reasons. The largest counter of a reason counts."""
    held_ns = {
        reason: max(grown.get(metric, (0.0, 0))[0] for metric in metrics) for reason, metrics in COUNTERS.items()
    }
    reason = max(held_ns, key=lambda each: held_ns[each])
    sampled_ns = max((lasted for _, lasted in grown.values()), default=0)
    pressure_ns, lasted_ns = grown.get(Metric.HOST_PRESSURE_CPU_NS, (0.0, 0))
    return HostTrouble(
        events=sum(number for number, _ in events.values()),
        flaps=sum(events.get(name, (0, 0))[1] for name in FLAPS),
        throttled=min(1.0, held_ns[reason] / sampled_ns) if sampled_ns else 0.0,
        throttled_by=str(reason),
        cpu_pressure=pressure_ns / lasted_ns if lasted_ns else float("nan"),
    )


def host_scene(reads: Reads, facts: RunFacts, host: str, metrics: tuple[str, ...], steps: StepRange) -> HostScene:
    """The data of ``host`` over ``steps``, with at most ``MAX_POINTS`` points in each series."""
    run, home = facts.summary, tuple(rank for rank, name in enumerate(facts.hosts) if name == host)
    ranks = _rank_steps(reads, facts, home, steps)
    first_ns = min((int(rank.start_ns.min()) for rank in ranks), default=0)
    last_ns = max((int((rank.start_ns + rank.duration_ns).max()) for rank in ranks), default=0)
    room_ns = (last_ns - first_ns) // 20 + 10 * NS_PER_S
    is_newest = steps.last >= int(facts.steps.step[-1])
    earliest_ns = max(0, first_ns - room_ns)
    latest_ns = min(LAST_NS, last_ns + (SINCE_NS if is_newest else room_ns))
    samples = HostSamples(
        **run.key,
        metrics=metrics,
        hosts=(host,),
        first_ns=earliest_ns,
        last_ns=latest_ns,
        period_ns=-(-(latest_ns - earliest_ns) // MAX_POINTS),
        parts=False,
    )
    found = series_by_metric(_ask(reads, run, samples))
    marks = [mark for mark in reads.marks(run, MAX_MARKS) if mark.rank in home]
    return HostScene(
        first_ns=first_ns,
        last_ns=last_ns,
        ranks=ranks,
        series=tuple((metric, series) for metric in metrics for series in found.get(metric, ())),
        events=_events(reads, run, host, earliest_ns, latest_ns),
        marks=tuple(mark for mark in reversed(marks) if earliest_ns <= mark.at_ns <= latest_ns),
    )


def host_samples(
    reads: Reads,
    run: RunSummary,
    hosts: tuple[str, ...],
    metrics: tuple[str, ...],
    first_ns: int,
    last_ns: int,
    max_points: int,
) -> dict[str, tuple[HostSeries, ...]]:
    """Samples of whole hosts and their devices in a time range of their own clocks, by metric: about ``max_points`` in
    each series."""
    query = HostSamples(
        **run.key,
        metrics=metrics,
        hosts=hosts,
        first_ns=first_ns,
        last_ns=min(last_ns, LAST_NS),
        period_ns=-(-(last_ns - first_ns) // max_points),
        parts=False,
    )
    return series_by_metric(_ask(reads, run, query))


def host_events(reads: Reads, facts: RunFacts, host: str, steps: StepRange) -> tuple[HostEvent, ...]:
    """Events of ``host`` over ``steps``, ordered by time, without frequent and harmless ones."""
    events = _events(reads, facts.summary, host, *_time_of(facts, steps))
    return tuple(event for event in events if event.name not in (*OFTEN, Happening.GPU_SEEN))


def _events(reads: Reads, run: RunSummary, host: str, first_ns: int, last_ns: int) -> tuple[HostEvent, ...]:
    query = HostEvents(**run.key, hosts=(host,), first_ns=first_ns, last_ns=last_ns, limit=MAX_EVENTS)
    return tuple(HostEvent(**row) for row in _ask(reads, run, query).to_pylist())


def _rank_steps(reads: Reads, facts: RunFacts, ranks: tuple[int, ...], steps: StepRange) -> tuple[RankSpans, ...]:
    if not ranks:
        return ()
    run = facts.summary
    query = RankSteps(
        **run.key,
        ranks=ranks,
        first_step=steps.first,
        last_step=steps.last,
        column_steps=column_steps(steps.first, steps.last, num_ranks=len(ranks), max_columns=MAX_POINTS),
    )
    table = reads.ask(run, query)
    of_row = ints(table, "rank")
    columns = {name: ints(table, name) for name in ("step", "start_ns", "duration_ns")}
    return tuple(
        RankSpans(rank=rank, **{name: column[of_row == rank] for name, column in columns.items()})
        for rank in np.unique(of_row).tolist()
    )


def _time_of(facts: RunFacts, steps: StepRange) -> tuple[int, int]:
    """First and last nanosecond of some steps, with a margin. Events after the newest step are included."""
    first_ns, last_ns = _bounds(facts, steps)
    is_newest = steps.last >= int(facts.steps.step[-1])
    return max(0, first_ns - MARGIN_NS), last_ns + (SINCE_NS if is_newest else MARGIN_NS)


def _time_of_shares(facts: RunFacts, steps: StepRange) -> tuple[int, int]:
    """First and last nanosecond of some steps: a share of the time is that of these steps. The time is widened to at
    least LEAST_NS, so that there are several samples."""
    first_ns, last_ns = _bounds(facts, steps)
    room_ns = max(0, LEAST_NS - (last_ns - first_ns)) // 2
    return max(0, first_ns - room_ns), last_ns + room_ns


def _bounds(facts: RunFacts, steps: StepRange) -> tuple[int, int]:
    """Begin of the first and end of the last of some steps, in nanoseconds. 0 and 0 without any."""
    shown = (facts.steps.step >= steps.first) & (facts.steps.step <= steps.last)
    if not shown.any():
        return 0, 0
    start_ns = facts.steps.start_ns[shown]
    return int(start_ns.min()), int((start_ns + facts.steps.duration_ns[shown]).max())


def _ask(reads: Reads, run: RunSummary, query: Query) -> pa.Table:
    """The answer to a query about hosts, cached until there can be newer host data."""
    return reads.compute(run, (agents_freshness(reads, run), query), lambda reader: reader.read(query))
