"""Which alert a finding belongs to.

The one with its fingerprint; else a living one of the same kind, run and device that shares a rank with it: a trouble
that is seen on rank 5 now and on ranks 4 and 5 a moment later is one trouble. Else it is a new one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from diagnose.alerts.alert import MOST_REMEMBERED, URGENCY, Alert, fingerprint_of, labels_of
from diagnose.alerts.look import Look, RunSeen, Sighting
from diagnose.alerts.rules import Policy

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
    strangers = []
    for match in _by_labels(look):
        if match.fingerprint in alerts and alerts[match.fingerprint].is_alive:
            _keep_worse(found, match)
        else:
            strangers.append(match)
    places = _places(alert for alert in alerts.values() if alert.is_alive)
    for match in strangers:
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
