"""The generic webhook: bodies in Alertmanager's version 4 format, with an optional CloudEvent around them."""

import json
import re

from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.hooks.shape import link_of, stamp, v4_body
from diagnose.alerts.notice import Status
from tests.diagnose.alerts.hooks.http_receiver import HttpReceiver
from tests.diagnose.alerts.made_notice import LABELS, STARTS_NS, made_notice


def posted_body(receiver: HttpReceiver, *notices: object, **keys: object) -> dict[str, object]:
    make_hook("ops", {"type": "webhook", "url": receiver.url, "batch": len(notices), **keys}).send(notices)  # type: ignore[arg-type]
    (request,) = receiver.requests
    return request.body


def test_webhook_sends_a_firing_alert_as_a_version_4_body(receiver: HttpReceiver) -> None:
    body = posted_body(receiver, made_notice())
    assert receiver.requests[0].headers["content-type"] == "application/json"
    assert (body["version"], body["receiver"], body["status"], body["truncatedAlerts"]) == ("4", "ops", "firing", 0)
    assert body["groupLabels"] == body["commonLabels"] == LABELS
    assert body["externalURL"] == "http://127.0.0.1:8719"
    (alert,) = body["alerts"]
    assert alert == {
        "status": "firing",
        "labels": LABELS,
        "annotations": body["commonAnnotations"],
        "startsAt": "2026-09-21T14:13:20.25Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://127.0.0.1:8719/hang?run=monday&step=40",
        "fingerprint": "00c0ffee00c0ffee",
    }
    assert alert["annotations"] == {
        "summary": made_notice().summary,
        "cost": "12.7 s lost so far",
        "next_step": made_notice().next_step,
        "details": "victims: ranks 0 to 4, 6, 7\nsteps: 40",
    }


def test_webhook_body_of_a_resolved_alert_contains_its_end_time(receiver: HttpReceiver) -> None:
    body = posted_body(receiver, made_notice(status=Status.RESOLVED))
    assert body["status"] == "resolved"
    assert body["alerts"][0]["endsAt"] == "2026-09-21T14:14:50.25Z"


def test_group_key_of_an_alert_is_the_same_when_firing_and_resolved() -> None:
    firing, over = (v4_body("ops", [made_notice(status=status)]) for status in Status)
    assert firing["groupKey"] == over["groupKey"]
    assert firing["groupKey"] != v4_body("ops", [made_notice(labels={"rank": "6"})])["groupKey"]


def test_common_labels_and_annotations_of_a_batch_are_those_shared_by_all_alerts(receiver: HttpReceiver) -> None:
    notices = made_notice(), made_notice(labels={"rank": "6"}, status=Status.RESOLVED, cost="")
    body = posted_body(receiver, *notices)
    assert body["status"] == "firing"
    assert body["commonLabels"] == {name: value for name, value in LABELS.items() if name != "rank"}
    assert "cost" not in body["commonAnnotations"]
    assert [alert["status"] for alert in body["alerts"]] == ["firing", "resolved"]


def test_resent_notice_has_the_same_idempotency_key(receiver: HttpReceiver) -> None:
    hook = make_hook("ops", {"type": "webhook", "url": receiver.url})
    for number in (7, 7, 8):
        hook.send([made_notice(number=number)])
    first, again, other = (request.headers["idempotency-key"] for request in receiver.requests)
    assert first == again == '"00c0ffee00c0ffee-7"'
    assert other != first


def test_webhook_wraps_the_body_in_a_cloud_event_when_configured(receiver: HttpReceiver) -> None:
    event = posted_body(receiver, made_notice(number=7, labels={"run_id": "a run/1"}), envelope="cloudevents")
    assert receiver.requests[0].headers["content-type"] == "application/cloudevents+json"
    assert event.pop("data") == v4_body("ops", [made_notice(labels={"run_id": "a run/1"})])
    assert event == {
        "specversion": "1.0",
        "id": "00c0ffee00c0ffee-7",
        "source": "/rankscope/runs/a%20run%2F1",
        "type": "rankscope.alert.firing",
        "subject": "00c0ffee00c0ffee",
        "time": "2026-09-21T14:13:20.25Z",
        "datacontenttype": "application/json",
    }


def test_webhook_body_replaces_invalid_characters_and_label_names() -> None:
    odd = 'a "b" \\ \n \u2603 \udcff \0 {{ .x }}'
    labels = {"host": odd, "data-centre.name": "x", "0th": "y", "device": ""}
    (alert,) = v4_body("ops", [made_notice(labels=labels, summary=odd)])["alerts"]  # type: ignore[misc]
    assert alert["labels"]["host"] == alert["annotations"]["summary"] == 'a "b" \\ \n \u2603 ? \ufffd {{ .x }}'
    assert alert["labels"]["data_centre_name"] == "x"
    assert alert["labels"]["_0th"] == "y"
    assert "device" not in alert["labels"]
    assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name in alert["labels"])
    json.dumps(alert).encode("ascii")


def test_link_of_a_notice_is_empty_when_its_url_is_invalid() -> None:
    for odd in (
        "",
        "javascript:alert(1)",
        "http://a b/",
        "http://",
        "http://[::1",
        "http://host/\u2603",
        "http://h/\n",
    ):
        assert link_of(made_notice(link=odd)) == ""


def test_timestamp_text_is_exact_to_the_nanosecond() -> None:
    assert stamp(STARTS_NS + 1) == "2026-09-21T14:13:20.250000001Z"
    assert stamp(0) == "1970-01-01T00:00:00Z"
