"""Which alerts are held back because another alert explains them; the table is ``diagnose/causes.py``.

    cause   ....FFFFFFFFFFFFFFFF..........       F: firing
    effect  ......hhhhhhhhhhhhhhhhhhFFFF         h: held back, up to a minute after the cause has ended

A cause must reach every hook that the effect would reach. It holds back only what has not been sent yet. A critical
alert, or an alert about another host, is held back for at most two minutes: a flap may explain why a job stalls, and
why other hosts look slow, but not forever.
"""

from collections.abc import Iterable, Mapping

from diagnose.alerts.alert import Alert
from diagnose.alerts.rules import Policy
from diagnose.causes import TABLE, Reach, Relation
from diagnose.findings import Severity

AFTERMATH_NS = 60_000_000_000
"""A cause that has ended explains effects for this long."""
MAX_URGENT_NS = 120_000_000_000
"""A critical alert, or one about another host, is held back for at most this long."""


class Causes:
    """The alerts that may explain others, indexed by run, kind and host."""

    def __init__(self, alerts: Iterable[Alert], policy: Policy, now_ns: int) -> None:
        self._policy = policy
        self._now_ns = now_ns
        self._of_run: dict[tuple[object, ...], Alert] = {}
        self._of_host: dict[tuple[object, ...], Alert] = {}
        for alert in alerts:
            if alert.is_alive and now_ns - (alert.absent_ns or now_ns) < AFTERMATH_NS:
                self._add(alert)

    def _add(self, alert: Alert) -> None:
        key = (alert.run, alert.kind)
        # An alert that names a place explains more than one that does not.
        if key not in self._of_run or not _is_named(self._of_run[key]):
            self._of_run[key] = alert
        for host in alert.hosts:
            self._of_host.setdefault((*key, host), alert)

    def of(self, effect: Alert) -> Alert | None:
        """A cause that holds ``effect`` back now; None if it may be sent."""
        for row in TABLE:
            if row.alerts is not None and effect.kind in row.effects:
                for cause in self._candidates(row, effect):
                    if self._holds_back(cause, effect):
                        return cause
        return None

    def _holds_back(self, cause: Alert, effect: Alert) -> bool:
        if cause.fingerprint == effect.fingerprint or not self._reaches_all(cause, effect):
            return False
        is_elsewhere = bool(effect.hosts) and not effect.hosts & cause.hosts
        is_urgent = effect.account.severity is Severity.CRITICAL or is_elsewhere
        return not is_urgent or self._now_ns - effect.changed_ns < MAX_URGENT_NS

    def _candidates(self, row: Relation, effect: Alert) -> list[Alert]:
        keys = [(effect.run, str(kind)) for kind in sorted(row.causes)]
        if row.alerts is Reach.HOST:
            return _known(self._of_host, [(*key, host) for key in keys for host in sorted(effect.hosts)])
        if row.alerts is not Reach.UNNAMED:
            return _known(self._of_run, keys)
        if _is_named(effect):
            return []
        return [cause for cause in _known(self._of_run, keys) if cause.kind not in row.effects or _is_named(cause)]

    def _reaches_all(self, cause: Alert, effect: Alert) -> bool:
        return {*self._policy.rule(effect.kind).hooks} <= {*self._policy.rule(cause.kind).hooks}


def _is_named(alert: Alert) -> bool:
    return "rank" in alert.labels or "host" in alert.labels


def _known(alerts: Mapping[tuple[object, ...], Alert], keys: Iterable[tuple[object, ...]]) -> list[Alert]:
    return [alerts[key] for key in keys if key in alerts]
