"""The alerts that the watcher has stored, from the rows of two queries.

The rows are untrusted: every client that may write to the collector can store anything here.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.alerts.alert import NO_RECORD, URGENCY, Alert, Phase, read_alert

Row = Mapping[str, Any]
SILENT_AFTER_NS = 120_000_000_000
"""A working watcher reports at least four times in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAlert:
    """An alert as the watcher last reported it."""

    alert: Alert
    reported_ns: int
    """Clock of the watcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAlerts:
    """All stored alerts."""

    alerts: tuple[ReportedAlert, ...]
    """Open alerts first, the worst of them first. Then the newest of the others."""
    checked_ns: dict[tuple[str, int], int]
    """Run and attempt -> time of the watcher's last check."""
    num_unreadable: int
    """Alerts that cannot be read, because another version wrote them."""

    @property
    def heard_ns(self) -> int:
        """The last report of the watcher. 0: never."""
        return max([0, *self.checked_ns.values(), *(alert.reported_ns for alert in self.alerts)])

    def is_silent(self, now_ns: int) -> bool:
        return now_ns - self.heard_ns > SILENT_AFTER_NS

    def of(self, run_id: str) -> "ReportedAlerts":
        """The alerts of one run. If ``run_id`` is empty, of all runs."""
        if not run_id:
            return self
        return ReportedAlerts(
            alerts=tuple(entry for entry in self.alerts if entry.alert.run[0] == run_id),
            checked_ns={attempt: at_ns for attempt, at_ns in self.checked_ns.items() if attempt[0] == run_id},
            num_unreadable=0,
        )

    def in_phase(self, phase: Phase) -> tuple[ReportedAlert, ...]:
        return tuple(entry for entry in self.alerts if entry.alert.phase is phase)


def reported_in(alerts: Iterable[Row], checks: Iterable[Row]) -> ReportedAlerts:
    """From the rows of ``Alerts`` and of ``AlertLooks``."""
    found, num_unreadable = [], 0
    for row in alerts:
        try:
            alert = _checked(read_alert(row["body"]), row)
        except NO_RECORD:
            num_unreadable += 1
            continue
        found.append(ReportedAlert(alert=alert, reported_ns=row["at_ns"]))
    return ReportedAlerts(
        alerts=tuple(sorted(found, key=_order)),
        checked_ns={(row["run_id"], row["attempt"]): row["at_ns"] for row in checks},
        num_unreadable=num_unreadable,
    )


def _checked(alert: Alert, row: Row) -> Alert:
    """``alert`` if it belongs to the attempt of its row and has the types that readers rely on.

    Raises:
        ValueError: the alert is invalid.
    """
    account = alert.account
    numbers = (alert.began_ns, alert.changed_ns, account.first_step, account.last_step)
    texts = (account.summary, account.next_step, alert.suppressed_by, *alert.labels.values(), *alert.hosts_seen)
    if alert.run != (row["run_id"], row["attempt"]) or alert.fingerprint != row["fingerprint"]:
        raise ValueError("of another run")
    if not all(isinstance(number, int) and 0 <= number < 2**63 for number in numbers):
        raise ValueError("a number out of range")
    if not all(isinstance(text, str) for text in texts) or not math.isfinite(account.seconds_lost):
        raise ValueError("of another type")
    return alert


def _order(entry: ReportedAlert) -> tuple[bool, int, bool, int, str]:
    alert = entry.alert
    urgency = -URGENCY[alert.account.severity] if alert.is_alive else 0
    return not alert.is_alive, urgency, alert.phase is Phase.PENDING, -alert.changed_ns, alert.fingerprint
