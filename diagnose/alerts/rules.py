"""The rules: when findings become alerts, which hooks get them, which alert a finding belongs to, and which alerts are
suppressed.

A finding belongs to the alert with its fingerprint. Else it belongs to an active alert of the same kind, run and device
that shares a rank: rank 5 now, and ranks 4 and 5 a moment later, are one problem. Else it starts a new alert.

An alert is suppressed if another alert explains it. The table of causes is ``diagnose/causes.py``.

    cause   ....FFFFFFFFFFFFFFFF..........       F: firing
    effect  ......ssssssssssssssssssFFFF         s: suppressed, up to a minute after the cause has ended

All hooks of the effect must also receive the cause. An alert that was sent is not suppressed later. A critical alert,
or an alert about another host, is suppressed for at most two minutes: a flap can explain a stall only for a short time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from diagnose.alerts.alert import MOST_REMEMBERED, URGENCY, Alert, fingerprint_of, labels_of
from diagnose.alerts.check import Check
from diagnose.alerts.onset import earlier
from diagnose.alerts.sightings import Sighting
from diagnose.causes import TABLE, Reach, Relation
from diagnose.findings import Kind, Severity

AFTERMATH_NS = 60_000_000_000
"""Time in which a cause that has ended still explains effects."""
MAX_URGENT_NS = 120_000_000_000
"""A critical alert, or one about another host, is suppressed for at most this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule of one kind of finding."""

    for_s: float
    """How long a problem must be found before its alert fires. Detectors require several steps; this also prevents
    short alerts."""
    keep_firing_for_s: float
    """How long a firing alert must be absent before it is resolved, but at least ten steps."""
    severity: Severity = Severity.WARNING
    """Findings with a lower severity start no alert. They can continue an active alert."""
    hooks: tuple[str, ...] = ()
    """Names of the hooks that receive alerts of this kind. An alert without hooks is not sent, and suppresses no alert
    that is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flapping:
    """Flap damping: an alert that returned ``times`` within ``within_s`` is resolved only after ``quiet_s``."""

    times: int = 3
    within_s: float = 1800.0
    quiet_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the state machine."""

    rules: Mapping[str, Rule]
    """Kind -> its rule."""
    flapping: Flapping = field(default_factory=Flapping)
    resend_s: Mapping[str, float] = field(default_factory=dict)
    """Hook -> time after which a firing alert is sent again. 0: never."""
    dashboard: str = ""
    """Address for links; empty: no links."""
    silencing: frozenset[str] = frozenset()
    """Hooks that pass silences on. They receive quiet alerts, too."""

    def rule(self, kind: str) -> Rule:
        """The rule of a kind. An unknown kind has a rule without hooks."""
        return self.rules.get(kind, _UNKNOWN)


_UNKNOWN = Rule(for_s=60, keep_firing_for_s=60)

DEFAULTS: Mapping[Kind, Rule] = {
    # Certain at once, and expensive: they fire at once.
    Kind.NIC_FLAP: Rule(for_s=0, keep_firing_for_s=300),
    Kind.GPU_ERROR: Rule(for_s=0, keep_firing_for_s=300),
    Kind.DEAD_RANK: Rule(for_s=0, keep_firing_for_s=60),
    Kind.HUNG_COLLECTIVE: Rule(for_s=0, keep_firing_for_s=60),
    Kind.COLLECTIVE_MISMATCH: Rule(for_s=0, keep_firing_for_s=60),
    Kind.LOSS_ANOMALY: Rule(for_s=0, keep_firing_for_s=300),
    # Found at a checkpoint, and again only at the next checkpoint.
    Kind.CHECKPOINT_SLOW: Rule(for_s=0, keep_firing_for_s=1800),
    # Found after six steps. Two seconds ensure a second check, and an alert within 20 steps of one second.
    Kind.COMPUTE_STRAGGLER: Rule(for_s=2, keep_firing_for_s=60),
    Kind.SLOW_LINK: Rule(for_s=2, keep_firing_for_s=60),
    Kind.GPU_THROTTLED: Rule(for_s=5, keep_firing_for_s=120),
    Kind.HOST_CONTENTION: Rule(for_s=5, keep_firing_for_s=60),
    Kind.DATA_STALL: Rule(for_s=5, keep_firing_for_s=120),
    Kind.LATE_LAUNCH: Rule(for_s=10, keep_firing_for_s=120),
    # Properties of the job, not events.
    Kind.STAGE_IMBALANCE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.DATA_IMBALANCE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.EXPERT_IMBALANCE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.ROLLOUT_TAIL: Rule(for_s=60, keep_firing_for_s=300),
    Kind.ROLE_IDLE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.MFU_DECLINE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.UNLIKE_HOST: Rule(for_s=60, keep_firing_for_s=300),
    Kind.INSUFFICIENT_EVIDENCE: Rule(for_s=60, keep_firing_for_s=60),
    Kind.JOB_RESTARTED: Rule(for_s=0, keep_firing_for_s=300),
}
"""Default rules."""


Place = tuple[str, str, str, str, int]
"""Kind, run, attempt, device, rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The finding of one alert in a check."""

    fingerprint: str
    labels: Mapping[str, str]
    """Labels of the finding. An existing alert keeps its own labels."""
    sighting: Sighting


def matches(check: Check, alerts: Mapping[str, Alert], policy: Policy) -> dict[str, Match]:
    """Fingerprint of an alert -> its finding in ``check``; the worst one if there are several."""
    found: dict[str, Match] = {}
    unmatched = []
    for run in check.runs:
        for sighting in run.sightings:
            labels = labels_of(sighting.finding, run.run_id, run.attempt)
            match = Match(fingerprint=fingerprint_of(labels), labels=labels, sighting=sighting)
            if match.fingerprint in alerts and alerts[match.fingerprint].is_alive:
                _keep_worse(found, match, match.fingerprint)
            else:
                unmatched.append(match)
    places = {
        place: alert.fingerprint
        for alert in alerts.values()
        if alert.is_alive
        for place in _places(alert.labels, alert.ranks)
    }
    for match in unmatched:
        finding = match.sighting.finding
        of_match = _places(match.labels, finding.ranks[:MOST_REMEMBERED])
        known = next((places[place] for place in of_match if place in places), None)
        if known is not None:
            _keep_worse(found, match, known)
        elif match.fingerprint in found or URGENCY[finding.severity] >= URGENCY[policy.rule(finding.kind).severity]:
            _keep_worse(found, match, match.fingerprint)
            places.update(dict.fromkeys(of_match, match.fingerprint))
    return found


def _keep_worse(found: dict[str, Match], match: Match, fingerprint: str) -> None:
    before = found.get(fingerprint, match)
    worse = match if _weight(match) > _weight(before) else before
    known = match.sighting.has_known_time or before.sighting.has_known_time
    onset = earlier(before.sighting.onset, match.sighting.onset)
    found[fingerprint] = replace(worse, sighting=replace(worse.sighting, has_known_time=known, onset=onset))


def _weight(match: Match) -> tuple[int, float]:
    finding = match.sighting.finding
    return URGENCY[finding.severity], finding.seconds_lost


def _places(labels: Mapping[str, str], ranks: Iterable[int]) -> list[Place]:
    owner = labels["alertname"], labels["run_id"], labels["attempt"], labels.get("device", "")
    return [(*owner, rank) for rank in ranks]


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
        """A cause that suppresses ``effect`` now, or None if ``effect`` may be sent."""
        for row in TABLE:
            if row.alerts is not None and effect.kind in row.effects:
                for cause in self._candidates(row, effect):
                    if self._suppresses(cause, effect):
                        return cause
        return None

    def _suppresses(self, cause: Alert, effect: Alert) -> bool:
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
