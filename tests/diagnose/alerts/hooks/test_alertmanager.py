"""A real Alertmanager: the life of an alert, its labels, inhibition, and the webhooks that it sends itself."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from diagnose.alerts.hooks.interface import Hook
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.hooks.shape import NOT_OVER
from diagnose.alerts.notice import Status
from tests.alertmanager_server import Alertmanager, running_alertmanager
from tests.deadline import until
from tests.diagnose.alerts.hooks.guide import blocks
from tests.diagnose.alerts.hooks.http_receiver import HttpReceiver, http_receiver
from tests.diagnose.alerts.made_notice import ENDS_NS, LABELS, STARTS_NS, made_notice

pytestmark = pytest.mark.alertmanager


@pytest.fixture(scope="module")
def manager_receiver() -> Iterator[HttpReceiver]:
    """The receiver of the webhooks that Alertmanager sends."""
    with http_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def alertmanager(manager_receiver: HttpReceiver) -> Iterator[Alertmanager]:
    """An Alertmanager with the inhibition rules of the guide. Each test uses its own run."""
    (rules,) = blocks("yaml")
    with running_alertmanager(f"{manager_receiver.url}/alerts", rules) as server:
        yield server


@pytest.fixture
def hook(alertmanager: Alertmanager) -> Hook:
    return make_hook("am", {"type": "alertmanager", "url": alertmanager.url, "labels": {"cluster": "east"}})


def webhook_bodies(manager_receiver: HttpReceiver, run: str, status: str) -> list[dict[str, Any]]:
    """The bodies that Alertmanager posted on this run."""
    bodies = [request.body for request in manager_receiver.requests]
    return [body for body in bodies if body["commonLabels"]["run_id"] == run and body["status"] == status]


def test_firing_alert_arrives_with_its_labels_and_annotations(hook: Hook, alertmanager: Alertmanager) -> None:
    hook.send([made_notice(labels={"run_id": "fires"})])
    (alert,) = alertmanager.alerts(run_id="fires")
    assert alert["labels"] == {**LABELS, "run_id": "fires", "cluster": "east"}
    assert alert["startsAt"] == "2026-09-21T14:13:20.250Z"
    assert alert["generatorURL"] == made_notice().link
    assert alert["annotations"]["summary"] == made_notice().summary
    assert set(alert["annotations"]) == {"summary", "cost", "next_step", "details"}
    assert alert["status"]["state"] in ("active", "unprocessed")


def test_repeated_alert_stays_one_alert_with_its_original_start_time(hook: Hook, alertmanager: Alertmanager) -> None:
    hook.send([made_notice(labels={"run_id": "again"})])
    (first,) = alertmanager.alerts(run_id="again")
    later = made_notice(labels={"run_id": "again"}, repeated=True, cost="99 s lost so far", starts_ns=STARTS_NS + 10**9)
    hook.send([later])
    (second,) = alertmanager.alerts(run_id="again")
    assert second["fingerprint"] == first["fingerprint"]
    assert second["startsAt"] == first["startsAt"]
    assert second["annotations"]["cost"] == "99 s lost so far"
    assert second["endsAt"] > first["endsAt"]


def test_alert_expires_no_earlier_than_after_four_resend_intervals(hook: Hook, alertmanager: Alertmanager) -> None:
    hook.send([made_notice(labels={"run_id": "lasts"})])
    (alert,) = alertmanager.alerts(run_id="lasts")
    lasts_s = (datetime.fromisoformat(alert["endsAt"]) - datetime.fromisoformat(alert["updatedAt"])).total_seconds()
    assert 0 < 4 * hook.resend_s <= lasts_s


def test_resolved_alert_is_removed_and_its_webhook_contains_the_end_time(
    hook: Hook, alertmanager: Alertmanager, manager_receiver: HttpReceiver
) -> None:
    labels = {"run_id": "over"}
    hook.send([made_notice(labels=labels)])
    until(lambda: webhook_bodies(manager_receiver, "over", "firing"), what="a webhook of what fires")
    hook.send([made_notice(labels=labels, status=Status.RESOLVED)])
    assert alertmanager.alerts(run_id="over") == []
    until(lambda: webhook_bodies(manager_receiver, "over", "resolved"), what="a webhook of what is over")
    (alert,) = webhook_bodies(manager_receiver, "over", "resolved")[0]["alerts"]
    assert alert["endsAt"] == "2026-09-21T14:14:50.25Z"


@pytest.mark.parametrize("again", [False, True])
def test_newest_state_in_a_batch_decides_whether_the_alert_is_active(
    hook: Hook, alertmanager: Alertmanager, again: bool
) -> None:
    labels = {"run_id": f"batch-{again}"}
    fires, over = made_notice(labels=labels), made_notice(labels=labels, status=Status.RESOLVED)
    hook.send([fires, over, made_notice(labels=labels, starts_ns=ENDS_NS + 1)] if again else [fires, over])
    assert len(alertmanager.alerts(run_id=labels["run_id"])) == again


def test_resolved_alert_with_an_end_before_its_start_is_accepted(hook: Hook, alertmanager: Alertmanager) -> None:
    labels = {"run_id": "clocks"}
    hook.send([made_notice(labels=labels)])
    hook.send([made_notice(labels=labels, status=Status.RESOLVED, ends_ns=STARTS_NS - 10**9)])
    assert alertmanager.alerts(run_id="clocks") == []


@pytest.mark.parametrize(
    "odd",
    [
        'a "quoted" \\ word',
        "two\nlines\tand a tab",
        "{{ .Labels }} {a=b,c!~d}",
        "\u2603 \U0001f600",
        "\udcff",
        "a\0b",
        " ",
        "x" * 5000,
    ],
)
def test_special_characters_in_labels_and_summary_arrive(hook: Hook, alertmanager: Alertmanager, odd: str) -> None:
    run = f"odd-{ascii(odd)[:20]}"
    hook.send(
        [made_notice(labels={"run_id": "odd", "device": odd, "stage": ascii(run)}, summary=odd, link=f"http://{odd}")]
    )
    (alert,) = [one for one in alertmanager.alerts(run_id="odd") if one["labels"]["stage"] == ascii(run)]
    expected = odd.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    assert alert["labels"]["device"] == expected
    assert alert["annotations"]["summary"] == expected


def test_alert_with_empty_values_and_invalid_label_names_arrives(hook: Hook, alertmanager: Alertmanager) -> None:
    hook.send(
        [made_notice(labels={"run_id": "names", "host": "", "data-centre.name": "x"}, cost="", link="", details={})]
    )
    (alert,) = alertmanager.alerts(run_id="names")
    assert "host" not in alert["labels"]
    assert alert["labels"]["data_centre_name"] == "x"
    assert set(alert["annotations"]) == {"summary", "next_step"}


def test_a_hang_inhibits_the_stragglers_of_its_run_and_no_others(hook: Hook, alertmanager: Alertmanager) -> None:
    straggler = {"alertname": "compute-straggler", "severity": "warning"}
    hook.send(
        [
            made_notice(fingerprint="1" * 16, labels={"run_id": "hangs"}),
            made_notice(fingerprint="2" * 16, labels={"run_id": "hangs", "rank": "3", **straggler}),
            made_notice(fingerprint="3" * 16, labels={"run_id": "slow", "rank": "3", **straggler}),
        ]
    )

    def state(run: str, kind: str) -> dict[str, Any]:
        (alert,) = alertmanager.alerts(run_id=run, alertname=kind)
        status: dict[str, Any] = alert["status"]
        return status

    until(lambda: state("hangs", "compute-straggler")["state"] == "suppressed", what="inhibition")
    (cause,) = alertmanager.alerts(run_id="hangs", alertname="hung-collective")
    assert state("hangs", "compute-straggler")["inhibitedBy"] == [cause["fingerprint"]]
    until(lambda: state("slow", "compute-straggler")["state"] == "active", what="the other run's alert")


def test_host_contention_inhibits_only_stragglers_on_its_own_host(hook: Hook, alertmanager: Alertmanager) -> None:
    def notice(number: int, kind: str, host: str) -> Any:
        return made_notice(fingerprint=f"{number:016d}", labels={"run_id": "busy", "alertname": kind, "host": host})

    slow = "compute-straggler"
    hook.send([notice(1, "host-contention", "a"), notice(2, slow, "a"), notice(3, slow, "b")])

    def states() -> list[str]:
        return [alertmanager.alerts(run_id="busy", alertname=slow, host=host)[0]["status"]["state"] for host in "ab"]

    until(lambda: states() == ["suppressed", "active"], what="inhibition on host a alone")


@pytest.mark.parametrize("status", Status)
def test_webhook_body_equals_the_body_of_alertmanagers_own_webhook(
    hook: Hook, manager_receiver: HttpReceiver, receiver: HttpReceiver, status: Status
) -> None:
    labels = {"run_id": f"same-{status}", "cluster": "east"}
    hook.send([made_notice(labels=labels)])
    until(lambda: webhook_bodies(manager_receiver, labels["run_id"], "firing"), what="a webhook of what fires")
    notice = made_notice(labels=labels, status=status)
    hook.send([notice])
    until(lambda: webhook_bodies(manager_receiver, labels["run_id"], status), what=f"a webhook, {status}")
    make_hook("ours", {"type": "webhook", "url": receiver.url}).send([notice])

    body, our_body = webhook_bodies(manager_receiver, labels["run_id"], status)[-1], receiver.requests[0].body
    assert _shape(our_body) == _shape(body)
    own = ("externalURL", "groupKey", "alerts")
    assert {key: body[key] for key in body if key not in own} == {
        key: our_body[key] for key in our_body if key not in own
    }
    (alert,), (our_alert,) = body["alerts"], our_body["alerts"]
    assert {**alert, "fingerprint": our_alert["fingerprint"]} == our_alert
    assert (alert["endsAt"] == NOT_OVER) == (status is Status.FIRING)


def _shape(value: Any) -> Any:
    """Keys and types."""
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    return [_shape(each) for each in value] if isinstance(value, list) else type(value)
