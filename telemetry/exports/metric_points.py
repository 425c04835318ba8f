"""Metrics of a run as the OpenTelemetry SDK holds them: a gauge each, a point a step, at the time of the step.

    rankscope.step.duration   s            mean over the ranks
    rankscope.loss            1            } what the loop reported by ``sample``:
    rankscope.mfu             1            } its name, with _ for -
    rankscope.NAME                         }

The SDK's instruments stamp what they are told with the time of telling, so the points are made here.
"""

from collections.abc import Iterable, Iterator

from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource

from telemetry.exports.resources import Attempt, of_attempt
from telemetry.exports.trace_spans import SCOPE
from telemetry.stores.queries import Samples, Steps
from telemetry.stores.reader import Reader

POINTS_AT_ONCE = 5_000
STEP_DURATION = "rankscope.step.duration"
UNITS = {"loss": "1", "mfu": "1", "gradient-norm": "1", "tokens-per-second": "{token}/s", "step-seconds": "s"}
"""Of what loops report by usual names."""
_NS = 1e-9
Point = tuple[int, float]
"""When (nanoseconds since 1970), and how much."""


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
        yield from _gauge(resource, name, UNITS.get(metric, ""), "As the training loop reported it.", points)


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
