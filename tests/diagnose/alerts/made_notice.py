"""A notice made by hand: rank 5 delays a collective."""

from dataclasses import replace
from typing import Any

from diagnose.alerts.notice import Notice, Status
from diagnose.findings import Severity

STARTS_NS = 1_790_000_000_250_000_000
ENDS_NS = STARTS_NS + 90_000_000_000
LABELS = {
    "alertname": "hung-collective",
    "severity": "critical",
    "run_id": "monday",
    "attempt": "0",
    "host": "gpu-003",
    "rank": "5",
    "stage": "grads-all-reduce",
}
_NOTICE = Notice(
    fingerprint="00c0ffee00c0ffee",
    number=1,
    status=Status.FIRING,
    repeated=False,
    labels=LABELS,
    severity=Severity.CRITICAL,
    summary="rank 5 (host gpu-003) has not entered all-reduce 812 of dp since 14:13:20",
    cost="12.7 s lost so far",
    next_step="look at the stack of rank 5: it stands in load_batch",
    link="http://127.0.0.1:8719/hang?run=monday&step=40",
    starts_ns=STARTS_NS,
    ends_ns=0,
    created_ns=STARTS_NS,
    details={"victims": "ranks 0 to 4, 6, 7", "steps": "40"},
)


def made_notice(**changes: Any) -> Notice:
    """The notice with ``changes``. ``labels`` are added to its own. A resolved notice without an end time gets one."""
    changes["labels"] = {**LABELS, **changes.get("labels", {})}
    if changes.get("status") is Status.RESOLVED:
        changes = {"ends_ns": ENDS_NS, **changes}
    return replace(_NOTICE, **changes)
