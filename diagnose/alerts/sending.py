"""The notices of alerts, and the hooks that get them.

An alert is sent when it fires, when it becomes more severe or spreads, and when it is resolved. A hook with
``resend_s`` gets a firing alert again after that time. An alert that people acknowledged or silenced is sent only to
hooks that pass silences on.
"""

from dataclasses import dataclass, replace

from diagnose.alerts.alert import URGENCY, Alert, Phase
from diagnose.alerts.notice import NS_PER_S, Notice, Status, notice_of
from diagnose.alerts.rules import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notice and the hooks that get it."""

    notice: Notice
    hooks: tuple[str, ...]


class Sender:
    """Creates the notices of alerts, and numbers them."""

    def __init__(self, policy: Policy, now_ns: int, next_number: int) -> None:
        self.deliveries: list[Delivery] = []
        self.next_number = next_number
        self._policy = policy
        self._now_ns = now_ns

    def sent(self, alert: Alert, *, moved: bool, is_new_quiet: bool) -> Alert:
        """Create the notices of an alert that are due. Returns the alert after that.

        A quiet alert is sent only to hooks that pass silences on.
        """
        if alert.phase is Phase.RESOLVED and alert.sent_severity is not None:
            self._add(alert, Status.RESOLVED, tuple(hook for hook in alert.sent_ns if hook in self._policy.resend_s))
            return replace(alert, sent_severity=None, sent_ns={}, num_hosts_sent=0)
        if alert.phase is not Phase.FIRING:
            return alert
        hooks = self._policy.rule(alert.kind).hooks
        is_found = moved and not alert.absent_ns
        is_quiet = alert.quiet is not None and alert.quiet.is_on(self._now_ns)
        if is_quiet:
            hooks = tuple(hook for hook in hooks if hook in self._policy.silencing)
        sent_severity = alert.sent_severity
        if sent_severity is None:
            return self._fired(alert, hooks) if is_found and not alert.suppressed_by else alert
        if is_new_quiet:
            alert = self._repeated_to(alert, tuple(hook for hook in alert.sent_ns if hook in self._policy.silencing))
        if is_quiet:
            return self._repeated(alert, hooks)
        if URGENCY[alert.account.severity] > URGENCY[sent_severity] or alert.has_spread:
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
            if hook in hooks and 0 < resend_s.get(hook, 0.0) * NS_PER_S <= self._now_ns - at_ns
        )
        return self._repeated_to(alert, due)

    def _repeated_to(self, alert: Alert, hooks: tuple[str, ...]) -> Alert:
        if not hooks:
            return alert
        self._add(alert, Status.FIRING, hooks, repeated=True)
        return replace(alert, sent_ns={**alert.sent_ns, **dict.fromkeys(hooks, self._now_ns)})

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
