"""An alert in words: the notice that people read."""

import time
from urllib.parse import urlencode

from diagnose.alerts.alert import OF_HOSTS, STANDING, Account, Alert
from diagnose.alerts.notice import Notice, Status
from diagnose.alerts.rules import Policy

LEAST_COST_S = 0.05


def notice_of(alert: Alert, status: Status, *, number: int, repeated: bool, now_ns: int, policy: Policy) -> Notice:
    """What is told of ``alert`` now."""
    account = alert.account
    is_over = status is Status.RESOLVED
    ends_ns = (alert.absent_ns or now_ns) if is_over else 0
    return Notice(
        fingerprint=alert.fingerprint,
        number=number,
        status=status,
        repeated=repeated,
        labels=alert.labels,
        severity=account.severity,
        summary=over_words(alert, ends_ns) if is_over else f"{account.summary}; seen since {_clock(alert.began_ns)}",
        cost=cost_of(account),
        next_step="" if is_over else account.next_step,
        link=link_to(alert, policy.dashboard),
        starts_ns=alert.began_ns,
        ends_ns=ends_ns,
        told_ns=now_ns,
        details={**account.details, "steps": f"{account.first_step}-{account.last_step}"},
    )


def link_to(alert: Alert, dashboard: str) -> str:
    """The dashboard's view of the run over the steps meant, with the rank or host where it is one; empty without an
    address."""
    if not dashboard:
        return ""
    account = alert.account
    rank = alert.labels.get("rank", "")
    run_id, attempt = alert.run
    view, host = view_of(alert)
    query = {
        "view": view,
        "run": run_id,
        "attempt": str(attempt),
        "steps": f"{account.first_step}-{account.last_step}",
        "rank": rank if rank.isdigit() else "",
        "host": host,
    }
    return f"{dashboard.rstrip('/')}/?{urlencode({name: value for name, value in query.items() if value})}"


def view_of(alert: Alert) -> tuple[str, str]:
    """The dashboard's view in which it shows, and the host that it shows there, where it shows one."""
    if alert.kind in STANDING:
        return "hang", ""
    host = alert.labels.get("host", "").partition(",")[0] if alert.kind in OF_HOSTS else ""
    return ("fleet", host) if host else ("overview", "")


def cost_of(account: Account) -> str:
    """``12.7 s lost so far``; empty where it is next to nothing."""
    return f"{account.seconds_lost:.1f} s lost so far" if account.seconds_lost >= LEAST_COST_S else ""


def over_words(alert: Alert, ends_ns: int) -> str:
    """``over after 12 min: rank 5 ...``."""
    return f"over after {lasting((ends_ns - alert.began_ns) / 1e9)}: {alert.account.summary}"


def _clock(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ns // 1_000_000_000))


def lasting(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
