"""Converts OTLP metrics to the tables ``otel_metrics_*``: one row for each data point, one table for each kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, Metric

from telemetry.collector.otlp.scopes import LAST_NS, Decoded, Records, check_parts, lists, maps, moments, scopes_of

_SCOPE_COLUMNS = (
    *("ResourceAttributes", "ResourceSchemaUrl", "ScopeName", "ScopeVersion"),
    *("ScopeAttributes", "ScopeDroppedAttrCount", "ScopeSchemaUrl", "ServiceName"),
)
_UINT64S, _FLOAT64S = pa.list_(pa.uint64()), pa.list_(pa.float64())


@dataclass(frozen=True, slots=True)
class DataPoint:
    """A data point with the metric it belongs to; ``data`` is the metric's ``gauge``, ``sum``, ... and ``point`` one of
    its points."""

    metric: Metric
    data: Any
    point: Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column that only some kinds of metrics have."""

    name: str
    type: pa.DataType
    of: Callable[[DataPoint], object]


def _number(point: DataPoint) -> float:
    kind = point.point.WhichOneof("value")
    return float(getattr(point.point, kind)) if kind else 0.0


_VALUE = (Column("Value", pa.float64(), _number),)
_TEMPORALITY = (Column("AggregationTemporality", pa.int32(), lambda point: point.data.aggregation_temporality),)
_TOTALS = (
    Column("Count", pa.uint64(), lambda point: point.point.count),
    Column("Sum", pa.float64(), lambda point: point.point.sum),
)
_RANGE = (
    Column("Min", pa.float64(), lambda point: point.point.min),
    Column("Max", pa.float64(), lambda point: point.point.max),
    *_TEMPORALITY,
)

KINDS: dict[str, tuple[Column, ...]] = {
    "gauge": _VALUE,
    "sum": (*_VALUE, *_TEMPORALITY, Column("IsMonotonic", pa.bool_(), lambda point: point.data.is_monotonic)),
    "histogram": (
        *_TOTALS,
        Column("BucketCounts", _UINT64S, lambda point: list(point.point.bucket_counts)),
        Column("ExplicitBounds", _FLOAT64S, lambda point: list(point.point.explicit_bounds)),
        *_RANGE,
    ),
    "exponential_histogram": (
        *_TOTALS,
        Column("Scale", pa.int32(), lambda point: point.point.scale),
        Column("ZeroCount", pa.uint64(), lambda point: point.point.zero_count),
        Column("PositiveOffset", pa.int32(), lambda point: point.point.positive.offset),
        Column("PositiveBucketCounts", _UINT64S, lambda point: list(point.point.positive.bucket_counts)),
        Column("NegativeOffset", pa.int32(), lambda point: point.point.negative.offset),
        Column("NegativeBucketCounts", _UINT64S, lambda point: list(point.point.negative.bucket_counts)),
        *_RANGE,
    ),
    "summary": (
        *_TOTALS,
        Column("ValueAtQuantiles.Quantile", _FLOAT64S, lambda point: [q.quantile for q in point.point.quantile_values]),
        Column("ValueAtQuantiles.Value", _FLOAT64S, lambda point: [q.value for q in point.point.quantile_values]),
    ),
}
"""Kind of metric in protobuf -> columns that not all kinds have."""


def decode_metrics(request: ExportMetricsServiceRequest) -> Decoded:
    """A request as rows of ``otel_metrics_*``. Points with an invalid time are rejected."""

    def num_parts(point: DataPoint) -> int:
        return len(point.point.attributes) + len(getattr(point.point, "exemplars", ()))  # summaries have none

    def fault(point: DataPoint) -> str:
        last_ns = max(point.point.time_unix_nano, point.point.start_time_unix_nano)
        return "a data point beyond the year 2262" if last_ns > LAST_NS else ""

    found: dict[str, Records[DataPoint]] = {kind: Records(fault=fault, num_parts=num_parts) for kind in KINDS}
    for resource in request.resource_metrics:
        for scope, metrics in scopes_of(resource, resource.scope_metrics):
            for kind, points in _by_kind(metrics.metrics).items():
                found[kind].add(scope, points)
    return Decoded(
        tables={f"otel_metrics_{kind}": _table(kind, records) for kind, records in found.items() if records.records},
        rejected=sum(records.rejected for records in found.values()),
        reason=next((records.reason for records in found.values() if records.reason), ""),
    )


def _by_kind(metrics: Sequence[Metric]) -> dict[str, list[DataPoint]]:
    """Kind of metric -> data points, of one scope.

    Raises:
        TooBigError: there are too many.
    """
    check_parts(len(metrics))
    points: dict[str, list[DataPoint]] = {}
    for metric in metrics:
        kind = metric.WhichOneof("data")
        if kind is not None:
            data = getattr(metric, kind)
            of_kind = points.setdefault(kind, [])
            check_parts(len(of_kind) + len(data.data_points))
            of_kind.extend(DataPoint(metric, data, point) for point in data.data_points)
    return points


def _table(kind: str, found: Records[DataPoint]) -> pa.Table:
    points = found.records
    columns = {
        **found.scope_columns(_SCOPE_COLUMNS),
        "MetricName": pa.array([point.metric.name for point in points], pa.string()),
        "MetricDescription": pa.array([point.metric.description for point in points], pa.string()),
        "MetricUnit": pa.array([point.metric.unit for point in points], pa.string()),
        "Attributes": maps(point.point.attributes for point in points),
        "StartTimeUnix": moments(point.point.start_time_unix_nano for point in points),
        "TimeUnix": moments(point.point.time_unix_nano for point in points),
        "Flags": pa.array([point.point.flags for point in points], pa.uint32()),
    }
    for column in KINDS[kind]:
        columns[column.name] = pa.array([column.of(point) for point in points], column.type)
    if kind != "summary":  # summaries have no exemplars
        columns |= _exemplars([point.point.exemplars for point in points])
    return pa.table(columns)


def _exemplars(exemplars_of_each: Sequence[Sequence[Exemplar]]) -> dict[str, pa.Array]:
    lengths = [len(exemplars) for exemplars in exemplars_of_each]
    flat = [exemplar for exemplars in exemplars_of_each for exemplar in exemplars]
    values = [float(getattr(point, point.WhichOneof("value") or "as_double")) for point in flat]
    return {
        "Exemplars.FilteredAttributes": lists(lengths, maps(point.filtered_attributes for point in flat)),
        "Exemplars.TimeUnix": lists(lengths, moments(min(point.time_unix_nano, LAST_NS) for point in flat)),
        "Exemplars.Value": lists(lengths, pa.array(values, pa.float64())),
        "Exemplars.SpanId": lists(lengths, pa.array([point.span_id.hex() for point in flat], pa.string())),
        "Exemplars.TraceId": lists(lengths, pa.array([point.trace_id.hex() for point in flat], pa.string())),
    }
