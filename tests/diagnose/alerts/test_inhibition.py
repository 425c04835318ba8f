"""The alert of an effect is suppressed while its cause explains it. It is sent when no cause explains it any more."""

from dataclasses import replace

from diagnose.alerts.check import Check
from diagnose.alerts.life import State, advance
from diagnose.alerts.sightings import RunFindings, Sighting
from diagnose.causes import TABLE, Reach
from diagnose.findings import Kind, Severity
from tests.diagnose.alerts.made_checks import START_NS, Watched, finding, policy, quick, words
from tests.each_case import each_case

FLAP = finding(Kind.NIC_FLAP, 5, device="eth0")
HANG = finding(Kind.HUNG_COLLECTIVE, 9, severity=Severity.CRITICAL)
DECLINE = finding(Kind.MFU_DECLINE)
VAGUE_LATENESS = finding(Kind.LATE_LAUNCH)


def test_hang_alert_is_suppressed_while_a_nic_flap_alert_is_firing() -> None:
    watched = Watched(quick())
    assert words(watched.quietly(30, FLAP, HANG)) == ["firing nic-flap"]
    assert words(watched.quietly(300)) == ["resolved nic-flap"]


def test_suppressed_alert_is_sent_when_its_cause_resolves_first() -> None:
    watched = Watched(quick())
    watched.quietly(30, FLAP, DECLINE)
    told = watched.quietly(120, DECLINE)
    assert words(told) == ["resolved nic-flap", "firing mfu-decline"]


def test_suppressed_alert_that_ends_before_its_cause_is_never_sent() -> None:
    watched = Watched(quick())
    watched.quietly(30, FLAP, DECLINE)
    assert not watched.quietly(300, FLAP)
    assert words(watched.quietly(300)) == ["resolved nic-flap"]


def test_suppressed_alert_that_ended_with_its_cause_is_not_sent_during_keep_firing_time() -> None:
    watched = Watched(quick(keep_firing_for_s=300))
    watched.quietly(30, FLAP, DECLINE)
    assert not watched.quietly(200)


def test_sent_alert_is_resolved_only_at_its_own_end_when_its_cause_appears_later() -> None:
    watched = Watched(quick())
    assert words(watched.sees(DECLINE)) == ["firing mfu-decline"]
    assert words(watched.sees(FLAP, DECLINE)) == ["firing nic-flap"]
    assert words(watched.quietly(120, FLAP)) == ["resolved mfu-decline"]


def test_hang_alert_is_suppressed_for_at_most_two_minutes() -> None:
    watched = Watched(quick())
    assert words(watched.quietly(120, FLAP, HANG)) == ["firing nic-flap"]
    assert words(watched.sees(FLAP, HANG)) == ["firing hung-collective"]


def test_slow_link_on_another_host_is_suppressed_by_a_nic_flap_for_at_most_two_minutes() -> None:
    watched = Watched(quick())
    elsewhere = finding(Kind.SLOW_LINK, 17)
    assert words(watched.quietly(120, FLAP, elsewhere)) == ["firing nic-flap"]
    assert words(watched.sees(FLAP, elsewhere)) == ["firing slow-link"]


def test_slow_link_on_the_flapping_host_stays_suppressed() -> None:
    assert words(Watched(quick()).quietly(600, FLAP, finding(Kind.SLOW_LINK, 5))) == ["firing nic-flap"]


def test_cause_kept_firing_only_by_flap_damping_does_not_suppress_new_alerts() -> None:
    watched = Watched(quick(keep_firing_for_s=30))
    for _ in range(4):
        watched.sees(FLAP)
        watched.quietly(20)
    watched.quietly(60)
    assert any(alert.is_alive for alert in watched.state.alerts.values())
    assert words(watched.sees(HANG)) == ["firing hung-collective"]


def test_compute_straggler_suppresses_late_launch_and_mfu_decline_that_name_no_rank() -> None:
    slow = finding(Kind.COMPUTE_STRAGGLER, 5)
    assert words(Watched(quick()).sees(slow, VAGUE_LATENESS, DECLINE)) == ["firing compute-straggler"]


def test_compute_straggler_does_not_suppress_a_late_launch_on_another_host() -> None:
    told = Watched(quick()).sees(finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.LATE_LAUNCH, 17))
    assert sorted(words(told)) == ["firing compute-straggler", "firing late-launch"]


def test_throttled_gpu_suppresses_stragglers_only_on_its_own_host() -> None:
    hot = finding(Kind.GPU_THROTTLED, 5)
    told = Watched(quick()).sees(hot, finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.COMPUTE_STRAGGLER, 17))
    assert sorted(words(told)) == ["firing compute-straggler", "firing gpu-throttled"]


def test_slow_link_alert_with_a_rank_suppresses_one_without_a_rank() -> None:
    told = Watched(quick()).sees(finding(Kind.SLOW_LINK), finding(Kind.SLOW_LINK, 5))
    assert [notice.labels.get("rank") for notice in told] == ["5"]


def test_pending_cause_suppresses_its_effect() -> None:
    watched = Watched(policy(for_s=10))
    told = watched.quietly(30, finding(Kind.COMPUTE_STRAGGLER, 5), DECLINE)
    assert words(told) == ["firing compute-straggler"]


def test_a_cause_that_is_sent_to_no_hook_suppresses_nothing() -> None:
    rules = quick()
    silent = replace(rules.rules["nic-flap"], hooks=())
    watched = Watched(replace(rules, rules={**rules.rules, "nic-flap": silent}))
    assert words(watched.sees(FLAP, HANG)) == ["firing hung-collective"]


def test_cause_does_not_suppress_alerts_of_another_run() -> None:
    runs = tuple(
        RunFindings(run_id=run_id, attempt=0, step_s=1, sightings=(Sighting(finding=one, has_known_time=True),))
        for run_id, one in (("monday", FLAP), ("tuesday", HANG))
    )
    outcome = advance(State(), Check(now_ns=START_NS, runs=runs), quick())
    told = words(delivery.notice for delivery in outcome.deliveries)
    assert sorted(told) == ["firing hung-collective", "firing nic-flap"]


@each_case("kind", sorted(Kind))
def test_no_kind_suppresses_itself_through_a_chain_of_causes(kind: Kind) -> None:
    """Two alerts that suppress each other would both stay unsent. A node is a kind, with or without a named place."""
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
