"""PagerDuty: an incident is opened once, and resolved with the same key."""

import json

import pytest

from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.hooks.pagerduty import pagerduty_event
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.notice import Status
from diagnose.findings import Severity
from tests.diagnose.alerts.hooks.http_receiver import HttpReceiver, answers
from tests.diagnose.alerts.made_notice import made_notice
from tests.each_case import each_case

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def hook(receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> Hook:
    monkeypatch.setenv("PAGERDUTY_KEY", KEY)
    receiver.behaviour = answers(202, b'{"status":"success"}')
    return make_hook("pager", {"type": "pagerduty", "routing_key_env": "PAGERDUTY_KEY", "url": receiver.url})


def test_firing_notice_triggers_an_incident_with_its_details(hook: Hook, receiver: HttpReceiver) -> None:
    hook.send([made_notice()])
    (request,) = receiver.requests
    assert request.path == "/v2/enqueue"
    event = request.body
    assert (event["routing_key"], event["event_action"]) == (KEY, "trigger")
    assert event["links"] == [{"href": made_notice().link, "text": "dashboard"}]
    payload = event["payload"]
    assert payload["summary"] == made_notice().summary
    assert payload["timestamp"] == "2026-09-21T14:13:20.25Z"
    told = {name: payload[name] for name in ("source", "severity", "component", "group", "class")}
    assert told == {
        "source": "gpu-003",
        "severity": "critical",
        "component": "grads-all-reduce",
        "group": "monday",
        "class": "hung-collective",
    }
    assert payload["custom_details"]["cost"] == "12.7 s lost so far"
    assert payload["custom_details"]["rank"] == "5"
    assert payload["custom_details"]["victims"] == "ranks 0 to 4, 6, 7"


def test_resolved_notice_resolves_the_incident_with_the_same_key(hook: Hook, receiver: HttpReceiver) -> None:
    hook.send([made_notice()])
    hook.send([made_notice(status=Status.RESOLVED)])
    opened, closed = (request.body for request in receiver.requests)
    assert closed == {"routing_key": KEY, "event_action": "resolve", "dedup_key": opened["dedup_key"]}


def test_pagerduty_hook_sends_one_notice_per_request(hook: Hook) -> None:
    """A retried batch of several notices could open a resolved incident again."""
    assert hook.batch == 1


def test_incident_key_is_unique_per_run_and_fingerprint_and_has_at_most_255_characters() -> None:
    keys = {
        str(pagerduty_event(made_notice(fingerprint=fingerprint, labels={"run_id": run}))["dedup_key"])
        for fingerprint in ("00c0ffee00c0ffee", "00c0ffee00c0ffef")
        for run in ("monday", "tuesday", "x" * 500)
    }
    assert len(keys) == 6
    assert max(len(key) for key in keys) == 255


@each_case("severity", Severity)
def test_every_severity_is_sent_as_a_pagerduty_severity(severity: Severity) -> None:
    payload = pagerduty_event(made_notice(severity=severity))["payload"]
    assert payload["severity"] in ("critical", "error", "warning", "info")  # type: ignore[index]


def test_pagerduty_event_stays_within_the_size_limits(hook: Hook, receiver: HttpReceiver) -> None:
    long = "no end \u2603 " * 100_000
    hook.send([made_notice(summary=long, details={"log": long}, link="")])
    event = receiver.requests[0].body
    assert len(event["payload"]["summary"]) == 1024
    assert len(json.dumps(event)) < 512 * 2**10
    assert "links" not in event


def test_the_routing_key_is_not_reported(hook: Hook, receiver: HttpReceiver) -> None:
    receiver.behaviour = answers(400, f'{{"errors": ["routing_key {KEY} is unknown"]}}'.encode())
    with pytest.raises(HookError) as caught:
        hook.send([made_notice()])
    assert not caught.value.again
    assert "routing_key *** is unknown" in str(caught.value)
    assert KEY not in f"{vars(hook)}"
