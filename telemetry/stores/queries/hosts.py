"""Queries about hosts: readings of samplers, and events.

Their rows have no ``seq``: a row that was sent twice is the same row, and every answer counts it once.
"""

from dataclasses import dataclass

from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening
from telemetry.stores.interface import OF_ATTEMPT, Fields, among

OF_PARTS = "host-"
"""How metrics begin that are told of a host and of its parts."""
LAST_NS = 2**63 - 1
"""The latest time there can be."""
_IN_TIME = f"{OF_ATTEMPT} AND at_ns >= %(first_ns)s AND at_ns <= %(last_ns)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSamples(Fields):
    """Samples of hosts in a window of time (wall clock of each host), one row for each period that has any.

    Columns: metric, host, device, at_ns (of the newest in the period), value (the newest), mean, highest; ordered by
    metric, host, device, at_ns.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...] = ()
    """Empty, here and below: all."""
    hosts: tuple[str, ...] = ()
    first_ns: int = 0
    last_ns: int = LAST_NS
    period_ns: int = 1_000_000_000
    parts: bool = True
    """Single cores and disks too: there are hundreds of them on each host."""

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
    """The newest events of hosts in a window of time (wall clock of each host).

    Columns: at_ns, host, device, name, text; ordered by at_ns, host, device, name.
    """

    run_id: str
    attempt: int
    names: tuple[str, ...] = ()
    """Empty, here and below: all."""
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
    """How much happened on each host in a window of time: ports that were down as sampling began do not count.

    Columns: host, name, events (how many were told), times (of links that came and went unseen as many as the kernel
    counted, else one for each event); ordered by host, name.
    """

    run_id: str
    attempt: int
    names: tuple[str, ...] = ()
    """Empty: all."""
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
    """By how much counters of each host grew in a window of time; one that falls has begun anew.

    value |     /|         Only the ends and the extremes of each period are held, however many looks it has: a counter
          |    / |  / ends that fell in it grew to its highest, then from its lowest. What it grew before a fall that it
          | begins|/       has made good within the same period is not seen.

    Columns: host, metric, growth (of all its devices together), lasted_ns (between the first and the last look, the
    longest of a device); ordered by host, metric.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...]
    first_ns: int = 0
    last_ns: int = LAST_NS
    period_ns: int = 1_000_000_000

    def sql(self) -> str:
        return f"""
        SELECT host, metric, sum(grown) AS growth, max(lasted) AS lasted_ns
        FROM (
            SELECT host, metric, max(end_ns) - min(begin_ns) AS lasted,
                arraySort(groupArray((begin_ns, begins, ends))) AS told,
                sum(if(highest > ends, highest - begins + ends - lowest, ends - begins)) + arraySum(arrayMap(
                    (one, after) -> greatest(tupleElement(after, 2) - tupleElement(one, 3), 0.),
                    arrayPopBack(told), arrayPopFront(told)
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
