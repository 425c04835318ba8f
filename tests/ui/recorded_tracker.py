"""The in-memory twin of an experiment tracker."""

from collections.abc import Sequence

from telemetry.exports.trackers.interface import Event, StepValues


class RecordedTracker:
    """Keeps what is written."""

    place = "memory"

    def __init__(self) -> None:
        self.steps: list[StepValues] = []
        self.events: list[Sequence[Event]] = []
        self.is_closed = False

    def write(self, steps: Sequence[StepValues]) -> None:
        self.steps += steps

    def write_events(self, events: Sequence[Event]) -> None:
        self.events.append(events)

    def close(self) -> None:
        self.is_closed = True
