"""Takes checkpoints out of use that contain steps in which the training went wrong.

step-0000000040               40 steps: stays, the next attempt loads it
step-0000000050 --rename-->   step-0000000050.rolled-back       the first one after the bad step is kept as evidence
step-0000000060 --rename-->   step-0000000060.0.partial         removed when the next attempt begins
"""

import os
from contextlib import suppress
from pathlib import Path

from telemetry.errors import RankscopeError, UsageError
from telemetry.files.private_files import Folder
from trainer.checkpoint.folder import (
    complete_name,
    complete_steps,
    open_root,
    partial_name,
    read_about,
    rolled_back_name,
)

ROLLBACK_ID = "0"
"""Stands in the name of a partial folder instead of a writer id."""


class NoCheckpointLeftError(UsageError):
    """A rollback would leave no checkpoint."""


def roll_back(root: Path, *, run_id: str, attempt: int, before_step: int) -> list[int]:
    """Rename the checkpoints of ``before_step`` steps or more, so that they are never loaded. Returns their steps.

    Checkpoints of later attempts than ``attempt`` of the run stay. The call can be repeated after a kill. Only the
    process that holds the folder may call this, while no rank lives.

    Raises:
        NoCheckpointLeftError: no checkpoint would be left. Nothing is renamed then.
        OSError: the folder cannot be changed.
    """
    steps = complete_steps(root)
    wrong = [step for step in steps if step >= before_step and not _is_later(root, step, run_id, attempt)]
    if wrong and len(wrong) == len(steps):
        raise NoCheckpointLeftError(
            f"no checkpoint in {root} is old enough: none has less than {before_step} steps, but step {before_step} "
            "is bad",
            hint="next time keep more checkpoints: --keep N. To use the newest one nevertheless, start a new job with "
            f"--checkpoints {root} and another --out",
        )
    with open_root(root) as folder:
        for step in wrong[:-1]:
            _move(folder, step, partial_name(step, ROLLBACK_ID))
        for step in wrong[-1:]:
            _move(folder, step, rolled_back_name(step))
        os.fsync(folder.descriptor)
    return wrong


def _is_later(root: Path, step: int, run_id: str, attempt: int) -> bool:
    with suppress(RankscopeError, OSError):
        about = read_about(root, step)
        return about.run_id == run_id and about.attempt > attempt
    return False  # it cannot be read


def _move(folder: Folder, step: int, name: str) -> None:
    if name in folder.names():
        folder.remove_folder(name, with_content=True)
    folder.rename(complete_name(step), name)
