"""job-restarted: what the driver of the job decided in this attempt: a restart, a blocked node, the end. Also a
checkpoint that could not be written.

    driver   start: attempt 2 on node-0, node-4 after: rank 4 was killed by SIGKILL on node-2     warning
             block: slow in two rounds of checks: gemm cpu ...      (host node-2)                 warning
             give-up: 6 attempts in a row made no progress                                        critical
             start: attempt 3 on node-0 after: an operator resumed the job                        info

The driver (``trainer/drive``) stores its decisions as events of hosts. This detector reports them as a finding, so that
alert hooks send them, too. It does not decide anything, and no rank is a suspect.
"""

from diagnose.findings import Finding, Kind, Severity
from diagnose.model.fleet import HostEvent
from diagnose.model.run_state import local_time
from diagnose.model.view import RunView
from telemetry.host_metrics import BY_OPERATOR, Happening

NAME = "job-restarted"
AFTER = " after: "
"""In the text of a decision ``start``, the reason of the restart follows these characters."""
ROUTINE = frozenset({"join", "return", "take-over", "check", "check-pairs", "admit"})
"""Decisions that need no evidence: they do not stop the job or leave out a node."""
_WORDS = {
    "start": "the driver started the job",
    "give-up": "the driver gave up",
    "block": "blocked",
    "suspect": "suspect",
    "advise": "advice",
}
"""Name of a decision -> what happened. Other names are words already: ``rank-failed``, ``slow-link``."""
_NEXT_STEP = "check what the driver did: rankscope drive status, and OUT/drive/decisions.jsonl"


def detect_job_restarted(view: RunView) -> list[Finding]:
    """At most one finding, for all decisions of the attempt that people must know."""
    decisions = [(event, *event.text.partition(": ")[::2]) for event in view.fleet.named(Happening.DRIVER)]
    restarts = [reason.partition(AFTER)[2] for _, name, reason in decisions if name == "start" and AFTER in reason]
    blocked = [(event, reason) for event, name, reason in decisions if name == "block"]
    ended = [reason for _, name, reason in decisions if name == "give-up"]
    unsaved = [reason for _, name, reason in decisions if name == "checkpoint-failed"]
    parts = [
        *(f"the driver restarted the job: {reason}" for reason in restarts[-1:]),
        *(f"{event.host} is blocked: {reason}" for event, reason in blocked),
        *(f"the driver gave up: {reason}" for reason in ended[-1:]),
        *unsaved[-1:],
    ]
    if not parts:
        return []
    as_asked = bool(restarts) and restarts[-1].startswith(BY_OPERATOR) and len(parts) == 1
    return [
        Finding(
            detector=NAME,
            kind=Kind.JOB_RESTARTED,
            severity=Severity.CRITICAL if ended else Severity.INFO if as_asked else Severity.WARNING,
            suspects=(),
            stage="",
            window=view.window,
            seconds_lost=0.0,
            confidence=1.0,
            summary="; ".join(parts),
            next_step=_NEXT_STEP,
            evidence={"decisions": [_in_words(*each) for each in decisions if each[1] not in ROUTINE]},
        )
    ]


def _in_words(event: HostEvent, name: str, reason: str) -> str:
    """``2026-11-27 12:03:44 node-2 blocked: slow in two rounds of checks: ...``."""
    node = "" if event.host == event.device else f"{event.host} "
    return f"{local_time(event.at_ns)} {node}{_WORDS.get(name, name.replace('-', ' '))}: {reason}"
