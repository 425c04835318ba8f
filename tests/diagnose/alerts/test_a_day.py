"""A day of checks, one each five seconds: incidents that detection sees now and then, blips, outages, restarts."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.check import Check, RunFindings, Sighting
from diagnose.alerts.life import advance
from diagnose.alerts.notice import Notice, Status
from diagnose.findings import Finding, Kind
from tests.diagnose.alerts.made_checks import RUN, SECOND_NS, START_NS, finding, policy

DAY_S = 86_400
EVERY_S = 5
APART_S = 4000
"""Between two incidents of one place: beyond it flap damping has let go."""
KINDS = (Kind.COMPUTE_STRAGGLER, Kind.SLOW_LINK, Kind.NIC_FLAP, Kind.GPU_THROTTLED)


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Something that really happened."""

    kind: Kind
    rank: int
    first_s: int
    last_s: int
    dropout_s: range
    """When no check shows it, though it lasts."""

    def shows(self, now_s: int, chance: random.Random) -> bool:
        lasts = self.first_s <= now_s <= self.last_s and now_s not in self.dropout_s
        return lasts and chance.random() < 0.7

    @property
    def place(self) -> tuple[str, str]:
        return str(self.kind), str(self.rank)


def incidents_of_a_day(chance: random.Random) -> list[Incident]:
    """Each rank on a host of its own, so that none explains another."""
    found = []
    for number, rank in enumerate(range(0, 96, 8)):
        now_s = chance.randrange(0, APART_S)
        while now_s < DAY_S - 3 * APART_S:
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
    """What a check shows: incidents, what they cause, and now and then somebody innocent, once."""
    shown = [one for one in incidents if one.shows(now_s, chance)]
    found = [finding(one.kind, one.rank, device="eth0" if one.kind is Kind.NIC_FLAP else "") for one in shown]
    if any(one.kind is Kind.NIC_FLAP and now_s - one.first_s < 30 for one in shown):
        found.append(finding(Kind.HUNG_COLLECTIVE, 3))
    if shown:
        found.append(finding(Kind.MFU_DECLINE))
    # Each minute another one: never twice in a row.
    if now_s % 60 == 0 and chance.random() < 0.3:
        found.append(finding(Kind.COMPUTE_STRAGGLER, 200 + now_s // 60 % 50 * 8))
    return found


def day(path: Path, seed: int) -> tuple[list[Incident], list[Notice], int]:
    """The incidents, all notices, and how often the process was another one."""
    chance = random.Random(seed)
    incidents = incidents_of_a_day(chance)
    rules = policy(hooks=("log",))
    told: list[Notice] = []
    outage_s = range(0)
    restarts = 0
    alert_store = AlertStore(path)
    state = alert_store.load()
    for now_s in range(0, DAY_S, EVERY_S):
        if chance.random() < 0.001:
            outage_s = range(now_s, now_s + chance.randrange(5, 60))
        if chance.random() < 0.005:
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


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_day_tells_each_incident_once_and_nothing_else(tmp_path: Path, seed: int) -> None:
    incidents, told, restarts = day(tmp_path / "alerts.sqlite", seed)
    assert len(incidents) > 60
    assert restarts > 50
    fired = [notice for notice in told if notice.status is Status.FIRING]
    for one in incidents:
        notices = [notice for notice in fired if of(notice) == one.place and meant(notice, one)]
        assert len(notices) == 1, one
    assert len(fired) == len(incidents)
    assert sorted(notice.fingerprint for notice in fired) == sorted(
        notice.fingerprint for notice in told if notice.status is Status.RESOLVED
    )


def of(notice: Notice) -> tuple[str, str]:
    return notice.labels["alertname"], notice.labels.get("rank", "")


def meant(notice: Notice, one: Incident) -> bool:
    return one.first_s <= (notice.starts_ns - START_NS) / SECOND_NS <= one.last_s
