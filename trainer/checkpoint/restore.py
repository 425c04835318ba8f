"""Load the newest checkpoint that can be read, on the same grid or on another one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException

import telemetry
from telemetry.errors import RankscopeError, UnreadableError, UsageError
from telemetry.files.private_files import open_folder
from telemetry.printable import write_lines
from trainer.checkpoint.folder import About, complete_name, complete_steps, read_about
from trainer.checkpoint.shards import CheckedReader
from trainer.checkpoint.state import TrainingState
from trainer.config import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was loaded."""

    about: About
    read_bytes: int
    """Bytes of tensors that this rank read."""


def restore(root: Path, state: TrainingState, config: TrainConfig) -> Restored | None:
    """Load the newest readable checkpoint below ``root`` into ``state``; None if there is none. A collective call.

    Each rank reads the parts that it holds, so together they read one copy if the grid is the same. What several ranks
    hold is stored once and read by each of them. A checkpoint that cannot be read is reported, and the one before is
    loaded.

    Raises:
        UnreadableError: there are checkpoints, and none can be read.
        UsageError: the newest one belongs to another training.
    """
    found = _agreed(root)
    for step, about in found:
        if isinstance(about, str):
            _report(root, step, about)
            continue
        _check(about, config, root)
        try:
            return _load(root, about, state)
        except (CheckpointException, RankscopeError, OSError) as error:
            _report(root, step, _reason(error))
    if found:
        raise UnreadableError(f"no checkpoint in {root} can be read", hint="remove the folder to start from step 0")
    return None


def _load(root: Path, about: About, state: TrainingState) -> Restored:
    tensors = state.tensors()
    if state.rank >= about.world_size:  # a rank that the other grid did not have keeps its own random generators
        del tensors[state.random_name]
    with open_folder(root / complete_name(about.step), below=1) as folder:
        reader = CheckedReader(folder)
        dcp.load(dict(tensors), storage_reader=reader, no_dist=not dist.is_initialized())
    state.adopt(tensors, step=about.step)
    return Restored(about=about, read_bytes=reader.read_bytes)


def _check(about: About, config: TrainConfig, root: Path) -> None:
    """Refuse a checkpoint that would not continue the same training."""
    if about.seed != config.seed:
        raise UsageError(
            f"the checkpoints in {root} are of seed {about.seed}, not {config.seed}",
            hint="use the same seed, or another folder",
        )
    if about.tokens_per_step != config.tokens_per_step:
        raise UsageError(
            f"a step has {config.tokens_per_step} tokens, and {about.tokens_per_step} in the checkpoints in {root}",
            hint="change --microbatches so that dp x microbatches stays the same, or use another folder",
        )


def _agreed(root: Path) -> list[tuple[int, About | str]]:
    """Steps of checkpoints, the newest first. With each: what it says of itself, or why it cannot be read.

    Rank 0 looks for all ranks: another rank may see a checkpoint that was completed a moment later.
    """
    found: list[Any] = [[]]
    if not dist.is_initialized() or dist.get_rank() == 0:
        found = [[(step, _about(root, step)) for step in complete_steps(root)]]
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.broadcast_object_list(found)
    return list(found[0])


def _about(root: Path, step: int) -> About | str:
    try:
        return read_about(root, step)
    except (RankscopeError, OSError) as error:
        return _reason(error)


def _report(root: Path, step: int, reason: str) -> None:
    message = f"cannot load {root / complete_name(step)}: {reason}"
    telemetry.mark("checkpoint-unreadable", message)
    write_lines(message)


def _reason(error: BaseException) -> str:
    if isinstance(error, CheckpointException):
        return next((str(failure[0]).partition("\n")[0] for failure in error.failures.values()), str(error))
    return str(error).partition("\n")[0] if isinstance(error, RankscopeError) else str(error)
