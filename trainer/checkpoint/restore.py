"""Load the newest checkpoint that can be read, on the same grid or on another one."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException

import telemetry
from telemetry.errors import RankscopeError, UnreadableError
from telemetry.printable import log
from trainer.checkpoint.claim import check_same_training
from trainer.checkpoint.folder import About, complete_name, complete_steps, open_checkpoint, read_about, set_aside
from trainer.checkpoint.shards import CheckedReader
from trainer.checkpoint.state import TrainingState
from trainer.config import TrainConfig

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was loaded."""

    about: About
    read_bytes: int
    """Bytes of tensors that this rank read."""
    stored_step: int | None = None
    """Steps of the newest checkpoint in storage (0 if there is none) if the state was loaded from memory. None if it
    was loaded from storage."""


def restore(root: Path, state: TrainingState, config: TrainConfig) -> Restored | None:
    """Load the newest readable checkpoint below ``root`` into ``state``; None if there is none. A collective call.

    Together the ranks read one copy: what several ranks need is read by one of them (``shared_reads.py``). A checkpoint
    that one rank or more cannot read is reported, and all ranks load the next older one. Then rank 0 sets the
    unreadable one aside.

    Raises:
        UnreadableError: there are checkpoints, and none can be read.
        UsageError: the newest one belongs to another training.
    """
    found = _same_on_all_ranks(root)
    for number, (step, about) in enumerate(found):
        if isinstance(about, str):
            _report(root, step, about)
            continue
        check_same_training(about, config, root)
        try:
            with ExitStack() as opened:
                open_reader = partial(_opened_reader, opened, root, about.step)
                restored = load(open_reader, about, state)
        except (CheckpointException, RankscopeError) as error:
            _report(root, step, reason_of(error))
            continue
        if state.rank == 0:
            for unreadable, _ in found[:number]:
                with suppress(OSError):
                    set_aside(root, unreadable)
        return restored
    if found:
        raise UnreadableError(
            f"no checkpoint in {root} can be read", hint="see the log for the reasons, or use another folder"
        )
    return None


def _opened_reader(opened: ExitStack, root: Path, step: int) -> CheckedReader:
    return CheckedReader(opened.enter_context(open_checkpoint(root, step)))


def load(open_reader: Callable[[], CheckedReader], about: About, state: TrainingState) -> Restored:
    """Load a checkpoint into ``state``. A collective call. Raises the same error on all ranks, or on none."""
    reader = together(open_reader)
    random = state.random().keys()
    tensors = {name: tensor for name, tensor in state.tensors().items() if name in reader.names or name not in random}
    dcp.load(dict(tensors), storage_reader=reader, no_dist=not dist.is_initialized())
    together(lambda: state.adopt(tensors, step=about.step))
    return Restored(about=about, read_bytes=reader.read_bytes)


def together(act: Callable[[], T]) -> T:
    """Call ``act`` on each rank, and return its result. A collective call.

    Raises:
        UnreadableError: on all ranks, if ``act()`` failed on one or more of them.
    """
    results: list[T] = []
    reasons: list[Any] = [None]
    try:
        results.append(act())
    except Exception as error:
        reasons = [reason_of(error)]
    if dist.is_initialized():
        own, reasons = reasons[0], [None] * dist.get_world_size()
        dist.all_gather_object(reasons, own)
    failed = [f"rank {rank}: {reason}" for rank, reason in enumerate(reasons) if reason is not None]
    if failed:
        raise UnreadableError(failed[0], hint="an older checkpoint is used if there is one")
    return results[0]


def _same_on_all_ranks(root: Path) -> list[tuple[int, About | str]]:
    """Steps of checkpoints, the newest first, each with its ``checkpoint.json``, or with why that cannot be read.

    Rank 0 lists them for all ranks: another rank may see a checkpoint that was completed a moment later.
    """
    found: list[Any] = [[]]
    if not dist.is_initialized() or dist.get_rank() == 0:
        found = [[(step, _about(root, step)) for step in complete_steps(root)]]
    if dist.is_initialized():
        dist.broadcast_object_list(found)
    return list(found[0])


def _about(root: Path, step: int) -> About | str:
    try:
        return read_about(root, step)
    except (RankscopeError, OSError) as error:
        return reason_of(error)


def _report(root: Path, step: int, reason: str) -> None:
    message = f"cannot load {root / complete_name(step)}: {reason}"
    telemetry.mark("checkpoint-unreadable", message)
    log(message)


def reason_of(error: BaseException) -> str:
    """The text of an error on one line, with the hint."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, failure = next(iter(error.failures.items()))
        return f"rank {rank}: {reason_of(failure[0])}"
    return "; ".join(filter(None, str(error).splitlines())) or type(error).__name__
