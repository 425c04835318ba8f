"""Exports a run over OTLP with the exporters of the OpenTelemetry SDK, so that OTEL_* variables apply.

OTEL_SDK_DISABLED                                              nothing is sent
OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER = none             no spans, no metrics are sent
OTEL_EXPORTER_OTLP_[TRACES_|METRICS_]ENDPOINT, HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE, ...
OTEL_BSP_MAX_EXPORT_BATCH_SIZE                                 spans in one request
OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES                    see trace_spans.py

Each metric of a run is a gauge with one point a step, at the time of the step:

    rankscope.step.duration   s            mean over the ranks
    rankscope.loss            1            } values from ``sample``:
    rankscope.mfu             1            } the name, with _ for -
    rankscope.NAME                         }

The SDK's instruments would stamp each value with the time of the export, so the points are built here.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from telemetry.errors import UnreachableError, UsageError
from telemetry.exports.trace_spans import SCOPE, Attempt, batches, of_attempt, trace_spans
from telemetry.stores.address import without_password
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Samples, Steps
from telemetry.stores.queries.spans import Detail

POINTS_AT_ONCE = 5_000
STEP_DURATION = "rankscope.step.duration"
UNITS = {"loss": "1", "mfu": "1", "gradient-norm": "1", "tokens-per-second": "{token}/s", "step-seconds": "s"}
"""Units of samples with usual names."""
_NS = 1e-9
Point = tuple[int, float]
"""Time in nanoseconds since 1970, and value."""


def metric_points(reader: Reader, who: Attempt, *, first_step: int, last_step: int) -> Iterator[MetricsData]:
    """The metrics of a window of steps, some points at a time."""
    resource = of_attempt(who)
    asked = Steps(run_id=who.run_id, attempt=who.attempt, first_step=first_step, last_step=last_step)
    steps = reader.read(asked).to_pylist()
    durations = [(row["start_ns"] + int(row["duration_ns"]), row["duration_ns"] * _NS) for row in steps]
    yield from _gauge(resource, STEP_DURATION, "s", "Duration of a step, mean over the ranks.", durations)
    reported: dict[str, list[Point]] = {}
    for row in reader.read(Samples(run_id=who.run_id, attempt=who.attempt)).to_pylist():
        if first_step <= row["step"] <= last_step:
            reported.setdefault(row["metric"], []).append((row["at_ns"], row["value"]))
    for metric, points in reported.items():
        name = f"rankscope.{metric.replace('-', '_')}"
        yield from _gauge(resource, name, UNITS.get(metric, ""), "Value from the training loop.", points)


def num_points(data: MetricsData) -> int:
    """Points in one of the batches of :func:`metric_points`."""
    (of_resource,) = data.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    (metric,) = of_scope.metrics
    return len(metric.data.data_points)


def _gauge(
    resource: Resource, name: str, unit: str, description: str, points: Iterable[Point]
) -> Iterator[MetricsData]:
    made = [
        NumberDataPoint(attributes={}, start_time_unix_nano=0, time_unix_nano=at_ns, value=value)
        for at_ns, value in points
    ]
    for first in range(0, len(made), POINTS_AT_ONCE):
        gauge = Gauge(data_points=made[first : first + POINTS_AT_ONCE])
        metric = Metric(name=name, description=description, unit=unit, data=gauge)
        of_scope = ScopeMetrics(scope=SCOPE, metrics=[metric], schema_url="")
        yield MetricsData([ResourceMetrics(resource=resource, scope_metrics=[of_scope], schema_url="")])


SPANS_IN_REQUEST = 512
"""The size of the SDK's batches."""
HINT = (
    "check that an OpenTelemetry receiver runs there, or set --endpoint http://host:4318 or OTEL_EXPORTER_OTLP_ENDPOINT"
)
_LOGGER = "opentelemetry.exporter.otlp"


@dataclass(slots=True, kw_only=True)
class Sent:
    """Numbers of what was sent and what the receiver rejected."""

    spans: int = 0
    points: int = 0
    rejected: int = 0
    reason: str = ""
    disabled: bool = False


def export_run(
    reader: Reader, who: Attempt, *, first_step: int, last_step: int, detail: Detail, endpoint: str | None
) -> Sent:
    """Send spans and metrics of a window of steps. May block, for as long as the receiver and its retries take.

    Args:
        endpoint: ``http://host:port``, to which ``/v1/traces`` and ``/v1/metrics`` are added. If None, the address in
            the environment is used, otherwise port 4318 of this machine.

    Raises:
        UnreachableError: the receiver did not accept a request. It accepted all requests before.
        UsageError: the environment has a setting that is not supported.
    """
    sent = Sent(disabled=_is_true("OTEL_SDK_DISABLED"))
    _refuse_other_protocols()
    if not sent.disabled and _wanted("TRACES"):
        with _exporting(OTLPSpanExporter, endpoint, "traces", sent, ExportTraceServiceResponse) as send:
            for spans in trace_spans(reader, who, first_step=first_step, last_step=last_step, detail=detail):
                for batch in batches(spans, _batch_size()):
                    send(batch)
                    sent.spans += len(batch)
    if not sent.disabled and _wanted("METRICS"):
        with _exporting(OTLPMetricExporter, endpoint, "metrics", sent, ExportMetricsServiceResponse) as send:
            for data in metric_points(reader, who, first_step=first_step, last_step=last_step):
                send(data)
                sent.points += num_points(data)
    return sent


@contextmanager
def _exporting(
    kind: Callable[..., Any], endpoint: str | None, signal: str, sent: Sent, response: type[Any]
) -> Iterator[Callable[[Any], None]]:
    """A function that sends one batch with an exporter of the SDK."""
    session = requests.Session()
    session.hooks["response"].append(lambda answer, *_, **__: _note_rejected(answer.content, response, sent))
    with _logged(_LOGGER) as messages:
        try:
            exporter = kind(endpoint=f"{endpoint.rstrip('/')}/v1/{signal}" if endpoint else None, session=session)
        except (ValueError, OSError) as error:
            raise UsageError(f"OTLP exporter: {error}", hint="see the OTEL_EXPORTER_OTLP_* variables") from error

        def send(batch: Any) -> None:
            if exporter.export(batch) not in (SpanExportResult.SUCCESS, MetricExportResult.SUCCESS):
                reason = messages[-1] if messages else "no reason given"
                raise UnreachableError(f"OTLP {signal} to {_place(endpoint)}: {reason}", hint=HINT)

        try:
            yield send
        finally:
            exporter.shutdown()


def _note_rejected(answer: bytes, response: type[Any], sent: Sent) -> None:
    """Count the spans that the receiver rejected. The exporters ignore this part of the answer."""
    with suppress(DecodeError):  # the status shows whether the request failed
        partial_success = response.FromString(answer).partial_success
        for field, value in partial_success.ListFields():
            if field.name == "error_message":
                sent.reason = sent.reason or value
            else:
                sent.rejected += value


@contextmanager
def _logged(name: str) -> Iterator[list[str]]:
    """The messages that are logged under ``name`` during the block. Other handlers do not get them."""
    messages: list[str] = []
    logger, handler = logging.getLogger(name), logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _refuse_other_protocols() -> None:
    for signal in ("", "TRACES_", "METRICS_"):
        name = f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL"
        if os.environ.get(name, "http/protobuf") != "http/protobuf":
            raise UsageError(
                f"{name} is {os.environ[name]!r}, which is not supported", hint="use http/protobuf, or unset it"
            )


def _wanted(signal: str) -> bool:
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"


def _is_true(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() == "true"


def _batch_size() -> int:
    reason = os.environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "")
    return int(reason) if reason.isdigit() and int(reason) else SPANS_IN_REQUEST


def _place(endpoint: str | None) -> str:
    return without_password(endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"))
