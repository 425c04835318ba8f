"""A sample alert, for trying a hook."""

from diagnose.alerts.alert import Alert, Phase, account_of, fingerprint_of, labels_of
from diagnose.alerts.notice import Notice, Status
from diagnose.alerts.rules import Policy
from diagnose.alerts.wording import notice_of
from diagnose.findings import Finding, Kind, Role, Severity, StepWindow, Suspect

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
        summary="sample of `rankscope alerts test`, nothing is wrong: rank 5 (host sample-host) computes slowly",
        next_step="none: this is a sample",
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
