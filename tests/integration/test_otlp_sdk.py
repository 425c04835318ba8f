"""An unmodified OpenTelemetry SDK sends to a collector process. SELECT returns everything with the right ids."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.forkserver import output_of
from tests.integration.processes import COLLECT, Part, free_port

RESOURCE = Resource.create({"service.name": "loader", "service.instance.id": "7"})
NUM_SPANS = 1_300
"""Three of the exporter's batches."""

SELECT = """
import json, sys
from telemetry.stores.open import open_store
store = open_store("embedded:" + sys.argv[1])
print(json.dumps([store.query(sql).to_pylist() for sql in json.loads(sys.argv[2])], default=str))
store.close()
"""
TABLES = ("otel_traces", "otel_logs", "otel_metrics_gauge", "otel_metrics_sum", "otel_metrics_histogram",
          "otel_metrics_exponential_histogram")  # fmt: skip
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rows, trace.SpanContext]]:
    """The rows of the tables after the SDK sent everything, and the context of the root span."""
    folder = tmp_path_factory.mktemp("otlp")
    store, port = folder / "store", free_port()
    collector = Part("collector", [sys.executable, "-c", COLLECT, f"embedded:{store}", str(port)], folder / "log")
    collector.start()
    try:
        url = f"http://127.0.0.1:{port}"
        with CollectorClient(url) as client:
            until(lambda: client.healthy() or not collector.running, what="the collector")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            environment.setenv("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip")
            environment.setenv("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "deflate")
            context = send_spans()
            send_metrics()
            send_logs(context)
        assert collector.end() == 0, collector.said()
        yield select(store), context
    finally:
        collector.kill()


def send_spans() -> trace.SpanContext:
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("reads", "1.2")
    with tracer.start_as_current_span("epoch", kind=SpanKind.SERVER) as root:
        for number in range(NUM_SPANS - 1):
            with tracer.start_as_current_span("shard", attributes={"number": number, "cold": number == 0}):
                pass
        root.add_event("shuffled", {"seed": 3})
        root.set_status(Status(StatusCode.ERROR, "torn shard"))
        elsewhere = trace.SpanContext(trace_id=5, span_id=6, is_remote=True)
        root.add_link(elsewhere, {"why": "resumed"})
    provider.shutdown()
    return root.get_span_context()


def send_metrics() -> None:
    views = [
        View(instrument_type=Histogram, instrument_name="sizes", aggregation=ExponentialBucketHistogramAggregation())
    ]
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], RESOURCE, views=views)
    meter = provider.get_meter("reads")
    meter.create_counter("shards", unit="{shard}", description="Shards read.").add(5, {"tier": "cold"})
    meter.create_gauge("queue").set(0.25)
    for value in (1.0, 30.0):
        meter.create_histogram("latency", unit="ms").record(value)
        meter.create_histogram("sizes", unit="By").record(value)
    provider.shutdown()


def send_logs(context: trace.SpanContext) -> None:
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    around = trace.set_span_in_context(trace.NonRecordingSpan(context))
    provider.get_logger("reads").emit(
        LogRecord(
            timestamp=1_700_000_000_123_456_789,
            context=around,
            severity_text="WARN",
            severity_number=SeverityNumber.WARN,
            body={"shard": 7, "lines": ["a", "b"]},
            attributes={"path": "/data/7"},
        )
    )
    provider.shutdown()


def select(store: Path) -> Rows:
    """Every table, read by a separate process, because the folder has one owner at a time."""
    asked = json.dumps([f"SELECT * FROM {table}" for table in TABLES])
    return dict(zip(TABLES, json.loads(output_of("-c", SELECT, str(store), asked)), strict=True))


def test_every_span_is_stored_with_its_parent(sent: tuple[Rows, trace.SpanContext]) -> None:
    rows, context = sent
    spans = rows["otel_traces"]
    assert len(spans) == NUM_SPANS
    assert {span["TraceId"] for span in spans} == {trace.format_trace_id(context.trace_id)}
    assert len({span["SpanId"] for span in spans}) == NUM_SPANS
    root_id = trace.format_span_id(context.span_id)
    assert {span["ParentSpanId"] for span in spans if span["SpanName"] == "shard"} == {root_id}
    numbers = {dict(span["SpanAttributes"])["number"] for span in spans if span["SpanName"] == "shard"}
    assert numbers == {str(number) for number in range(NUM_SPANS - 1)}


def test_span_keeps_all_its_fields(sent: tuple[Rows, trace.SpanContext]) -> None:
    rows, context = sent
    (root,) = (span for span in rows["otel_traces"] if span["SpanName"] == "epoch")
    assert root["SpanId"] == trace.format_span_id(context.span_id)
    assert (root["ParentSpanId"], root["SpanKind"]) == ("", "Server")
    assert (root["StatusCode"], root["StatusMessage"]) == ("Error", "torn shard")
    assert (root["ServiceName"], root["ScopeName"], root["ScopeVersion"]) == ("loader", "reads", "1.2")
    assert dict(root["ResourceAttributes"])["service.instance.id"] == "7"
    assert (root["Events.Name"], root["Events.Attributes"]) == (["shuffled"], [[["seed", "3"]]])
    assert (root["Links.TraceId"], root["Links.SpanId"]) == ([f"{5:032x}"], [f"{6:016x}"])
    assert root["Duration"] > 0


def test_every_kind_of_metric_is_stored_in_its_table(sent: tuple[Rows, trace.SpanContext]) -> None:
    rows, _ = sent
    (counted,) = (row for row in rows["otel_metrics_sum"] if row["MetricName"] == "shards")
    assert (counted["Value"], counted["MetricUnit"], counted["IsMonotonic"]) == (5.0, "{shard}", True)
    assert (counted["Attributes"], counted["AggregationTemporality"]) == ([["tier", "cold"]], 2)
    (queue,) = (row for row in rows["otel_metrics_gauge"] if row["MetricName"] == "queue")
    assert (queue["Value"], queue["ServiceName"]) == (0.25, "loader")
    (latency,) = (row for row in rows["otel_metrics_histogram"] if row["MetricName"] == "latency")
    assert (latency["Count"], latency["Sum"], latency["Min"], latency["Max"]) == (2, 31.0, 1.0, 30.0)
    assert sum(latency["BucketCounts"]) == 2
    assert len(latency["BucketCounts"]) == len(latency["ExplicitBounds"]) + 1
    (sizes,) = (row for row in rows["otel_metrics_exponential_histogram"] if row["MetricName"] == "sizes")
    assert (sizes["Count"], sum(sizes["PositiveBucketCounts"])) == (2, 2)


def test_log_record_is_stored_with_the_ids_of_its_span(sent: tuple[Rows, trace.SpanContext]) -> None:
    rows, context = sent
    (record,) = rows["otel_logs"]
    assert record["TraceId"] == trace.format_trace_id(context.trace_id)
    assert record["SpanId"] == trace.format_span_id(context.span_id)
    assert record["Timestamp"].startswith("2023-11-14 22:13:20.123456789")
    assert (record["SeverityText"], record["SeverityNumber"]) == ("WARN", 13)
    assert json.loads(record["Body"]) == {"shard": 7, "lines": ["a", "b"]}
    assert record["LogAttributes"] == [["path", "/data/7"]]
