"""The onset of an alert: the step at which its problem began, not the first check that found it."""

from diagnose.alerts.alert import alert_text, read_alert
from diagnose.alerts.onset import Onset
from diagnose.findings import Kind
from tests.diagnose.alerts.made_checks import START_NS, Watched, finding, quick

SLOW = finding(Kind.COMPUTE_STRAGGLER, 5)


def onset(step: int, *, is_exact: bool = True) -> Onset:
    return Onset(step=step, at_ns=START_NS - 1000 * 10**9 + step, is_exact=is_exact)


def test_alert_keeps_the_earliest_onset_and_prefers_an_exact_one_to_a_bound() -> None:
    watched = Watched(quick())
    for seen, known in (
        (onset(560, is_exact=False), onset(560, is_exact=False)),
        (onset(420, is_exact=False), onset(420, is_exact=False)),
        (onset(600), onset(600)),
        (onset(580), onset(580)),
        (onset(300, is_exact=False), onset(580)),
        (None, onset(580)),
    ):
        watched.sees(SLOW, onset=seen)
        (alert,) = watched.state.alerts.values()
        assert alert.onset == known
        assert alert.since_ns == known.at_ns
        assert read_alert(alert_text(alert)) == alert


def test_notice_and_log_contain_the_onset_and_a_returned_alert_has_a_new_onset() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    (notice,) = watched.sees(SLOW, onset=onset(600))
    assert notice.summary.endswith("; since step 600, 2026-09-21 13:56:40 UTC")
    watched.quietly(120)
    watched.sees(SLOW, onset=onset(900, is_exact=False))
    assert [(row["state"], row["onset_step"], row["onset_exact"]) for row in watched.log] == [
        ("raised", 600, 1),
        ("resolved", 600, 1),
        ("raised", 900, 0),
    ]


def test_alerts_of_a_run_that_ended_are_resolved_at_the_next_check() -> None:
    watched = Watched(quick(keep_firing_for_s=3600))
    watched.sees(SLOW, finding(Kind.DEAD_RANK, 3))
    resolved = watched.sees(finding(Kind.DEAD_RANK, 3), has_ended=True)
    assert [notice.labels["alertname"] for notice in resolved] == ["compute-straggler"]
    assert [notice.labels["alertname"] for notice in watched.sees_no_run()] == ["dead-rank"]
