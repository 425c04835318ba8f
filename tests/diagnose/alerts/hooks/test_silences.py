"""A real Alertmanager: silences that are passed on, extended and ended; silences of people stay."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.notice import Notice, Silence, Status
from tests.alertmanager_server import Alertmanager, running_alertmanager
from tests.deadline import until
from tests.diagnose.alerts.hooks.http_receiver import HttpReceiver, answers, http_receiver
from tests.diagnose.alerts.made_notice import made_notice
from tests.each_case import each_case

pytestmark = pytest.mark.alertmanager
HOUR_NS = 3600 * 10**9


@pytest.fixture(scope="module")
def manager_receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def alertmanager(manager_receiver: HttpReceiver) -> Iterator[Alertmanager]:
    with running_alertmanager(f"{manager_receiver.url}/alerts") as server:
        yield server


@pytest.fixture
def hook(alertmanager: Alertmanager) -> Hook:
    return make_hook("am", {"type": "alertmanager", "url": alertmanager.url, "labels": {"cluster": "east"}})


def notice(run: str, ends_ns: int, *, rank: str = "5", **changes: Any) -> Notice:
    silence = Silence(ends_ns=ends_ns, who="Ada", text='the "fan" is replaced')
    return made_notice(fingerprint=f"{run:0>16}", labels={"run_id": run, "rank": rank}, silence=silence, **changes)


def silences(alertmanager: Alertmanager, run: str) -> list[dict[str, Any]]:
    """The silences of the run that have not expired."""
    answer = httpx.get(f"{alertmanager.url}/api/v2/silences", params={"filter": f'run_id="{run}"'}, trust_env=False)
    return [silence for silence in answer.json() if silence["status"]["state"] != "expired"]


def lasts_s(silence: dict[str, Any]) -> float:
    return float(datetime.fromisoformat(silence["endsAt"]).timestamp() - time.time())


def state(alertmanager: Alertmanager, run: str, rank: str) -> str:
    (alert,) = alertmanager.alerts(run_id=run, rank=rank)
    return str(alert["status"]["state"])


def test_silenced_alert_is_suppressed_before_it_notifies_and_other_alerts_are_not(
    hook: Hook, alertmanager: Alertmanager, manager_receiver: HttpReceiver
) -> None:
    quiet = notice("aa", time.time_ns() + HOUR_NS)
    loud = made_notice(fingerprint="b" * 16, labels={"run_id": "aa", "rank": "6"})
    hook.send([quiet, loud])
    until(lambda: state(alertmanager, "aa", "5") == "suppressed", what="the silence")
    until(lambda: state(alertmanager, "aa", "6") == "active", what="the other alert")
    until(lambda: [request for request in manager_receiver.requests if "aa" in str(request.body)], what="a call")
    assert all(
        request.body["commonLabels"]["rank"] == "6"
        for request in manager_receiver.requests
        if "aa" in str(request.body)
    )
    (silence,) = silences(alertmanager, "aa")
    assert silence["createdBy"] == "Ada"
    assert silence["comment"] == f'rankscope {quiet.fingerprint}: the "fan" is replaced'
    assert {"name": "cluster", "value": "east", "isRegex": False, "isEqual": True} in silence["matchers"]


def test_silence_is_created_once_and_then_extended_shortened_and_ended(hook: Hook, alertmanager: Alertmanager) -> None:
    for _ in range(3):
        hook.send([notice("bb", time.time_ns() + HOUR_NS)])
    (first,) = silences(alertmanager, "bb")
    hook.send([notice("bb", time.time_ns() + 4 * HOUR_NS)])
    (longer,) = silences(alertmanager, "bb")
    assert longer["id"] == first["id"]
    assert lasts_s(longer) > 3.9 * 3600
    hook.send([notice("bb", time.time_ns() + HOUR_NS)])
    (shorter,) = silences(alertmanager, "bb")
    assert lasts_s(shorter) < 1.1 * 3600
    hook.send([notice("bb", 0)])
    assert silences(alertmanager, "bb") == []
    assert state(alertmanager, "bb", "5") in ("active", "unprocessed")


def test_resolved_alert_ends_its_own_silence_and_keeps_silences_of_people(
    hook: Hook, alertmanager: Alertmanager
) -> None:
    matchers = [{"name": "run_id", "value": "cc", "isRegex": False, "isEqual": True}]
    starts_at, ends_at = (datetime.fromtimestamp(time.time() + s).astimezone().isoformat() for s in (0, 3600))
    times = {"startsAt": starts_at, "endsAt": ends_at}
    body = {"matchers": matchers, **times, "createdBy": "Grace", "comment": "a maintenance"}
    assert httpx.post(f"{alertmanager.url}/api/v2/silences", json=body, trust_env=False).is_success
    hook.send([notice("cc", time.time_ns() + HOUR_NS)])
    assert len(silences(alertmanager, "cc")) == 2
    hook.send([notice("cc", 0, status=Status.RESOLVED)])
    (left,) = silences(alertmanager, "cc")
    assert left["createdBy"] == "Grace"


def test_silence_with_special_characters_is_created_once_and_applied(hook: Hook, alertmanager: Alertmanager) -> None:
    odd = made_notice(labels={"run_id": "dd", "device": 'a "b"\n\\c'}, fingerprint="d" * 16)
    quiet = Silence(ends_ns=time.time_ns() + HOUR_NS, who="", text="\udcff\0")
    for _ in range(2):
        hook.send([made_notice(fingerprint=odd.fingerprint, labels=dict(odd.labels), silence=quiet)])
    assert len(silences(alertmanager, "dd")) == 1
    until(lambda: state(alertmanager, "dd", "5") == "suppressed", what="the silence")


MARK = f"rankscope {'e' * 16}:"
UNUSABLE = (
    b"<html>log in</html>",
    b"{}",
    b'[null, 5, {"comment": 5}]',
    f'[{{"comment": "{MARK}", "status": "x"}}]'.encode(),
    f'[{{"comment": "{MARK}", "status": {{"state": "active"}}, "id": "1", "endsAt": "soon"}}]'.encode(),
)


@each_case("refusal", [*((status, b"") for status in (403, 404, 405, 501)), *((200, b) for b in UNUSABLE)])
def test_a_receiver_without_usable_silences_still_receives_all_alerts(refusal: tuple[int, bytes]) -> None:
    quiet = made_notice(fingerprint="e" * 16, silence=Silence(ends_ns=time.time_ns() + HOUR_NS, who="Ada", text=""))
    with http_receiver() as receiver:
        receiver.behaviour_of_get = answers(*refusal)
        make_hook("am", {"type": "alertmanager", "url": receiver.url}).send([quiet, made_notice(fingerprint="f" * 16)])
        alerts = [alert for request in receiver.requests if "alerts" in request.path for alert in request.body]
    assert len(alerts) == 2


def test_temporary_silence_failure_does_not_delay_alerts_without_a_silence() -> None:
    quiet = made_notice(fingerprint="e" * 16, silence=Silence(ends_ns=time.time_ns() + HOUR_NS, who="Ada", text=""))
    with http_receiver() as receiver:
        receiver.behaviour_of_get = answers(503)
        hook = make_hook("am", {"type": "alertmanager", "url": receiver.url})
        with pytest.raises(HookError):
            hook.send([quiet, made_notice(fingerprint="f" * 16)])
        assert [len(request.body) for request in receiver.requests] == [1]
