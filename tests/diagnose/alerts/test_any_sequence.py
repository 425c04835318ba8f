"""Random sequences of checks: no alert is sent twice, and every sent alert is resolved."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.alerts.alert import alert_text, read_alert
from diagnose.alerts.life import State
from diagnose.alerts.notice import Notice, Status
from diagnose.alerts.rules import DEFAULTS, Policy
from diagnose.findings import Finding, Kind, Severity
from tests.diagnose.alerts.made_checks import SECOND_NS, Watched, finding, policy, quick

KEEP_S = 60
FOR_S = 10

KINDS = (Kind.COMPUTE_STRAGGLER, Kind.SLOW_LINK, Kind.NIC_FLAP, Kind.HUNG_COLLECTIVE, Kind.MFU_DECLINE)
RANKS = ((), (5,), (4, 5), (12,))

findings = st.builds(
    lambda kind, ranks, severity: finding(kind, *ranks, severity=severity),
    st.sampled_from(KINDS),
    st.sampled_from(RANKS),
    st.sampled_from([Severity.WARNING, Severity.CRITICAL, Severity.INFO]),
)
checks = st.tuples(
    st.sampled_from(["sees", "sees", "sees", "sees vaguely", "is blind", "fails", "no run"]),
    st.sampled_from([1, 5, 30, 70, 400]),
    st.lists(findings, max_size=4),
)


def play(watched: Watched, sequence: Sequence[tuple[str, float, list[Finding]]], *, restarts: bool = False) -> None:
    for what, after_s, seen in sequence:
        if what.startswith("sees"):
            watched.sees(*seen, after_s=after_s, has_known_time=what == "sees")
        else:
            {"is blind": watched.is_blind, "fails": watched.fails, "no run": watched.sees_no_run}[what](after_s)
        if restarts:
            watched.state = restarted(watched.state)


def restarted(state: State) -> State:
    """The state as another process reads it from its stored text."""
    return replace(state, alerts={name: read_alert(alert_text(one)) for name, one in state.alerts.items()})


def by_fingerprint(notices: Sequence[Notice]) -> dict[str, list[Notice]]:
    told: dict[str, list[Notice]] = {}
    for notice in notices:
        told.setdefault(notice.fingerprint, []).append(notice)
    return told


@settings(deadline=None, max_examples=25)
@given(st.lists(checks, max_size=25), st.booleans())
def test_each_alert_is_sent_in_order_and_resolved(sequence: list[tuple[str, float, list[Finding]]], real: bool) -> None:
    watched = Watched(policy(resend_s=20) if real else quick(for_s=FOR_S, keep_firing_for_s=KEEP_S, resend_s=20))
    play(watched, sequence)
    watched.quietly(1000)
    watched.quietly(max(rule.keep_firing_for_s for rule in DEFAULTS.values()) + 60)
    numbers = [notice.number for notice in watched.told]
    assert numbers == sorted(set(numbers))
    for told in by_fingerprint(watched.told).values():
        fires: Notice | None = None
        for notice in told:
            if notice.status is Status.RESOLVED:
                assert fires is not None
                fires = None
            elif fires is None:
                assert not notice.repeated
                fires = notice
            else:
                assert notice.repeated or worse(notice, fires)
                assert notice.labels == fires.labels
                fires = fires if notice.repeated else notice
        assert fires is None
    for states in changes(watched).values():
        assert states == ["raised", *["worse"] * (len(states) - 2), "resolved"]


def changes(watched: Watched) -> dict[tuple[str, int], list[str]]:
    """The states of each finding of the log, in order."""
    found: dict[tuple[str, int], list[str]] = {}
    for row in watched.log:
        found.setdefault((row["fingerprint"], row["raised_ns"]), []).append(row["state"])
    return found


def worse(notice: Notice, before: Notice) -> bool:
    order = [Severity.INFO, Severity.WARNING, Severity.CRITICAL]
    return order.index(notice.severity) > order.index(before.severity)


@settings(deadline=None, max_examples=30)
@given(st.lists(checks, max_size=25))
def test_restart_between_any_two_checks_does_not_change_notices_state_or_log(
    sequence: list[tuple[str, float, list[Finding]]],
) -> None:
    one, other = Watched(policy(resend_s=20)), Watched(policy(resend_s=20))
    play(one, sequence)
    play(other, sequence, restarts=True)
    assert one.deliveries == other.deliveries
    assert one.state == other.state
    assert one.log == other.log


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from([5, 5, 5, 20, 90]), st.booleans()), max_size=60))
def test_each_incident_is_sent_once(looks_at_one: list[tuple[int, bool]]) -> None:
    """An incident ends when its finding is absent for the keep-firing time."""
    watched = Watched(no_damping())
    straggler, incidents, unseen_s, fires = finding(Kind.COMPUTE_STRAGGLER, 5), 0, 10.0**9, []
    for after_s, seen in looks_at_one:
        told = watched.sees(*([straggler] if seen else []), after_s=after_s)
        fires += [notice for notice in told if notice.status is Status.FIRING]
        # The quiet time starts at the first check that does not show the finding.
        unseen_s = 0.0 if seen and unseen_s < 0 else unseen_s
        if seen:
            incidents += unseen_s >= KEEP_S
            unseen_s = -1.0
        else:
            unseen_s = 0.0 if unseen_s < 0 else unseen_s + after_s
    assert len(fires) == incidents
    starts = [notice.starts_ns for notice in fires]
    assert all(later - earlier >= KEEP_S * SECOND_NS for earlier, later in pairwise(starts))


def no_damping() -> Policy:
    rules = quick(keep_firing_for_s=KEEP_S)
    return replace(rules, flapping=replace(rules.flapping, times=1000))
