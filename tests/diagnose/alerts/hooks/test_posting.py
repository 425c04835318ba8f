"""Failures of a receiver and what happens to the notices. Tested with a webhook; all HTTP hooks behave the same."""

import logging
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest

from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.hooks.registry import make_hook
from telemetry.errors import UsageError
from tests.diagnose.alerts.hooks.http_receiver import (
    HttpReceiver,
    answers,
    breaks_off_in_its_body,
    drips_its_body,
    drips_its_headers,
    hangs,
    says_nothing_and_closes,
)
from tests.diagnose.alerts.made_notice import made_notice

SHORT_S = 0.3
SECRET = "T0123/B4567/s3cr3ts3cr3ts3cr3t"


def webhook(receiver: HttpReceiver, **keys: object) -> Hook:
    return make_hook("ops", {"type": "webhook", "url": f"{receiver.url}/take", "timeout_s": 5, **keys})


def refusal(hook: Hook) -> HookError:
    with pytest.raises(HookError) as caught:
        hook.send([made_notice()])
    return caught.value


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_webhook_accepts_any_2xx_status_as_delivered(receiver: HttpReceiver, status: int) -> None:
    receiver.behaviour = answers(status, b"")
    webhook(receiver).send([made_notice()])
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_webhook_retries_after_a_temporary_error_status(receiver: HttpReceiver, status: int) -> None:
    receiver.behaviour = answers(status, b"too busy")
    error = refusal(webhook(receiver))
    assert error.again
    assert f"status {status}: too busy" in str(error)


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, "token"), (403, "token"), (404, "check the url"), (405, "check the url"), (407, ""), (409, ""), (423, "")],
)
def test_webhook_retries_after_an_error_status_that_an_operator_can_fix(
    receiver: HttpReceiver, status: int, hint: str
) -> None:
    receiver.behaviour = answers(status, b"not you")
    error = refusal(webhook(receiver))
    assert error.again
    assert hint in error.hint
    assert bool(error.hint) == bool(hint)


@pytest.mark.parametrize("status", [400, 410, 413, 422])
def test_webhook_does_not_retry_after_a_permanent_error_status(receiver: HttpReceiver, status: int) -> None:
    receiver.behaviour = answers(status, b"no such\nthing\x1b[31m" + b"x" * 10_000)
    error = refusal(webhook(receiver))
    assert not error.again
    assert f"status {status}: no such thing\\x1b[31m" in str(error)
    assert len(str(error)) < 400


def test_a_redirect_is_not_followed(receiver: HttpReceiver) -> None:
    receiver.behaviour = answers(302, b"", Location=f"{receiver.url}/elsewhere")
    error = refusal(webhook(receiver))
    assert not error.again
    assert "redirects" in str(error)
    assert [request.path for request in receiver.requests] == ["/take"]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "after_s"), [("17", 17.0), ("0", 0.0), ("-3", 0.0), ("soon", 0.0), ("9" * 400, 3600)]
)
def test_retry_pause_follows_a_retry_after_header_in_seconds(
    receiver: HttpReceiver, status: int, asked: str, after_s: float
) -> None:
    receiver.behaviour = answers(status, Retry_After=asked)
    assert refusal(webhook(receiver)).after_s == after_s


def test_retry_pause_follows_a_retry_after_header_with_a_date(receiver: HttpReceiver) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    receiver.behaviour = answers(503, Retry_After=until)
    assert 50 < refusal(webhook(receiver)).after_s <= 100
    receiver.behaviour = answers(503, Retry_After="Sun, 06 Nov 1994 08:49:37 GMT")
    assert refusal(webhook(receiver)).after_s == 0


@pytest.mark.parametrize("behaviour", [hangs, drips_its_headers, drips_its_body])
def test_slow_receiver_is_abandoned_at_the_timeout_and_retried(
    receiver: HttpReceiver, behaviour: Callable[[Any], None]
) -> None:
    receiver.behaviour = behaviour
    error = refusal(webhook(receiver, timeout_s=SHORT_S))
    assert error.again
    assert "no complete answer within 0.3 s" in str(error)


@pytest.mark.parametrize("behaviour", [breaks_off_in_its_body, says_nothing_and_closes])
def test_webhook_retries_when_the_answer_is_incomplete_or_missing(
    receiver: HttpReceiver, behaviour: Callable[[Any], None]
) -> None:
    receiver.behaviour = behaviour
    assert refusal(webhook(receiver)).again


def test_webhook_retries_when_the_port_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert refusal(make_hook("ops", {"type": "webhook", "url": f"http://127.0.0.1:{port}"})).again


def test_webhook_retries_when_the_host_does_not_accept_connections() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            hook = make_hook("ops", {"type": "webhook", "url": f"http://127.0.0.1:{port}", "timeout_s": SHORT_S})
            assert refusal(hook).again


def test_slow_host_name_lookup_does_not_block_the_webhook_beyond_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    over, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        begun.set()
        over.wait(20)
        ended.set()
        raise socket.gaierror("nobody")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        hook = make_hook("ops", {"type": "webhook", "url": "http://nowhere.invalid", "timeout_s": SHORT_S})
        assert refusal(hook).again
        assert begun.wait(20)
        assert not ended.is_set()
    finally:
        over.set()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", "/api/v2/alerts"),
        ("/", "/api/v2/alerts"),
        ("/prefix/", "/prefix/api/v2/alerts"),
        ("/prefix?team=a", "/prefix/api/v2/alerts?team=a"),
        ("/api/v2/alerts", "/api/v2/alerts"),
    ],
)
def test_alertmanager_api_path_is_added_to_the_url_once(receiver: HttpReceiver, given: str, asked: str) -> None:
    make_hook("am", {"type": "alertmanager", "url": receiver.url + given}).send([made_notice()])
    assert receiver.requests[0].path == asked


def test_webhook_sends_its_token_as_a_bearer_header(receiver: HttpReceiver, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cr3t-token\n")
    webhook(receiver, token_file=str(tmp_path / "token")).send([made_notice()])
    assert receiver.requests[0].headers["authorization"] == "Bearer s3cr3t-token"


def test_webhook_sends_user_and_password_of_its_url_as_basic_auth(
    receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_URL", receiver.url.replace("://", "://user:p%40ss@") + "/take?team=infra")
    make_hook("ops", {"type": "webhook", "url_env": "OPS_URL"}).send([made_notice()])
    assert receiver.requests[0].headers["authorization"] == "Basic dXNlcjpwQHNz"
    assert receiver.requests[0].path == "/take?team=infra"


@pytest.mark.parametrize("status", [200, 400, 500, 302])
def test_webhook_secrets_appear_neither_in_logs_nor_in_errors(
    receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    url = f"{receiver.url}/services/{SECRET}"
    monkeypatch.setenv("OPS_URL", url.replace("://", "://user:hunter2@"))
    monkeypatch.setenv("OPS_TOKEN", "s3cr3t-token")
    hook = make_hook("ops", {"type": "webhook", "url_env": "OPS_URL", "token_env": "OPS_TOKEN"})
    echo = f"you sent Bearer s3cr3t-token to {url}, that is /services/{SECRET}".encode()
    receiver.behaviour = answers(status, echo, Location=url)
    told = ""
    with caplog.at_level(logging.DEBUG):
        try:
            hook.send([made_notice()])
        except HookError as error:
            told = "".join(format_exception(error))
    assert receiver.requests[0].path == f"/services/{SECRET}"
    for secret in (SECRET, "s3cr3ts3cr3t", "s3cr3t-token", "hunter2"):
        assert secret not in told
        # The HTTP library logs the receiver's answer at DEBUG. It must not log what we send.
        assert not [line for line in caplog.messages if secret in line and "receive_response_headers" not in line]
    assert "httpx" in {record.name for record in caplog.records}
    assert told or status == 200


@pytest.mark.parametrize("url", ["ops.example.org", "ftp://ops", "http://", "http://[::1"])
def test_webhook_with_an_invalid_url_is_rejected_when_the_hook_is_made(url: str) -> None:
    with pytest.raises(UsageError, match="hook ops: its url is not an address"):
        make_hook("ops", {"type": "webhook", "url": url})
