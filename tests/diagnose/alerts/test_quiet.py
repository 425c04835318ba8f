"""People are not notified of acknowledged and silenced findings. A hook that passes silences on still receives them."""

from dataclasses import replace

from diagnose.alerts.alert import alert_text, read_alert
from diagnose.alerts.life import State
from diagnose.alerts.notice import ACKNOWLEDGED_NS, Silence, notice_text, read_notice
from diagnose.alerts.quiet import quiets_in
from diagnose.findings import Kind, Severity
from telemetry.finding_log import Action
from tests.diagnose.alerts.made_checks import START_NS, Watched, finding, policy, words

SLOW = finding(Kind.COMPUTE_STRAGGLER, 5)
PEOPLE, MANAGER = "people", "manager"


def watched_by_both() -> Watched:
    rules = policy(hooks=(PEOPLE, MANAGER), for_s=0, keep_firing_for_s=60, resend_s=60)
    return Watched(replace(rules, silencing=frozenset({MANAGER})))


def decide(watched: Watched, *actions: tuple[Action, float]) -> None:
    """Apply the actions of a person to the only finding. Each has a duration in seconds, from now on."""
    (alert,) = watched.state.alerts.values()
    now_ns = START_NS + int(watched.now_s * 1e9)
    rows = [
        {
            "fingerprint": alert.fingerprint,
            "raised_ns": alert.raised_ns,
            "at_ns": now_ns + number,
            "action_id": str(number),
            "action": action,
            "who": "Ada",
            "text": "fan",
            "until_ns": now_ns + int(seconds * 1e9) if action is Action.SILENCE else 0,
        }
        for number, (action, seconds) in enumerate(actions)
    ]
    watched.quiets = quiets_in(reversed(rows))


def received(watched: Watched, hook: str) -> list[str]:
    return words(delivery.notice for delivery in watched.deliveries if hook in delivery.hooks)


def silences(watched: Watched) -> list[Silence | None]:
    return [delivery.notice.silence for delivery in watched.deliveries if MANAGER in delivery.hooks]


def test_acknowledged_finding_notifies_people_only_when_it_is_resolved_and_when_it_returns() -> None:
    watched = watched_by_both()
    watched.sees(SLOW)
    decide(watched, (Action.ACKNOWLEDGE, 0))
    watched.quietly(300, finding(Kind.COMPUTE_STRAGGLER, 5, severity=Severity.CRITICAL))
    assert received(watched, PEOPLE) == ["firing compute-straggler"]
    quiet = silences(watched)[1:]
    assert quiet
    assert all(silence is not None and silence.ends_ns for silence in quiet)
    watched.quietly(120)
    assert received(watched, PEOPLE)[1:] == ["resolved compute-straggler"]
    assert silences(watched)[-1] == Silence(ends_ns=0, who="Ada", text="fan")
    watched.sees(SLOW)
    assert received(watched, PEOPLE)[2:] == ["firing compute-straggler"]


def test_acknowledgement_is_sent_to_the_manager_as_a_silence_and_reopening_ends_it() -> None:
    watched = watched_by_both()
    watched.sees(SLOW)
    decide(watched, (Action.ACKNOWLEDGE, 0))
    watched.sees(SLOW)
    now_ns = START_NS + int(watched.now_s * 1e9)
    assert silences(watched)[1:] == [Silence(ends_ns=now_ns + ACKNOWLEDGED_NS, who="Ada", text="fan")]
    decide(watched, (Action.ACKNOWLEDGE, 0), (Action.REOPEN, 0))
    watched.sees(SLOW)
    assert silences(watched)[2:] == [Silence(ends_ns=0, who="Ada", text="fan")]


def test_a_silence_holds_for_its_time_also_when_the_finding_returns() -> None:
    watched = watched_by_both()
    watched.sees(SLOW)
    decide(watched, (Action.SILENCE, 600))
    watched.quietly(120)
    before = len(received(watched, PEOPLE))
    watched.quietly(300, SLOW)
    assert len(received(watched, PEOPLE)) == before
    assert received(watched, MANAGER)[-1] == "still compute-straggler"
    watched.quietly(600, SLOW)
    assert received(watched, PEOPLE)[before] == "firing compute-straggler"


def test_people_are_notified_again_when_a_silence_ends() -> None:
    watched = watched_by_both()
    watched.sees(SLOW)
    decide(watched, (Action.SILENCE, 600))
    watched.quietly(120)
    watched.sees(SLOW)
    before = len(received(watched, PEOPLE))
    decide(watched, (Action.SILENCE, 600), (Action.END_SILENCE, 0))
    watched.sees(SLOW)
    assert received(watched, PEOPLE)[before:] == ["firing compute-straggler"]


def test_failed_check_and_restart_keep_an_acknowledgement() -> None:
    watched = watched_by_both()
    watched.sees(SLOW)
    decide(watched, (Action.ACKNOWLEDGE, 0))
    watched.sees(SLOW)
    alerts = {name: read_alert(alert_text(alert)) for name, alert in watched.state.alerts.items()}
    assert alerts == watched.state.alerts
    again = Watched(watched.rules, State(alerts=alerts))
    again.now_s = watched.now_s
    again.is_blind(after_s=600)
    again.fails()
    assert received(again, PEOPLE) == []
    (sent,) = [delivery.notice for delivery in again.deliveries]
    assert read_notice(notice_text(sent)) == sent
