"""Queries about hosts: samples and events.

These rows have no ``seq``. A row that was sent twice may be stored twice, but the queries count it once.
"""

from dataclasses import dataclass

from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening
from telemetry.stores.interface import OF_ATTEMPT, Fields, among

OF_PARTS = "host-"
"""Prefix of metrics that exist for a host and for its parts, such as cores."""
LAST_NS = 2**63 - 1
"""The latest possible time."""
_IN_TIME = f"{OF_ATTEMPT} AND at_ns >= %(first_ns)s AND at_ns <= %(last_ns)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSamples(Fields):
    """Samples of hosts in a time window (wall clock of each host), one row for each period with samples.

    Columns: metric, host, device, at_ns and value (of the newest sample in the period), mean, highest; ordered by
    metric, host, device, at_ns.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...] = ()
    """An empty tuple, here and below, means all."""
    hosts: tuple[str, ...] = ()
    first_ns: int = 0
    last_ns: int = LAST_NS
    period_ns: int = 1_000_000_000
    parts: bool = True
    """Include single cores and disks. A host can have hundreds of them."""

    def sql(self) -> str:
        whole = "" if self.parts else f" AND (device = '' OR NOT startsWith(metric, '{OF_PARTS}'))"
        return f"""
        SELECT metric, host, device, newest AS at_ns, newest_value AS value, mean, highest
        FROM (
            SELECT metric, host, device, intDiv(at_ns, %(period_ns)s) AS period, max(at_ns) AS newest,
                argMax(value, at_ns) AS newest_value, avg(value) AS mean, max(value) AS highest
            FROM (
                SELECT metric, host, device, at_ns, max(value) AS value
                FROM host_samples WHERE {_IN_TIME}{among("metric", "metrics", self.metrics)}
                    {among("host", "hosts", self.hosts)}{whole}
                GROUP BY metric, host, device, at_ns
            )
            GROUP BY metric, host, device, period
        )
        ORDER BY metric, host, device, at_ns
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvents(Fields):
    """The newest events of hosts in a time window (wall clock of each host).

    Columns: at_ns, host, device, name, text; ordered by at_ns, host, device, name.
    """

    run_id: str
    attempt: int
    names: tuple[str, ...] = ()
    """An empty tuple, here and below, means all."""
    hosts: tuple[str, ...] = ()
    first_ns: int = 0
    last_ns: int = LAST_NS
    limit: int = 100_000

    def sql(self) -> str:
        return f"""
        SELECT at_ns, host, device, name, text
        FROM (
            SELECT at_ns, host, device, name, text
            FROM host_events WHERE {_IN_TIME}{among("name", "names", self.names)}{among("host", "hosts", self.hosts)}
            GROUP BY at_ns, host, device, name, text
            ORDER BY at_ns DESC, host, device, name, text LIMIT %(limit)s
        )
        ORDER BY at_ns, host, device, name, text
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEventCounts(Fields):
    """Number of events on each host in a time window, without ports that were down when sampling began.

    Columns: host, name, events (number of rows), times (for link flaps between two samples, the number that the kernel
    counted; otherwise 1 for each event); ordered by host, name.
    """

    run_id: str
    attempt: int
    names: tuple[str, ...] = ()
    """If empty, all are returned."""
    first_ns: int = 0
    last_ns: int = LAST_NS

    def sql(self) -> str:
        counted = "greatest(toUInt64OrZero(substring(extract(text, '^[0-9]+'), 1, 6)), 1)"
        return f"""
        SELECT host, name, toUInt64(count()) AS events, toUInt64(sum(counted)) AS times
        FROM (
            SELECT host, name, if(name = '{Happening.LINK_FLAPS}', {counted}, toUInt64(1)) AS counted
            FROM host_events
            WHERE {_IN_TIME}{among("name", "names", self.names)} AND NOT startsWith(text, '{LINK_ALREADY_DOWN}')
            GROUP BY at_ns, host, device, name, text
        )
        GROUP BY host, name ORDER BY host, name
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGrowth(Fields):
    """Growth of the counters of each host in a time window. A counter that falls was reset.

    value |     /|         Only the first, last, lowest and highest value of each period are used. If a counter fell in
          |    / |  / ends a period, it grew to its highest value, then from its lowest. A reset is not detected if the
          | begins|/       counter ends the period at its highest value.

    Columns: host, metric, growth (the largest of all devices), lasted_ns (time between the first and the last
    sample, the longest of all devices); ordered by host, metric.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...]
    first_ns: int = 0
    last_ns: int = LAST_NS
    period_ns: int = 1_000_000_000

    def sql(self) -> str:
        return f"""
        SELECT host, metric, max(grown) AS growth, max(lasted) AS lasted_ns
        FROM (
            SELECT host, metric, max(end_ns) - min(begin_ns) AS lasted,
                arraySort(groupArray((begin_ns, begins, ends))) AS periods,
                sum(if(highest > ends, highest - begins + ends - lowest, ends - begins)) + arraySum(arrayMap(
                    (before, after) -> greatest(tupleElement(after, 2) - tupleElement(before, 3), 0.),
                    arrayPopBack(periods), arrayPopFront(periods)
                )) AS grown
            FROM (
                SELECT host, metric, device, min(at_ns) AS begin_ns, max(at_ns) AS end_ns,
                    argMin(value, at_ns) AS begins, argMax(value, at_ns) AS ends,
                    min(value) AS lowest, max(value) AS highest
                FROM host_samples WHERE {_IN_TIME}{among("metric", "metrics", self.metrics)}
                GROUP BY host, metric, device, intDiv(at_ns, %(period_ns)s)
            )
            GROUP BY host, metric, device
        )
        GROUP BY host, metric ORDER BY host, metric
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDecisions(Fields):
    """The decisions of the driver of each run, in all attempts.

    Columns: run_id, at_ns (wall clock of the driver), attempt, host (the node that it is about, or ``driver``), text
    (``NAME: reason``); ordered by run_id, at_ns, attempt, host, text.
    """

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        assert self.run_ids, "name one run at least"
        return f"""
        SELECT run_id, at_ns, attempt, host, text
        FROM host_events WHERE name = '{Happening.DRIVER}' AND run_id IN %(run_ids)s
        GROUP BY run_id, at_ns, attempt, host, text ORDER BY run_id, at_ns, attempt, host, text
        """
