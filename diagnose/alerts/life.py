"""The life of alerts: a pure function from the state and a check to the next state and its notices.

    state, check --matching--> each alert: found or absent --> its next phase --inhibition--> notices with their hooks

It uses no clock, store or thread: time is an argument. After a failed check, alerts do not change. A hook with
``resend_s`` gets a firing alert again after that time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from diagnose.alerts.alert import MOST_REMEMBERED, URGENCY, Alert, Phase, account_of
from diagnose.alerts.check import Check
from diagnose.alerts.notice import Notice, Status, notice_of
from diagnose.alerts.rules import Causes, Match, Policy, Rule, matches

KEEP_STEPS = 10
"""An alert is resolved only after it was absent for this many steps."""
REMEMBER_NS = 86_400_000_000_000
"""How long a resolved alert is kept."""
UNKNOWN_S = 86_400.0
"""How long an alert of an unknown run is kept: the watcher may use a wrong store."""
SECOND_NS = 1_000_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state between two checks. A value: it can be stored and loaded."""

    alerts: Mapping[str, Alert] = field(default_factory=dict)
    """Fingerprint -> alert."""
    next_number: int = 1
    """Number of the next notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notice and the hooks that get it."""

    notice: Notice
    hooks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a check."""

    state: State
    deliveries: tuple[Delivery, ...]


def advance(state: State, check: Check, policy: Policy) -> Outcome:
    """The state after ``check``, and the notices to send."""
    alerts = _moved(state.alerts, check, policy)
    causes = Causes(alerts.values(), policy, check.now_ns)
    sender = _Sender(policy, check.now_ns, state.next_number)
    for fingerprint, alert in alerts.items():
        moved = not _is_frozen(alert, check)
        alerts[fingerprint] = sender.sent(_suppressed(alert, causes) if moved else alert, moved=moved)
    return Outcome(state=State(alerts=alerts, next_number=sender.next_number), deliveries=tuple(sender.deliveries))


def _moved(alerts: Mapping[str, Alert], check: Check, policy: Policy) -> dict[str, Alert]:
    """All alerts after the check. New ones come last."""
    found = {} if check.blind else matches(check, alerts, policy)
    steps_s = {(run.run_id, run.attempt): run.step_s for run in check.runs}
    moved: dict[str, Alert] = {}
    for fingerprint, before in alerts.items():
        match = found.pop(fingerprint, None)
        alert = _without_future_times(before, check.now_ns)
        if _is_frozen(alert, check):
            moved[fingerprint] = alert
        elif match is not None and (match.sighting.has_known_time or not alert.sharp):
            moved[fingerprint] = _found(alert, match, check.now_ns, policy)
        elif (after := _absent(alert, check, policy, steps_s.get(alert.run))) is not None:
            moved[fingerprint] = after
    for fingerprint, match in found.items():
        moved[fingerprint] = _fired_if_due(_begun(fingerprint, match, check.now_ns), check.now_ns, policy)
    return moved


def _is_frozen(alert: Alert, check: Check) -> bool:
    return check.blind or alert.run in check.failed


def _without_future_times(alert: Alert, now_ns: int) -> Alert:
    """The alert without times in the future: a wall clock that was set back must not delay it."""
    stamps_ns = (alert.began_ns, alert.changed_ns, alert.absent_ns, *alert.returns_ns, *alert.sent_ns.values())
    if max(stamps_ns) <= now_ns:
        return alert
    return replace(
        alert,
        began_ns=min(alert.began_ns, now_ns),
        changed_ns=min(alert.changed_ns, now_ns),
        absent_ns=min(alert.absent_ns, now_ns),
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
    since_ns = now_ns - policy.flapping.within_s * SECOND_NS
    return tuple(at_ns for at_ns in returns_ns if at_ns > since_ns)[-policy.flapping.times :]


def _fired_if_due(alert: Alert, now_ns: int, policy: Policy) -> Alert:
    """The alert, which fires now if it was found for long enough."""
    for_s = policy.rule(alert.kind).for_s
    if alert.phase is not Phase.PENDING or now_ns - alert.began_ns < for_s * SECOND_NS:
        return alert
    labels = {**alert.labels, "severity": str(alert.account.severity)}
    return replace(alert, phase=Phase.FIRING, changed_ns=now_ns, labels=labels)


def _absent(alert: Alert, check: Check, policy: Policy, step_s: float | None) -> Alert | None:
    """The alert after a check that did not find it. None if it is deleted. ``step_s`` of None: the run is over."""
    now_ns = check.now_ns
    if alert.phase is Phase.RESOLVED:
        return alert if now_ns - alert.changed_ns < REMEMBER_NS else None
    alert = replace(alert, absent_ns=alert.absent_ns or now_ns)
    rule = policy.rule(alert.kind)
    absent_for_ns = now_ns - alert.absent_ns
    if alert.phase is Phase.PENDING:
        if absent_for_ns < rule.for_s * SECOND_NS:
            return alert
        return _resolved(alert, now_ns) if alert.returns_ns else None
    resolve_after_s = _resolve_after_s(alert, rule, check, policy, step_s)
    return alert if absent_for_ns < resolve_after_s * SECOND_NS else _resolved(alert, now_ns)


def _resolve_after_s(alert: Alert, rule: Rule, check: Check, policy: Policy, step_s: float | None) -> float:
    """Seconds that the alert must be absent before it is resolved."""
    if not check.knows(alert.run):
        return UNKNOWN_S
    if step_s is None:
        return rule.keep_firing_for_s
    usual_s = max(rule.keep_firing_for_s, KEEP_STEPS * step_s)
    # An alert that was not sent needs no flap damping.
    flaps = (
        alert.sent_severity is not None
        and len(_recent(alert.returns_ns, check.now_ns, policy)) >= policy.flapping.times
    )
    return max(usual_s, policy.flapping.quiet_s) if flaps else usual_s


def _resolved(alert: Alert, now_ns: int) -> Alert:
    return replace(alert, phase=Phase.RESOLVED, changed_ns=now_ns, suppressed_by="")


def _suppressed(alert: Alert, causes: Causes) -> Alert:
    """The alert with the cause that explains it now. Only a firing alert that was not sent can be suppressed."""
    cause = causes.of(alert) if alert.phase is Phase.FIRING and alert.sent_severity is None else None
    suppressed_by = cause.fingerprint if cause else ""
    return alert if alert.suppressed_by == suppressed_by else replace(alert, suppressed_by=suppressed_by)


class _Sender:
    """Creates the notices of alerts, and numbers them."""

    def __init__(self, policy: Policy, now_ns: int, next_number: int) -> None:
        self.deliveries: list[Delivery] = []
        self.next_number = next_number
        self._policy = policy
        self._now_ns = now_ns

    def sent(self, alert: Alert, *, moved: bool) -> Alert:
        """The alert after its notices, if any, were created."""
        if alert.phase is Phase.RESOLVED and alert.sent_severity is not None:
            self._add(alert, Status.RESOLVED, tuple(hook for hook in alert.sent_ns if hook in self._policy.resend_s))
            return replace(alert, sent_severity=None, sent_ns={}, num_hosts_sent=0)
        if alert.phase is not Phase.FIRING:
            return alert
        hooks = self._policy.rule(alert.kind).hooks
        is_found = moved and not alert.absent_ns
        if alert.sent_severity is None:
            return self._fired(alert, hooks) if is_found and not alert.suppressed_by else alert
        if URGENCY[alert.account.severity] > URGENCY[alert.sent_severity] or alert.has_spread:
            return self._fired(alert, hooks)
        # The rules file may have changed since the alert was sent.
        new_hooks = tuple(hook for hook in hooks if hook not in alert.sent_ns)
        return self._fired(alert, new_hooks) if is_found and new_hooks else self._repeated(alert, hooks)

    def _fired(self, alert: Alert, hooks: tuple[str, ...]) -> Alert:
        if not hooks:
            return alert
        self._add(alert, Status.FIRING, hooks)
        worst = max(alert.account.severity, alert.sent_severity or alert.account.severity, key=URGENCY.__getitem__)
        return replace(
            alert,
            sent_severity=worst,
            num_hosts_sent=len(alert.hosts_seen),
            sent_ns={**alert.sent_ns, **dict.fromkeys(hooks, self._now_ns)},
        )

    def _repeated(self, alert: Alert, hooks: tuple[str, ...]) -> Alert:
        resend_s = self._policy.resend_s
        due = tuple(
            hook
            for hook, at_ns in alert.sent_ns.items()
            if hook in hooks and 0 < resend_s.get(hook, 0.0) * SECOND_NS <= self._now_ns - at_ns
        )
        if not due:
            return alert
        self._add(alert, Status.FIRING, due, repeated=True)
        return replace(alert, sent_ns={**alert.sent_ns, **dict.fromkeys(due, self._now_ns)})

    def _add(self, alert: Alert, status: Status, hooks: tuple[str, ...], *, repeated: bool = False) -> None:
        notice = notice_of(
            alert,
            status,
            number=self.next_number,
            repeated=repeated,
            now_ns=self._now_ns,
            dashboard=self._policy.dashboard,
        )
        self.deliveries.append(Delivery(notice=notice, hooks=hooks))
        self.next_number += 1
