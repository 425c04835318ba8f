"""A run is exported with the SDK's exporters and received by a collector, with the same spans and ids."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from typer.testing import CliRunner

from telemetry.errors import UnreachableError, UsageError
from telemetry.exports.otlp import Sent, export_run
from telemetry.exports.trace_spans import Attempt
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import TraceSpans
from telemetry.stores.queries.spans import Detail
from tests.memory_store import memory_store
from tests.telemetry.made_rows import SECOND_NS, insert, made
from tests.telemetry.served import collecting
from ui.cli.main import app

RUN, ATTEMPT = "gpt", 2
WHO = Attempt(run_id=RUN, attempt=ATTEMPT)
NUM_RANKS, NUM_STEPS = 2, 150
"""Enough steps that some ids begin with a zero."""
KNOWN_IDS = ["8a660d1dc4c40b8d79c818d15b73e0e2", "22e3558b1f64af0c", ""]
"""Ids of the first step of rank 0. Every export by every engine must give the same ids."""
AT_NS = 1_700_000_000 * SECOND_NS + 123_456_789


def write_run(store: Store) -> None:
    """Each step: forward of two microbatches, the optimizer, the step around them; and a loss."""
    stages = [(Stage.FORWARD_COMPUTE, 0), (Stage.FORWARD_COMPUTE, 1), (Stage.OPTIMIZER, -1), (Stage.STEP, -1)]
    spans = [
        {
            "rank": rank,
            "seq": step * len(stages) + number,
            "step": step,
            "stage": int(stage),
            "stream": int(stage.stream),
            "microbatch": microbatch,
            "start_ns": AT_NS + step * SECOND_NS,
            "duration_ns": 1000 * (number + 1) + rank,
            "size_bytes": 64 if stage is Stage.OPTIMIZER else 0,
        }
        for rank in range(NUM_RANKS)
        for step in range(NUM_STEPS)
        for number, (stage, microbatch) in enumerate(stages)
    ]
    losses = [
        {"rank": 1, "seq": step, "step": step, "at_ns": AT_NS + step, "metric": "loss", "value": 4.0 - step / 100}
        for step in range(NUM_STEPS)
    ]
    ranks = [
        {"rank": rank, "host": f"node{rank}", "dp_size": 2, "pp_size": 1, "tp_size": 1, "started_ns": AT_NS}
        for rank in range(NUM_RANKS)
    ]
    for table, rows in (("ranks", ranks), ("spans", spans), ("samples", losses)):
        insert(store, table, made(table, rows), run_id=RUN, attempt=ATTEMPT)


@pytest.fixture(scope="module")
def source() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        write_run(store)
        yield store


@pytest.fixture
def target(embedded: EmbeddedStore) -> EmbeddedStore:
    """The store that receives the export."""
    return embedded


@pytest.fixture
def endpoint(target: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with collecting(target) as client:
        yield client.url


def export(source: EmbeddedStore, endpoint: str | None, detail: Detail = "stages", last_step: int = 3) -> Sent:
    return export_run(StoreReader(source), WHO, first_step=0, last_step=last_step, detail=detail, endpoint=endpoint)


def spans_of(store: Store, where: str = "1") -> list[dict[str, Any]]:
    """Spans of the view of a store, without the columns that differ between the two stores."""
    names = "TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, Duration, StatusCode, ScopeName"
    sql = f"SELECT {names}, toUnixTimestamp64Nano(Timestamp) AS at_ns FROM otel_traces WHERE {where} ORDER BY SpanId"
    rows: list[dict[str, Any]] = store.query(sql).to_pylist()
    return rows


def test_exported_spans_equal_the_spans_of_the_view(
    source: EmbeddedStore, target: EmbeddedStore, endpoint: str
) -> None:
    sent = export(source, endpoint, "operations", NUM_STEPS - 1)
    assert (sent.spans, sent.points, sent.rejected) == (8 * NUM_STEPS, 2 * NUM_STEPS, 0)
    assert spans_of(target) == spans_of(source)
    assert len(spans_of(target)) == sent.spans


@pytest.mark.parametrize(
    ("detail", "names"),
    [("steps", {"step"}), ("stages", {"step", "optimizer"}), ("operations", {"step", "optimizer", "forward-compute"})],
)
def test_detail_option_selects_the_exported_spans(
    source: EmbeddedStore, target: EmbeddedStore, endpoint: str, detail: Detail, names: set[str]
) -> None:
    export(source, endpoint, detail)
    found = spans_of(target)
    assert {span["SpanName"] for span in found} == names
    steps = {span["SpanId"] for span in found if span["SpanName"] == "step"}
    assert len(steps) == 4 * NUM_RANKS
    assert {span["ParentSpanId"] for span in found} <= steps | {""}


def test_span_has_the_attributes_of_its_run_rank_and_host(
    source: EmbeddedStore, target: EmbeddedStore, endpoint: str
) -> None:
    export(source, endpoint, last_step=0)
    (row,) = target.query(
        "SELECT ResourceAttributes AS resource, SpanAttributes AS span FROM otel_spans"
        " WHERE SpanName = 'optimizer' AND ResourceAttributes['rankscope.rank'] = '1'"
    ).to_pylist()
    resource, span = dict(row["resource"]), dict(row["span"])
    assert resource["service.name"] == RUN
    assert len(resource["service.instance.id"]) == 36
    assert {name: value for name, value in resource.items() if name.startswith("rankscope.")} == {
        "rankscope.run.id": RUN, "rankscope.attempt": "2", "rankscope.rank": "1", "rankscope.local_rank": "0",
        "rankscope.host.name": "node1", "rankscope.dp": "1", "rankscope.pp": "0", "rankscope.tp": "0",
        "rankscope.mesh": "dp=2,pp=1,tp=1",
    }  # fmt: skip
    assert span == {"rankscope.step": "0", "rankscope.stream": "compute", "rankscope.size_bytes": "64"}


def test_metrics_have_the_time_of_their_step(source: EmbeddedStore, target: EmbeddedStore, endpoint: str) -> None:
    export(source, endpoint, last_step=2)
    rows = target.query(
        "SELECT MetricName AS name, MetricUnit AS unit, toUnixTimestamp64Nano(TimeUnix) AS at_ns, Value AS value"
        " FROM otel_metrics_gauge ORDER BY name, at_ns"
    ).to_pylist()
    assert [(row["name"], row["unit"], row["at_ns"], row["value"]) for row in rows[:3]] == [
        ("rankscope.loss", "1", AT_NS + step, 4.0 - step / 100) for step in range(3)
    ]
    assert [row["name"] for row in rows[3:]] == ["rankscope.step.duration"] * 3
    assert all(row["unit"] == "s" and 3.9e-6 < row["value"] < 4.1e-6 for row in rows[3:])


def test_endpoint_and_service_name_are_taken_from_the_environment(
    source: EmbeddedStore, target: EmbeddedStore, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "pretraining",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=lab",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "3",
    }.items():
        monkeypatch.setenv(name, value)
    sent = export(source, None)
    assert (sent.spans, sent.points) == (16, 0)
    assert {span["ServiceName"] for span in spans_of(target)} == {"pretraining"}
    (said,) = target.query("SELECT DISTINCT ResourceAttributes['deployment.environment.name'] AS said FROM otel_spans")[
        "said"
    ].to_pylist()
    assert said == "lab"


def test_a_disabled_sdk_sends_nothing(
    source: EmbeddedStore, target: EmbeddedStore, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert export(source, endpoint) == Sent(disabled=True)
    assert spans_of(target) == []


@pytest.mark.parametrize("signal", ["", "TRACES_", "METRICS_"])
def test_unsupported_protocol_is_refused_before_anything_is_sent(
    signal: str, source: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL", "grpc")
    with pytest.raises(UsageError, match="http/protobuf"):
        export(source, None)


def test_export_without_a_receiver_raises_an_error_with_a_hint(
    source: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    with pytest.raises(UnreachableError, match="hint: check that an OpenTelemetry receiver runs there"):
        export(source, "http://127.0.0.1:1")


def test_export_to_a_receiver_that_refuses_raises_an_error_with_the_status(
    source: EmbeddedStore, target: EmbeddedStore
) -> None:
    with collecting(target, token="secret") as client, pytest.raises(UnreachableError, match="401"):
        export(source, client.url)


REJECTING = ExportTraceServiceResponse(partial_success={"rejected_spans": 2, "error_message": "too old"})


class Rejecting(BaseHTTPRequestHandler):
    """Accepts every request and reports two spans as rejected."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(REJECTING.SerializeToString() if self.path == "/v1/traces" else b"")

    def log_message(self, *_: object) -> None:
        """Print no log."""


def test_spans_that_the_receiver_rejects_are_reported(source: EmbeddedStore) -> None:
    with HTTPServer(("127.0.0.1", 0), Rejecting) as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        try:
            sent = export(source, f"http://127.0.0.1:{receiver.server_port}")
        finally:
            receiver.shutdown()
            thread.join()
    assert (sent.spans, sent.rejected, sent.reason) == (16, 2, "too old")


def test_export_command_reads_from_a_collector_and_sends_the_newest_run(
    source: EmbeddedStore, target: EmbeddedStore, endpoint: str
) -> None:
    with collecting(source) as client:
        arguments = ["--store", client.url, "--endpoint", endpoint, "--detail", "steps", "--first-step", "5", "--json"]
        result = CliRunner().invoke(app, ["export", "otlp", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["run"], told["attempt"], told["spans"]) == (RUN, ATTEMPT, NUM_RANKS * (NUM_STEPS - 5))
    assert len(spans_of(target)) == told["spans"]


def test_every_engine_gives_the_same_ids(store: Store) -> None:
    """The view exists only on the current engine. The query also works on old servers."""
    write_run(store)
    found = StoreReader(store).read(
        TraceSpans(run_id=RUN, attempt=ATTEMPT, first_step=0, last_step=NUM_STEPS, detail="operations")
    )
    ids = {name: found[name].to_pylist() for name in ("trace_id", "span_id", "parent_id")}
    assert {len(one) for one in ids["trace_id"]} == {32}
    assert {len(one) for one in ids["span_id"]} == {16}
    assert any(one.startswith("00") for one in ids["span_id"]), "no id that begins with zeros: more steps are needed"
    assert len(set(ids["span_id"])) == found.num_rows
    first = next(number for number, step in enumerate(found["stage"].to_pylist()) if step == int(Stage.STEP))
    assert [ids[name][first] for name in ids] == KNOWN_IDS
