"""Questions about hosts: what samplers read there, and what happened. Asked like those of ``queries``.

Their rows carry no ``seq``: one that was sent twice is the same row, and every answer counts it once.
"""

from dataclasses import dataclass

from telemetry.stores.question import OF_ATTEMPT, Fields, among

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
    """Empty: all."""
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
                FROM host_samples WHERE {_IN_TIME}{among("metric", "metrics", self.metrics)}{whole}
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
    """Empty: all."""
    first_ns: int = 0
    last_ns: int = LAST_NS
    limit: int = 100_000

    def sql(self) -> str:
        return f"""
        SELECT at_ns, host, device, name, text
        FROM (
            SELECT at_ns, host, device, name, text
            FROM host_events WHERE {_IN_TIME}{among("name", "names", self.names)}
            GROUP BY at_ns, host, device, name, text
            ORDER BY at_ns DESC, host, device, name, text LIMIT %(limit)s
        )
        ORDER BY at_ns, host, device, name, text
        """
