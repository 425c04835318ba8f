"""Sends the alerts of the watcher to its collector. The dashboards of that collector show them.

    check --> a row for each attempt checked        --every 15 s-->  POST /v1/batches/alerts  --> table `alerts`
              a row for each unresolved alert       --at once if its phase changed-->

The watcher itself uses its alert store only. A row that is lost is sent again within 15 s.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from diagnose.alerts.alert import URGENCY, Alert, Phase, alert_text
from diagnose.alerts.check import Check
from diagnose.alerts.notice import ErrorReports
from telemetry.errors import RankscopeError
from telemetry.run_names import Attempt
from telemetry.tables import ALERTS, DROPPED, LOOKED

EVERY_NS = 15_000_000_000
"""Time between two rows of an alert that does not change."""
MOST_ALERTS = 500
"""Number of unresolved alerts that are sent: the worst ones."""

AlertKey = tuple[str, int]
"""Fingerprint, and when the problem began."""
Row = dict[str, Any]


@runtime_checkable
class Collector(Protocol):
    """Accepts rows, such as ``telemetry.wire.client.CollectorClient``. A read-only store is not a ``Collector``."""

    def post(self, table: str, rows: pa.Table) -> object: ...


class Publisher:
    """Sends alerts to a collector. For one thread.

    ``earlier``: alerts that an earlier watcher may have sent.
    """

    def __init__(self, error_reports: ErrorReports, earlier: Mapping[str, Alert]) -> None:
        self._error_reports = error_reports
        self._sent = {_key(alert): alert for alert in earlier.values()}
        """Alerts as they were last sent; before the first time, ``earlier``."""
        self._next_ns = 0
        self._may_be_incomplete = True
        """Whether the collector may lack alerts. Then all are sent."""

    def publish(self, reader: object, alerts: Mapping[str, Alert], check: Check) -> None:
        """Send the alerts after ``check``, if ``reader`` is a collector. Raises nothing."""
        changed = {_key(alert) for alert in alerts.values() if self._has_changed(alert)}
        dropped = [alert for key, alert in self._sent.items() if self._is_dropped(key, alert, alerts)]
        due = check.now_ns >= self._next_ns
        urgent = bool(changed or dropped) and not self._may_be_incomplete
        if not isinstance(reader, Collector) or not (due or urgent):
            return
        self._next_ns = check.now_ns + EVERY_NS
        to_send = [alert for alert in alerts.values() if alert.is_alive or _key(alert) in changed]
        rows = [
            *_rows(_worst(to_send), check.now_ns),
            *_rows(dropped, check.now_ns, DROPPED),
            *_checked_attempts(check),
        ]
        try:
            for attempt, table in _tables(rows):
                reader.post("alerts", _labelled(table, attempt))
        except Exception as error:  # the watcher must continue without the dashboard
            self._may_be_incomplete = True
            message = error.message if isinstance(error, RankscopeError) else f"{type(error).__name__}: {error}"
            hint = f" ({error.hint})" if isinstance(error, RankscopeError) else ""
            self._error_reports.begin("dashboard", f"the dashboard does not receive alerts: {message}{hint}")
            return
        self._may_be_incomplete = False
        self._sent = {_key(alert): alert for alert in alerts.values()}
        self._error_reports.end("dashboard", "the dashboard receives alerts again")

    def _has_changed(self, alert: Alert) -> bool:
        before = self._sent.get(_key(alert))
        return self._may_be_incomplete or before is None or _status(before) != _status(alert)

    def _is_dropped(self, key: AlertKey, sent: Alert, alerts: Mapping[str, Alert]) -> bool:
        """Whether an alert was sent as unresolved, and does not exist any more."""
        now = alerts.get(sent.fingerprint)
        return sent.is_alive and (now is None or _key(now) != key)


def _key(alert: Alert) -> AlertKey:
    return alert.fingerprint, alert.began_ns


def _status(alert: Alert) -> tuple[Phase, str, str]:
    return alert.phase, str(alert.account.severity), alert.suppressed_by


def _worst(alerts: list[Alert]) -> list[Alert]:
    return sorted(alerts, key=lambda alert: (not alert.is_alive, -URGENCY[alert.account.severity]))[:MOST_ALERTS]


def _rows(alerts: Iterable[Alert], at_ns: int, phase: str = "") -> Iterator[tuple[Attempt, Row]]:
    for alert in alerts:
        name = {"fingerprint": alert.fingerprint, "began_ns": alert.began_ns}
        yield alert.run, name | {"at_ns": at_ns, "phase": phase or str(alert.phase), "body": alert_text(alert)}


def _checked_attempts(check: Check) -> Iterator[tuple[Attempt, Row]]:
    for run in check.runs:
        row = {"fingerprint": "", "began_ns": 0, "at_ns": check.now_ns, "phase": LOOKED, "body": ""}
        yield (run.run_id, run.attempt), row


def _tables(rows: Iterable[tuple[Attempt, Row]]) -> Iterator[tuple[Attempt, pa.Table]]:
    """Rows as they are sent: one table for each attempt."""
    by_attempt: dict[Attempt, list[Row]] = {}
    for attempt, row in rows:
        by_attempt.setdefault(attempt, []).append(row)
    for attempt, of_attempt in by_attempt.items():
        yield attempt, pa.Table.from_pylist(of_attempt, schema=ALERTS)


def _labelled(rows: pa.Table, attempt: Attempt) -> pa.Table:
    run_id, number = attempt
    return rows.replace_schema_metadata({"run_id": run_id, "attempt": str(number)})
