"""An effect is held back while its cause explains it, and told when nothing does any more."""

from dataclasses import replace

import pytest

from diagnose.alerts.check import Check, RunFindings, Sighting
from diagnose.alerts.life import State, advance
from diagnose.causes import TABLE, Reach
from diagnose.findings import Kind, Severity
from tests.diagnose.alerts.made_checks import START_NS, Watched, finding, policy, quick, words

FLAP = finding(Kind.NIC_FLAP, 5, device="eth0")
HANG = finding(Kind.HUNG_COLLECTIVE, 9, severity=Severity.CRITICAL)
DECLINE = finding(Kind.MFU_DECLINE)
VAGUE_LATENESS = finding(Kind.LATE_LAUNCH)


def test_while_a_network_flaps_a_hang_is_not_told() -> None:
    watched = Watched(quick())
    assert words(watched.quietly(30, FLAP, HANG)) == ["firing nic-flap"]
    assert words(watched.quietly(300)) == ["resolved nic-flap"]


def test_what_still_stands_when_its_cause_is_over_is_told_then() -> None:
    watched = Watched(quick())
    watched.quietly(30, FLAP, DECLINE)
    told = watched.quietly(120, DECLINE)
    assert words(told) == ["resolved nic-flap", "firing mfu-decline"]


def test_what_is_over_before_its_cause_is_never_told() -> None:
    watched = Watched(quick())
    watched.quietly(30, FLAP, DECLINE)
    assert not watched.quietly(300, FLAP)
    assert words(watched.quietly(300)) == ["resolved nic-flap"]


def test_what_is_over_is_not_told_though_it_would_be_kept_firing_for_longer_than_its_cause_explains_it() -> None:
    watched = Watched(quick(keep_firing_for_s=300))
    watched.quietly(30, FLAP, DECLINE)
    assert not watched.quietly(200)


def test_a_cause_that_comes_after_its_effect_was_told_takes_nothing_back_but_its_end() -> None:
    watched = Watched(quick())
    assert words(watched.sees(DECLINE)) == ["firing mfu-decline"]
    assert words(watched.sees(FLAP, DECLINE)) == ["firing nic-flap"]
    assert words(watched.quietly(120, FLAP)) == ["resolved mfu-decline"]


def test_a_job_that_stands_still_is_not_explained_away_for_longer_than_two_minutes() -> None:
    watched = Watched(quick())
    assert words(watched.quietly(120, FLAP, HANG)) == ["firing nic-flap"]
    assert words(watched.sees(FLAP, HANG)) == ["firing hung-collective"]


def test_a_slow_link_elsewhere_is_told_though_a_network_flaps() -> None:
    watched = Watched(quick())
    elsewhere = finding(Kind.SLOW_LINK, 17)
    assert words(watched.quietly(120, FLAP, elsewhere)) == ["firing nic-flap"]
    assert words(watched.sees(FLAP, elsewhere)) == ["firing slow-link"]


def test_a_slow_link_of_the_flapping_host_is_not() -> None:
    assert words(Watched(quick()).quietly(600, FLAP, finding(Kind.SLOW_LINK, 5))) == ["firing nic-flap"]


def test_a_cause_that_is_held_by_flap_damping_explains_nothing_new() -> None:
    watched = Watched(quick(keep_firing_for_s=30))
    for _ in range(4):
        watched.sees(FLAP)
        watched.quietly(20)
    watched.quietly(60)
    assert any(alert.is_alive for alert in watched.state.alerts.values())
    assert words(watched.sees(HANG)) == ["firing hung-collective"]


def test_a_slow_rank_explains_lateness_of_nobody_in_particular() -> None:
    slow = finding(Kind.COMPUTE_STRAGGLER, 5)
    assert words(Watched(quick()).sees(slow, VAGUE_LATENESS, DECLINE)) == ["firing compute-straggler"]


def test_a_slow_rank_does_not_explain_another_host() -> None:
    told = Watched(quick()).sees(finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.LATE_LAUNCH, 17))
    assert sorted(words(told)) == ["firing compute-straggler", "firing late-launch"]


def test_a_hot_device_explains_slowness_on_its_host_alone() -> None:
    hot = finding(Kind.GPU_THROTTLED, 5)
    told = Watched(quick()).sees(hot, finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.COMPUTE_STRAGGLER, 17))
    assert sorted(words(told)) == ["firing compute-straggler", "firing gpu-throttled"]


def test_what_names_a_place_holds_back_what_does_not() -> None:
    told = Watched(quick()).sees(finding(Kind.SLOW_LINK), finding(Kind.SLOW_LINK, 5))
    assert [notice.labels.get("rank") for notice in told] == ["5"]


def test_a_pending_cause_holds_back_too() -> None:
    watched = Watched(policy(for_s=10))
    told = watched.quietly(30, finding(Kind.COMPUTE_STRAGGLER, 5), DECLINE)
    assert words(told) == ["firing compute-straggler"]


def test_a_cause_that_nobody_is_told_of_holds_nothing_back() -> None:
    rules = quick()
    silent = replace(rules.rules["nic-flap"], hooks=())
    watched = Watched(replace(rules, rules={**rules.rules, "nic-flap": silent}))
    assert words(watched.sees(FLAP, HANG)) == ["firing hung-collective"]


def test_another_run_is_explained_by_nothing_here() -> None:
    runs = tuple(
        RunFindings(run_id=run_id, attempt=0, step_s=1, sightings=(Sighting(finding=one, has_known_time=True),))
        for run_id, one in (("monday", FLAP), ("tuesday", HANG))
    )
    outcome = advance(State(), Check(now_ns=START_NS, runs=runs), quick())
    told = words(delivery.notice for delivery in outcome.deliveries)
    assert sorted(told) == ["firing hung-collective", "firing nic-flap"]


@pytest.mark.parametrize("kind", sorted(Kind))
def test_no_kind_holds_itself_back_through_others(kind: Kind) -> None:
    """Two alerts that held back each other would both stay unsent. Nodes are kinds that name a place or do not."""
    for named in (True, False):
        reached: set[tuple[Kind, bool]] = set()
        front = _effects_of(kind, named)
        while front:
            assert (kind, named) not in front
            reached |= front
            front = {effect for cause in front for effect in _effects_of(*cause)} - reached


def _effects_of(cause: Kind, named: bool) -> set[tuple[Kind, bool]]:
    found: set[tuple[Kind, bool]] = set()
    for row in TABLE:
        if cause not in row.causes or row.alerts is None:
            continue
        if row.alerts is Reach.UNNAMED and (named or cause not in row.effects):
            found |= {(effect, False) for effect in row.effects}
        if row.alerts is Reach.HOST and named:
            found |= {(effect, True) for effect in row.effects}
        if row.alerts is Reach.RUN:
            found |= {(effect, place) for effect in row.effects for place in (True, False)}
    return found
