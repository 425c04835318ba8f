"""Ask a reader for what hosts said: the :class:`diagnose.fleet.Fleet` of a view."""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from diagnose.fleet import Fleet, HostEvent, HostSeries
from telemetry.host_metrics import Metric
from telemetry.stores.host_queries import LAST_NS, HostEvents, HostSamples
from telemetry.stores.queries import Heartbeats
from telemetry.stores.reader import Reader

NS_PER_S = 1_000_000_000
MARGIN_NS = 60 * NS_PER_S
"""Before the first step, so that a counter's level before it is known; and after the last."""
SILENT_NS = 15 * 60 * NS_PER_S
"""Looked back where no step is finished."""
MAX_PERIODS = 900
"""Of one series: longer times are looked at in coarser periods."""
MANY_HOSTS = 64
"""Above it, cores and disks are left out, and periods are coarser."""
METRICS = tuple(str(metric) for metric in Metric)


def load_fleet(
    reader: Reader,
    run_id: str,
    attempt: int,
    first_ns: int,
    last_ns: int,
    *,
    num_hosts: int = 1,
    up_to_now: bool = False,
) -> Fleet:
    """What the hosts of an attempt said from ``first_ns`` to ``last_ns`` (wall clock), and all their events.

    Where both are 0, the newest quarter of an hour. ``up_to_now``: and what they said since, while a job stands still.
    """
    seen_ns, moved_ns = _seen(reader, run_id, attempt)
    if not last_ns:
        first_ns, last_ns = seen_ns - SILENT_NS, seen_ns
    if up_to_now:
        last_ns = min(max(last_ns, seen_ns), last_ns + SILENT_NS)
    events = reader.read(HostEvents(run_id=run_id, attempt=attempt))
    samples = reader.read(
        HostSamples(
            run_id=run_id,
            attempt=attempt,
            metrics=METRICS,
            first_ns=max(0, first_ns - MARGIN_NS),
            last_ns=min(LAST_NS, last_ns + MARGIN_NS),
            period_ns=_period_ns(last_ns - first_ns + 2 * MARGIN_NS, num_hosts),
            parts=num_hosts <= MANY_HOSTS,
        )
    )
    return Fleet(series=_series(samples), events=_events(events), seen_ns=seen_ns, moved_ns=moved_ns)


def _period_ns(length_ns: int, num_hosts: int) -> int:
    """A second, or as long as it takes to keep the number of periods down."""
    most = max(60, MAX_PERIODS * MANY_HOSTS // max(num_hosts, MANY_HOSTS))
    return max(1, -(-length_ns // (most * NS_PER_S))) * NS_PER_S


def _seen(reader: Reader, run_id: str, attempt: int) -> tuple[int, int]:
    """When agents last looked at ranks, and when any of these last recorded."""
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt))
    if not beats.num_rows:
        return 0, 0
    return int(beats["at_ns"].to_numpy().max()), int(beats["beat_ns"].to_numpy().max())


def _series(table: pa.Table) -> dict[str, tuple[HostSeries, ...]]:
    """Rows come ordered by metric, host, device, at_ns: a series is a stretch of equal names."""
    if not table.num_rows:
        return {}
    names = [table[name].to_numpy(zero_copy_only=False) for name in ("metric", "host", "device")]
    at_ns, value, mean = (table[name].to_numpy() for name in ("at_ns", "value", "mean"))
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in names])
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    found: dict[str, list[HostSeries]] = {}
    for first, stop in pairwise(bounds):
        metric, host, device = (str(column[first]) for column in names)
        rows = slice(first, stop)
        one = HostSeries(host=host, device=device, at_ns=at_ns[rows], value=value[rows], mean=mean[rows])
        found.setdefault(metric, []).append(one)
    return {metric: tuple(series) for metric, series in found.items()}


def _events(table: pa.Table) -> tuple[HostEvent, ...]:
    return tuple(
        HostEvent(host=row["host"], device=row["device"], at_ns=row["at_ns"], name=row["name"], text=row["text"])
        for row in table.to_pylist()
    )
