"""The alerts that the watcher has stored."""

from diagnose.alerts.reported import ReportedAlerts, reported_in
from telemetry.stores.queries import AlertLooks, Alerts
from ui.dashboard.data.core import Reads

MOST_ALERTS = 1000
AGE_S = 2.0


def reported_alerts(reads: Reads) -> ReportedAlerts:
    """The alerts of all runs, with two queries at most every two seconds."""
    return reported_in(
        reads.ask_all_runs(Alerts(limit=MOST_ALERTS), age_s=AGE_S).to_pylist(),
        reads.ask_all_runs(AlertLooks(), age_s=AGE_S).to_pylist(),
    )
