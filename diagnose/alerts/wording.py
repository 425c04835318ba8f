"""The text of an alert: the notice that people read, and a test alert for trying a hook."""

import time
from urllib.parse import urlencode

from diagnose.alerts.alert import OF_HOSTS, STANDING, Account, Alert, Phase, account_of, fingerprint_of, labels_of
from diagnose.alerts.notice import Notice, Status
from diagnose.alerts.rules import Policy
from diagnose.findings import Finding, Kind, Role, Severity, StepWindow, Suspect

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
    return f"resolved after {lasting((ends_ns - alert.began_ns) / 1e9)}: {alert.account.summary}"


def _clock(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ns // 1_000_000_000))


def lasting(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


LASTED_NS = 60_000_000_000


def sample_notices(now_ns: int, dashboard: str) -> tuple[Notice, Notice]:
    """An alert that says of itself that it is a sample, and its end."""
    finding = Finding(
        detector="sample",
        kind=Kind.COMPUTE_STRAGGLER,
        severity=Severity.INFO,
        suspects=(Suspect(rank=5, host="sample-host", role=Role.INITIATING),),
        stage="backward-compute",
        window=StepWindow(first_step=100, last_step=140),
        seconds_lost=12.7,
        confidence=1.0,
        summary="test alert of `rankscope alerts test`, not a real problem: rank 5 (host sample-host) computes slowly",
        next_step="none: this is a test alert",
    )
    labels = labels_of(finding, f"sample-{now_ns // 1_000_000_000}", 0)
    firing = Alert(
        fingerprint=fingerprint_of(labels),
        labels={**labels, "severity": str(finding.severity)},
        phase=Phase.FIRING,
        account=account_of(finding),
        ranks=(5,),
        began_ns=now_ns - LASTED_NS,
        changed_ns=now_ns,
    )
    policy = Policy(rules={}, dashboard=dashboard)
    return (
        notice_of(firing, Status.FIRING, number=1, repeated=False, now_ns=now_ns, policy=policy),
        notice_of(firing, Status.RESOLVED, number=2, repeated=False, now_ns=now_ns, policy=policy),
    )
