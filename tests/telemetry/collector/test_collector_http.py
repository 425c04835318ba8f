"""Answers of the collector to requests that it refuses: status, reason and hint. Nothing is stored."""

import base64
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from telemetry.collector.serving import listen
from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UnreachableError, UsageError
from telemetry.records import RECORDS_LOST
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Runs
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import ARROW_TYPE, encode
from tests.deadline import until
from tests.each_case import each_case
from tests.forkserver import Program
from tests.telemetry.made_rows import made, numbered_spans, of_run
from tests.telemetry.served import collecting

SPANS = of_run(numbered_spans(0, 3))
WINDOW: dict[str, Any] = {"run_id": "run", "attempt": 0, "first_step": 0, "last_step": 1}


@pytest.fixture(scope="module")
def http(kept_store: EmbeddedStore) -> Iterator[httpx.Client]:
    """A client of a collector that all tests of refused requests share. They store nothing."""
    with (
        collecting(kept_store, max_body_bytes=100_000) as client,
        httpx.Client(base_url=client.url, verify=False) as http,
    ):
        yield http


@pytest.fixture
def collector(embedded: EmbeddedStore) -> Iterator[CollectorClient]:
    """A client of a collector that has received nothing."""
    with collecting(embedded) as client:
        yield client


@pytest.fixture
def plain_http(collector: CollectorClient) -> Iterator[httpx.Client]:
    """A client of ``collector`` for other requests than the agent's."""
    with httpx.Client(base_url=collector.url, verify=False) as client:
        yield client


def post_batch(http: httpx.Client, body: bytes, *, table: str = "spans", kind: str = ARROW_TYPE) -> httpx.Response:
    return http.post(f"/v1/batches/{table}", content=body, headers={"Content-Type": kind})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"", "not an Arrow IPC stream", id="nothing"),
        pytest.param(b"garbage" * 100, "not an Arrow IPC stream", id="garbage"),
        pytest.param(encode(SPANS)[:-200], "not an Arrow IPC stream", id="cut off"),
        pytest.param(encode(of_run(made("marks", [{"seq": 1}]))), "columns of spans", id="another table's columns"),
        pytest.param(encode(numbered_spans(0, 3)), "has no run_id, or no integer as its attempt", id="no owner"),
        pytest.param(encode(of_run(numbered_spans(0, 3), run_id="")), "is not a valid run name", id="empty run"),
        pytest.param(encode(of_run(numbered_spans(0, 3), attempt=-1)), "attempt -1", id="attempt below zero"),
        pytest.param(
            encode(of_run(pa.concat_tables([numbered_spans(5, 2), numbered_spans(0, 2)]))), "out of order", id="order"
        ),
        pytest.param(encode(of_run(made("spans", [{"seq": 2**63}]))), "is too large", id="seq beyond all"),
        pytest.param(encode(of_run(made("spans", [{"seq": 1, "step": None}]))), "missing values", id="missing value"),
    ],
)
def test_invalid_batch_is_refused_with_a_reason_and_nothing_is_stored(
    http: httpx.Client, embedded: EmbeddedStore, body: bytes, reason: str
) -> None:
    answer = post_batch(http, body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert answer.json()["hint"]
    assert embedded.query("SELECT count() AS n FROM spans")["n"].to_pylist() == [0]


def test_batch_for_an_unknown_table_is_refused_with_a_list_of_tables(http: httpx.Client) -> None:
    answer = post_batch(http, encode(SPANS), table="system.users")
    assert answer.status_code == 400
    assert "heartbeats" in answer.json()["hint"]


def test_body_beyond_the_limit_is_refused_with_status_413(http: httpx.Client) -> None:
    answer = post_batch(http, bytes(200_000))
    assert answer.status_code == 413
    assert answer.json()["hint"]


def test_a_page_in_a_browser_cannot_send_rows(http: httpx.Client) -> None:
    """A browser lets any page send text/plain to loopback without permission."""
    assert post_batch(http, encode(SPANS), kind="text/plain").status_code == 415


@each_case(
    ("asked", "reason"),
    [
        ({"query": "DropEverything"}, "unknown query"),
        ({"query": "Query"}, "unknown query"),
        ({"parameters": {}}, "not a query"),
        ([1], "not a query"),
        ({"query": "Ranks", "parameters": {"run_id": "run"}}, "attempt"),
        ({"query": "Ranks", "parameters": {"run_id": "run", "attempt": "0 OR 1"}}, "must be a whole number"),
        ({"query": "Ranks", "parameters": {"run_id": "run", "attempt": 0, "extra": 1}}, "no parameter 'extra'"),
        ({"query": "Spans", "parameters": {**WINDOW, "ranks": ["0) --"]}}, "must be a whole number"),
        ({"query": "Spans", "parameters": {**WINDOW, "limit": 2**70}}, "out of range"),
        ({"query": "HighWater", "parameters": {"run_id": "r", "attempt": 0, "table": "system.users"}}, "'spans'"),
    ],
)
def test_invalid_query_is_refused_with_a_reason_and_a_hint(http: httpx.Client, asked: Any, reason: str) -> None:
    answer = http.post("/v1/query", json=asked)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert answer.json()["hint"]


def test_client_error_contains_the_reason_and_the_hint_of_a_refusal(collector: CollectorClient) -> None:
    with pytest.raises(UsageError, match=r"has no run_id, or no integer as its attempt(.|\n)*hint: set both"):
        collector.post("spans", numbered_spans(0, 3))


def test_client_raises_unreachable_error_with_a_hint_when_no_collector_runs() -> None:
    with CollectorClient("http://127.0.0.1:1") as client:
        assert not client.healthy()
        with pytest.raises(UnreachableError, match="hint: start one with `rankscope collect`"):
            client.read(Runs())


def test_collector_address_without_http_scheme_is_refused() -> None:
    with pytest.raises(UsageError, match="hint: use http://"):
        CollectorClient("localhost:8719")


def test_metrics_count_received_stored_and_duplicate_rows_and_rejected_batches(
    collector: CollectorClient, plain_http: httpx.Client
) -> None:
    collector.post("spans", SPANS)
    collector.post("spans", SPANS)
    post_batch(plain_http, b"garbage")
    metrics = plain_http.get("/metrics").text
    assert 'rankscope_rows_received_total{table="spans"} 6.0\n' in metrics
    assert 'rankscope_rows_stored_total{table="spans"} 3.0\n' in metrics
    assert 'rankscope_rows_duplicate_total{table="spans"} 3.0\n' in metrics
    assert 'rankscope_batches_rejected_total{status="400"} 1.0\n' in metrics
    assert "rankscope_queue_batches 0.0\n" in metrics


def test_lost_records_are_counted_once_when_their_marks_are_sent_twice(
    collector: CollectorClient, plain_http: httpx.Client
) -> None:
    assert "rankscope_records_lost_total 0.0\n" in plain_http.get("/metrics").text
    told = ({"seq": 9, "name": RECORDS_LOST, "text": "1024 records of 2.1 s: the disk was full"},
            {"seq": 10, "name": "note", "text": "7 records of nothing"},
            {"seq": 20, "name": RECORDS_LOST, "text": "10 records of 0.1 s: rank files reached their size limit"},
            {"seq": 21, "name": RECORDS_LOST, "text": "some, says somebody else"})  # fmt: skip
    for _ in range(2):
        collector.post("marks", of_run(made("marks", told)))
    assert "rankscope_records_lost_total 1034.0\n" in plain_http.get("/metrics").text


def test_metrics_named_in_the_guide_exist(http: httpx.Client) -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/metrics.md").read_text()
    named = set(re.findall(r"^\| `(rankscope_\w+)`", guide.partition("## The collector")[2], re.MULTILINE))
    assert len(named) > 5
    assert named <= set(re.findall(r"^# TYPE (\w+) ", http.get("/metrics").text, re.M))


def test_only_the_health_route_is_open_to_clients_without_the_token(embedded: EmbeddedStore) -> None:
    with collecting(embedded, token="secret") as client, httpx.Client(base_url=client.url, verify=False) as stranger:
        assert client.post("spans", SPANS).rows == 3
        assert stranger.get("/healthz").status_code == 200
        refused = stranger.post("/v1/query", json={"query": "Runs"})
        assert refused.status_code == 401
        assert "RANKSCOPE_TOKEN" in refused.json()["hint"]
        assert stranger.get("/metrics", headers={"Authorization": "Bearer secre"}).status_code == 401
        browser = base64.b64encode(b"me:secret").decode()
        assert stranger.get("/metrics", headers={"Authorization": f"Basic {browser}"}).status_code == 200
        with CollectorClient(client.url, "wrong") as other, pytest.raises(UsageError, match="token"):
            other.read(Runs())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "gpu-03.example"])
def test_collector_on_a_non_loopback_address_requires_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_TOKEN", raising=False)
    with pytest.raises(UsageError, match="needs a token"):
        CollectorSettings.checked(host=host)
    monkeypatch.setenv("RANKSCOPE_TOKEN", "secret")
    assert CollectorSettings.checked(host=host).host == host


COLLECT = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
from telemetry.errors import RankscopeError
from telemetry.collector.server import run_collector
from telemetry.collector.settings import CollectorSettings
try:
    run_collector(CollectorSettings.checked(store=sys.argv[1], port=int(sys.argv[2])))
except RankscopeError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_status)
"""


def collector_process(folder: Path, port: int) -> Program:
    return Program(["-c", COLLECT, f"embedded:{folder / 'store'}", str(port)], folder / "printed")


def test_collector_exits_with_2_and_creates_no_store_when_its_port_is_in_use(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert collector_process(tmp_path, port).wait(60) == 2
    printed = (tmp_path / "printed").read_text()
    assert f"cannot listen on 127.0.0.1:{port}" in printed
    assert "hint: if a collector runs there" in printed
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("signals", [[signal.SIGHUP], [signal.SIGINT] * 3])
def test_collector_exits_with_status_0_after_one_or_repeated_signals(
    signals: list[signal.Signals], tmp_path: Path
) -> None:
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    process = collector_process(tmp_path, port)
    try:
        with CollectorClient(f"http://127.0.0.1:{port}") as client:
            until(client.healthy, what="the collector")
            client.post("spans", SPANS)
            for number in signals:
                os.kill(process.pid, number)
            assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
