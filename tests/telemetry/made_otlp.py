"""OTLP requests with known content."""

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as m

AT_NS = 1_700_000_000_123_456_789
TRACE_ID = "5b8efff798038103d269b633813fc60c"


def attribute(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def made_spans(number: int = 1) -> ExportTraceServiceRequest:
    """Spans 1, 2, 3 ... of one trace."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.append(attribute("service.name", "loader"))
    spans = of_resource.scope_spans.add().spans
    for one in range(number):
        span = spans.add(trace_id=bytes.fromhex(TRACE_ID), span_id=(one + 1).to_bytes(8, "big"), name="read")
        span.start_time_unix_nano, span.end_time_unix_nano = AT_NS, AT_NS + 5
        span.attributes.append(attribute("shard", str(one)))
        span.events.add(name="began", time_unix_nano=AT_NS)
        span.links.add(trace_id=bytes.fromhex(TRACE_ID), span_id=bytes(8))
    return request


def made_logs(*, trace_id: str = TRACE_ID) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=AT_NS, severity_number=9)
    record.body.string_value = "up"
    record.trace_id = bytes.fromhex(trace_id)
    record.attributes.append(attribute("path", "/data"))
    return request


def made_metrics() -> ExportMetricsServiceRequest:
    """A metric of each kind with one point, and one metric without points."""
    exemplar = m.Exemplar(as_int=4, trace_id=bytes.fromhex(TRACE_ID), time_unix_nano=AT_NS)
    number = m.NumberDataPoint(as_int=3, time_unix_nano=AT_NS, exemplars=[exemplar])
    histogram = m.HistogramDataPoint(count=2, sum=5, bucket_counts=[1, 1], explicit_bounds=[2.5], time_unix_nano=AT_NS)
    positive = m.ExponentialHistogramDataPoint.Buckets(offset=-1, bucket_counts=[2])
    exponential = m.ExponentialHistogramDataPoint(count=2, scale=3, positive=positive, time_unix_nano=AT_NS)
    quantile = m.SummaryDataPoint.ValueAtQuantile(quantile=0.5, value=7)
    summary = m.SummaryDataPoint(count=2, sum=9, quantile_values=[quantile], time_unix_nano=AT_NS)
    request = ExportMetricsServiceRequest()
    request.resource_metrics.add().scope_metrics.add().metrics.extend(
        [
            m.Metric(name="g", unit="1", gauge=m.Gauge(data_points=[number])),
            m.Metric(name="s", sum=m.Sum(data_points=[number], is_monotonic=True, aggregation_temporality=2)),
            m.Metric(name="h", histogram=m.Histogram(data_points=[histogram], aggregation_temporality=1)),
            m.Metric(name="e", exponential_histogram=m.ExponentialHistogram(data_points=[exponential])),
            m.Metric(name="q", summary=m.Summary(data_points=[summary])),
            m.Metric(name="nothing"),
        ]
    )
    return request
