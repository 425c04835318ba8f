"""MLflow: a run of an experiment, with ``MlflowClient``. MLFLOW_TRACKING_URI and the other variables of MLflow apply.

Metrics keep the time of their step. MLflow allows letters, digits, ``_ - . /`` and spaces in names. Others are
replaced by ``_``.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from telemetry.errors import UnreachableError
from telemetry.exports.trackers.interface import Event, StepValues, TrackedRun, table_of

METRICS_AT_ONCE = 1000
"""MLflow's limit on the metrics in one request."""
FINDINGS = "rankscope/findings.json"
HINT = "set MLFLOW_TRACKING_URI to the address of an MLflow server or store that accepts this user"
_NS_PER_MS = 1_000_000
_NOT_ALLOWED = re.compile(r"[^\w\-./ ]")


class MlflowTracker:
    """``project``: the name of the experiment. It is created if it does not exist.

    Raises:
        UnreachableError: MLflow does not answer or refuses.
    """

    def __init__(self, project: str, run: TrackedRun) -> None:
        with _refusals():
            self._client = MlflowClient()
            experiment = self._client.get_experiment_by_name(project)
            number = experiment.experiment_id if experiment else self._client.create_experiment(project)
            tags = {f"rankscope.{name}": value for name, value in run.settings.items()}
            created = self._client.create_run(
                number, start_time=run.started_ns // _NS_PER_MS, tags=tags, run_name=run.name
            )
        self._id = created.info.run_id
        self._newest_ms = run.started_ns // _NS_PER_MS
        self.place = f"{self._client.tracking_uri}, experiment {project}, run {self._id}"

    def write(self, steps: Sequence[StepValues]) -> None:
        metrics = [
            Metric(_NOT_ALLOWED.sub("_", name), value, of_step.at_ns // _NS_PER_MS, of_step.step)
            for of_step in steps
            for name, value in of_step.values.items()
        ]
        self._newest_ms = max([self._newest_ms, *(metric.timestamp for metric in metrics)])
        with _refusals():
            for first in range(0, len(metrics), METRICS_AT_ONCE):
                self._client.log_batch(self._id, metrics[first : first + METRICS_AT_ONCE], synchronous=True)

    def write_events(self, events: Sequence[Event]) -> None:
        columns, rows = table_of(events)
        with _refusals():
            self._client.log_text(self._id, json.dumps({"columns": columns, "data": rows}, indent=1), FINDINGS)
            self._client.set_tag(self._id, "rankscope.findings", "; ".join(event.title for event in events) or "none")

    def close(self) -> None:
        with _refusals():
            self._client.set_terminated(self._id, end_time=self._newest_ms)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        raise UnreachableError(f"MLflow: {error.message}", hint=HINT) from error
