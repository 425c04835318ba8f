"""Errors of a client when the collector cannot take rows, and the time that an agent waits before a retry."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fastapi import FastAPI

from telemetry.agent.loop import MAX_PAUSE_S, MAX_RETRY_AFTER_S, MAX_S, BackOff, pause_s
from telemetry.collector.serving import configured
from telemetry.collector.settings import ServerSettings
from telemetry.errors import UnreachableError
from telemetry.stores.queries import Runs
from telemetry.wire import client as client_module
from telemetry.wire.client import CollectorClient
from tests.each_case import each_case
from tests.telemetry.made_rows import numbered_spans, of_run

SPANS = of_run(numbered_spans(0, 3))


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """Address of a server that gives the same answer to every request, like a proxy before a stopped collector."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def away(retry_after_s: float | None = None) -> UnreachableError:
    return UnreachableError("away", hint="later", retry_after_s=retry_after_s)


@each_case("body", [b"<html>Welcome</html>", b"{}", b"[]", b'{"rows": "many", "duplicates": 0}', b"null"])
def test_client_raises_unreachable_error_when_the_answer_is_not_from_a_collector(body: bytes) -> None:
    with answering(200, body) as url, CollectorClient(url) as client:
        with pytest.raises(UnreachableError, match="hint: check that this is the address of a rankscope collector"):
            client.post("spans", SPANS)
        with pytest.raises(UnreachableError, match="no collector answers"):
            client.read(Runs())


def test_connection_error_names_the_address_and_says_connection_refused() -> None:
    refused = pytest.raises(UnreachableError, match=r"at http://127\.0\.0\.1:1: Connection refused")
    with CollectorClient("http://127.0.0.1:1") as client, refused:
        client.read(Runs())


@each_case(
    ("status", "told", "understood"),
    [
        *((status, "7", 7.0) for status in (408, 429, 500, 502, 503, 504)),
        *((503, told, None) for told in ("Wed, 21 Oct 2026 07:28:00 GMT", "-1", "")),
    ],
)
def test_client_error_carries_retry_after_when_it_is_a_valid_number_of_seconds(
    status: int, told: str, understood: float | None
) -> None:
    with (
        answering(status, b"{}", Retry_After=told) as url,
        CollectorClient(url) as client,
        pytest.raises(UnreachableError) as refused,
    ):
        client.post("spans", SPANS)
    assert refused.value.retry_after_s == understood


def test_a_request_to_this_machine_uses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    refused = pytest.raises(UnreachableError, match="later")
    with answering(503, b'{"error": "away", "hint": "later"}') as url, CollectorClient(url) as client, refused:
        client.post("spans", SPANS)


def test_an_agent_waits_longer_after_each_failure_and_not_at_all_after_a_success() -> None:
    back_off = BackOff(random.Random(1))
    assert back_off.seconds == 0
    for usual_s in (0.5, 1, 2, 4, 8, MAX_S, MAX_S):
        back_off.failed(away())
        assert usual_s <= back_off.seconds <= 2 * usual_s
    back_off.succeeded()
    assert back_off.seconds == 0
    back_off.failed(away())
    assert back_off.seconds <= 1


def test_an_agent_retries_only_after_the_time_that_the_collector_requests() -> None:
    back_off = BackOff(random.Random(1))
    back_off.failed(away(30))
    assert 30 <= back_off.seconds <= 60
    back_off.failed(away(10**9))
    assert back_off.seconds <= 2 * MAX_RETRY_AFTER_S


def test_agents_with_the_same_retry_after_spread_their_retries() -> None:
    waits = []
    for seed in range(1536):
        back_off = BackOff(random.Random(seed))
        back_off.failed(away(2))
        waits.append(back_off.seconds)
    busiest = max(sum(at <= one < at + 0.1 for one in waits) for at in (2 + tenth / 10 for tenth in range(20)))
    assert busiest < 2 * 1536 / 20


@each_case(("num_hosts", "low_s", "high_s"), [(1, 1, 1), (200, 1, 1), (1536, 6, 8), (10**6, 8, MAX_PAUSE_S)])
def test_agents_of_a_large_job_pause_for_longer_and_never_for_too_long(
    num_hosts: int, low_s: float, high_s: float
) -> None:
    pauses = [pause_s(1.0, num_hosts, random.Random(seed)) for seed in range(100)]
    assert low_s <= min(pauses) <= max(pauses) <= high_s
    assert len(set(pauses)) == (1 if num_hosts <= 200 else 100)


def test_pause_is_never_shorter_than_the_interval_that_a_user_set() -> None:
    assert pause_s(60.0, 1536, random.Random(1)) == 60.0


def num_connections(num_requests: int) -> int:
    """Connections that a client opens for some requests to a server that closes none."""
    opened = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            opened.append(self)
            super().setup()

        def do_GET(self) -> None:
            body = b'{"collector": "c", "received_ns": 1, "answered_ns": 1}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with CollectorClient(f"http://127.0.0.1:{server.server_address[1]}") as client:
            for _ in range(num_requests):
                client.time()
        server.shutdown()
        thread.join()
    return len(opened)


def test_client_opens_a_new_connection_before_the_collector_may_close_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert configured(FastAPI(), ServerSettings()).timeout_keep_alive - 1 > client_module.IDLE_S
    assert num_connections(3) == 1
    monkeypatch.setattr(client_module, "IDLE_S", 0.0)
    assert num_connections(3) == 3
