"""The metrics of runs in the form of the Prometheus client. ``docs/guides/metrics.md`` lists them.

No metric has a label for a rank or host: a job has thousands of them, and each would be a time series.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily

from diagnose.metrics.reading import MAX_RUNS, Reading, RunReading
from diagnose.model.run_state import RunState

NS_PER_S = 1e9
Values = Iterable[tuple[tuple[str, ...], float]]
"""The labels of each value, and the value. A value that is not known is left out."""


@dataclass(frozen=True, slots=True)
class RunGauge:
    """A gauge with a label ``run``."""

    name: str
    help: str
    """Text that ``/metrics`` shows."""
    values: Callable[[RunReading], Values]
    labels: tuple[str, ...] = ()
    """Labels in addition to ``run``."""


@dataclass(frozen=True, slots=True)
class StoreGauge:
    """A gauge without labels."""

    name: str
    help: str
    value: Callable[[Reading], float]


def _single(value: float | None, unit: float = 1.0) -> Values:
    return [] if value is None else [((), value / unit)]


OF_RUNS = (
    RunGauge(
        "rankscope_run_state",
        "1 for the state of the run, 0 for the other states: live, not-shipping, ended, died, stalled.",
        lambda run: [((str(state),), float(state is run.figures.heard.state)) for state in RunState],
        ("state",),
    ),
    RunGauge(
        "rankscope_run_attempt",
        "Number of the newest attempt of the run. The first attempt is 0.",
        lambda run: _single(run.figures.attempt),
    ),
    RunGauge("rankscope_run_ranks", "Ranks of the newest attempt.", lambda run: _single(run.figures.num_ranks)),
    RunGauge(
        "rankscope_run_step",
        "Newest step that a rank has completed.",
        lambda run: _single(run.figures.steps.last_step if run.figures.steps else None),
    ),
    RunGauge(
        "rankscope_run_last_data_timestamp_seconds",
        "Time of the newest data of the run, by the clock of its hosts.",
        lambda run: _single(run.figures.heard_ns, NS_PER_S),
    ),
    RunGauge(
        "rankscope_step_duration_seconds",
        "Step time: mean over all ranks and the newest window of up to 50 steps.",
        lambda run: _single(run.figures.step_time.mean if run.figures.step_time else None, NS_PER_S),
    ),
    RunGauge(
        "rankscope_stage_duration_seconds",
        "Time of a stage in a step, including waiting: mean over the ranks that have it, and over the 50 steps before "
        "the newest one. Stages can overlap.",
        lambda run: [((stage.label,), seconds) for stage, seconds in run.stage_s.items()],
        ("stage",),
    ),
    RunGauge(
        "rankscope_mfu_ratio",
        "MFU as the training loop reports it: harmonic mean over the newest window of up to 50 steps.",
        lambda run: _single(run.figures.mfu.mean if run.figures.mfu else None),
    ),
    RunGauge(
        "rankscope_goodput_ratio",
        "Useful time divided by wall time, over all attempts of the run.",
        lambda run: _single(run.figures.goodput),
    ),
    RunGauge(
        "rankscope_alerts",
        "Open alerts of the newest attempt, from the alert watcher, without alerts that another alert explains.",
        lambda run: sorted(run.alerts.items()),
        ("kind", "severity", "state"),
    ),
    RunGauge(
        "rankscope_alerts_last_check_timestamp_seconds",
        "Time at which the alert watcher last checked the newest attempt.",
        lambda run: _single(run.checked_ns or None, NS_PER_S),
    ),
)
OF_STORE = (
    StoreGauge("rankscope_recent_runs", "Runs with data in the last hour.", lambda reading: reading.num_recent),
    StoreGauge(
        "rankscope_recent_runs_without_metrics",
        f"Runs with data in the last hour without metrics: only the {MAX_RUNS} runs with the most ranks have them.",
        lambda reading: reading.num_left_out,
    ),
    StoreGauge(
        "rankscope_run_metrics_timestamp_seconds",
        "Time at which the metrics of runs were read from the store.",
        lambda reading: reading.at_ns / NS_PER_S,
    ),
)


def families(reading: Reading | None) -> Iterator[GaugeMetricFamily]:
    """All metrics of runs. Without a reading, they have names, types and help, but no values."""
    for gauge in OF_RUNS:
        family = GaugeMetricFamily(gauge.name, gauge.help, labels=("run", *gauge.labels))
        for run in reading.runs if reading else ():
            for labels, value in gauge.values(run):
                family.add_metric((run.figures.run_id, *labels), value)
        yield family
    for of_store in OF_STORE:
        yield GaugeMetricFamily(of_store.name, of_store.help, value=of_store.value(reading) if reading else None)
