"""The rules: when findings become alerts, which hooks get them, and which alert a finding belongs to.

A finding belongs to the alert with its fingerprint. Else it belongs to an active alert of the same kind, run and device
that shares a rank: rank 5 now, and ranks 4 and 5 a moment later, are one problem. Else it starts a new alert.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from diagnose.alerts.alert import MOST_REMEMBERED, URGENCY, Alert, fingerprint_of, labels_of
from diagnose.alerts.look import Look, RunSeen, Sighting
from diagnose.findings import Kind, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What holds for one kind of finding."""

    for_s: float
    """Seen so long before it fires. Detectors ask for persistence over steps themselves: this is against flicker."""
    keep_firing_for_s: float
    """Not seen for so long before it is over; ten steps at the least."""
    severity: Severity = Severity.WARNING
    """Findings below it begin no alert. One that lives is not ended by a finding that is less severe today."""
    hooks: tuple[str, ...] = ()
    """Who is told; nobody: neither told, nor does it hold back others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flapping:
    """Flap damping: what came back ``times`` within ``within_s`` is over only after ``quiet_s``."""

    times: int = 3
    within_s: float = 1800.0
    quiet_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All that the state machine goes by."""

    rules: Mapping[str, Rule]
    """Kind -> its rule."""
    flapping: Flapping = field(default_factory=Flapping)
    resend_s: Mapping[str, float] = field(default_factory=dict)
    """Every hook there is -> while an alert fires, tell it again after so long; 0: never."""
    dashboard: str = ""
    """Address that links lead to; empty: no links."""

    def rule(self, kind: str) -> Rule:
        """The rule of a kind; of one that this version does not know, a cautious one that tells nobody."""
        return self.rules.get(kind, _UNKNOWN)


_UNKNOWN = Rule(for_s=60, keep_firing_for_s=60)

DEFAULTS: Mapping[Kind, Rule] = {
    # What is certain at once, and dear: no waiting.
    Kind.NIC_FLAP: Rule(for_s=0, keep_firing_for_s=300),
    Kind.GPU_ERROR: Rule(for_s=0, keep_firing_for_s=300),
    Kind.DEAD_RANK: Rule(for_s=0, keep_firing_for_s=60),
    Kind.HUNG_COLLECTIVE: Rule(for_s=0, keep_firing_for_s=60),
    Kind.COLLECTIVE_MISMATCH: Rule(for_s=0, keep_firing_for_s=60),
    Kind.LOSS_ANOMALY: Rule(for_s=0, keep_firing_for_s=300),
    # Seen at a checkpoint, and not again before the next one.
    Kind.CHECKPOINT_SLOW: Rule(for_s=0, keep_firing_for_s=1800),
    # Told from six steps on: a second look a little later, and still within 20 steps of a second each.
    Kind.COMPUTE_STRAGGLER: Rule(for_s=2, keep_firing_for_s=60),
    Kind.SLOW_LINK: Rule(for_s=2, keep_firing_for_s=60),
    Kind.GPU_THROTTLED: Rule(for_s=5, keep_firing_for_s=120),
    Kind.HOST_CONTENTION: Rule(for_s=5, keep_firing_for_s=60),
    Kind.DATA_STALL: Rule(for_s=5, keep_firing_for_s=120),
    Kind.LATE_LAUNCH: Rule(for_s=10, keep_firing_for_s=120),
    # Properties of the job rather than events.
    Kind.STAGE_IMBALANCE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.DATA_IMBALANCE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.MFU_DECLINE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.UNLIKE_HOST: Rule(for_s=60, keep_firing_for_s=300),
    Kind.INSUFFICIENT_EVIDENCE: Rule(for_s=60, keep_firing_for_s=60),
}
"""What holds where the file says nothing."""


Place = tuple[str, str, str, str, int]
"""Kind, run, attempt, device, rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What a look shows of one alert."""

    fingerprint: str
    labels: Mapping[str, str]
    """By which the finding would be known; those of the alert stand."""
    sighting: Sighting
    step_s: float


def matches(look: Look, alerts: Mapping[str, Alert], policy: Policy) -> dict[str, Match]:
    """Fingerprint -> what was seen of it, the worst finding where there are several."""
    found: dict[str, Match] = {}
    unmatched = []
    for match in _by_labels(look):
        if match.fingerprint in alerts and alerts[match.fingerprint].is_alive:
            _keep_worse(found, match)
        else:
            unmatched.append(match)
    places = _places(alert for alert in alerts.values() if alert.is_alive)
    for match in unmatched:
        known = next((places[place] for place in _places_of(match) if place in places), None)
        if known is not None:
            _keep_worse(found, match, known)
        elif match.fingerprint in found or _may_begin(match, policy):
            _keep_worse(found, match)
            places.update(dict.fromkeys(_places_of(match), match.fingerprint))
    return found


def _by_labels(look: Look) -> Iterator[Match]:
    for run in look.runs:
        for sighting in run.sightings:
            yield _match(run, sighting)


def _match(run: RunSeen, sighting: Sighting) -> Match:
    labels = labels_of(sighting.finding, run.run_id, run.attempt)
    return Match(fingerprint=fingerprint_of(labels), labels=labels, sighting=sighting, step_s=run.step_s)


def _may_begin(match: Match, policy: Policy) -> bool:
    finding = match.sighting.finding
    return URGENCY[finding.severity] >= URGENCY[policy.rule(finding.kind).severity]


def _keep_worse(found: dict[str, Match], match: Match, fingerprint: str = "") -> None:
    name = fingerprint or match.fingerprint
    before = found.get(name)
    if before is None:
        found[name] = match
        return
    worse = match if _weight(match) > _weight(before) else before
    sharp = match.sighting.sharp or before.sighting.sharp
    found[name] = Match(
        fingerprint=worse.fingerprint,
        labels=worse.labels,
        sighting=Sighting(finding=worse.sighting.finding, sharp=sharp),
        step_s=worse.step_s,
    )


def _weight(match: Match) -> tuple[int, float]:
    finding = match.sighting.finding
    return URGENCY[finding.severity], finding.seconds_lost


def _places(alerts: Iterable[Alert]) -> dict[Place, str]:
    return {
        (*_owner(alert.labels), rank): alert.fingerprint
        for alert in alerts
        for rank in alert.ranks
    }  # fmt: skip


def _places_of(match: Match) -> list[Place]:
    return [(*_owner(match.labels), rank) for rank in match.sighting.finding.ranks[:MOST_REMEMBERED]]


def _owner(labels: Mapping[str, str]) -> tuple[str, str, str, str]:
    return labels["alertname"], labels["run_id"], labels["attempt"], labels.get("device", "")
