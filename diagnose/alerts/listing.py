"""What stands, for people and for programs."""

import time
from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from diagnose.alerts.alert import URGENCY, Alert, Phase
from diagnose.alerts.hooks.words import one_line
from diagnose.alerts.ledger import Waiting
from diagnose.alerts.life import State
from diagnose.alerts.wording import lasting

_ORDER = {Phase.FIRING: 0, Phase.PENDING: 1, Phase.RESOLVED: 2}
_COLUMNS = ("state", "severity", "kind", "run", "where", "since (UTC)", "what")
_MOST_CHARACTERS = 500
"""Of a cell."""
_PLACE = ("host", "rank", "device", "stage")


def listed(state: State) -> list[Alert]:
    """Firing ones first, then by severity and age."""
    return sorted(
        state.alerts.values(),
        key=lambda one: (_ORDER[one.phase], -URGENCY[one.account.severity], one.began_ns, one.fingerprint),
    )


def num_firing(state: State) -> int:
    return sum(alert.phase is Phase.FIRING for alert in state.alerts.values())


def state_object(state: State, waiting: Mapping[str, Waiting]) -> dict[str, Any]:
    """``{"schema": 1, "alerts": [...], "waiting": {hook: notices}, "waiting_since_ns": {hook: the oldest's}}``."""
    return {
        "schema": 1,
        "alerts": [_alert_object(alert) for alert in listed(state)],
        "waiting": {hook: one.count for hook, one in waiting.items()},
        "waiting_since_ns": {hook: one.since_ns for hook, one in waiting.items()},
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
        "changed_ns": alert.changed_ns,
        "told": alert.told is not None,
        "held_back_by": alert.held_back_by or None,
        "summary": account.summary,
        "seconds_lost": account.seconds_lost,
        "next_step": account.next_step,
        "window": {"first_step": account.first_step, "last_step": account.last_step},
    }


def state_text(state: State, waiting: Mapping[str, Waiting], now_ns: int) -> Text:
    """The same as lines: one an alert, as long as it takes, which terminals fold and pipes keep.

    Names come from jobs: control characters in them are written out, not obeyed.
    """
    if not state.alerts:
        return Text("no alerts" + _waiting_text(waiting, now_ns))
    rows = [_COLUMNS, *(tuple(one_line(cell, _MOST_CHARACTERS) for cell in _cells(one)) for one in listed(state))]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    head, *lines = ("  ".join(map(_filled, row, widths)).rstrip() for row in rows)
    last = _waiting_text(waiting, now_ns).removeprefix("; ")
    return Text("\n").join([Text(head, style="bold"), *map(Text, lines), *([Text(last)] if last else [])])


def _cells(alert: Alert) -> tuple[str, ...]:
    where = " ".join(f"{name}={alert.labels[name]}" for name in _PLACE if name in alert.labels)
    held = " (held back by its cause)" if alert.held_back_by else ""
    since = time.strftime("%m-%d %H:%M:%S", time.gmtime(alert.began_ns // 1_000_000_000))
    run_id, attempt = alert.run
    severity = str(alert.account.severity)
    return str(alert.phase), severity, alert.kind, f"{run_id}/{attempt}", where, since, alert.account.summary + held


def _filled(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))


def _waiting_text(waiting: Mapping[str, Waiting], now_ns: int) -> str:
    return "".join(
        f"; {one.count} notices wait for hook {one_line(hook, 64)}{_since(one, now_ns)}"
        for hook, one in sorted(waiting.items())
    )


def _since(one: Waiting, now_ns: int) -> str:
    return f", the oldest for {lasting((now_ns - one.since_ns) / 1e9)}" if one.since_ns else ""
