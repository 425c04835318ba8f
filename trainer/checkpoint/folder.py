"""Checkpoints on disk: a checkpoint is complete or absent.

    checkpoints/
      .lock                              held by the job that writes here
      step-0000000042                    complete: 42 steps are done
        __0_0.distcp  __1_0.distcp ...   shards, in the format of torch's distributed checkpoint
        rank-00000.json ...              what each rank wrote, with checksums
        .metadata                        torch's index of all shards
        checkpoint.json                  step, run, grid and training
      step-0000000043.damaged            could not be loaded: an older one was used
      step-0000000041.rolled-back        contains a step that went wrong (rollback.py)
      step-0000000044.4f1c.partial       under way, or left by a job that was killed

A rank writes its shard, syncs it, and then writes ``rank-N.json``. Rank 0 waits until the file of every rank exists. It
writes the index and ``checkpoint.json``, syncs both, and renames the folder. The rename is the moment at which the
checkpoint becomes complete. The middle of the name is the writer id. It differs in each attempt, so that a folder never
holds files of two attempts.

The folder of checkpoints is trusted by its name, and may be a mount point. Only this user may write into it. Nothing
below it may be a link, a mount point or another user's.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from telemetry.errors import RankscopeError, UnreadableError
from telemetry.files.private_files import Folder, check_own, make_folder, open_folder
from telemetry.run_names import checked_run_name

INDEX_NAME = ".metadata"
ABOUT_NAME = "checkpoint.json"
LOCK_NAME = ".lock"
_COMPLETE = re.compile(r"step-(\d{10})")
_DAMAGED = re.compile(r"step-(\d{10})\.damaged")
_ROLLED_BACK = re.compile(r"step-(\d{10})\.rolled-back")
_PARTIAL = re.compile(r"step-\d{10}\.[0-9a-f]+\.partial")
_MAX_JSON_BYTES = 64 << 20
FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Content of ``checkpoint.json``."""

    step: int
    """Steps that are done: training continues with the step of this number."""
    run_id: str
    attempt: int
    world_size: int
    training: Mapping[str, int | str]
    """What must be the same for a training to continue: :func:`trainer.checkpoint.claim.facts_of`."""
    format: int = FORMAT


def complete_name(step: int) -> str:
    """The name of the folder of a complete checkpoint."""
    return f"step-{step:010d}"


def damaged_name(step: int) -> str:
    """The name of the folder of a checkpoint that could not be loaded."""
    return f"{complete_name(step)}.damaged"


def rolled_back_name(step: int) -> str:
    """The name of the folder of a checkpoint that contains a step that went wrong."""
    return f"{complete_name(step)}.rolled-back"


def partial_name(step: int, writer_id: str) -> str:
    """The name of the folder while ranks write into it. ``writer_id``: hexadecimal, drawn once in each attempt."""
    return f"{complete_name(step)}.{writer_id}.partial"


def report_name(rank: int) -> str:
    """The name of the file that lists what a rank wrote."""
    return f"rank-{rank:05d}.json"


def make_root(root: Path) -> None:
    """Create the folder of checkpoints where it is missing, and check it.

    Raises:
        UnsafeFolderError: another user owns it, or can write into it.
        OSError: the folder cannot be created.
    """
    with make_folder(root):
        pass
    with open_root(root):
        pass


@contextmanager
def open_root(root: Path) -> Iterator[Folder]:
    """The open folder of checkpoints.

    Raises:
        UnsafeFolderError: another user owns it, or can write into it.
        OSError: the folder cannot be opened.
    """
    with open_folder(root) as folder:
        check_own(root, os.fstat(folder.descriptor))
        yield folder


@contextmanager
def open_checkpoint(root: Path, step: int) -> Iterator[Folder]:
    """The open folder of a complete checkpoint. Raises the errors of :func:`open_root`."""
    with open_root(root) as opened, opened.folder(complete_name(step)) as folder:
        check_own(folder.path, os.fstat(folder.descriptor))
        yield folder


@contextmanager
def partial_folder(root: Path, step: int, writer_id: str, *, make: bool = True) -> Iterator[Folder]:
    """The open folder of a checkpoint that is under way. ``make``: create it if no other rank has done so."""
    with open_root(root) as opened, opened.folder(partial_name(step, writer_id), make=make) as folder:
        yield folder


def complete_steps(root: Path) -> list[int]:
    """Steps of the complete checkpoints below ``root``, the newest first. Empty if there is no such folder."""
    try:
        with open_root(root) as folder:
            return _steps(_COMPLETE, folder.names())
    except FileNotFoundError:
        return []


def _steps(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    """The steps in the names that match ``pattern``, the newest first."""
    return sorted((int(found[1]) for name in names if (found := pattern.fullmatch(name))), reverse=True)


def write_synced(folder: Folder, name: str, content: bytes) -> None:
    """Write or replace a file atomically, and return when it is on disk."""
    with os.fdopen(folder.make(f"{name}.new"), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    folder.rename(f"{name}.new", name)
    os.fsync(folder.descriptor)


def read_json(folder: Folder, name: str) -> Any:
    """The content of a JSON file of a checkpoint.

    Raises:
        UnreadableError: it is missing or damaged.
    """
    try:
        return json.loads(folder.read(name, _MAX_JSON_BYTES))
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot read {folder.path / name}: {error}", hint="remove this checkpoint") from error


def read_about(root: Path, step: int) -> About:
    """``checkpoint.json`` of the complete checkpoint of ``step``.

    Raises:
        UnreadableError: it is damaged, or of another version.
    """
    with open_checkpoint(root, step) as folder:
        content = read_json(folder, ABOUT_NAME)
    try:
        about = About(**content)
        valid = about.format == FORMAT and about.step == step and _has_types(about)
    except (TypeError, RankscopeError):
        valid = False
    if not valid:
        raise UnreadableError(
            f"{root / complete_name(step)} is damaged, or was written by another version",
            hint="use the version that wrote it",
        )
    return about


def _has_types(about: About) -> bool:
    numbers = (about.step, about.attempt, about.world_size)
    return (
        all(type(number) is int and number >= 0 for number in numbers)
        and isinstance(about.run_id, str)
        and bool(checked_run_name(about.run_id))
        and isinstance(about.training, dict)
        and all(isinstance(fact, int | str) for fact in about.training.values())
    )


def commit(root: Path, about: About, writer_id: str) -> None:
    """Make the checkpoint of ``about.step`` complete. An older folder of that name is set aside: it could not be
    loaded."""
    name = partial_name(about.step, writer_id)
    with open_root(root) as folder:
        with folder.folder(name) as partial:
            write_synced(partial, ABOUT_NAME, json.dumps(asdict(about)).encode())
        _set_aside(folder, about.step)
        folder.rename(name, complete_name(about.step))
        os.fsync(folder.descriptor)


def set_aside(root: Path, step: int) -> None:
    """Rename a checkpoint that could not be loaded, so that it does not count as complete."""
    with open_root(root) as folder:
        _set_aside(folder, step)


def _set_aside(folder: Folder, step: int) -> None:
    names = folder.names()
    if complete_name(step) in names:
        if damaged_name(step) in names:
            folder.remove_folder(damaged_name(step), with_content=True)
        folder.rename(complete_name(step), damaged_name(step))


def remove_old(root: Path, *, newest: int, keep: int, writer_id: str) -> None:
    """Remove what the complete checkpoint of ``newest`` replaces: all but ``keep`` complete ones, all but one damaged
    one, all but one that was rolled back, and all partial ones.

    A checkpoint loses its complete name first, so a kill in the middle leaves nothing that looks complete.
    """
    with open_root(root) as folder:
        names = folder.names()
        replaced = [step for step in _steps(_COMPLETE, names) if step <= newest][keep:]
        for step in replaced:
            folder.rename(complete_name(step), partial_name(step, writer_id))
        aside = ((_DAMAGED, damaged_name), (_ROLLED_BACK, rolled_back_name))
        for number, (pattern, name_of) in enumerate(aside):
            for step in _steps(pattern, names)[1:]:
                if step <= newest:  # the same step may be in both forms
                    folder.rename(name_of(step), partial_name(step, f"{writer_id}{number}"))
    remove_partial(root)


def remove_partial(root: Path, *, besides: str = "") -> None:
    """Remove folders that are not complete, except the one named ``besides``."""
    with open_root(root) as folder:
        for name in folder.names():
            if _PARTIAL.fullmatch(name) and name != besides:
                with suppress(OSError):
                    folder.remove_folder(name, with_content=True)
