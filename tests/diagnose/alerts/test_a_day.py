"""Hours of checks, one every ten seconds, with intermittent and false findings, store outages and restarts."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.check import Check
from diagnose.alerts.life import advance
from diagnose.alerts.notice import Notice, Status
from diagnose.alerts.sightings import RunFindings, Sighting
from diagnose.findings import Finding, Kind
from tests.diagnose.alerts.made_checks import RUN, SECOND_NS, START_NS, finding, policy

HOUR_S = 3600
EVERY_S = 10
APART_S = 4000
"""Minimum time between two incidents of one rank. Flap damping no longer applies after it."""
KINDS = (Kind.COMPUTE_STRAGGLER, Kind.SLOW_LINK, Kind.NIC_FLAP, Kind.GPU_THROTTLED)


@dataclass(frozen=True, kw_only=True)
class Incident:
    """A real fault."""

    kind: Kind
    rank: int
    first_s: int
    last_s: int
    dropout_s: range
    """No check shows the incident in this interval, although it continues."""

    def shows(self, now_s: int, chance: random.Random) -> bool:
        lasts = self.first_s <= now_s <= self.last_s and now_s not in self.dropout_s
        return lasts and chance.random() < 0.7

    @property
    def place(self) -> tuple[str, str]:
        return str(self.kind), str(self.rank)


def random_incidents(chance: random.Random, total_s: int) -> list[Incident]:
    """Incidents on ranks of different hosts. No incident explains another one."""
    found = []
    for number, rank in enumerate(range(0, 96, 8)):
        now_s = chance.randrange(0, APART_S)
        while now_s < total_s - 3 * APART_S:
            lasts_s = chance.randrange(180, 2400)
            dropout_s = range(0)
            if lasts_s > 1500:
                dropout_s = range(now_s + 600, now_s + 600 + chance.randrange(120, 600))
            found.append(
                Incident(
                    kind=KINDS[number % len(KINDS)],
                    rank=rank,
                    first_s=now_s,
                    last_s=now_s + lasts_s,
                    dropout_s=dropout_s,
                )
            )
            now_s += lasts_s + APART_S + chance.randrange(0, 3 * APART_S)
    return found


def seen_at(now_s: int, incidents: list[Incident], chance: random.Random) -> list[Finding]:
    """The findings of one check: incidents, their effects, and sometimes a false finding on a healthy rank."""
    shown = [one for one in incidents if one.shows(now_s, chance)]
    found = [finding(one.kind, one.rank, device="eth0" if one.kind is Kind.NIC_FLAP else "") for one in shown]
    if any(one.kind is Kind.NIC_FLAP and now_s - one.first_s < 30 for one in shown):
        found.append(finding(Kind.HUNG_COLLECTIVE, 3))
    if shown:
        found.append(finding(Kind.MFU_DECLINE))
    # Another rank each minute. No false finding appears in two checks in a row.
    if now_s % 60 == 0 and chance.random() < 0.3:
        found.append(finding(Kind.COMPUTE_STRAGGLER, 200 + now_s // 60 % 50 * 8))
    return found


def run_for(hours: int, path: Path) -> tuple[list[Incident], list[Notice], int]:
    """The incidents, all notices, and the number of restarts."""
    chance = random.Random(hours)
    incidents = random_incidents(chance, hours * HOUR_S)
    rules = policy(hooks=("log",))
    told: list[Notice] = []
    outage_s = range(0)
    restarts = 0
    alert_store = AlertStore(path)
    state = alert_store.load()
    for now_s in range(0, hours * HOUR_S, EVERY_S):
        if chance.random() < 0.002:
            outage_s = range(now_s, now_s + chance.randrange(5, 60))
        if chance.random() < 0.01:
            restarts += 1
            alert_store.close()
            alert_store = AlertStore(path)
            state = alert_store.load()
        now_ns = START_NS + now_s * SECOND_NS
        seen = tuple(Sighting(finding=one, has_known_time=True) for one in seen_at(now_s, incidents, chance))
        check = Check(now_ns=now_ns, runs=(RunFindings(run_id=RUN, attempt=0, step_s=1, sightings=seen),))
        outcome = advance(state, Check(now_ns=now_ns, blind=True) if now_s in outage_s else check, rules)
        alert_store.store(outcome)
        state = outcome.state
        while waiting := alert_store.waiting("log", 100):
            alert_store.taken("log", waiting)
            told += waiting
    alert_store.close()
    return incidents, told, restarts


@pytest.mark.parametrize("hours", [6, pytest.param(24, marks=pytest.mark.long)])
def test_each_incident_sends_exactly_one_alert_despite_outages_and_restarts(tmp_path: Path, hours: int) -> None:
    incidents, told, restarts = run_for(hours, tmp_path / "alerts.sqlite")
    assert len(incidents) > 2 * hours
    assert restarts > 2 * hours
    assert any(one.dropout_s for one in incidents)
    assert {one.kind for one in incidents} == {*KINDS}
    fired = [notice for notice in told if notice.status is Status.FIRING]
    for one in incidents:
        notices = [notice for notice in fired if place_of(notice) == one.place and starts_within(notice, one)]
        assert len(notices) == 1, one
    assert len(fired) == len(incidents)
    assert sorted(notice.fingerprint for notice in fired) == sorted(
        notice.fingerprint for notice in told if notice.status is Status.RESOLVED
    )


def place_of(notice: Notice) -> tuple[str, str]:
    return notice.labels["alertname"], notice.labels.get("rank", "")


def starts_within(notice: Notice, one: Incident) -> bool:
    return one.first_s <= (notice.starts_ns - START_NS) / SECOND_NS <= one.last_s
