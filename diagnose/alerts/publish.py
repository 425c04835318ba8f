"""Sends the alerts of the watcher to its collector, so that every dashboard of that collector shows them.

    check --> a row for each attempt checked        --every 15 s-->  POST /v1/batches/alerts  --> table `alerts`
              a row for each alert that is not over --at once if its phase changed-->

The watcher itself uses its alert store only. A row that is lost is sent again within 15 s.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from diagnose.alerts.alert import URGENCY, Alert, Phase, alert_text
from diagnose.alerts.check import Check
from diagnose.alerts.notice import Complaints
from telemetry.errors import RankscopeError
from telemetry.tables import ALERTS, DROPPED, LOOKED

EVERY_NS = 15_000_000_000
"""Between two rows of what goes on."""
MOST_ALERTS = 500
"""The worst so many of those that are not over."""

Attempt = tuple[str, int]
Trouble = tuple[str, int]
"""Fingerprint, and when it began."""
Row = dict[str, Any]


@runtime_checkable
class Collector(Protocol):
    """Takes rows, as ``telemetry.wire.client.CollectorClient`` does; a store that is only read takes none."""

    def post(self, table: str, rows: pa.Table) -> object: ...


class Publisher:
    """Tells a collector. For one thread.

    ``stood``: the alerts that an earlier watcher may have told of.
    """

    def __init__(self, complaints: Complaints, stood: Mapping[str, Alert]) -> None:
        self._complaints = complaints
        self._told = {_trouble(alert): alert for alert in stood.values()}
        """As last told, or known before the first telling."""
        self._next_ns = 0
        self._owed = True
        """Whether something may be missing there: then all is told."""

    def publish(self, reader: object, alerts: Mapping[str, Alert], check: Check) -> None:
        """Tell ``reader``, if it takes rows, what stands after ``check``. Raises nothing."""
        news = {_trouble(alert) for alert in alerts.values() if self._is_news(alert)}
        gone = [alert for trouble, alert in self._told.items() if self._has_gone(trouble, alert, alerts)]
        due = check.now_ns >= self._next_ns
        urgent = bool(news or gone) and not self._owed
        if not isinstance(reader, Collector) or not (due or urgent):
            return
        self._next_ns = check.now_ns + EVERY_NS
        told = [alert for alert in alerts.values() if alert.is_alive or _trouble(alert) in news]
        rows = [*_rows(_worst(told), check.now_ns), *_rows(gone, check.now_ns, DROPPED), *_looks(check)]
        try:
            for attempt, table in _tables(rows):
                reader.post("alerts", _labelled(table, attempt))
        except Exception as error:  # a dashboard that is not told must not end the watch
            self._owed = True
            said = error.message if isinstance(error, RankscopeError) else f"{type(error).__name__}: {error}"
            hint = f" ({error.hint})" if isinstance(error, RankscopeError) else ""
            self._complaints.begin("dashboard", f"the dashboard does not receive alerts: {said}{hint}")
            return
        self._owed = False
        self._told = {_trouble(alert): alert for alert in alerts.values()}
        self._complaints.end("dashboard", "the dashboard receives alerts again")

    def _is_news(self, alert: Alert) -> bool:
        before = self._told.get(_trouble(alert))
        return self._owed or before is None or _standing(before) != _standing(alert)

    def _has_gone(self, trouble: Trouble, told: Alert, alerts: Mapping[str, Alert]) -> bool:
        """Whether it was told as alive, and is nowhere now."""
        now = alerts.get(told.fingerprint)
        return told.is_alive and (now is None or _trouble(now) != trouble)


def _trouble(alert: Alert) -> Trouble:
    return alert.fingerprint, alert.began_ns


def _standing(alert: Alert) -> tuple[Phase, str, str]:
    return alert.phase, str(alert.account.severity), alert.held_back_by


def _worst(alerts: list[Alert]) -> list[Alert]:
    return sorted(alerts, key=lambda one: (not one.is_alive, -URGENCY[one.account.severity]))[:MOST_ALERTS]


def _rows(alerts: Iterable[Alert], at_ns: int, phase: str = "") -> Iterator[tuple[Attempt, Row]]:
    for alert in alerts:
        name = {"fingerprint": alert.fingerprint, "began_ns": alert.began_ns}
        yield alert.run, name | {"at_ns": at_ns, "phase": phase or str(alert.phase), "body": alert_text(alert)}


def _looks(check: Check) -> Iterator[tuple[Attempt, Row]]:
    for run in check.runs:
        row = {"fingerprint": "", "began_ns": 0, "at_ns": check.now_ns, "phase": LOOKED, "body": ""}
        yield (run.run_id, run.attempt), row


def _tables(rows: Iterable[tuple[Attempt, Row]]) -> Iterator[tuple[Attempt, pa.Table]]:
    """Rows as they travel: a table an attempt."""
    by_attempt: dict[Attempt, list[Row]] = {}
    for attempt, row in rows:
        by_attempt.setdefault(attempt, []).append(row)
    for attempt, of_attempt in by_attempt.items():
        yield attempt, pa.Table.from_pylist(of_attempt, schema=ALERTS)


def _labelled(rows: pa.Table, attempt: Attempt) -> pa.Table:
    run_id, number = attempt
    return rows.replace_schema_metadata({"run_id": run_id, "attempt": str(number)})
