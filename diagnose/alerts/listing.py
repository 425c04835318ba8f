"""The list of alerts, as text and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from diagnose.alerts.alert import URGENCY, Alert, Phase
from diagnose.alerts.alert_store import Waiting
from diagnose.alerts.life import State
from diagnose.alerts.notice import cost_of, duration_text, resolved_text
from diagnose.model.run_state import local_time
from telemetry.printable import one_line

_ORDER = {Phase.FIRING: 0, Phase.PENDING: 1, Phase.RESOLVED: 2}
_COLUMNS = ("state", "severity", "kind", "run", "where", "since", "fingerprint", "what")
_MOST_CHARACTERS = 500
"""Largest length of a cell."""
_PLACE = ("host", "rank", "device", "stage")


def _listed(state: State) -> list[Alert]:
    """All alerts: first firing, then pending, then resolved ones. Each group is sorted by severity and age."""
    return sorted(
        state.alerts.values(),
        key=lambda alert: (_ORDER[alert.phase], -URGENCY[alert.account.severity], alert.since_ns, alert.fingerprint),
    )


def num_firing(state: State) -> int:
    return sum(alert.phase is Phase.FIRING for alert in state.alerts.values())


def state_object(state: State, waiting: Mapping[str, Waiting]) -> dict[str, Any]:
    """``{"schema": 1, "alerts": [...], "waiting": {hook: number}, "waiting_since_ns": {hook: time of the oldest}}``."""
    return {
        "schema": 1,
        "alerts": [_alert_object(alert) for alert in _listed(state)],
        "waiting": {hook: notices.count for hook, notices in waiting.items()},
        "waiting_since_ns": {hook: notices.since_ns for hook, notices in waiting.items()},
    }


def _alert_object(alert: Alert) -> dict[str, Any]:
    account = alert.account
    return {
        "fingerprint": alert.fingerprint,
        "state": str(alert.phase),
        "kind": alert.kind,
        "severity": str(account.severity),
        "labels": dict(alert.labels),
        "began_ns": alert.began_ns,
        "onset": alert.onset and alert.onset.as_object(),
        "acknowledged": alert.quiet is not None and alert.quiet.acknowledged,
        "silenced_until_ns": alert.quiet.silenced_until_ns if alert.quiet else 0,
        "changed_ns": alert.changed_ns,
        "told": alert.sent_severity is not None,
        "held_back_by": alert.suppressed_by or None,
        "summary": account.summary,
        "seconds_lost": account.seconds_lost,
        "cost_basis": str(account.basis),
        "next_step": account.next_step,
        "window": {"first_step": account.first_step, "last_step": account.last_step},
    }


def state_text(state: State, waiting: Mapping[str, Waiting], now_ns: int) -> Text:
    """The list as text: one line for each alert, of any length. Control characters in names are escaped."""
    if not state.alerts:
        return Text("no alerts" + _waiting_text(waiting, now_ns))
    alerts = _listed(state)
    cells = (_cells(alert, state, now_ns) for alert in alerts)
    rows = [_COLUMNS, *(tuple(one_line(cell, _MOST_CHARACTERS) for cell in row) for row in cells)]
    head, *lines = aligned(rows)
    counts = Counter(alert.phase for alert in alerts)
    counted = ", ".join(f"{counts[phase]} {phase}" for phase in _ORDER if counts[phase])
    last = counted + _waiting_text(waiting, now_ns)
    return Text("\n").join([Text(head, style="bold"), *map(Text, lines), Text(last)])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Each row as a line, with aligned columns."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cells(alert: Alert, state: State, now_ns: int) -> tuple[str, ...]:
    where = " ".join(f"{name}={alert.labels[name]}" for name in _PLACE if name in alert.labels)
    run_id, attempt = alert.run
    severity, what = str(alert.account.severity), " | ".join(_what(alert, state, now_ns))
    since, run = local_time(alert.since_ns), f"{run_id}/{attempt}"
    return str(alert.phase), severity, alert.kind, run, where, since, alert.fingerprint, what


def _what(alert: Alert, state: State, now_ns: int) -> Iterator[str]:
    """Summary, cost, next step, and why it is not sent."""
    if not alert.is_alive:
        yield resolved_text(alert, alert.absent_ns or alert.changed_ns)
        return
    yield alert.account.summary
    yield from filter(None, (cost_of(alert.account, is_over=False), alert.account.next_step))
    if alert.onset is not None:
        yield f"since {alert.onset.in_words}"
    if alert.quiet is not None and alert.quiet.acknowledged:
        yield f"acknowledged by {alert.quiet.who}"
    elif alert.quiet is not None and alert.quiet.silenced_until_ns > now_ns:
        yield f"silenced until {local_time(alert.quiet.silenced_until_ns)} by {alert.quiet.who}"
    if alert.suppressed_by:
        cause = state.alerts.get(alert.suppressed_by)
        yield f"not sent: suppressed by {cause.kind if cause else 'its cause'}"


def _waiting_text(waiting: Mapping[str, Waiting], now_ns: int) -> str:
    text = ""
    for hook, notices in sorted(waiting.items()):
        number = "1 notification waits" if notices.count == 1 else f"{notices.count} notifications wait"
        age = f", the oldest for {duration_text((now_ns - notices.since_ns) / 1e9)}" if notices.since_ns else ""
        text += f"; {number} for hook {one_line(hook, 64)}{age}"
    return text
