"""What the watcher of alerts told this store: for the dashboard."""

from dataclasses import dataclass

from telemetry.stores.interface import Fields
from telemetry.tables import DROPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts(Fields):
    """Alerts of all runs as last told: those that are not over first, then the newest; none that was dropped.

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
    """When the watcher last looked at each attempt. Columns: run_id, attempt, at_ns; ordered by run_id, attempt."""

    def sql(self) -> str:
        return """
        SELECT run_id, attempt, newest AS at_ns
        FROM (
            SELECT run_id, attempt, max(at_ns) AS newest FROM alerts WHERE fingerprint = '' GROUP BY run_id, attempt
        )
        ORDER BY run_id, attempt
        """
