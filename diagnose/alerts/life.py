"""The life of alerts: a pure function from the state and a check to the next state and its notices.

    state, check --matching--> each alert: found or absent --> its next phase --inhibition--> notices with their hooks

It uses no clock, store or thread: time is an argument. After a failed check, alerts do not change. ``sending.py`` makes
the notices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from diagnose.alerts.alert import MOST_REMEMBERED, URGENCY, Alert, Phase, account_of
from diagnose.alerts.check import Check
from diagnose.alerts.log import LogRow, log_rows
from diagnose.alerts.notice import NS_PER_S
from diagnose.alerts.onset import earlier
from diagnose.alerts.quiet import Quiets
from diagnose.alerts.rules import Causes, Match, Policy, Rule, matches
from diagnose.alerts.sending import Delivery, Sender
from diagnose.alerts.sightings import RunFindings
from telemetry.records import MAX_AHEAD_NS

KEEP_STEPS = 10
"""An alert is resolved only after it was absent for this many steps, or when its run has ended."""
REMEMBER_NS = 86_400_000_000_000
"""How long a resolved alert is kept."""
UNKNOWN_S = 86_400.0
"""How long an alert is kept if its run is not in the store: the watcher may use a wrong store."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state between two checks. A value: it can be stored and loaded."""

    alerts: Mapping[str, Alert] = field(default_factory=dict)
    """Fingerprint -> alert."""
    next_number: int = 1
    """Number of the next notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a check."""

    state: State
    deliveries: tuple[Delivery, ...]
    log: tuple[LogRow, ...] = ()
    """Rows for the findings log."""


def advance(state: State, check: Check, policy: Policy) -> Outcome:
    """The state after ``check``, and the notices to send."""
    alerts = _moved(state.alerts, check, policy)
    causes = Causes(alerts.values(), policy, check.now_ns)
    sender = Sender(policy, check.now_ns, state.next_number)
    for fingerprint, alert in alerts.items():
        moved = not _is_frozen(alert, check)
        decided = _raised(_suppressed(alert, causes) if moved else alert, check.logged_ns.get(fingerprint))
        quieted = _quieted(decided, check.quiets)
        alerts[fingerprint] = sender.sent(quieted, moved=moved, is_new_quiet=quieted.quiet != decided.quiet)
    return Outcome(
        state=State(alerts=alerts, next_number=sender.next_number),
        deliveries=tuple(sender.deliveries),
        log=log_rows(state.alerts, alerts, check.now_ns),
    )


def _moved(alerts: Mapping[str, Alert], check: Check, policy: Policy) -> dict[str, Alert]:
    """All alerts after the check. New alerts come last."""
    found = {} if check.blind else matches(check, alerts, policy)
    runs = {(run.run_id, run.attempt): run for run in check.runs}
    moved: dict[str, Alert] = {}
    for fingerprint, before in alerts.items():
        match = found.pop(fingerprint, None)
        alert = _without_future_times(before, check.now_ns)
        if _is_frozen(alert, check):
            moved[fingerprint] = alert
        elif match is not None and (match.sighting.has_known_time or not alert.sharp):
            moved[fingerprint] = _found(alert, match, check.now_ns, policy)
        elif (after := _absent(alert, check, policy, runs.get(alert.run))) is not None:
            moved[fingerprint] = after
    for fingerprint, match in found.items():
        moved[fingerprint] = _fired_if_due(_begun(fingerprint, match, check.now_ns), check.now_ns, policy)
    return moved


def _is_frozen(alert: Alert, check: Check) -> bool:
    return check.blind or alert.run in check.failed


def _without_future_times(alert: Alert, now_ns: int) -> Alert:
    """The alert without times in the future: a wall clock that was set back must not delay it.

    A finding that was raised more than a day in the future is not in the log, because the collector refused it. It is
    raised again.
    """
    stamps_ns = (alert.began_ns, alert.changed_ns, alert.absent_ns, *alert.returns_ns, *alert.sent_ns.values())
    if max(stamps_ns) <= now_ns:
        return alert
    return replace(
        alert,
        began_ns=min(alert.began_ns, now_ns),
        changed_ns=min(alert.changed_ns, now_ns),
        absent_ns=min(alert.absent_ns, now_ns),
        raised_ns=alert.raised_ns if alert.raised_ns <= now_ns + MAX_AHEAD_NS else 0,
        returns_ns=tuple(min(at_ns, now_ns) for at_ns in alert.returns_ns),
        sent_ns={hook: min(at_ns, now_ns) for hook, at_ns in alert.sent_ns.items()},
    )


def _begun(fingerprint: str, match: Match, now_ns: int) -> Alert:
    finding = match.sighting.finding
    return Alert(
        fingerprint=fingerprint,
        labels=match.labels,
        phase=Phase.PENDING,
        account=account_of(finding),
        ranks=tuple(finding.ranks[:MOST_REMEMBERED]),
        hosts_seen=tuple(finding.hosts[:MOST_REMEMBERED]),
        began_ns=now_ns,
        onset=match.sighting.onset,
        changed_ns=now_ns,
        sharp=match.sighting.has_known_time,
    )


def _found(alert: Alert, match: Match, now_ns: int, policy: Policy) -> Alert:
    """The alert after a check that found it."""
    if alert.phase is Phase.RESOLVED:
        fresh = _begun(alert.fingerprint, match, now_ns)
    else:
        fresh = replace(
            alert,
            account=account_of(match.sighting.finding),
            ranks=_joined(alert.ranks, match.sighting.finding.ranks),
            hosts_seen=_joined(alert.hosts_seen, match.sighting.finding.hosts),
            onset=earlier(alert.onset, match.sighting.onset),
            sharp=alert.sharp or match.sighting.has_known_time,
            absent_ns=0,
        )
    came_back = (now_ns,) if alert.absent_ns else ()
    recent = _recent(alert.returns_ns + came_back, now_ns, policy)
    return _fired_if_due(replace(fresh, returns_ns=recent), now_ns, policy)


def _joined(known: tuple[T, ...], seen: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*known, *seen)))[:MOST_REMEMBERED]


def _recent(returns_ns: tuple[int, ...], now_ns: int, policy: Policy) -> tuple[int, ...]:
    """Returns within the time of flap damping, at most as many as damping needs."""
    since_ns = now_ns - policy.flapping.within_s * NS_PER_S
    return tuple(at_ns for at_ns in returns_ns if at_ns > since_ns)[-policy.flapping.times :]


def _fired_if_due(alert: Alert, now_ns: int, policy: Policy) -> Alert:
    """The alert. A pending alert fires if it was found for the time ``for`` of its rule."""
    for_s = policy.rule(alert.kind).for_s
    if alert.phase is not Phase.PENDING or now_ns - alert.began_ns < for_s * NS_PER_S:
        return alert
    labels = {**alert.labels, "severity": str(alert.account.severity)}
    return replace(alert, phase=Phase.FIRING, changed_ns=now_ns, labels=labels)


def _absent(alert: Alert, check: Check, policy: Policy, run: RunFindings | None) -> Alert | None:
    """The alert after a check that did not find it, or None if it is deleted.

    ``run`` is None if the run is over or is not in the store.
    """
    now_ns = check.now_ns
    if alert.phase is Phase.RESOLVED:
        return alert if now_ns - alert.changed_ns < REMEMBER_NS else None
    alert = replace(alert, absent_ns=alert.absent_ns or now_ns)
    rule = policy.rule(alert.kind)
    absent_for_ns = now_ns - alert.absent_ns
    has_ended = check.knows(alert.run) and (run is None or run.has_ended)
    if alert.phase is Phase.PENDING:
        if absent_for_ns < rule.for_s * NS_PER_S and not has_ended:
            return alert
        return _resolved(alert, now_ns) if alert.returns_ns else None
    if has_ended:
        return _resolved(alert, now_ns)
    resolve_after_s = _resolve_after_s(alert, rule, check, policy, run)
    return alert if absent_for_ns < resolve_after_s * NS_PER_S else _resolved(alert, now_ns)


def _resolve_after_s(alert: Alert, rule: Rule, check: Check, policy: Policy, run: RunFindings | None) -> float:
    """Seconds that the alert must be absent before it is resolved, if its run has not ended."""
    if run is None:
        return UNKNOWN_S
    usual_s = max(rule.keep_firing_for_s, KEEP_STEPS * run.step_s)
    # An alert that was not sent needs no flap damping.
    flaps = (
        alert.sent_severity is not None
        and len(_recent(alert.returns_ns, check.now_ns, policy)) >= policy.flapping.times
    )
    return max(usual_s, policy.flapping.quiet_s) if flaps else usual_s


def _resolved(alert: Alert, now_ns: int) -> Alert:
    return replace(alert, phase=Phase.RESOLVED, changed_ns=now_ns, suppressed_by="")


def _raised(alert: Alert, logged_ns: int | None) -> Alert:
    """The alert with its identity in the log (``raised_ns``), if it fires. An alert of an older version has none yet.

    ``logged_ns``: its time in the log, if another watcher has raised it, or an earlier watcher whose file was lost. The
    earliest time is used, so all watchers agree.
    """
    if alert.phase is not Phase.FIRING:
        return alert
    severity = alert.account.severity
    worst = severity if not alert.raised_ns else max(alert.worst, severity, key=URGENCY.__getitem__)
    raised_ns = min(filter(None, (alert.raised_ns, logged_ns)), default=alert.changed_ns)
    if (raised_ns, worst) == (alert.raised_ns, alert.worst):
        return alert
    return replace(alert, raised_ns=raised_ns, worst=worst)


def _quieted(alert: Alert, quiets: Quiets | None) -> Alert:
    """The alert with what people decided about it."""
    quiet = alert.quiet if quiets is None else quiets.of(alert.fingerprint, alert.raised_ns)
    return alert if quiet == alert.quiet else replace(alert, quiet=quiet)


def _suppressed(alert: Alert, causes: Causes) -> Alert:
    """The alert with the fingerprint of the cause that explains it now. Only a firing alert that was not sent can be
    suppressed."""
    cause = causes.of(alert) if alert.phase is Phase.FIRING and alert.sent_severity is None else None
    suppressed_by = cause.fingerprint if cause else ""
    return alert if alert.suppressed_by == suppressed_by else replace(alert, suppressed_by=suppressed_by)
