"""The alerts that the watcher has stored."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.alerts.alert import NO_RECORD, URGENCY, Alert, Phase, read_alert
from telemetry.stores.queries import AlertLooks, Alerts
from ui.dashboard.data.core import Reads

MOST_ALERTS = 1000
AGE_S = 2.0
SILENT_AFTER_NS = 120_000_000_000
"""A watcher tells at least four times as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldAlert:
    """An alert as it was last told."""

    alert: Alert
    told_ns: int
    """When the watcher said so, by its clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldAlerts:
    """All that is known of alerts."""

    alerts: tuple[ToldAlert, ...]
    """Those that are not over first, the worst of them first; then the newest."""
    looked_ns: dict[tuple[str, int], int]
    """Run and attempt -> when the watcher last looked at it."""
    num_strange: int
    """Of another version: they cannot be read."""

    @property
    def heard_ns(self) -> int:
        """When the watcher last told anything; 0: never."""
        return max([0, *self.looked_ns.values(), *(one.told_ns for one in self.alerts)])

    def is_silent(self, now_ns: int) -> bool:
        """Whether the watcher has told nothing for a while."""
        return now_ns - self.heard_ns > SILENT_AFTER_NS

    def of(self, run_id: str) -> "ToldAlerts":
        """Those of one run; of all where it is empty."""
        if not run_id:
            return self
        return ToldAlerts(
            alerts=tuple(one for one in self.alerts if one.alert.run[0] == run_id),
            looked_ns={attempt: at_ns for attempt, at_ns in self.looked_ns.items() if attempt[0] == run_id},
            num_strange=0,
        )

    def in_phase(self, phase: Phase) -> tuple[ToldAlert, ...]:
        return tuple(one for one in self.alerts if one.alert.phase is phase)


def told_alerts(reads: Reads) -> ToldAlerts:
    """What stands and what stood, of all runs: two questions, at most every two seconds."""
    found, num_strange = [], 0
    for row in reads.ask_of_all(Alerts(limit=MOST_ALERTS), age_s=AGE_S).to_pylist():
        try:
            alert = _checked(read_alert(row["body"]), row)
        except NO_RECORD:
            num_strange += 1
            continue
        found.append(ToldAlert(alert=alert, told_ns=row["at_ns"]))
    looks = reads.ask_of_all(AlertLooks(), age_s=AGE_S).to_pylist()
    return ToldAlerts(
        alerts=tuple(sorted(found, key=_place)),
        looked_ns={(row["run_id"], row["attempt"]): row["at_ns"] for row in looks},
        num_strange=num_strange,
    )


def _checked(alert: Alert, row: Mapping[str, Any]) -> Alert:
    """``alert``, as it was told for the attempt of its row, and of the types that pages rely on: whoever may write to
    the collector may write anything here.

    Raises:
        ValueError: it is not.
    """
    account = alert.account
    numbers = (alert.began_ns, alert.changed_ns, account.first_step, account.last_step)
    texts = (account.summary, account.next_step, alert.held_back_by, *alert.labels.values(), *alert.hosts_seen)
    if alert.run != (row["run_id"], row["attempt"]) or alert.fingerprint != row["fingerprint"]:
        raise ValueError("of another run")
    if not all(isinstance(one, int) and 0 <= one < 2**63 for one in numbers):
        raise ValueError("a number out of range")
    if not all(isinstance(one, str) for one in texts) or not math.isfinite(account.seconds_lost):
        raise ValueError("of another type")
    return alert


def _place(told: ToldAlert) -> tuple[bool, int, bool, int, str]:
    alert = told.alert
    urgency = -URGENCY[alert.account.severity] if alert.is_alive else 0
    return not alert.is_alive, urgency, alert.phase is Phase.PENDING, -alert.changed_ns, alert.fingerprint
