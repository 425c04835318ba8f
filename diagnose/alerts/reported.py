"""The alerts that the watcher has stored, from the rows of two queries.

The rows are untrusted: every client that may write to the collector can store anything here.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from diagnose.alerts.alert import NO_RECORD, OUTLASTING, URGENCY, Alert, Phase, read_alert
from diagnose.model.run_state import Heard, RunState
from telemetry.run_names import Attempt

Row = Mapping[str, Any]
SILENT_AFTER_NS = 120_000_000_000
"""A working watcher reports at least four times in this time."""
NO_AGENT_NS = 300_000_000_000
"""A run without an agent has ended if it sent no data for this time: one of its steps can take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAlert:
    """An alert as the watcher last reported it."""

    alert: Alert
    reported_ns: int
    """Clock of the watcher."""
    is_live: bool = False
    """Whether its run is live or stalled."""
    ended_with_run: bool = False
    """Whether it is over because its run has ended. The watcher has not resolved it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAlerts:
    """All stored alerts."""

    alerts: tuple[ReportedAlert, ...]
    """Open alerts first: those of live runs, the worst of them first. Then the newest of the others."""
    checked_ns: dict[Attempt, int]
    """Run and attempt -> time of the watcher's last check."""
    num_unreadable: int
    """Alerts that cannot be read, because another version wrote them."""

    @property
    def heard_ns(self) -> int:
        """Time of the watcher's last report, or 0 if there is none."""
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
    """The alerts in rows of ``Alerts``, with the times of checks in rows of ``AlertLooks``.

    If several watchers reported an alert, the newest report is used.
    """
    found, num_unreadable = dict[tuple[str, int], ReportedAlert](), 0
    for row in sorted(alerts, key=lambda row: row["at_ns"]):
        try:
            alert = _checked(read_alert(row["body"]), row)
        except NO_RECORD:
            num_unreadable += 1
            continue
        raised_ns = 0 if alert.phase is Phase.PENDING else alert.raised_ns or alert.began_ns
        found[alert.fingerprint, raised_ns] = ReportedAlert(alert=alert, reported_ns=row["at_ns"])
    return ReportedAlerts(
        alerts=tuple(sorted(found.values(), key=_order)),
        checked_ns={(row["run_id"], row["attempt"]): row["at_ns"] for row in checks},
        num_unreadable=num_unreadable,
    )


def with_run_states(reported: ReportedAlerts, heard: Mapping[Attempt, Heard], now_ns: int) -> ReportedAlerts:
    """The alerts with the states of their runs. An alert of a run that has ended is not open.

    ``heard``: the newest attempt of each run that has open alerts. Open alerts of older attempts of these runs are
    over. Alerts of other runs do not change.
    """
    runs = {run_id for run_id, _ in heard}
    found = (_with_state(entry, heard, now_ns) if entry.alert.run[0] in runs else entry for entry in reported.alerts)
    return replace(reported, alerts=tuple(sorted(found, key=_order)))


def _with_state(entry: ReportedAlert, heard: Mapping[Attempt, Heard], now_ns: int) -> ReportedAlert:
    alert, state = entry.alert, heard.get(entry.alert.run)
    if not alert.is_alive or not has_ended(alert.kind, state, now_ns):
        return replace(entry, is_live=state is not None and state.state in (RunState.LIVE, RunState.STALLED))
    ended_ns = max(alert.began_ns, state.heard_ns if state else entry.reported_ns)
    over = replace(alert, phase=Phase.RESOLVED, changed_ns=ended_ns)
    return replace(entry, alert=over, ended_with_run=True)


def has_ended(kind: str, heard: Heard | None, now_ns: int) -> bool:
    """Whether a finding is over because its run has ended. ``heard`` is None if a newer attempt runs."""
    if heard is None or (heard.has_ended and kind not in OUTLASTING):
        return True
    return heard.state is RunState.ENDED and (heard.has_ended or now_ns - heard.heard_ns > NO_AGENT_NS)


def _checked(alert: Alert, row: Row) -> Alert:
    """``alert`` if it belongs to the attempt of its row and has the types that readers rely on.

    Raises:
        ValueError: the alert is invalid.
    """
    account = alert.account
    numbers = (alert.began_ns, alert.changed_ns, alert.raised_ns, account.first_step, account.last_step)
    texts = (account.summary, account.next_step, alert.suppressed_by, *alert.labels.values(), *alert.hosts_seen)
    if alert.run != (row["run_id"], row["attempt"]) or alert.fingerprint != row["fingerprint"]:
        raise ValueError("of another run")
    if not all(isinstance(number, int) and 0 <= number < 2**63 for number in numbers):
        raise ValueError("a number out of range")
    if not all(isinstance(text, str) for text in texts) or not math.isfinite(account.seconds_lost):
        raise ValueError("of another type")
    return alert


def _order(entry: ReportedAlert) -> tuple[object, ...]:
    alert = entry.alert
    if not alert.is_alive:
        return True, -alert.changed_ns, alert.fingerprint
    urgency = URGENCY[alert.account.severity]
    return False, not entry.is_live, -urgency, alert.phase is Phase.PENDING, -alert.changed_ns, alert.fingerprint
