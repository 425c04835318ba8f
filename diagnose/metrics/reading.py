"""What ``/metrics`` of a collector shows of its runs, from a fixed number of queries, and one more for each run.

every run          StoredRuns   no spans are read
at most MAX_RUNS   RunFigures: state, step time, MFU, goodput; the time by stage; the alerts of the watcher
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagnose.alerts.alert import Alert
from diagnose.alerts.reported import ReportedAlerts, has_ended, reported_in
from diagnose.findings import Kind
from diagnose.model.stage_seconds import recent_stage_seconds
from diagnose.run_figures import RunFigures, figures_of_runs
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import AlertLooks, Alerts, StoredRuns

MAX_RUNS = 20
"""Runs with metrics: those with the most ranks, so that many small runs do not hide a large one."""
RECENT_NS = 3600 * 10**9
"""Runs without data for this time have no metrics."""
MOST_ALERTS = 1000
UNKNOWN_KIND = "unknown"
"""Label of kinds that this version does not know. Rows of alerts are untrusted, and labels must stay few."""
AlertGroup = tuple[str, str, str]
"""Kind, severity, phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """The figures of one run."""

    figures: RunFigures
    stage_s: Mapping[Stage, float] = field(default_factory=dict)
    """Mean seconds of each stage in a step."""
    alerts: Mapping[AlertGroup, int] = field(default_factory=dict)
    """Number of open alerts, without those that another alert explains."""
    checked_ns: int = 0
    """Time of the watcher's last check, or 0 if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All runs that have metrics."""

    at_ns: int
    runs: tuple[RunReading, ...] = ()
    """In the order of their names."""
    num_recent: int = 0
    """Number of runs with data in the last hour."""

    @property
    def num_left_out(self) -> int:
        """Number of recent runs without metrics, because there are more than ``MAX_RUNS``."""
        return self.num_recent - len(self.runs)


def read_runs(reader: Reader, now_ns: int) -> Reading:
    """The recent runs of a store. Blocks on queries.

    Raises:
        UnreachableError: the store does not answer.
        UsageError: a query takes too long.
    """
    num_ranks = {
        row["run_id"]: row["num_ranks"]
        for row in reversed(reader.read(StoredRuns()).to_pylist())  # the last start of a run counts
        if now_ns - row["last_ns"] < RECENT_NS
    }
    chosen = tuple(sorted(num_ranks, key=lambda name: (-num_ranks[name], name))[:MAX_RUNS])
    if not chosen:
        return Reading(at_ns=now_ns)
    figures = figures_of_runs(
        lambda query: reader.read(query(chosen)).to_pylist(),
        lambda query, _: reader.read(query).to_pylist(),
        now_ns,
    )
    alerts = reported_in(reader.read(Alerts(limit=MOST_ALERTS)).to_pylist(), reader.read(AlertLooks()).to_pylist())
    by_name = sorted(figures, key=lambda of_run: of_run.run_id)
    runs = tuple(_reading(reader, of_run, alerts, now_ns) for of_run in by_name)
    return Reading(at_ns=now_ns, runs=runs, num_recent=len(num_ranks))


def _reading(reader: Reader, figures: RunFigures, alerts: ReportedAlerts, now_ns: int) -> RunReading:
    steps, stage_s = figures.steps, {}
    if steps is not None:
        stage_s = recent_stage_seconds(reader, *figures.key, first_step=steps.first_step, last_step=steps.last_step)
    return RunReading(
        figures=figures,
        stage_s=stage_s,
        alerts=Counter(_group(alert) for alert in _open(alerts, figures, now_ns)),
        checked_ns=alerts.checked_ns.get(figures.key, 0),
    )


def _open(alerts: ReportedAlerts, figures: RunFigures, now_ns: int) -> list[Alert]:
    found = (entry.alert for entry in alerts.alerts if entry.alert.run == figures.key)
    still = [alert for alert in found if alert.is_alive and not has_ended(alert.kind, figures.heard, now_ns)]
    return [alert for alert in still if not alert.suppressed_by]


def _group(alert: Alert) -> AlertGroup:
    kind = alert.kind if alert.kind in set(Kind) else UNKNOWN_KIND
    return kind, str(alert.account.severity), str(alert.phase)
