"""Answers of the collector to OTLP over HTTP, in the encoding of the request. Refused requests store nothing."""

import base64
import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.collector.counters import Counters
from telemetry.collector.otlp.api import OtlpWriter
from telemetry.collector.otlp.message import JSON_TYPE, PROTOBUF_TYPE
from telemetry.collector.otlp.spans_and_logs import decode_traces
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.wire.client import CollectorClient
from tests.telemetry.faulty_store import FaultyStore
from tests.telemetry.made_otlp import AT_NS, TRACE_ID, made_logs, made_metrics, made_spans
from tests.telemetry.made_rows import insert, numbered_spans
from tests.telemetry.served import collecting

SPAN_ID, PARENT_ID = "eee19b7ec3c1b174", "eee19b7ec3c1b173"
BODY_BYTES = 100_000
SPAN = {
    "traceId": TRACE_ID,
    "spanId": SPAN_ID,
    "parentSpanId": PARENT_ID,
    "name": "read",
    "kind": 2,
    "startTimeUnixNano": str(AT_NS),
    "endTimeUnixNano": str(AT_NS + 5),
    "attributes": [
        {"key": "shard", "value": {"intValue": "7"}},
        {"key": "traceId", "value": {"stringValue": "not one"}},
    ],
    "links": [{"traceId": TRACE_ID, "spanId": PARENT_ID}],
    "status": {"code": 2, "message": "torn"},
    "aFieldOfTomorrow": {"spanId": "00"},
}


def of_spans(*spans: dict[str, Any]) -> dict[str, Any]:
    """A request in the JSON form of OTLP."""
    service = {"attributes": [{"key": "service.name", "value": {"stringValue": "loader"}}]}
    return {"resourceSpans": [{"resource": service, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}]}


@pytest.fixture(scope="module")
def served(kept_store: EmbeddedStore) -> Iterator[httpx.Client]:
    with (
        collecting(kept_store, max_body_bytes=BODY_BYTES) as client,
        httpx.Client(base_url=client.url, verify=False) as http,
    ):
        yield http


@pytest.fixture
def http(served: httpx.Client, embedded: EmbeddedStore) -> httpx.Client:
    """A client of a collector with an empty store."""
    return served


def post(http: httpx.Client, body: bytes, *, signal: str = "traces", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in {"content_type": PROTOBUF_TYPE, **headers}.items()}
    return http.post(f"/v1/{signal}", content=body, headers=named)


def stored(store: Store, table: str = "otel_spans") -> int:
    return int(store.query(f"SELECT count() AS n FROM {table}")["n"][0].as_py())


def test_json_span_with_hex_ids_is_stored_with_all_its_fields(http: httpx.Client, embedded: EmbeddedStore) -> None:
    answer = post(http, json.dumps(of_spans(SPAN)).encode(), content_type=f"{JSON_TYPE}; charset=utf-8")
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, JSON_TYPE, {})
    (row,) = embedded.query("SELECT *, toUnixTimestamp64Nano(Timestamp) AS at_ns FROM otel_traces").to_pylist()
    assert (row["TraceId"], row["SpanId"], row["ParentSpanId"]) == (TRACE_ID, SPAN_ID, PARENT_ID)
    assert (row["Links.TraceId"], row["Links.SpanId"]) == ([TRACE_ID], [PARENT_ID])
    assert (row["ServiceName"], row["SpanName"], row["SpanKind"]) == ("loader", "read", "Server")
    assert (row["StatusCode"], row["StatusMessage"]) == ("Error", "torn")
    assert (row["at_ns"], row["Duration"]) == (AT_NS, 5)
    assert dict(row["SpanAttributes"]) == {"shard": "7", "traceId": "not one"}


def test_a_log_and_a_metric_in_json_are_stored(http: httpx.Client, embedded: EmbeddedStore) -> None:
    record = {"timeUnixNano": str(AT_NS), "severityNumber": 9, "body": {"stringValue": "up"}, "traceId": TRACE_ID}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    point = {"timeUnixNano": str(AT_NS), "asInt": "3"}
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "n", "gauge": {"dataPoints": [point]}}]}]}]}
    for signal, request in (("logs", logs), ("metrics", metrics)):
        answer = post(http, json.dumps(request).encode(), signal=signal, content_type=JSON_TYPE)
        assert answer.status_code == 200, answer.text
    (log,) = embedded.query("SELECT TraceId, Body, SeverityNumber FROM otel_logs").to_pylist()
    assert log == {"TraceId": TRACE_ID, "Body": "up", "SeverityNumber": 9}
    (gauge,) = embedded.query("SELECT MetricName, Value FROM otel_metrics_gauge").to_pylist()
    assert gauge == {"MetricName": "n", "Value": 3.0}


def test_otel_traces_view_shows_otlp_spans_and_rank_spans_together(http: httpx.Client, embedded: EmbeddedStore) -> None:
    insert(embedded, "spans", numbered_spans(0, 1000))
    post(http, made_spans(3).SerializeToString())
    rows = embedded.query("SELECT ScopeName, length(SpanId) AS digits, count() AS n FROM otel_traces GROUP BY 1, 2")
    assert sorted(tuple(row.values()) for row in rows.to_pylist()) == [("", 16, 3), ("rankscope", 16, 1000)]


@pytest.mark.parametrize(("packing", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_body_is_decompressed_and_stored(
    http: httpx.Client, embedded: EmbeddedStore, packing: str, pack: Any
) -> None:
    answer = post(http, pack(made_spans(20).SerializeToString()), content_encoding=packing)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == PROTOBUF_TYPE
    assert stored(embedded) == 20


def test_span_without_a_valid_id_is_reported_as_rejected_and_other_spans_are_stored(
    http: httpx.Client, embedded: EmbeddedStore
) -> None:
    request = made_spans(3)
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[0].trace_id = bytes(16)
    spans[1].span_id = b"short"
    answer = post(http, request.SerializeToString())
    assert answer.status_code == 200
    said = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (said.rejected_spans, said.error_message) == (2, "a span without a valid trace id")
    assert stored(embedded) == 1
    in_json = post(http, json.dumps(of_spans({**SPAN, "spanId": ""})).encode(), content_type=JSON_TYPE)
    assert in_json.json() == {
        "partialSuccess": {"rejectedSpans": "1", "errorMessage": "a span without a valid span id"}
    }


def refused(answer: httpx.Response) -> Status:
    """The Status in the body of a refusal."""
    assert answer.headers["content-type"] == PROTOBUF_TYPE
    status = Status.FromString(answer.content)
    assert status.message
    return status


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        pytest.param(b"garbage" * 9, {}, 400, 3, id="garbage"),
        pytest.param(made_spans().SerializeToString()[:-1], {}, 400, 3, id="cut off"),
        pytest.param(b"no gzip", {"content_encoding": "gzip"}, 400, 3, id="not packed"),
        pytest.param(gzip.compress(b"x" * 99)[:-4], {"content_encoding": "gzip"}, 400, 3, id="packed and cut off"),
        pytest.param(gzip.compress(b"") * 2, {"content_encoding": "gzip"}, 400, 3, id="two streams"),
        pytest.param(gzip.compress(bytes(10**7)), {"content_encoding": "gzip"}, 413, 8, id="bomb"),
        pytest.param(b"", {"content_encoding": "br"}, 415, 3, id="unknown packing"),
        pytest.param(b"", {"content_type": "text/plain"}, 415, 3, id="a page in a browser"),
    ],
)
def test_invalid_body_is_refused_with_an_otlp_status_and_nothing_is_stored(
    http: httpx.Client, embedded: EmbeddedStore, body: bytes, headers: dict[str, str], status: int, code: int
) -> None:
    answer = post(http, body, **headers)
    assert answer.status_code == status
    assert refused(answer).code == code
    assert stored(embedded) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"[" * 50_000,
        b'{"resourceSpans": 1}',
        json.dumps(of_spans({**SPAN, "traceId": "xyz"})).encode(),
        json.dumps(of_spans({**SPAN, "traceId": 7})).encode(),
        json.dumps(of_spans({**SPAN, "name": "\ud800"})).encode(),
        json.dumps(of_spans({**SPAN, "startTimeUnixNano": "-1"})).encode(),
    ],
)
def test_invalid_json_request_is_refused_with_a_json_answer(
    http: httpx.Client, embedded: EmbeddedStore, body: bytes
) -> None:
    answer = post(http, body, content_type=JSON_TYPE)
    assert (answer.status_code, answer.headers["content-type"]) == (400, JSON_TYPE)
    assert answer.json()["code"] == 3
    assert answer.json()["message"]
    assert stored(embedded) == 0


@pytest.mark.parametrize(
    ("signal", "request_of"), [("traces", made_spans), ("metrics", made_metrics), ("logs", made_logs)]
)
def test_corrupted_requests_are_stored_or_refused_and_the_collector_stays_healthy(
    http: httpx.Client, signal: str, request_of: Callable[[], Message]
) -> None:
    """A small sample: requests of each kind with some bytes replaced, left out or doubled."""
    chosen = random.Random(7)
    whole = request_of().SerializeToString()
    assert post(http, whole, signal=signal).status_code == 200
    for _ in range(60):
        body = bytearray(whole)
        for _ in range(chosen.randint(1, 4)):
            first = chosen.randrange(len(body))
            last = first + chosen.randrange(4)
            body[first:last] = chosen.randbytes(chosen.randrange(4)) or body[first:last] * 2
        assert post(http, bytes(body), signal=signal).status_code in (200, 400)
    assert http.get("/healthz").status_code == 200


def test_request_gets_503_with_retry_after_when_the_store_is_unreachable(embedded: EmbeddedStore) -> None:
    faulty = FaultyStore(embedded)
    with collecting(faulty) as client, httpx.Client(base_url=client.url, verify=False) as http:
        faulty.down = True
        answer = post(http, made_spans().SerializeToString())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "the store is down" in refused(answer).message


def test_internal_error_of_the_collector_gets_503_and_a_retry_succeeds(
    embedded: EmbeddedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = FaultyStore(embedded)
    with collecting(faulty) as client, httpx.Client(base_url=client.url, verify=False) as http:
        faulty.broken = True
        answer = post(http, made_spans().SerializeToString())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        faulty.broken = False
        assert post(http, made_spans().SerializeToString()).status_code == 200
    assert "rankscope collect: storing failed: ArithmeticError: a fault of ours" in capsys.readouterr().err


def test_request_gets_429_with_retry_after_when_the_queue_is_full(embedded: EmbeddedStore) -> None:
    """The first request waits in the queue. The second request does not fit."""
    with collecting(embedded, queue_bytes=1, linger_s=1.0) as client:
        answers = send_together(client, made_spans().SerializeToString())
    assert sorted(answer.status_code for answer in answers) == [200, 429]
    (later,) = (answer for answer in answers if answer.status_code == 429)
    assert later.headers["retry-after"] == "1"
    assert refused(later).code == 8
    assert stored(embedded) == 1


def send_together(client: CollectorClient, body: bytes) -> list[httpx.Response]:
    with httpx.Client(base_url=client.url, verify=False) as http, ThreadPoolExecutor(2) as senders:
        return list(senders.map(lambda _: post(http, body), range(2)))


def test_queued_requests_are_stored_before_the_otlp_writer_ends(embedded: EmbeddedStore) -> None:
    writer = OtlpWriter(embedded, Counters(), queue_bytes=10**6, linger_s=10.0)
    writer.start()
    done = [writer.submit(decode_traces(made_spans(4)).tables) for _ in range(2)]
    writer.close()
    assert [one.result(timeout=0) for one in done] == [None, None]
    assert stored(embedded) == 8


def test_metrics_count_stored_rows_and_rejected_requests_and_records(embedded: EmbeddedStore) -> None:
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        post(http, made_spans(4).SerializeToString())
        post(http, b"garbage" * 9)
        post(http, json.dumps(of_spans({**SPAN, "spanId": ""})).encode(), content_type=JSON_TYPE)
        counted = http.get("/metrics").text.splitlines()
    assert 'rankscope_rows_stored_total{table="otel_spans"} 4.0' in counted
    assert 'rankscope_batches_rejected_total{status="400"} 1.0' in counted
    assert 'rankscope_otlp_records_rejected_total{signal="traces"} 1.0' in counted


@pytest.mark.clickhouse
def test_request_gets_501_with_the_required_version_when_clickhouse_is_too_old(on_server: Store) -> None:
    with collecting(on_server) as client, httpx.Client(base_url=client.url, verify=False) as http:
        answer = post(http, made_spans().SerializeToString())
    assert answer.status_code == 501
    assert "22 or newer" in refused(answer).message


def test_json_span_with_base64_ids_is_refused(http: httpx.Client) -> None:
    in_base64 = base64.b64encode(bytes.fromhex(TRACE_ID)).decode()
    answer = post(http, json.dumps(of_spans({**SPAN, "traceId": in_base64})).encode(), content_type=JSON_TYPE)
    assert answer.status_code == 400
