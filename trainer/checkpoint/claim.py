"""Checks, before any rank starts, that the folder of checkpoints can be used, is free, and belongs to this training."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from telemetry.errors import RankscopeError, UsageError
from telemetry.printable import write_lines
from telemetry.user_errors import is_disk_full
from trainer.checkpoint.failure import full_disk
from trainer.checkpoint.folder import LOCK_NAME, About, complete_steps, make_root, open_root, read_about
from trainer.config import TrainConfig

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_HINTS = {
    "seed": "use the same --seed, or another folder",
    "tokens_per_step": "change --microbatches so that dp x microbatches stays the same, or use another folder",
    "data": "use the same --data, or another folder",
}
_EARLIER: dict[str, int | str] = {"block": "parallel", "fused_projection": False, "optimizer": "adamw"}
"""Facts that earlier versions did not store, because there was no choice."""


class FolderInUseError(UsageError):
    """Another job holds the folder of checkpoints, or ranks of an earlier attempt do."""


@contextmanager
def claimed(root: Path, config: TrainConfig) -> Iterator[About | None]:
    """Hold the folder of checkpoints for one job. Yields the newest checkpoint that can be read, or None.

    Forked ranks hold the folder too, until the last of them has ended.

    Raises:
        FolderInUseError: another job writes into the folder.
        UsageError: the folder cannot be used, or its checkpoints belong to another training.
    """
    try:
        make_root(root)
        steps = complete_steps(root)
        lock = _lock(root)
    except UsageError:
        raise
    except OSError as error:
        if is_disk_full(error):
            raise full_disk(root) from error
        raise UsageError(
            f"cannot use {root} for checkpoints: {error.strerror or error}",
            hint="give a folder that this user can write into: --checkpoints DIR",
        ) from error
    try:
        yield _check_newest(root, steps, config)
    finally:
        os.close(lock)


def facts_of(config: TrainConfig) -> dict[str, int | str]:
    """What must be the same for a training to continue. The grid and the number of steps may change."""
    path = config.data.path
    return {
        **asdict(config.model),
        "data": "the sources of Python" if path is None else str(path.absolute()),
        "max_bytes": config.data.max_bytes,
        "seed": config.seed,
        "tokens_per_step": config.tokens_per_step,
        "optimizer": config.optim.optimizer,
    }


def check_same_training(about: About, config: TrainConfig, root: Path) -> None:
    """Return if the training of ``config`` can continue from a checkpoint in ``root``.

    Raises:
        UsageError: the checkpoint is of another training.
    """
    for name, fact in facts_of(config).items():
        stored = about.training.get(name, _EARLIER.get(name))
        if stored != fact:
            raise UsageError(
                f"the checkpoints in {root} are of another training: {name} is {stored} there, and {fact} here",
                hint=_HINTS.get(name, f"use the same {name}, or another folder"),
            )


def _lock(root: Path) -> int:
    """Lock the folder. Returns the descriptor of the lock file. Only its owner can open it, so no other user can lock
    the folder."""
    with open_root(root) as folder:
        with suppress(FileExistsError):  # the mode is 0600 also if RANKSCOPE_UMASK lets others read
            os.close(os.open(LOCK_NAME, _NEW, 0o600, dir_fd=folder.descriptor))
        descriptor = folder.open(LOCK_NAME, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FolderInUseError(
            f"another job writes into {root}", hint="end that job, or use another folder: --checkpoints DIR"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(descriptor)
            raise
        write_lines(f"{root} is on a file system without locks: never start two jobs with this folder")
    return descriptor


def _check_newest(root: Path, steps: list[int], config: TrainConfig) -> About | None:
    for step in steps:
        try:
            about = read_about(root, step)
        except (RankscopeError, OSError):
            continue  # the ranks report the error
        check_same_training(about, config, root)
        return about
    return None
