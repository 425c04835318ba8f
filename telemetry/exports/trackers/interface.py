"""The interface between exports and experiment trackers. Each implementation uses the tracker's own client.

    tensorboard.py   event files in a folder
    mlflow.py        an MLflow server or store
    wandb.py         Weights & Biases, online or offline
    trackio.py       Trackio, local or on a server

Each module imports the client at its top. Import a module only if its tracker was chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StepValues:
    """The values of one step."""

    step: int
    at_ns: int
    """Wall clock at the end of the step, by the clock of a host."""
    values: Mapping[str, float]
    """Name -> value. Samples of the training loop keep their names. Other names begin with ``rankscope/``. A value can
    be NaN or infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A finding. ``severity``: critical, warning or info."""

    step: int
    """The last step of its window."""
    kind: str
    severity: str
    summary: str
    next_step: str

    @property
    def title(self) -> str:
        return f"{self.severity}: {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """The run that is exported."""

    run_id: str
    attempt: int
    started_ns: int
    settings: Mapping[str, str]
    """Facts that the tracker shows as the configuration of the run."""

    @property
    def name(self) -> str:
        """The name of the run in the tracker."""
        return f"{self.run_id}/{self.attempt}"


class Tracker(Protocol):
    """A new run in a tracker. For one thread. Every method may block on the network or a disk.

    A return does not mean that the data has arrived: clients send in the background until :meth:`close`.

    Raises:
        UnreachableError: from every method, if the tracker does not answer or refuses.
    """

    place: str
    """Where the run can be found."""

    def write(self, steps: Sequence[StepValues]) -> None:
        """Add the values of some steps. Steps of all calls ascend."""

    def write_events(self, events: Sequence[Event]) -> None:
        """Show ``events`` as the current findings. An earlier list stays visible in the history, if there is one."""

    def close(self) -> None:
        """Send everything and end the run in the tracker."""


def table_of(events: Sequence[Event]) -> tuple[list[str], list[list[str | int]]]:
    """``events`` as a table: names of the columns, and rows."""
    columns = ["step", "severity", "kind", "summary", "next step"]
    return columns, [[event.step, event.severity, event.kind, event.summary, event.next_step] for event in events]
