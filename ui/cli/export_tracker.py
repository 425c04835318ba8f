"""The work of `rankscope export tensorboard`, `mlflow`, `wandb` and `trackio`: a run in an experiment tracker.

stored steps --step_values--> Tracker.write          once, and with --follow again until the run ends
diagnose_run --events-------> Tracker.write_events   if they have changed
"""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from diagnose.model.load import newest_attempt
from diagnose.model.run_state import RunState, heard_of
from diagnose.pipeline import diagnose_run
from diagnose.run_curves import event_of, step_values, tracked_run
from telemetry.errors import UnreachableError, UsageError
from telemetry.exports.trackers.interface import Event, TrackedRun, Tracker
from telemetry.files.private_files import make_folder
from telemetry.printable import printable
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP
from ui.cli.chosen_steps import chosen_steps, stored_steps
from ui.cli.commands.export import MlflowOptions, TensorBoardOptions, TrackerOptions, TrackioOptions, WandbOptions
from ui.cli.diagnose import step_window
from ui.cli.output import out, progress
from ui.cli.readers import open_reader
from ui.dashboard.wording import count

OVER = (RunState.ENDED, RunState.DIED)
DIAGNOSE_EVERY_S = 30.0
"""Time between two diagnoses. The detectors take seconds on a large run."""
MakeTracker = Callable[[TrackedRun], Tracker]


def export_tensorboard(options: TensorBoardOptions) -> int:
    make = _tracker("tensorboard", "TensorBoardTracker")
    return _export("tensorboard", options, lambda run: make(_new_folder(options.out_folder, run), run))


def export_mlflow(options: MlflowOptions) -> int:
    make = _tracker("mlflow", "MlflowTracker")
    return _export("mlflow", options, lambda run: make(options.project, run))


def export_wandb(options: WandbOptions) -> int:
    make = _tracker("wandb", "WandbTracker")
    return _export("wandb", options, lambda run: make(options.project, run))


def export_trackio(options: TrackioOptions) -> int:
    make = _tracker("trackio", "TrackioTracker")
    return _export("trackio", options, lambda run: make(options.project, run))


def _tracker(module: str, name: str) -> Callable[..., Tracker]:
    """The class of a tracker. Its client is an optional extra, so it is imported here and nowhere else."""
    found: Callable[..., Tracker] = getattr(import_module(f"telemetry.exports.trackers.{module}"), name)
    return found


def _new_folder(path: Path | None, run: TrackedRun) -> Path:
    """An empty folder that only this user may write into.

    Raises:
        UsageError: the folder contains files.
    """
    folder = path or Path(f"{run.run_id}-{run.attempt}-tensorboard")
    with make_folder(folder):
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", hint="choose another folder: --out DIR")
    return folder


def _export(kind: str, options: TrackerOptions, make: MakeTracker) -> int:
    window = step_window(options.first_step, options.last_step)
    with open_reader(options.store) as reader:
        run_id, attempt = newest_attempt(reader, options.run, options.attempt)
        if options.follow:
            first, last = (window.first_step, window.last_step) if window else (0, LAST_STEP)
        else:
            first, last = chosen_steps(reader, run_id, attempt, window)
        with (
            progress.status(f"exporting {printable(run_id)}"),
            closing(make(tracked_run(reader, run_id, attempt))) as tracker,
        ):
            export = TrackerExport(
                reader=reader, tracker=tracker, run_id=run_id, attempt=attempt, next_step=first, last_step=last
            )
            if options.follow:
                _follow(export, options.every)
            else:
                export.finish()
    _print(kind, export, options.json)
    return 0


def _follow(export: "TrackerExport", every_s: float) -> None:
    """Export until the run ends, or until Ctrl-C. Retries if the store does not answer."""
    with suppress(KeyboardInterrupt):
        while True:
            with suppress(UnreachableError):
                is_over = heard_of(export.reader, export.run_id, export.attempt).state in OVER
                if is_over:
                    export.finish()
                    return
                export.advance()
            time.sleep(every_s)


@dataclass(slots=True, kw_only=True)
class TrackerExport:
    """The export of an attempt, and how far it has come."""

    reader: Reader
    tracker: Tracker
    run_id: str
    attempt: int
    next_step: int
    last_step: int
    seen_step: int = -1
    """The newest stored step at the last call of :meth:`advance`."""
    num_steps: int = 0
    num_values: int = 0
    events: tuple[Event, ...] | None = None
    diagnosed_s: float = -DIAGNOSE_EVERY_S

    def advance(self) -> None:
        """Export the steps that are complete: those before the newest stored step of the last call. Some ranks may not
        have sent later steps yet, and a tracker does not accept a step twice."""
        self._write(self.seen_step - 1)
        _, self.seen_step = stored_steps(self.reader, self.run_id, self.attempt)
        if self.num_steps and time.monotonic() - self.diagnosed_s >= DIAGNOSE_EVERY_S:
            self._write_events()

    def finish(self) -> None:
        """Export everything that is stored."""
        _, newest = stored_steps(self.reader, self.run_id, self.attempt)
        self._write(newest)
        self._write_events()

    def _write(self, last_step: int) -> None:
        last_step = min(last_step, self.last_step)
        of_attempt = self.reader, self.run_id, self.attempt
        for steps in step_values(*of_attempt, first_step=self.next_step, last_step=last_step):
            self.tracker.write(steps)
            self.num_steps += len(steps)
            self.num_values += sum(len(of_step.values) for of_step in steps)
        self.next_step = max(self.next_step, last_step + 1)

    def _write_events(self) -> None:
        """Write the findings of `rankscope diagnose`. There are none if no step is complete."""
        findings = []
        with suppress(UsageError):
            findings = list(diagnose_run(self.reader, self.run_id, self.attempt).findings)
        self.diagnosed_s = time.monotonic()
        events = tuple(map(event_of, findings))
        if events != self.events:
            self.tracker.write_events(events)
            self.events = events


def _print(kind: str, export: TrackerExport, json: bool) -> None:
    num_findings = len(export.events or ())
    if json:
        data: dict[str, Any] = {"schema": 1, "run": export.run_id, "attempt": export.attempt, "tracker": kind}
        data |= {"place": export.tracker.place, "steps": export.num_steps, "values": export.num_values}
        out.print_json(data=data | {"findings": num_findings})
        return
    counted = f"{count(export.num_steps, 'step')}, {count(export.num_values, 'value')}"
    text = f"{printable(export.run_id)}: {counted}, {count(num_findings, 'finding')}\n{printable(export.tracker.place)}"
    out.print(text, markup=False, highlight=False)
