"""Queries about reports other than spans: samples, marks, heartbeats, evidence, alerts."""

from dataclasses import dataclass

from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.windows import IN_WINDOW, LAST_STEP
from telemetry.tables import DROPPED, HEARTBEATS


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts(Fields):
    """The newest state of the alerts of all runs, without dropped alerts. Unresolved alerts first, then the newest.

    Columns: run_id, attempt, fingerprint, began_ns, at_ns, phase, body.
    """

    limit: int = 1000

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, fingerprint, began_ns, newest AS at_ns, newest_phase AS phase, newest_body AS body
        FROM (
            SELECT run_id, attempt, fingerprint, began_ns, max(at_ns) AS newest,
                argMax(phase, at_ns) AS newest_phase, argMax(body, at_ns) AS newest_body
            FROM alerts WHERE fingerprint != '' GROUP BY run_id, attempt, fingerprint, began_ns
        )
        WHERE newest_phase != '{DROPPED}'
        ORDER BY newest_phase = 'resolved', newest DESC, fingerprint LIMIT %(limit)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLooks(Fields):
    """When the watcher last checked each attempt. Columns: run_id, attempt, at_ns; ordered by run_id, attempt."""

    def sql(self) -> str:
        return """
        SELECT run_id, attempt, newest AS at_ns
        FROM (
            SELECT run_id, attempt, max(at_ns) AS newest FROM alerts WHERE fingerprint = '' GROUP BY run_id, attempt
        )
        ORDER BY run_id, attempt
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(Fields):
    """Values of metrics by step in a window. If several ranks report a metric, the newest value of the highest rank.

    Columns: step, at_ns, metric, value, rank; ordered by metric, step.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...] = ()
    """If empty, all are returned."""
    first_step: int = 0
    last_step: int = LAST_STEP

    def sql(self) -> str:
        return f"""
        SELECT step, at_ns, metric, value, rank
        FROM samples WHERE {IN_WINDOW}{among("metric", "metrics", self.metrics)}
        ORDER BY metric, step, rank DESC, seq DESC LIMIT 1 BY metric, step
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestSamples(Fields):
    """The largest value of each metric over all ranks and steps.

    Columns: metric, value; ordered by metric.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...]

    def sql(self) -> str:
        return f"""
        SELECT metric, max(value) AS value
        FROM samples WHERE {OF_ATTEMPT}{among("metric", "metrics", self.metrics)}
        GROUP BY metric
        ORDER BY metric
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks(Fields):
    """The newest marks of a window of steps, in time order. Columns: rank, step, at_ns, name, text."""

    run_id: str
    attempt: int
    limit: int = 10_000
    names: tuple[str, ...] = ()
    """If empty, all are returned."""
    first_step: int = 0
    last_step: int = LAST_STEP

    def sql(self) -> str:
        wanted = f"{IN_WINDOW}{among('name', 'names', self.names)}"
        return f"""
        SELECT rank, step, at_ns, name, text
        FROM (SELECT * FROM marks WHERE {wanted} ORDER BY at_ns DESC, rank, seq LIMIT %(limit)s)
        ORDER BY at_ns, rank, seq
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeats(Fields):
    """Newest heartbeat of each rank, ordered by rank. Columns: those of ``telemetry.tables.HEARTBEATS``."""

    run_id: str
    attempt: int

    def sql(self) -> str:
        names = [name for name in HEARTBEATS.names if name not in ("rank", "at_ns")]
        newest = ", ".join(f"argMax({name}, at_ns) AS newest_{name}" for name in names)
        answer = ", ".join(f"newest_{name} AS {name}" for name in names)
        return f"""
        SELECT rank, newest AS at_ns, {answer}
        FROM (SELECT rank, max(at_ns) AS newest, {newest} FROM heartbeats WHERE {OF_ATTEMPT} GROUP BY rank)
        ORDER BY rank
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Fields):
    """Evidence of ranks in a stall, or of ranks that died: the newest of each rank and kind.

    Columns: rank, at_ns, kind, body (see ``telemetry/evidence/evidence.py``); ordered by rank, kind.
    """

    run_id: str
    attempt: int
    kinds: tuple[str, ...] = ()
    """If empty, all are returned."""

    def sql(self) -> str:
        return f"""
        SELECT rank, newest AS at_ns, kind, text AS body
        FROM (
            SELECT rank, kind, max(at_ns) AS newest, argMax(body, at_ns) AS text
            FROM evidence WHERE {OF_ATTEMPT}{among("kind", "kinds", self.kinds)} GROUP BY rank, kind
        )
        WHERE text != '' ORDER BY rank, kind
        """


_EVIDENCE = f"""
            SELECT 'evidence' AS source, count() AS num_rows, max(newest) AS newest_ns, sum(toUInt64(newest)) AS stamps
            FROM (
                SELECT run_id, attempt, rank, kind, max(at_ns) AS newest FROM evidence WHERE {OF_ATTEMPT}
                GROUP BY run_id, attempt, rank, kind
            )
            GROUP BY run_id, attempt"""
"""Merges drop replaced rows at any time, so this counts kinds of evidence by rank, not rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCount(Fields):
    """The amount of stored evidence, without the texts. The answer changes whenever evidence is stored.

    Columns: num_rows (ranks times kinds), newest_ns, stamps (the sum of their newest times, modulo 2**64). No row
    without evidence.
    """

    run_id: str
    attempt: int

    def sql(self) -> str:
        return f"SELECT num_rows, newest_ns, stamps FROM ({_EVIDENCE})"


@dataclass(frozen=True, slots=True, kw_only=True)
class News(Fields):
    """The amount of stored evidence and the number of stored host events: a cheap check for changes.

    Columns: source (evidence or host_events), num_rows, newest_ns, stamps (as of :class:`EvidenceCount`; 0 for
    events, which are never replaced); ordered by source. A source without rows is left out.
    """

    run_id: str
    attempt: int
    names: tuple[str, ...] = ()
    """Names of events. If empty, all events are counted."""

    def sql(self) -> str:
        return f"""
        SELECT source, num_rows, newest_ns, stamps
        FROM ({_EVIDENCE}
            UNION ALL
            SELECT 'host_events' AS source, uniqExact(at_ns, host, device, name, text) AS num_rows,
                max(at_ns) AS newest_ns, toUInt64(0) AS stamps
            FROM host_events
            WHERE {OF_ATTEMPT}{among("name", "names", self.names)} GROUP BY run_id, attempt
        )
        ORDER BY source
        """
