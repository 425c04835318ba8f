"""Two ranks without a training. One of them has a fault.

All values after n steps are n. For each scenario, each rank writes a line into its file FOLDER/returned-RANK: scenario,
rank, and what it returned.
"""

import os
import resource
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from tests.deadline import until
from tests.trainer.checkpoint.killed_writer import CONFIG, make_state, values
from trainer.checkpoint import checkpoints as checkpointing
from trainer.checkpoint import restore as restoring
from trainer.checkpoint import write as writing
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.finite import NotFiniteError
from trainer.checkpoint.folder import complete_name, make_root, remove_old
from trainer.checkpoint.schedule import Signals
from trainer.checkpoint.state import TrainingState
from trainer.config import CheckpointConfig, ParallelConfig
from trainer.run_options import RunOptions

SHARD_LIMIT = 100_000
"""Bytes. A shard has more."""
PAIR = replace(CONFIG, parallel=ParallelConfig(dp=2), checkpoint=CheckpointConfig(every=1, keep=3))


def saved(
    root: Path, rank: int, *, steps: int, report: Callable[[str], None] = lambda _: None
) -> tuple[TrainingState, Checkpoints, int]:
    """Restore, do steps, and wait for each checkpoint."""
    state = replace(make_state(), rank=rank)
    checkpoints = Checkpoints(PAIR, RunOptions(out=root.parent, checkpoints=root, run_id="job"), report)
    first = checkpoints.restore(state)
    for done in range(first + 1, first + steps + 1):
        with torch.no_grad():
            for tensor in state.tensors().values():
                if tensor.is_floating_point():
                    tensor.fill_(done)
        signals = checkpoints.signals()
        assert signals is not None
        totals = torch.tensor((1.0, 1.0, *signals))
        dist.all_reduce(totals)
        checkpoints.after(done - 1, totals)
        checkpoints.finish()
    return state, checkpoints, first


def one_rank_cannot_write(root: Path, rank: int) -> object:
    """Rank 1 writes no part: neither of the last checkpoint nor of the one before."""
    with patch.object(writing, "writer_into", _stale if rank == 1 else writing.writer_into):
        saved(root, rank, steps=2)
    return "finished"


def the_disk_is_full(root: Path, rank: int) -> object:
    """The kernel refuses to write more than the first bytes of a shard, as on a full disk. Then there is room again."""
    reports: list[str] = []
    saved(root, rank, steps=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHARD_LIMIT, hard))
    saved(root, rank, steps=2, report=reports.append)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if rank == 0:
        assert [path.name for path in root.iterdir()] == [complete_name(1)], "nothing unfinished is left"
    dist.barrier()
    saved(root, rank, steps=1, report=reports.append)
    return reports


def one_rank_cannot_open(root: Path, rank: int) -> object:
    """Rank 1 cannot open checkpoint 3, and then both continue."""
    saved(root, rank, steps=3)
    whole = restoring.open_checkpoint
    faulty = lambda root, step: _stale() if step == 3 and rank == 1 else whole(root, step)  # noqa: E731
    with patch.object(restoring, "open_checkpoint", faulty):
        state, _, first = saved(root, rank, steps=0)
    loaded = values(state)
    saved(root, rank, steps=1)
    return first, sorted(loaded)


def one_shard_is_damaged(root: Path, rank: int) -> object:
    """One bit of checkpoint 3 changes, and then both continue, with one checkpoint to keep."""
    saved(root, rank, steps=3)
    if rank == 0:
        shard = root / complete_name(3) / "__0_0.distcp"
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
    dist.barrier()
    state, _, first = saved(root, rank, steps=0)
    loaded = values(state)
    saved(root, rank, steps=1)
    return first, sorted(loaded)


def the_folder_is_removed(root: Path, rank: int) -> object:
    """The folder is removed while rank 0 waits for the part of rank 1."""
    faulty = (lambda folder: _remove(folder.path)) if rank == 1 else writing.writer_into
    with patch.object(writing, "writer_into", faulty):
        saved(root, rank, steps=1)
    return "finished"


def rank_0_is_late(root: Path, rank: int) -> object:
    """Rank 1 writes its part before rank 0 has a writer. Rank 0 still removes old checkpoints when the last step needs
    another snapshot at once."""
    last = replace(PAIR, num_steps=2)
    state = replace(make_state(), rank=rank)
    checkpoints = Checkpoints(last, RunOptions(out=root.parent, checkpoints=root, run_id="job"))
    with patch.object(checkpointing, "CheckpointWriter", _late_writer if rank == 0 else writing.CheckpointWriter):
        checkpoints.restore(state)
    with patch.object(writing, "remove_old", _remove_old_late):
        for done in (1, 2):
            totals = torch.tensor((1.0, 1.0, *Signals(busy=done - 1.0)))
            checkpoints.after(done - 1, totals)
        checkpoints.finish()
    return "finished"


def a_step_is_not_finite(root: Path, rank: int) -> object:
    """The last step is not finite, after a SIGTERM, while checkpoint 1 is written."""
    state = replace(make_state(), rank=rank)
    checkpoints = Checkpoints(replace(PAIR, num_steps=2), RunOptions(out=root.parent, checkpoints=root, run_id="job"))
    checkpoints.restore(state)
    checkpoints.after(0, torch.tensor((1.0, 1.0, *Signals())))
    try:
        checkpoints.after(1, torch.tensor((float("nan"), 1.0, *Signals(busy=2.0, ended=1.0))))
    except NotFiniteError as error:
        return error.message


def _late_writer(root: Path, *arguments: Any, **options: Any) -> writing.CheckpointWriter:
    until(lambda: any(root.glob("*.partial/rank-00001.json")), seconds=10.0)
    return writing.CheckpointWriter(root, *arguments, **options)


def _remove_old_late(root: Path, *, newest: int, **options: Any) -> None:
    """As soon as a later checkpoint is under way, or after a second."""
    with suppress(AssertionError):
        until(lambda: any(root.glob(f"{complete_name(newest + 1)}.*")), seconds=1.0)
    remove_old(root, newest=newest, **options)


def _stale(*_: object) -> None:
    raise OSError(116, "Stale file handle")


def _remove(path: Path) -> None:
    """The other rank writes into the folder at the same time."""
    path.rename(path.parents[1] / "removed")
    raise OSError(28, "No space left on device")


SCENARIOS = (
    one_rank_cannot_write,
    the_disk_is_full,
    one_rank_cannot_open,
    one_shard_is_damaged,
    the_folder_is_removed,
    rank_0_is_late,
    a_step_is_not_finite,
)


def run(folder: Path, rendezvous: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    with (folder / f"returned-{rank}").open("w", buffering=1) as returned:
        for scenario in SCENARIOS:
            root = folder / scenario.__name__
            make_root(root)
            returned.write(f"{scenario.__name__} {rank} {scenario(root, rank)}\n")
            dist.barrier()


def main(folder: str) -> int:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    rendezvous = f"file://{tempfile.mkdtemp()}/rendezvous"
    child = os.fork()
    rank = 1 if child else 0
    run(Path(folder), rendezvous, rank)
    return int(os.waitpid(child, 0)[1] != 0) if child else 0
