"""Kill a process that writes checkpoints, again and again, and load what it left.

A child saves after every step. All values of step n are n. After each kill the newest complete checkpoint must load,
with the values of its step. The next child must continue from there.
"""

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from tests.deadline import until
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.folder import complete_steps
from trainer.checkpoint.schedule import Signals
from trainer.checkpoint.state import TrainingState
from trainer.config import CheckpointConfig, OptimConfig, RunOptions, TrainConfig
from trainer.optim.adamw import ShardedAdamW

NUM_STEPS = 1_000_000
CPU = torch.device("cpu")
LONGEST_S = 0.1


def make_state() -> TrainingState:
    """Half a megabyte of parameters."""
    module = nn.Linear(256, 512)
    return TrainingState(rank=0, device=CPU, modules=[module], optimiser=ShardedAdamW([module], OptimConfig()))


def make_checkpoints(root: Path) -> Checkpoints:
    config = TrainConfig(num_steps=NUM_STEPS, checkpoint=CheckpointConfig(every=1))
    return Checkpoints(config, RunOptions(out=root.parent, checkpoints=root, run_id="job"), rank=0, device=CPU)


def write_until_killed(root: Path) -> None:
    """What the child does."""
    state, checkpoints = make_state(), make_checkpoints(root)
    done = checkpoints.restore(state)
    if values(state) != {float(done)} and done:
        os._exit(3)
    while True:
        with torch.no_grad():
            for tensor in state.tensors().values():
                if tensor.is_floating_point():
                    tensor.fill_(done + 1)
        checkpoints.after(done, torch.tensor(checkpoints.signals()))
        checkpoints.finish()
        done += 1


def values(state: TrainingState) -> set[float]:
    """All values of parameters and moments."""
    return {
        value for tensor in state.tensors().values() if tensor.is_floating_point() for value in tensor.unique().tolist()
    }


def newest(root: Path) -> int:
    """The step of the newest checkpoint, loaded and compared; 0 where none is complete."""
    state = make_state()
    done = make_checkpoints(root).restore(state)
    assert not done or values(state) == {float(done)}, (done, values(state))
    return done


def names(root: Path) -> set[str]:
    """Of checkpoints, complete and under way."""
    return {path.name for path in root.iterdir()} if root.exists() else set()


def wait_for_change(root: Path) -> None:
    """Return when a checkpoint is under way."""
    before = names(root)
    until(lambda: names(root) != before, seconds=60, what="a checkpoint under way")


def main() -> int:
    """Print the number of kills and the step that was reached."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    randomness, reached = random.Random(arguments.seed), 0
    assert not any(Signals())
    for _ in range(arguments.count):
        child = os.fork()
        if not child:
            write_until_killed(arguments.root)
        wait_for_change(arguments.root)
        time.sleep(randomness.random() * LONGEST_S)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        step = newest(arguments.root)
        assert step >= reached, (step, reached)
        assert len(complete_steps(arguments.root)) <= 3
        reached = step
    print(arguments.count, reached)
    return 0


if __name__ == "__main__":
    sys.exit(main())
