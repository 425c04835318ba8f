"""Decoding of OTLP messages into rows, without a server or a store."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from telemetry.collector.otlp import scopes
from telemetry.collector.otlp.api import decode_logs
from telemetry.collector.otlp.message import JSON_TYPE, Encoding, TooBigError, decode
from telemetry.collector.otlp.metrics import decode_metrics
from telemetry.collector.otlp.scopes import as_text
from telemetry.collector.otlp.spans_and_logs import decode_traces
from telemetry.errors import UsageError
from tests.each_case import each_case
from tests.telemetry.made_otlp import AT_NS, TRACE_ID, attribute, made_logs, made_metrics, made_spans

YEAR_2262_NS = 2**63


@each_case(
    ("value", "text"),
    [
        (AnyValue(string_value="a"), "a"),
        (AnyValue(int_value=-7), "-7"),
        (AnyValue(int_value=0), "0"),
        (AnyValue(bool_value=False), "false"),
        (AnyValue(double_value=0.5), "0.5"),
        (AnyValue(double_value=3.0), "3"),
        (AnyValue(double_value=float("nan")), "nan"),
        (AnyValue(bytes_value=b"\x00\xff"), "AP8="),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue(string_value="é")])), '[1,"é"]'),
        (
            AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(bool_value=True))])),
            '{"k":true}',
        ),
        (AnyValue(), ""),
    ],
)
def test_attribute_value_of_any_type_becomes_text(value: AnyValue, text: str) -> None:
    assert as_text(value) == text


def test_resource_and_scope_attributes_are_stored_only_with_their_own_spans() -> None:
    request = made_spans(2)
    other = request.resource_spans.add()
    other.resource.attributes.append(attribute("service.name", "other"))
    for scope in ("a", "b"):
        of_scope = other.scope_spans.add()
        of_scope.scope.name = scope
        of_scope.spans.append(made_spans().resource_spans[0].scope_spans[0].spans[0])
    rows = decode_traces(request).tables["otel_spans"]
    assert rows["ServiceName"].to_pylist() == ["loader", "loader", "other", "other"]
    assert rows["ScopeName"].to_pylist() == ["", "", "a", "b"]
    assert rows["ResourceAttributes"].to_pylist()[1:3] == [[("service.name", "loader")], [("service.name", "other")]]


def test_rejected_span_does_not_change_the_rows_of_other_spans() -> None:
    request = made_spans(3)
    request.resource_spans[0].scope_spans[0].spans[1].span_id = bytes(8)
    decoded = decode_traces(request)
    assert decoded.tables["otel_spans"]["SpanId"].to_pylist() == [f"{1:016x}", f"{3:016x}"]
    assert decoded.tables["otel_spans"]["SpanAttributes"].to_pylist() == [[("shard", "0")], [("shard", "2")]]
    assert decoded.rejected == 1


def test_request_without_a_valid_span_gives_no_table() -> None:
    request = made_spans()
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = b""
    assert decode_traces(request).tables == {}


def test_span_that_ends_before_its_start_has_duration_zero() -> None:
    request = made_spans()
    request.resource_spans[0].scope_spans[0].spans[0].end_time_unix_nano = AT_NS - 1
    assert decode_traces(request).tables["otel_spans"]["Duration"].to_pylist() == [0]


def test_unknown_span_kind_is_stored_as_unspecified() -> None:
    request = made_spans()
    request.resource_spans[0].scope_spans[0].spans[0].kind = 99
    assert decode_traces(request).tables["otel_spans"]["SpanKind"].to_pylist() == ["Unspecified"]


def test_records_with_times_too_late_to_store_are_rejected() -> None:
    spans, logs, metrics = made_spans(), made_logs(), made_metrics()
    spans.resource_spans[0].scope_spans[0].spans[0].end_time_unix_nano = YEAR_2262_NS
    logs.resource_logs[0].scope_logs[0].log_records[0].time_unix_nano = YEAR_2262_NS
    metrics.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].time_unix_nano = YEAR_2262_NS
    assert [decode_traces(spans).rejected, decode_logs(logs).rejected, decode_metrics(metrics).rejected] == [1, 1, 1]
    assert "otel_metrics_sum" in decode_metrics(metrics).tables


def test_span_is_kept_when_the_time_of_its_event_is_too_late_to_store() -> None:
    request = made_spans()
    request.resource_spans[0].scope_spans[0].spans[0].events[0].time_unix_nano = 2**64 - 1
    assert decode_traces(request).tables["otel_spans"]["Events.Name"].to_pylist() == [["began"]]


@each_case("trace_id", ["", "00" * 16, "abcd"])
def test_a_log_record_with_an_invalid_trace_id_is_kept_without_it(trace_id: str) -> None:
    decoded = decode_logs(made_logs(trace_id=trace_id))
    assert decoded.tables["otel_logs"]["TraceId"].to_pylist() == [""]
    assert decoded.rejected == 0


def test_log_record_without_a_time_gets_its_observed_time() -> None:
    request = made_logs()
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    record.time_unix_nano, record.observed_time_unix_nano = 0, AT_NS + 1
    (at,) = decode_logs(request).tables["otel_logs"]["Timestamp"].cast(pa.int64()).to_pylist()
    assert at == AT_NS + 1


def test_each_kind_of_metric_becomes_rows_of_its_table() -> None:
    tables = {name: rows.to_pylist() for name, rows in decode_metrics(made_metrics()).tables.items()}
    ((gauge,), (total,), (histogram,), (exponential,), (summary,)) = (
        tables[f"otel_metrics_{kind}"] for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")
    )
    assert (gauge["MetricName"], gauge["MetricUnit"], gauge["Value"]) == ("g", "1", 3.0)
    assert (gauge["Exemplars.Value"], gauge["Exemplars.TraceId"]) == ([4.0], [TRACE_ID])
    assert (total["IsMonotonic"], total["AggregationTemporality"]) == (True, 2)
    assert (histogram["BucketCounts"], histogram["ExplicitBounds"]) == ([1, 1], [2.5])
    assert (exponential["Scale"], exponential["PositiveOffset"], exponential["PositiveBucketCounts"]) == (3, -1, [2])
    assert (summary["ValueAtQuantiles.Quantile"], summary["ValueAtQuantiles.Value"]) == ([0.5], [7.0])


def test_large_resource_attributes_repeated_for_many_spans_raise_too_big_error() -> None:
    """A request of a few megabytes would become gigabytes of rows."""
    request = made_spans(4)
    request.resource_spans[0].resource.attributes.append(attribute("text", "x" * (scopes.MAX_SCOPE_BYTES // 4)))
    with pytest.raises(TooBigError, match="stored with each record"):
        decode_traces(request)


@pytest.mark.parametrize("request_of", [made_spans, made_logs, made_metrics])
def test_request_with_too_many_records_raises_too_big_error(
    request_of: Callable[[], Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoders = {made_spans: decode_traces, made_logs: decode_logs, made_metrics: decode_metrics}
    request = request_of()
    decoders[request_of](request)
    monkeypatch.setattr(scopes, "MAX_PARTS", 1)
    with pytest.raises(TooBigError, match="more than 1 records"):
        decoders[request_of](request)


def test_document_with_too_many_json_objects_raises_too_big_error() -> None:
    body = b'{"resourceSpans":[' + b"{}," * 500_000 + b"{}]}"
    with pytest.raises(TooBigError, match="JSON objects"):
        decode(body, Encoding(content_type=JSON_TYPE), ExportTraceServiceRequest, limit_bytes=len(body))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"resourceSpans": [{"\\ud800": 1}]}', id="a broken surrogate in a name"),
        pytest.param(b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": 1e999}]}]}]}', id="infinity"),
    ],
)
def test_json_with_an_invalid_name_or_number_raises_usage_error(body: bytes) -> None:
    with pytest.raises(UsageError, match="not an OTLP request"):
        decode(body, Encoding(content_type=JSON_TYPE), ExportTraceServiceRequest, limit_bytes=2**20)
