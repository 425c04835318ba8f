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
def theirs() -> Iterator[HttpReceiver]:
    """Who Alertmanager tells."""
    with http_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def alertmanager(theirs: HttpReceiver) -> Iterator[Alertmanager]:
    """With the rules of inhibition from the guide. Each test has a run of its own."""
    (rules,) = blocks("yaml")
    with running_alertmanager(f"{theirs.url}/alerts", rules) as server:
        yield server


@pytest.fixture
def hook(alertmanager: Alertmanager) -> Hook:
    return make_hook("am", {"type": "alertmanager", "url": alertmanager.url, "labels": {"cluster": "east"}})


def told(theirs: HttpReceiver, run: str, status: str) -> list[dict[str, Any]]:
    """The bodies that Alertmanager posted on this run."""
    bodies = [request.body for request in theirs.requests]
    return [body for body in bodies if body["commonLabels"]["run_id"] == run and body["status"] == status]


def test_what_fires_is_there_with_its_labels_and_words(hook: Hook, alertmanager: Alertmanager) -> None:
    hook.send([made_notice(labels={"run_id": "fires"})])
    (alert,) = alertmanager.alerts(run_id="fires")
    assert alert["labels"] == {**LABELS, "run_id": "fires", "cluster": "east"}
    assert alert["startsAt"] == "2026-09-21T14:13:20.250Z"
    assert alert["generatorURL"] == made_notice().link
    assert alert["annotations"]["summary"] == made_notice().summary
    assert set(alert["annotations"]) == {"summary", "cost", "next_step", "details"}
    assert alert["status"]["state"] in ("active", "unprocessed")


def test_what_is_told_again_stays_one_alert_that_began_when_it_began(hook: Hook, alertmanager: Alertmanager) -> None:
    hook.send([made_notice(labels={"run_id": "again"})])
    (first,) = alertmanager.alerts(run_id="again")
    later = made_notice(labels={"run_id": "again"}, repeated=True, cost="99 s lost so far", starts_ns=STARTS_NS + 10**9)
    hook.send([later])
    (second,) = alertmanager.alerts(run_id="again")
    assert second["fingerprint"] == first["fingerprint"]
    assert second["startsAt"] == first["startsAt"]
    assert second["annotations"]["cost"] == "99 s lost so far"
    assert second["endsAt"] > first["endsAt"]


def test_it_lasts_much_longer_than_until_it_is_told_again(hook: Hook, alertmanager: Alertmanager) -> None:
    hook.send([made_notice(labels={"run_id": "lasts"})])
    (alert,) = alertmanager.alerts(run_id="lasts")
    lasts_s = (datetime.fromisoformat(alert["endsAt"]) - datetime.fromisoformat(alert["updatedAt"])).total_seconds()
    assert 0 < 4 * hook.resend_s <= lasts_s


def test_what_is_over_is_gone(hook: Hook, alertmanager: Alertmanager, theirs: HttpReceiver) -> None:
    labels = {"run_id": "over"}
    hook.send([made_notice(labels=labels)])
    until(lambda: told(theirs, "over", "firing"), what="a webhook of what fires")
    hook.send([made_notice(labels=labels, status=Status.RESOLVED)])
    assert alertmanager.alerts(run_id="over") == []
    until(lambda: told(theirs, "over", "resolved"), what="a webhook of what is over")
    (alert,) = told(theirs, "over", "resolved")[0]["alerts"]
    assert alert["endsAt"] == "2026-09-21T14:14:50.25Z"


@pytest.mark.parametrize("again", [False, True])
def test_of_a_batch_the_newest_state_counts(hook: Hook, alertmanager: Alertmanager, again: bool) -> None:
    labels = {"run_id": f"batch-{again}"}
    fires, over = made_notice(labels=labels), made_notice(labels=labels, status=Status.RESOLVED)
    hook.send([fires, over, made_notice(labels=labels, starts_ns=ENDS_NS + 1)] if again else [fires, over])
    assert len(alertmanager.alerts(run_id=labels["run_id"])) == again


def test_an_end_before_the_start_is_taken(hook: Hook, alertmanager: Alertmanager) -> None:
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
def test_odd_values_arrive(hook: Hook, alertmanager: Alertmanager, odd: str) -> None:
    run = f"odd-{ascii(odd)[:20]}"
    hook.send(
        [made_notice(labels={"run_id": "odd", "device": odd, "stage": ascii(run)}, summary=odd, link=f"http://{odd}")]
    )
    (alert,) = [one for one in alertmanager.alerts(run_id="odd") if one["labels"]["stage"] == ascii(run)]
    expected = odd.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    assert alert["labels"]["device"] == expected
    assert alert["annotations"]["summary"] == expected


def test_empty_values_and_foreign_names_do_not_keep_an_alert_away(hook: Hook, alertmanager: Alertmanager) -> None:
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


def test_contention_inhibits_what_is_on_its_host_alone(hook: Hook, alertmanager: Alertmanager) -> None:
    def notice(number: int, kind: str, host: str) -> Any:
        return made_notice(fingerprint=f"{number:016d}", labels={"run_id": "busy", "alertname": kind, "host": host})

    slow = "compute-straggler"
    hook.send([notice(1, "host-contention", "a"), notice(2, slow, "a"), notice(3, slow, "b")])

    def states() -> list[str]:
        return [alertmanager.alerts(run_id="busy", alertname=slow, host=host)[0]["status"]["state"] for host in "ab"]

    until(lambda: states() == ["suppressed", "active"], what="inhibition on host a alone")


@pytest.mark.parametrize("status", Status)
def test_our_webhook_says_what_theirs_says(
    hook: Hook, theirs: HttpReceiver, receiver: HttpReceiver, status: Status
) -> None:
    labels = {"run_id": f"same-{status}", "cluster": "east"}
    hook.send([made_notice(labels=labels)])
    until(lambda: told(theirs, labels["run_id"], "firing"), what="a webhook of what fires")
    notice = made_notice(labels=labels, status=status)
    hook.send([notice])
    until(lambda: told(theirs, labels["run_id"], status), what=f"a webhook, {status}")
    make_hook("ours", {"type": "webhook", "url": receiver.url}).send([notice])

    body, our_body = told(theirs, labels["run_id"], status)[-1], receiver.requests[0].body
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
