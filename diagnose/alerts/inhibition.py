"""Which alerts are held back because another one explains them.

    nic-flap ----------+--> hung-collective, slow-link, late-launch, data-stall, mfu-decline ...
    dead-rank ---------+
                       |    while the cause is seen, and a minute more; what is still seen then is told
    compute-straggler -+--> mfu-decline, and late-launch and slow-link that name nobody

A cause must be told to everybody who would have been told of the effect, and holds back only what people have not been
told yet. What is critical, or names another host than its cause, is held back for two minutes at the most: a flap may
explain why a job stands still, and why others look slow, but not forever.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from diagnose.alerts.alert import Alert
from diagnose.alerts.rules import Policy
from diagnose.findings import Kind, Severity

AFTERMATH_NS = 60_000_000_000
"""A cause that is no longer seen explains what comes within this."""
BRIEFLY_NS = 120_000_000_000
"""What is critical, or elsewhere, is held back no longer."""


class Reach(StrEnum):
    """Which alerts of the run a cause explains."""

    RUN = "anywhere in the run"
    HOST = "on the same host"
    NOBODY = "where nobody is named"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inhibition:
    """A row of the table."""

    cause: Kind
    effects: frozenset[Kind]
    reach: Reach


def _row(cause: Kind, reach: Reach, *effects: Kind) -> Inhibition:
    return Inhibition(cause=cause, effects=frozenset(effects), reach=reach)


_WAITING = (Kind.LATE_LAUNCH, Kind.SLOW_LINK, Kind.DATA_STALL, Kind.MFU_DECLINE)
_SLOW_HOST = (Kind.COMPUTE_STRAGGLER, Kind.LATE_LAUNCH, Kind.DATA_STALL, Kind.UNLIKE_HOST)

TABLE: tuple[Inhibition, ...] = (
    _row(Kind.NIC_FLAP, Reach.RUN, Kind.HUNG_COLLECTIVE, *_WAITING),
    _row(Kind.GPU_ERROR, Reach.RUN, Kind.HUNG_COLLECTIVE, *_WAITING),
    _row(Kind.GPU_ERROR, Reach.HOST, Kind.DEAD_RANK, Kind.GPU_THROTTLED, *_SLOW_HOST),
    _row(Kind.DEAD_RANK, Reach.RUN, Kind.HUNG_COLLECTIVE, *_WAITING),
    _row(Kind.COLLECTIVE_MISMATCH, Reach.RUN, Kind.HUNG_COLLECTIVE, *_WAITING),
    _row(Kind.HUNG_COLLECTIVE, Reach.RUN, *_WAITING),
    _row(Kind.GPU_THROTTLED, Reach.HOST, *_SLOW_HOST),
    _row(Kind.GPU_THROTTLED, Reach.RUN, Kind.MFU_DECLINE),
    _row(Kind.HOST_CONTENTION, Reach.HOST, *_SLOW_HOST),
    _row(Kind.HOST_CONTENTION, Reach.RUN, Kind.MFU_DECLINE),
    _row(Kind.COMPUTE_STRAGGLER, Reach.NOBODY, Kind.LATE_LAUNCH, Kind.SLOW_LINK, Kind.MFU_DECLINE),
    _row(Kind.COMPUTE_STRAGGLER, Reach.HOST, Kind.UNLIKE_HOST),
    _row(Kind.SLOW_LINK, Reach.NOBODY, Kind.MFU_DECLINE, Kind.SLOW_LINK),
    _row(Kind.DATA_STALL, Reach.NOBODY, Kind.LATE_LAUNCH, Kind.MFU_DECLINE, Kind.DATA_STALL),
    _row(Kind.LATE_LAUNCH, Reach.NOBODY, Kind.MFU_DECLINE, Kind.LATE_LAUNCH),
    _row(Kind.STAGE_IMBALANCE, Reach.NOBODY, Kind.MFU_DECLINE),
    _row(Kind.DATA_IMBALANCE, Reach.NOBODY, Kind.MFU_DECLINE),
)
"""Who holds back whom. A kind holds back its own where one alert names a place and the other does not."""


class Causes:
    """The alerts that explain others, ordered for asking."""

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
        # One that names a place explains the most: it is what is asked for.
        if key not in self._of_run or not _names_somebody(self._of_run[key]):
            self._of_run[key] = alert
        for host in alert.hosts:
            self._of_host.setdefault((*key, host), alert)

    def of(self, effect: Alert) -> Alert | None:
        """A cause that holds ``effect`` back now; None where it may be told."""
        for row in TABLE:
            if effect.kind in row.effects:
                for cause in self._candidates(row, effect):
                    if self._holds_back(cause, effect):
                        return cause
        return None

    def _holds_back(self, cause: Alert, effect: Alert) -> bool:
        if cause.fingerprint == effect.fingerprint or not self._reaches_all(cause, effect):
            return False
        is_elsewhere = bool(effect.hosts) and not effect.hosts & cause.hosts
        is_urgent = effect.account.severity is Severity.CRITICAL or is_elsewhere
        return not is_urgent or self._now_ns - effect.changed_ns < BRIEFLY_NS

    def _candidates(self, row: Inhibition, effect: Alert) -> list[Alert]:
        key = (effect.run, str(row.cause))
        if row.reach is Reach.HOST:
            return _known(self._of_host, [(*key, host) for host in sorted(effect.hosts)])
        if row.reach is Reach.NOBODY and _names_somebody(effect):
            return []
        found = _known(self._of_run, [key])
        return [one for one in found if row.cause != effect.kind or _names_somebody(one)]

    def _reaches_all(self, cause: Alert, effect: Alert) -> bool:
        return {*self._policy.rule(effect.kind).hooks} <= {*self._policy.rule(cause.kind).hooks}


def _names_somebody(alert: Alert) -> bool:
    return "rank" in alert.labels or "host" in alert.labels


def _known(alerts: Mapping[tuple[object, ...], Alert], keys: list[tuple[object, ...]]) -> list[Alert]:
    return [alerts[key] for key in keys if key in alerts]
