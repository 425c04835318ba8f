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
from ui.dashboard.columns import ints
from ui.dashboard.data.core import Reads
from ui.dashboard.records import Ints, MarkRow, RankSpans, RunFacts, RunSummary
from ui.dashboard.view_state import StepRange
from ui.dashboard.wording import NS_PER_S

MAX_POINTS = 500
"""Of one series; longer times are told by coarser periods."""
MAX_PERIODS = 50
"""Of a counter of which only the growth is told: there are tens of thousands of them."""
MAX_EVENTS = 2_000
MAX_MARKS = 1_000
LOOK_NS = 10 * NS_PER_S
"""What hosts tell while no rank moves is asked for so often."""
MARGIN_NS = 60 * NS_PER_S
"""Around the steps in which hosts' events count: their clocks may disagree."""
SINCE_NS = 15 * 60 * NS_PER_S
"""After the newest step: what hosts told while the job stood still."""
BEGAN_AGAIN = (Happening.LINK_UP, Happening.RANK_CONTINUED, Happening.GPU_SEEN)
OFTEN = (Happening.BUSY_PROCESS, Happening.MEMORY_SHORT)
TROUBLES = tuple(str(one) for one in Happening if one not in (*BEGAN_AGAIN, *OFTEN))
"""Events that count in the table of hosts."""


FLAPS = (Happening.LINK_DOWN, Happening.LINK_FLAPS)
HELD_DOWN = tuple(str(metric) for metrics in COUNTERS.values() for metric in metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTrouble:
    """What one host told over some steps."""

    events: int = 0
    """Of trouble (:func:`is_trouble`)."""
    flaps: int = 0
    """Losses of link, those that nobody saw but the kernel, too."""
    throttled_s: float = 0.0
    """Of all its GPUs together."""
    cpu_pressure: float = float("nan")
    """Share of the time in which some thread waited for a core, 0 to 1; NaN where nobody looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostScene:
    """All that one host told over some steps, and the steps of its ranks; times are that host's own clock."""

    first_ns: int
    last_ns: int
    ranks: tuple[RankSpans, ...]
    series: tuple[tuple[str, HostSeries], ...]
    """Metric and series."""
    events: tuple[HostEvent, ...]
    """In order of time."""
    marks: tuple[MarkRow, ...]
    """Of its ranks."""


def is_trouble(event: HostEvent) -> bool:
    """Whether it counts in the table of hosts: what went wrong while somebody looked, and not all the time."""
    return event.name in TROUBLES and not event.text.startswith(LINK_ALREADY_DOWN)


def agents_said(reads: Reads, run: RunSummary) -> int:
    """Changes when hosts may have told more, though no rank has moved."""
    return reads.heard_ns(run) // LOOK_NS


def troubles(reads: Reads, facts: RunFacts, steps: StepRange) -> dict[str, HostTrouble]:
    """By host; a host that told nothing is left out."""
    run = facts.summary
    first_ns, last_ns = _time_of(facts, steps)
    counts = HostEventCounts(run_id=run.run_id, attempt=run.attempt, names=TROUBLES, first_ns=first_ns, last_ns=last_ns)
    growth = HostGrowth(
        run_id=run.run_id,
        attempt=run.attempt,
        metrics=(*HELD_DOWN, str(Metric.HOST_PRESSURE_CPU_NS)),
        first_ns=first_ns,
        last_ns=last_ns,
        period_ns=max(NS_PER_S, (last_ns - first_ns) // MAX_PERIODS),
    )
    events: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in _ask(reads, run, counts).to_pylist():
        events[row["host"]][row["name"]] = row["events"], row["times"]
    grown: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    for row in _ask(reads, run, growth).to_pylist():
        grown[row["host"]][row["metric"]] = row["growth"], row["lasted_ns"]
    return {host: _trouble(events[host], grown[host]) for host in sorted({*events, *grown})}


def _trouble(events: dict[str, tuple[int, int]], grown: dict[str, tuple[float, int]]) -> HostTrouble:
    """NVML counts some reasons more than once: of each the counter that grew most."""
    held_ns = (max(grown.get(metric, (0.0, 0))[0] for metric in metrics) for metrics in COUNTERS.values())
    pressure_ns, lasted_ns = grown.get(Metric.HOST_PRESSURE_CPU_NS, (0.0, 0))
    return HostTrouble(
        events=sum(told for told, _ in events.values()),
        flaps=sum(events.get(name, (0, 0))[1] for name in FLAPS),
        throttled_s=sum(held_ns) / NS_PER_S,
        cpu_pressure=pressure_ns / lasted_ns if lasted_ns else float("nan"),
    )


def host_scene(reads: Reads, facts: RunFacts, host: str, metrics: tuple[str, ...], steps: StepRange) -> HostScene:
    """Everything about ``host`` over ``steps``: at most ``MAX_POINTS`` points a series."""
    run, home = facts.summary, tuple(rank for rank, name in enumerate(facts.hosts) if name == host)
    ranks = _rank_steps(reads, facts, home, steps)
    first_ns = min((int(one.start_ns.min()) for one in ranks), default=0)
    last_ns = max((int((one.start_ns + one.duration_ns).max()) for one in ranks), default=0)
    room_ns = (last_ns - first_ns) // 20 + 10 * NS_PER_S
    is_newest = steps.last >= int(facts.steps.step[-1])
    earliest_ns = max(0, first_ns - room_ns)
    latest_ns = min(LAST_NS, last_ns + (SINCE_NS if is_newest else room_ns))
    samples = HostSamples(
        run_id=run.run_id,
        attempt=run.attempt,
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
        series=tuple((metric, one) for metric in metrics for one in found.get(metric, ())),
        events=_events(reads, run, host, earliest_ns, latest_ns),
        marks=tuple(mark for mark in reversed(marks) if earliest_ns <= mark.at_ns <= latest_ns),
    )


def host_events(reads: Reads, facts: RunFacts, host: str, steps: StepRange) -> tuple[HostEvent, ...]:
    """What happened on ``host`` over ``steps``, in order of time, without what goes on all the time or is well."""
    happened = _events(reads, facts.summary, host, *_time_of(facts, steps))
    return tuple(event for event in happened if event.name not in (*OFTEN, Happening.GPU_SEEN))


def _events(reads: Reads, run: RunSummary, host: str, first_ns: int, last_ns: int) -> tuple[HostEvent, ...]:
    query = HostEvents(
        run_id=run.run_id,
        attempt=run.attempt,
        hosts=(host,),
        first_ns=first_ns,
        last_ns=last_ns,
        limit=MAX_EVENTS,
    )
    return tuple(HostEvent(**row) for row in _ask(reads, run, query).to_pylist())


def _rank_steps(reads: Reads, facts: RunFacts, ranks: tuple[int, ...], steps: StepRange) -> tuple[RankSpans, ...]:
    if not ranks:
        return ()
    run = facts.summary
    query = RankSteps(
        run_id=run.run_id,
        attempt=run.attempt,
        ranks=ranks,
        first_step=steps.first,
        last_step=steps.last,
        column_steps=column_steps(steps.first, steps.last, num_ranks=len(ranks), max_columns=MAX_POINTS),
    )
    table = reads.ask(run, query)
    rank, columns = ints(table, "rank"), [ints(table, name) for name in ("step", "start_ns", "duration_ns")]
    return tuple(_of_rank(one, [column[rank == one] for column in columns]) for one in np.unique(rank).tolist())


def _of_rank(rank: int, columns: list[Ints]) -> RankSpans:
    return RankSpans(rank=rank, step=columns[0], start_ns=columns[1], duration_ns=columns[2])


def _time_of(facts: RunFacts, steps: StepRange) -> tuple[int, int]:
    """About when some steps took place, and since where they are the newest: first and last nanosecond."""
    shown = (facts.steps.step >= steps.first) & (facts.steps.step <= steps.last)
    if not shown.any():
        return 0, 0
    start_ns, end_ns = facts.steps.start_ns[shown], (facts.steps.start_ns + facts.steps.duration_ns)[shown]
    room_ns = SINCE_NS if shown[-1] else MARGIN_NS
    return max(0, int(start_ns.min()) - MARGIN_NS), int(end_ns.max()) + room_ns


def _ask(reads: Reads, run: RunSummary, query: Query) -> pa.Table:
    """Kept until an agent may have told more."""
    return reads.work_out(run, (agents_said(reads, run), query), lambda reader: reader.read(query))
