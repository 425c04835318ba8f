"""Weights & Biases: a run of a project, with the package ``wandb``. WANDB_MODE, WANDB_API_KEY and the other variables
of W&B apply. With WANDB_MODE=offline the run is written below WANDB_DIR, and ``wandb sync`` sends it later.

The client would also collect the code, packages, console and load of the machine that exports. They do not belong to
the run, and are turned off.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import wandb

from telemetry.errors import UnreachableError
from telemetry.exports.trackers.interface import Event, StepValues, TrackedRun, table_of

FINDINGS = "rankscope/findings"
HINT = "run `wandb login` or set WANDB_API_KEY; with WANDB_MODE=offline no server is needed"
NOT_OF_THE_RUN = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "save_code": False,
    "silent": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


class WandbTracker:
    """``project``: the name of the project. It is created if it does not exist.

    Raises:
        UnreachableError: W&B does not answer or refuses.
    """

    def __init__(self, project: str, run: TrackedRun) -> None:
        with _refusals():
            self._run = wandb.init(
                project=project,
                name=run.name,
                config=dict(run.settings),
                settings=wandb.Settings(**NOT_OF_THE_RUN),
            )
        self.place = self._run.url or self._run.dir

    def write(self, steps: Sequence[StepValues]) -> None:
        with _refusals():
            for of_step in steps:
                self._run.log(dict(of_step.values), step=of_step.step)

    def write_events(self, events: Sequence[Event]) -> None:
        columns, rows = table_of(events)
        with _refusals():
            self._run.log({FINDINGS: wandb.Table(columns=columns, data=rows)})
            self._run.summary["rankscope/num-findings"] = len(events)

    def close(self) -> None:
        with _refusals():
            self._run.finish()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except wandb.Error as error:
        raise UnreachableError(f"W&B: {error}", hint=HINT) from error
