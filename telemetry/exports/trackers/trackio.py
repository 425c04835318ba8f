"""Trackio: a run of a project, with the package ``trackio``. TRACKIO_DIR, TRACKIO_SERVER_URL, TRACKIO_SPACE_ID and the
other variables of Trackio apply. Findings are alerts of the run.

The client prints to stdout, where the command prints its output. So lines of the client are sent to stderr.
"""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

import trackio

from telemetry.exports.trackers.interface import Event, StepValues, TrackedRun

LEVELS = {
    "critical": trackio.AlertLevel.ERROR,
    "warning": trackio.AlertLevel.WARN,
    "info": trackio.AlertLevel.INFO,
}


class TrackioTracker:
    """``project``: the name of the project. It is created if it does not exist.

    The client keeps data that a server does not accept in its folder, and reports that on stderr. It raises no error.
    """

    def __init__(self, project: str, run: TrackedRun) -> None:
        with redirect_stdout(sys.stderr):
            self._run = trackio.init(
                project=project,
                name=run.name,
                config=dict(run.settings),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        self._sent: set[Event] = set()
        self.place = f"Trackio project {project}, run {self._run.name}"

    def write(self, steps: Sequence[StepValues]) -> None:
        with redirect_stdout(sys.stderr):
            for of_step in steps:
                self._run.log(dict(of_step.values), step=of_step.step)

    def write_events(self, events: Sequence[Event]) -> None:
        """Send the findings that were not sent before. Trackio cannot withdraw an alert."""
        with redirect_stdout(sys.stderr):
            for event in events:
                if event not in self._sent:
                    text = f"{event.summary}\n{event.next_step}"
                    self._run.alert(title=event.title, text=text, level=LEVELS[event.severity], step=event.step)
                    self._sent.add(event)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            trackio.finish()  # the run's own method would be called again at the end of the process, and print
