"""Checkpoints on disk: a checkpoint is complete or absent.

    checkpoints/
      step-0000000042                    complete: 42 steps are done
        __0_0.distcp  __1_0.distcp ...   shards, in the format of torch's distributed checkpoint
        rank-00000.json ...              what each rank wrote, with checksums
        .metadata                        torch's index of all shards
        checkpoint.json                  step, run and grid
      step-0000000044.4f1c.partial       under way, or left by a job that was killed

A rank writes its shard, syncs it, and then writes ``rank-N.json``. Rank 0 waits until the file of every rank exists. It
writes the index and ``checkpoint.json``, syncs both, and renames the folder. The rename is the moment at which the
checkpoint becomes complete. The middle of the name differs in each life of a job, so that a folder never holds files
of two lives.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.files.private_files import Folder, make_folder, open_folder

INDEX_NAME = ".metadata"
ABOUT_NAME = "checkpoint.json"
_COMPLETE = re.compile(r"step-(\d{10})")
_PARTIAL = re.compile(r"step-\d{10}\.[0-9a-f]+\.partial")
_MAX_JSON_BYTES = 64 << 20
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What ``checkpoint.json`` says."""

    step: int
    """Steps that are done: training continues with the step of this number."""
    run_id: str
    attempt: int
    world_size: int
    tokens_per_step: int
    seed: int
    format: int = FORMAT


def complete_name(step: int) -> str:
    """The name of the folder of a complete checkpoint."""
    return f"step-{step:010d}"


def partial_name(step: int, life: str) -> str:
    """The name of the folder while ranks write into it. ``life``: hexadecimal, drawn once in each life of a job."""
    return f"{complete_name(step)}.{life}.partial"


def report_name(rank: int) -> str:
    """The name of the file in which a rank says what it wrote."""
    return f"rank-{rank:05d}.json"


def complete_steps(root: Path) -> list[int]:
    """Steps of the complete checkpoints below ``root``, the newest first. Empty if there is no such folder."""
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    return sorted((int(found[1]) for name in names if (found := _COMPLETE.fullmatch(name))), reverse=True)


def write_synced(folder: Folder, name: str, content: bytes) -> None:
    """Write a file whole, and return when it is on disk."""
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
    """What the complete checkpoint of ``step`` says of itself.

    Raises:
        UnreadableError: it is damaged, or of another version.
    """
    with open_folder(root / complete_name(step), below=1) as folder:
        content = read_json(folder, ABOUT_NAME)
    try:
        about = About(**content)
    except TypeError:
        about = None
    if about is None or about.format != FORMAT or about.step != step:
        raise UnreadableError(
            f"{root / complete_name(step)} was written by another version", hint="use the version that wrote it"
        )
    return about


def commit(root: Path, about: About, life: str) -> None:
    """Make the checkpoint of ``about.step`` complete."""
    name = partial_name(about.step, life)
    with make_folder(root, below=1) as folder:
        with folder.folder(name) as partial:
            write_synced(partial, ABOUT_NAME, json.dumps(asdict(about)).encode())
        folder.rename(name, complete_name(about.step))
        os.fsync(folder.descriptor)


def remove_old(root: Path, *, keep: int, life: str) -> None:
    """Remove all but the newest ``keep`` complete checkpoints, and folders that other lives of the job left unfinished.

    A checkpoint loses its complete name first, so a kill in the middle leaves nothing that looks complete.
    """
    with make_folder(root, below=1) as folder:
        for step in complete_steps(root)[keep:]:
            folder.rename(complete_name(step), partial_name(step, life))
        newest = max(complete_steps(root), default=-1)
        for name in folder.names():
            own = name.endswith(f".{life}.partial")
            if _PARTIAL.fullmatch(name) and (not own or int(name[5:15]) < newest):
                with suppress(FileNotFoundError):
                    folder.remove_folder(name, with_content=True)


@contextmanager
def partial_folder(root: Path, step: int, life: str) -> Iterator[Folder]:
    """The open folder of a checkpoint that is under way. It is created by whichever rank comes first."""
    with make_folder(root / partial_name(step, life), below=2) as folder:
        yield folder
