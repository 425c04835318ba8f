"""The life of one alert, check by check."""

from dataclasses import replace

import pytest

from diagnose.alerts.alert import Phase, fingerprint_of, labels_of
from diagnose.alerts.life import UNKNOWN_S
from diagnose.alerts.notice import Status
from diagnose.alerts.rules import Policy
from diagnose.findings import Finding, Kind, Severity
from tests.diagnose.alerts.made_checks import RUN, START_NS, Watched, finding, policy, quick, words

STRAGGLER = finding(Kind.COMPUTE_STRAGGLER, 5)


def test_an_alert_is_pending_until_it_was_seen_for_long_enough() -> None:
    watched = Watched(quick(for_s=10))
    assert not watched.sees(STRAGGLER)
    assert not watched.sees(STRAGGLER)
    assert words(watched.sees(STRAGGLER)) == ["firing compute-straggler"]


def test_without_a_time_to_wait_the_first_look_fires() -> None:
    assert words(Watched(quick()).sees(STRAGGLER)) == ["firing compute-straggler"]


def test_a_blip_is_forgotten() -> None:
    watched = Watched(quick(for_s=10))
    watched.sees(STRAGGLER)
    assert not watched.quietly(60)
    assert not watched.state.alerts


def test_one_look_that_misses_it_does_not_make_a_pending_alert_begin_anew() -> None:
    watched = Watched(quick(for_s=10))
    watched.sees(STRAGGLER)
    watched.sees()
    assert words(watched.sees(STRAGGLER)) == ["firing compute-straggler"]


def test_what_lasts_is_told_once() -> None:
    watched = Watched(quick())
    watched.quietly(600, STRAGGLER)
    assert words(watched.told) == ["firing compute-straggler"]


def test_it_is_taken_back_after_it_was_quiet_for_long_enough() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER)
    assert not watched.quietly(60)
    (over,) = watched.sees()
    assert over.status is Status.RESOLVED
    assert over.ends_ns - over.starts_ns == 5_000_000_000
    assert not watched.quietly(600)


def test_it_is_held_firing_while_it_comes_back_in_time() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(20):
        watched.sees(STRAGGLER)
        watched.quietly(50)
    assert words(watched.told) == ["firing compute-straggler"]


def test_where_a_step_takes_long_it_is_held_for_ten_steps() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER, step_s=30.0)
    for _ in range(59):
        assert not watched.sees(step_s=30.0)
    assert words(watched.sees(after_s=10, step_s=30.0)) == ["resolved compute-straggler"]


def test_what_comes_back_after_its_end_is_told_anew() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(2):
        watched.sees(STRAGGLER)
        watched.quietly(300)
    assert words(watched.told) == ["firing compute-straggler", "resolved compute-straggler"] * 2
    assert len({notice.fingerprint for notice in watched.told}) == 1


def test_what_keeps_coming_and_going_is_held_until_it_was_quiet_for_longer() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(10):
        watched.sees(STRAGGLER)
        watched.quietly(120)
    fired = [word for word in words(watched.told) if word.startswith("firing")]
    assert len(fired) == 4  # it came back three times; from then on it is held
    assert watched.told[-1].status is Status.FIRING
    assert words(watched.quietly(900)) == ["resolved compute-straggler"]


def test_a_failed_look_moves_nothing() -> None:
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


def test_of_a_run_that_the_store_does_not_know_nothing_is_told_for_a_day() -> None:
    watched = Watched(quick())
    watched.sees(finding(Kind.DEAD_RANK, 5))
    assert words(watched.sees_no_run(known=False)) == []
    assert words(watched.sees_no_run(after_s=UNKNOWN_S - 10, known=False)) == []
    assert words(watched.sees_no_run(after_s=10, known=False)) == ["resolved dead-rank"]


def test_a_run_that_the_store_knows_again_goes_on_where_it_was() -> None:
    watched = Watched(quick())
    watched.sees(finding(Kind.DEAD_RANK, 5))
    watched.sees_no_run(known=False)
    assert words(watched.sees(finding(Kind.DEAD_RANK, 5), after_s=3600)) == []


def test_alerts_of_a_run_that_is_over_end() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER)
    told = [notice for _ in range(13) for notice in watched.sees_no_run()]
    assert words(told) == ["resolved compute-straggler"]


def test_numbers_change_and_the_alert_stays_the_same() -> None:
    one = finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.INFO, seconds_lost=1, steps=(1, 9), stage="optimizer")
    other = finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.CRITICAL, seconds_lost=99, steps=(5, 900))
    assert fingerprint_of(labels_of(one, RUN, 0)) == fingerprint_of(labels_of(other, RUN, 0))


@pytest.mark.parametrize(
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
def test_another_place_is_another_alert(other: dict[str, str]) -> None:
    assert fingerprint_of(other) != fingerprint_of(labels_of(STRAGGLER, RUN, 0))


def test_the_stage_names_a_trouble_only_where_nobody_is_named() -> None:
    assert labels_of(finding(Kind.SLOW_LINK, stage="dp"), RUN, 0)["stage"] == "dp"
    assert "stage" not in labels_of(finding(Kind.SLOW_LINK, 5, stage="dp"), RUN, 0)


def test_several_ranks_of_a_host_are_that_host() -> None:
    labels = labels_of(finding(Kind.COMPUTE_STRAGGLER, 0, 1, 2), RUN, 0)
    assert labels["host"] == "gpu-00"
    assert "rank" not in labels


def test_a_trouble_that_spreads_over_its_host_is_one_trouble() -> None:
    watched = Watched(quick())
    for ranks in ([5], [4, 5], [4], [4, 5, 6], [5]):
        watched.sees(finding(Kind.COMPUTE_STRAGGLER, *ranks))
    assert words(watched.told) == ["firing compute-straggler"]


def test_two_windows_that_name_one_trouble_differently_give_one_alert() -> None:
    watched = Watched(quick())
    told = watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.COMPUTE_STRAGGLER, 5, 6, seconds_lost=9))
    assert words(told) == ["firing compute-straggler"]


def test_two_ranks_are_two_troubles() -> None:
    told = Watched(quick()).sees(finding(Kind.COMPUTE_STRAGGLER, 5), finding(Kind.COMPUTE_STRAGGLER, 17))
    assert words(told) == ["firing compute-straggler"] * 2


def test_what_is_less_severe_than_its_rule_asks_begins_no_alert_and_ends_none() -> None:
    watched = Watched(quick())
    slight = replace(STRAGGLER, severity=Severity.INFO)
    assert not watched.sees(slight)
    watched.sees(STRAGGLER)
    watched.quietly(300, slight)
    assert words(watched.told) == ["firing compute-straggler"]


def test_what_grows_worse_is_told_again_and_its_labels_stay() -> None:
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


def test_what_spreads_is_told_again_each_time_its_hosts_have_doubled() -> None:
    watched = Watched(quick())
    told = {
        count: [notice.details.get("hosts", "") for notice in watched.sees(on_hosts(count))] for count in range(1, 18)
    }
    assert [count for count, notices in told.items() if notices] == [1, 2, 4, 8, 16]
    assert told[2] == ["gpu-00, gpu-01"]
    assert len({notice.fingerprint for notice in watched.told}) == 1
    assert not any(notice.repeated for notice in watched.told)


def test_what_shrinks_and_grows_again_is_not_told_again() -> None:
    watched = Watched(quick())
    for count in (1, 2, 1, 2, 1, 2):
        watched.sees(on_hosts(count))
    assert words(watched.told) == ["firing compute-straggler"] * 2


def test_what_spreads_on_its_host_is_not_told_again() -> None:
    watched = Watched(quick())
    for count in range(1, 9):
        watched.sees(finding(Kind.COMPUTE_STRAGGLER, *range(count)))
    assert words(watched.told) == ["firing compute-straggler"]


def test_what_spread_before_anybody_was_told_is_told_once() -> None:
    watched = Watched(quick(for_s=5))
    watched.sees(on_hosts(1))
    watched.sees(on_hosts(4))
    watched.sees(on_hosts(4))
    assert words(watched.told) == ["firing compute-straggler"]


def test_what_spreads_while_it_is_less_severe_does_not_make_its_worst_news_again() -> None:
    watched = Watched(quick())
    worst = replace(on_hosts(2), severity=Severity.CRITICAL)
    for one in (replace(on_hosts(1), severity=Severity.CRITICAL), on_hosts(2), worst):
        watched.sees(one)
    assert [str(notice.severity) for notice in watched.told] == ["critical", "warning"]


def test_a_hook_that_asks_for_it_is_told_again_while_it_lasts_even_if_nobody_can_look() -> None:
    watched = Watched(quick(resend_s=60))
    watched.quietly(60, STRAGGLER)
    assert words(watched.told) == ["firing compute-straggler"]
    assert words(watched.is_blind()) == ["still compute-straggler"]
    assert not watched.is_blind()


def test_only_hooks_that_ask_for_it_are_told_again() -> None:
    rules = policy(hooks=("log", "manager"), for_s=0)
    watched = Watched(replace(rules, resend_s={"log": 0, "manager": 30}))
    watched.quietly(60, STRAGGLER)
    assert [delivery.hooks for delivery in watched.deliveries] == [("log", "manager"), ("manager",)]


def under(rules: Policy, watched: Watched) -> Watched:
    """The watcher, started again with another file of rules."""
    later = Watched(rules, watched.state)
    later.now_s = watched.now_s
    return later


def test_a_hook_that_is_new_in_the_rules_is_told_once_of_what_fires_and_of_its_end() -> None:
    watched = Watched(quick(hooks=("log",)))
    watched.sees(STRAGGLER)
    later = under(quick(hooks=("log", "pager")), watched)
    later.quietly(30, STRAGGLER)
    later.quietly(120)
    assert [(str(told.notice.status), told.hooks) for told in later.deliveries] == [
        ("firing", ("pager",)),
        ("resolved", ("log", "pager")),
    ]


def test_a_hook_that_is_gone_from_the_rules_is_told_nothing_and_what_grows_worse_is_told_to_those_there_are() -> None:
    watched = Watched(quick(hooks=("old",), resend_s=1))
    watched.sees(STRAGGLER)
    later = under(quick(hooks=("new",)), watched)
    later.sees(finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.CRITICAL))
    later.quietly(120)
    assert [(str(told.notice.status), told.hooks) for told in later.deliveries] == [
        ("firing", ("new",)),
        ("resolved", ("new",)),
    ]


def test_a_kind_that_was_made_quiet_is_told_no_more_but_that_it_is_over() -> None:
    watched = Watched(quick(hooks=("log",), resend_s=1))
    watched.sees(STRAGGLER)
    usual = quick(hooks=("log",), resend_s=1)
    quiet = replace(usual, rules={kind: replace(rule, hooks=()) for kind, rule in usual.rules.items()})
    later = under(quiet, watched)
    assert not later.sees(finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.CRITICAL))
    assert not later.quietly(60, STRAGGLER)
    assert words(later.quietly(120)) == ["resolved compute-straggler"]


def test_numbers_of_notices_count_upwards() -> None:
    watched = Watched(quick(resend_s=10))
    watched.quietly(60, STRAGGLER, finding(Kind.DEAD_RANK, 3, severity=Severity.CRITICAL))
    numbers = [notice.number for notice in watched.told]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_vague_finding_over_a_long_window_does_not_keep_alive_what_the_newest_steps_no_longer_show() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER, has_known_time=True)
    told = [notice for _ in range(13) for notice in watched.sees(STRAGGLER, has_known_time=False)]
    assert words(told) == ["resolved compute-straggler"]


def test_what_only_a_long_window_shows_lasts_as_long_as_it_does() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    told = [notice for _ in range(40) for notice in watched.sees(STRAGGLER, has_known_time=False)]
    assert words(told) == ["firing compute-straggler"]


def test_a_clock_that_is_set_back_holds_nothing_up() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(STRAGGLER)
    watched.sees()
    watched.sees(after_s=-3600)
    assert words(watched.quietly(65)) == ["resolved compute-straggler"]


def test_a_clock_that_is_set_back_by_less_than_it_fires_does_not_keep_it_from_being_told_again() -> None:
    watched = Watched(quick(resend_s=60))
    watched.quietly(600, STRAGGLER)
    watched.sees(STRAGGLER, after_s=-300)
    assert words(watched.quietly(65, STRAGGLER)) == ["still compute-straggler"]


def test_a_clock_that_is_set_back_leaves_no_return_in_the_future() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    for _ in range(2):
        watched.quietly(30)
        watched.sees(STRAGGLER)
    watched.sees(STRAGGLER, after_s=-40)
    (alert,) = watched.state.alerts.values()
    assert max(alert.returns_ns) == START_NS + watched.now_s * 10**9


def test_a_notice_says_who_since_when_what_it_costs_and_what_to_do() -> None:
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


def test_a_resolved_alert_is_listed_for_a_day() -> None:
    watched = Watched(quick())
    watched.sees(STRAGGLER)
    watched.quietly(120)
    assert [alert.phase for alert in watched.state.alerts.values()] == [Phase.RESOLVED]
    watched.sees(after_s=86_400)
    assert not watched.state.alerts
