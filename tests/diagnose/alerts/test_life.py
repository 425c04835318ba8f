"""The life of one alert, check by check."""

from dataclasses import replace

from diagnose.alerts.alert import Phase, fingerprint_of, labels_of
from diagnose.alerts.life import UNKNOWN_S
from diagnose.alerts.notice import Status
from diagnose.alerts.rules import Policy
from diagnose.findings import Finding, Kind, Severity
from tests.diagnose.alerts.made_checks import RUN, START_NS, Watched, finding, policy, quick, words
from tests.each_case import each_case

STRAGGLER = finding(Kind.COMPUTE_STRAGGLER, 5)


def test_alert_stays_pending_until_its_finding_has_lasted_the_required_time() -> None:
    watched = Watched(quick(for_s=10))
    assert not watched.sees(STRAGGLER)
    assert not watched.sees(STRAGGLER)
    assert words(watched.sees(STRAGGLER)) == ["firing compute-straggler"]


def test_alert_fires_at_the_first_check_when_the_required_time_is_zero() -> None:
    assert words(Watched(quick()).sees(STRAGGLER)) == ["firing compute-straggler"]


def test_pending_alert_is_forgotten_when_its_finding_does_not_return() -> None:
    watched = Watched(quick(for_s=10))
    watched.sees(STRAGGLER)
    assert not watched.quietly(60)
    assert not watched.state.alerts


def test_pending_time_continues_when_one_check_misses_the_finding() -> None:
    watched = Watched(quick(for_s=10))
    watched.sees(STRAGGLER)
    watched.sees()
    assert words(watched.sees(STRAGGLER)) == ["firing compute-straggler"]


def test_lasting_finding_is_sent_once() -> None:
    watched = Watched(quick())
    watched.quietly(600, STRAGGLER)
    assert words(watched.told) == ["firing compute-straggler"]


def test_alert_is_resolved_once_after_the_keep_firing_time_without_its_finding() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER)
    assert not watched.quietly(60)
    (over,) = watched.sees()
    assert over.status is Status.RESOLVED
    assert over.cost == "3.0 s lost", "the cost of a resolved alert does not grow"
    assert over.ends_ns - over.starts_ns == 5_000_000_000
    assert not watched.quietly(600)


def test_alert_stays_firing_when_its_finding_returns_within_the_keep_firing_time() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(20):
        watched.sees(STRAGGLER)
        watched.quietly(50)
    assert words(watched.told) == ["firing compute-straggler"]


def test_alert_is_kept_firing_for_ten_steps_when_steps_are_long() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER, step_s=30.0)
    for _ in range(59):
        assert not watched.sees(step_s=30.0)
    assert words(watched.sees(after_s=10, step_s=30.0)) == ["resolved compute-straggler"]


def test_finding_that_returns_after_its_end_fires_again_with_the_same_fingerprint() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(2):
        watched.sees(STRAGGLER)
        watched.quietly(300)
    assert words(watched.told) == ["firing compute-straggler", "resolved compute-straggler"] * 2
    assert len({notice.fingerprint for notice in watched.told}) == 1


def test_flapping_alert_is_kept_firing_until_a_longer_quiet_time() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(10):
        watched.sees(STRAGGLER)
        watched.quietly(120)
    fired = [word for word in words(watched.told) if word.startswith("firing")]
    assert len(fired) == 4  # it came back three times; from then on it is held
    assert watched.told[-1].status is Status.FIRING
    assert words(watched.quietly(900)) == ["resolved compute-straggler"]


def test_failed_check_does_not_change_pending_or_firing_alerts() -> None:
    watched = Watched(quick(for_s=10, keep_firing_for_s=60))
    watched.sees(STRAGGLER)
    for _ in range(30):
        assert not watched.is_blind()
        assert not watched.fails()
    assert words(watched.sees(STRAGGLER)) == ["firing compute-straggler"]
    for _ in range(30):
        assert not watched.is_blind()
        assert not watched.fails()
    assert not watched.sees()
    assert not watched.sees(STRAGGLER)


def test_alert_of_a_run_unknown_to_the_store_is_resolved_only_after_a_day() -> None:
    watched = Watched(quick())
    watched.sees(finding(Kind.DEAD_RANK, 5))
    assert words(watched.sees_no_run(known=False)) == []
    assert words(watched.sees_no_run(after_s=UNKNOWN_S - 10, known=False)) == []
    assert words(watched.sees_no_run(after_s=10, known=False)) == ["resolved dead-rank"]


def test_alert_continues_without_a_new_notice_when_the_store_knows_its_run_again() -> None:
    watched = Watched(quick())
    watched.sees(finding(Kind.DEAD_RANK, 5))
    watched.sees_no_run(known=False)
    assert words(watched.sees(finding(Kind.DEAD_RANK, 5), after_s=3600)) == []


def test_alert_is_resolved_when_its_run_is_over() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER)
    told = [notice for _ in range(13) for notice in watched.sees_no_run()]
    assert words(told) == ["resolved compute-straggler"]


def test_fingerprint_does_not_depend_on_severity_cost_steps_or_stage() -> None:
    one = finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.INFO, seconds_lost=1, steps=(1, 9), stage="optimizer")
    other = finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.CRITICAL, seconds_lost=99, steps=(5, 900))
    assert fingerprint_of(labels_of(one, RUN, 0)) == fingerprint_of(labels_of(other, RUN, 0))


@each_case(
    "other",
    [
        labels_of(STRAGGLER, RUN, 1),
        labels_of(STRAGGLER, "tuesday", 0),
        labels_of(finding(Kind.SLOW_LINK, 5), RUN, 0),
        labels_of(finding(Kind.COMPUTE_STRAGGLER, 6), RUN, 0),
        labels_of(finding(Kind.COMPUTE_STRAGGLER, 5, host="other"), RUN, 0),
        labels_of(finding(Kind.COMPUTE_STRAGGLER, 5, device="eth0"), RUN, 0),
    ],
)
def test_fingerprint_differs_for_another_attempt_run_kind_rank_host_or_device(other: dict[str, str]) -> None:
    assert fingerprint_of(other) != fingerprint_of(labels_of(STRAGGLER, RUN, 0))


def test_stage_label_is_set_only_when_the_finding_names_no_rank() -> None:
    assert labels_of(finding(Kind.SLOW_LINK, stage="dp"), RUN, 0)["stage"] == "dp"
    assert "stage" not in labels_of(finding(Kind.SLOW_LINK, 5, stage="dp"), RUN, 0)


def test_labels_name_the_host_and_no_rank_when_several_of_its_ranks_are_suspects() -> None:
    labels = labels_of(finding(Kind.COMPUTE_STRAGGLER, 0, 1, 2), RUN, 0)
    assert labels["host"] == "gpu-00"
    assert "rank" not in labels


def test_finding_that_spreads_to_other_ranks_of_its_host_stays_one_alert() -> None:
    watched = Watched(quick())
    for ranks in ([5], [4, 5], [4], [4, 5, 6], [5]):
        watched.sees(finding(Kind.COMPUTE_STRAGGLER, *ranks))
    assert words(watched.told) == ["firing compute-straggler"]


def test_two_findings_with_different_ranks_of_one_host_give_one_alert() -> None:
    watched = Watched(quick())
    told = watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.COMPUTE_STRAGGLER, 5, 6, seconds_lost=9))
    assert words(told) == ["firing compute-straggler"]


def test_stragglers_on_two_hosts_give_two_alerts() -> None:
    told = Watched(quick()).sees(finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.COMPUTE_STRAGGLER, 17))
    assert words(told) == ["firing compute-straggler"] * 2


def test_finding_below_the_severity_of_its_rule_neither_starts_nor_ends_an_alert() -> None:
    watched = Watched(quick())
    slight = replace(STRAGGLER, severity=Severity.INFO)
    assert not watched.sees(slight)
    watched.sees(STRAGGLER)
    watched.quietly(300, slight)
    assert words(watched.told) == ["firing compute-straggler"]


def test_worsened_alert_is_sent_again_with_the_same_labels() -> None:
    watched = Watched(quick())
    watched.sees(STRAGGLER)
    (worse,) = watched.sees(replace(STRAGGLER, severity=Severity.CRITICAL))
    assert not worse.repeated
    assert worse.severity is Severity.CRITICAL
    assert worse.labels == watched.told[0].labels
    assert worse.labels["severity"] == "warning"
    assert not watched.sees(STRAGGLER)
    assert not watched.sees(replace(STRAGGLER, severity=Severity.CRITICAL))


def on_hosts(count: int) -> Finding:
    return finding(Kind.COMPUTE_STRAGGLER, *(8 * host for host in range(count)))


def test_alert_that_spreads_is_sent_again_each_time_its_number_of_hosts_doubles() -> None:
    watched = Watched(quick())
    told = {
        count: [notice.details.get("hosts", "") for notice in watched.sees(on_hosts(count))] for count in range(1, 18)
    }
    assert [count for count, notices in told.items() if notices] == [1, 2, 4, 8, 16]
    assert told[2] == ["gpu-00, gpu-01"]
    assert len({notice.fingerprint for notice in watched.told}) == 1
    assert not any(notice.repeated for notice in watched.told)


def test_alert_that_shrinks_and_grows_to_its_former_size_is_not_sent_again() -> None:
    watched = Watched(quick())
    for count in (1, 2, 1, 2, 1, 2):
        watched.sees(on_hosts(count))
    assert words(watched.told) == ["firing compute-straggler"] * 2


def test_alert_that_spreads_within_its_host_is_not_sent_again() -> None:
    watched = Watched(quick())
    for count in range(1, 9):
        watched.sees(finding(Kind.COMPUTE_STRAGGLER, *range(count)))
    assert words(watched.told) == ["firing compute-straggler"]


def test_alert_that_spreads_while_pending_is_sent_once() -> None:
    watched = Watched(quick(for_s=5))
    watched.sees(on_hosts(1))
    watched.sees(on_hosts(4))
    watched.sees(on_hosts(4))
    assert words(watched.told) == ["firing compute-straggler"]


def test_alert_that_spread_at_lower_severity_is_not_sent_again_at_its_former_severity() -> None:
    watched = Watched(quick())
    worst = replace(on_hosts(2), severity=Severity.CRITICAL)
    for one in (replace(on_hosts(1), severity=Severity.CRITICAL), on_hosts(2), worst):
        watched.sees(one)
    assert [str(notice.severity) for notice in watched.told] == ["critical", "warning"]


def test_firing_alert_is_sent_again_after_resend_s_even_if_the_store_does_not_answer() -> None:
    watched = Watched(quick(resend_s=60))
    watched.quietly(60, STRAGGLER)
    assert words(watched.told) == ["firing compute-straggler"]
    assert words(watched.is_blind()) == ["still compute-straggler"]
    assert not watched.is_blind()


def test_firing_alert_is_sent_again_only_to_hooks_with_resend_s() -> None:
    rules = policy(hooks=("log", "manager"), for_s=0)
    watched = Watched(replace(rules, resend_s={"log": 0, "manager": 30}))
    watched.quietly(60, STRAGGLER)
    assert [delivery.hooks for delivery in watched.deliveries] == [("log", "manager"), ("manager",)]


def restarted_with(rules: Policy, watched: Watched) -> Watched:
    """The state machine after a restart with other rules."""
    later = Watched(rules, watched.state)
    later.now_s = watched.now_s
    return later


def test_hook_added_to_the_rules_receives_a_firing_alert_once_and_its_end() -> None:
    watched = Watched(quick(hooks=("log",)))
    watched.sees(STRAGGLER)
    later = restarted_with(quick(hooks=("log", "pager")), watched)
    later.quietly(30, STRAGGLER)
    later.quietly(120)
    assert [(str(told.notice.status), told.hooks) for told in later.deliveries] == [
        ("firing", ("pager",)),
        ("resolved", ("log", "pager")),
    ]


def test_worsened_alert_and_its_end_are_sent_only_to_the_hooks_of_the_new_rules() -> None:
    watched = Watched(quick(hooks=("old",), resend_s=1))
    watched.sees(STRAGGLER)
    later = restarted_with(quick(hooks=("new",)), watched)
    later.sees(finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.CRITICAL))
    later.quietly(120)
    assert [(str(told.notice.status), told.hooks) for told in later.deliveries] == [
        ("firing", ("new",)),
        ("resolved", ("new",)),
    ]


def test_kind_whose_hooks_were_removed_sends_only_the_end_of_its_firing_alert() -> None:
    watched = Watched(quick(hooks=("log",), resend_s=1))
    watched.sees(STRAGGLER)
    usual = quick(hooks=("log",), resend_s=1)
    quiet = replace(usual, rules={kind: replace(rule, hooks=()) for kind, rule in usual.rules.items()})
    later = restarted_with(quiet, watched)
    assert not later.sees(finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.CRITICAL))
    assert not later.quietly(60, STRAGGLER)
    assert words(later.quietly(120)) == ["resolved compute-straggler"]


def test_notice_numbers_are_consecutive_from_one() -> None:
    watched = Watched(quick(resend_s=10))
    watched.quietly(60, STRAGGLER, finding(Kind.DEAD_RANK, 3, severity=Severity.CRITICAL))
    numbers = [notice.number for notice in watched.told]
    assert numbers == list(range(1, len(numbers) + 1))


def test_finding_without_known_time_does_not_keep_an_alert_with_known_time_firing() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER, has_known_time=True)
    told = [notice for _ in range(13) for notice in watched.sees(STRAGGLER, has_known_time=False)]
    assert words(told) == ["resolved compute-straggler"]


def test_alert_without_known_time_stays_firing_while_its_finding_lasts() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    told = [notice for _ in range(40) for notice in watched.sees(STRAGGLER, has_known_time=False)]
    assert words(told) == ["firing compute-straggler"]


def test_clock_set_back_does_not_delay_the_end_of_an_alert() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER)
    watched.sees()
    watched.sees(after_s=-3600)
    assert words(watched.quietly(65)) == ["resolved compute-straggler"]


def test_clock_set_back_does_not_stop_the_resending_of_a_firing_alert() -> None:
    watched = Watched(quick(resend_s=60))
    watched.quietly(600, STRAGGLER)
    watched.sees(STRAGGLER, after_s=-300)
    assert words(watched.quietly(65, STRAGGLER)) == ["still compute-straggler"]


def test_recorded_returns_of_an_alert_are_not_in_the_future_after_the_clock_is_set_back() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(2):
        watched.quietly(30)
        watched.sees(STRAGGLER)
    watched.sees(STRAGGLER, after_s=-40)
    (alert,) = watched.state.alerts.values()
    assert max(alert.returns_ns) == START_NS + watched.now_s * 10**9


def test_notice_contains_labels_start_time_cost_steps_and_next_step() -> None:
    (notice,) = Watched(quick()).sees(finding(Kind.COMPUTE_STRAGGLER, 5, seconds_lost=12.7))
    assert notice.labels == {
        "alertname": "compute-straggler",
        "run_id": RUN,
        "attempt": "0",
        "host": "gpu-00",
        "rank": "5",
        "severity": "warning",
    }
    assert "since 2026-09-21" in notice.summary
    assert notice.cost == "12.7 s lost so far"
    assert notice.next_step == "look at it"
    assert notice.starts_ns == START_NS + 5_000_000_000
    assert notice.ends_ns == 0
    assert notice.details["steps"] == "100-140"


def test_resolved_alert_is_kept_in_the_state_for_a_day() -> None:
    watched = Watched(quick())
    watched.sees(STRAGGLER)
    watched.quietly(120)
    assert [alert.phase for alert in watched.state.alerts.values()] == [Phase.RESOLVED]
    watched.sees(after_s=86_400)
    assert not watched.state.alerts
