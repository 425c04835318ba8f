"""Kill a process that writes checkpoints, again and again, and load its newest checkpoint.

A child saves after every step. All values of step n are n. After each kill the newest complete checkpoint must load,
with the values of its step. The next child must continue from there.
"""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from tests.deadline import until
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.folder import complete_steps, make_root
from trainer.checkpoint.restore import restore
from trainer.checkpoint.state import TrainingState
from trainer.config import CheckpointConfig, OptimConfig, TrainConfig
from trainer.optim.adamw import ShardedAdamW
from trainer.run_options import RunOptions

CPU = torch.device("cpu")
CONFIG = TrainConfig(num_steps=1_000_000, checkpoint=CheckpointConfig(every=1))
MOST_CHANGES = 60
"""A checkpoint changes the names in its folder and in the root about ten times."""


def make_state() -> TrainingState:
    """Half a megabyte of parameters."""
    module = nn.Linear(256, 512)
    return TrainingState(rank=0, device=CPU, modules=[module], optimiser=ShardedAdamW([module], OptimConfig()))


def make_checkpoints(root: Path, *, keep: int = CONFIG.checkpoint.keep) -> Checkpoints:
    config = replace(CONFIG, checkpoint=CheckpointConfig(every=1, keep=keep))
    return Checkpoints(config, RunOptions(out=root.parent, checkpoints=root, run_id="job"))


def write_until_killed(root: Path) -> None:
    """The work of the child."""
    state, checkpoints = make_state(), make_checkpoints(root)
    done = checkpoints.restore(state)
    if values(state) != {float(done)} and done:
        os._exit(3)
    while True:
        write(done, state, checkpoints)
        done += 1


def write(done: int, state: TrainingState, checkpoints: Checkpoints) -> None:
    """Write the checkpoint after step ``done``. Return when it is complete."""
    with torch.no_grad():
        for tensor in state.tensors().values():
            if tensor.is_floating_point():
                tensor.fill_(done + 1)
    signals = checkpoints.signals()
    assert signals is not None
    checkpoints.after(done, torch.tensor((1.0, 1.0, *signals)))
    checkpoints.finish()


def values(state: TrainingState) -> set[float]:
    """All values of parameters and moments."""
    return {
        value for tensor in state.tensors().values() if tensor.is_floating_point() for value in tensor.unique().tolist()
    }


def load_newest(root: Path) -> int:
    """Load a checkpoint: its step, or 0 where none is complete. It must be the newest one, with the values of its
    step."""
    state = make_state()
    complete = complete_steps(root)
    restored = restore(root, state, CONFIG)
    done = restored.about.step if restored else 0
    assert done == max(complete, default=0), (done, complete)
    assert not done or values(state) == {float(done)}, (done, values(state))
    return done


def names(root: Path) -> set[str]:
    """Paths of everything in the folder, including unfinished checkpoints."""
    with suppress(FileNotFoundError):  # a checkpoint became complete meanwhile
        return {str(path) for path in root.rglob("*")}
    return set()


def wait_for_changes(root: Path, count: int) -> None:
    """Return when the names have changed ``count`` times."""
    for _ in range(count):
        before = names(root)
        until(lambda before=before: names(root) != before, seconds=60, every=0.001, what="a change of the folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What was found after a kill."""

    step: int
    """The step of the newest complete checkpoint. It was loaded."""
    is_partial: bool
    """Whether the writer left an incomplete checkpoint."""


def kill_writers(root: Path, *, count: int, seed: int = 0) -> Iterator[Kill]:
    """Start and kill this many writers, each after a random number of changes of the folder."""
    randomness, reached = random.Random(seed), 0
    make_root(root)
    for _ in range(count):
        child = os.fork()
        if not child:
            try:
                torch.set_num_threads(1)  # threads of the parent do not exist here
                write_until_killed(root)
            finally:
                os._exit(1)
        wait_for_changes(root, randomness.randrange(1, MOST_CHANGES))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        found = Kill(is_partial=any(root.glob("*.partial")), step=load_newest(root))
        assert found.step >= reached, (found, reached)
        assert len(complete_steps(root)) <= 3
        reached = found.step
        yield found
