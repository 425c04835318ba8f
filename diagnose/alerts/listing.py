"""What stands, for people and for programs."""

import time
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from diagnose.alerts.alert import URGENCY, Alert, Phase
from diagnose.alerts.ledger import Waiting
from diagnose.alerts.life import State
from diagnose.alerts.wording import lasting

_ORDER = {Phase.FIRING: 0, Phase.PENDING: 1, Phase.RESOLVED: 2}
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


def state_text(state: State, waiting: Mapping[str, Waiting], now_ns: int) -> Table | Text:
    """The same as something rich prints."""
    if not state.alerts:
        return Text("no alerts" + _waiting_text(waiting, now_ns))
    caption = _waiting_text(waiting, now_ns).removeprefix("; ")
    table = Table(box=None, header_style="bold", caption=caption or None, caption_justify="left")
    for name in ("state", "severity", "kind", "run", "where", "since (UTC)", "what"):
        table.add_column(name, no_wrap=name != "what")
    for alert in listed(state):
        where = " ".join(f"{name}={alert.labels[name]}" for name in _PLACE if name in alert.labels)
        held = " (held back by its cause)" if alert.held_back_by else ""
        since = time.strftime("%m-%d %H:%M:%S", time.gmtime(alert.began_ns // 1_000_000_000))
        run_id, attempt = alert.run
        row = (alert.phase, alert.account.severity, alert.kind, f"{run_id}/{attempt}", where, since)
        table.add_row(*(Text(str(cell)) for cell in row), Text(alert.account.summary + held))
    return table


def _waiting_text(waiting: Mapping[str, Waiting], now_ns: int) -> str:
    return "".join(
        f"; {one.count} notices wait for hook {hook}{_since(one, now_ns)}" for hook, one in sorted(waiting.items())
    )


def _since(one: Waiting, now_ns: int) -> str:
    return f", the oldest for {lasting((now_ns - one.since_ns) / 1e9)}" if one.since_ns else ""
