import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.checkpoint.killed_writer import make_checkpoints, make_state, write
from trainer.checkpoint.folder import complete_steps, make_root


@pytest.mark.parametrize("count", [4, pytest.param(200, marks=pytest.mark.long)])
def test_the_newest_complete_checkpoint_loads_whenever_its_writer_is_killed(count: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trainer.checkpoint.killed_writer", str(tmp_path / "checkpoints")]
    done = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, timeout=60 + 2 * count)
    assert done.returncode == 0, done.stderr
    kills, reached = map(int, done.stdout.split())
    assert kills == count
    assert reached > count / 4
    assert len(list((tmp_path / "checkpoints").iterdir())) < 10


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_next_attempt_removes_old_checkpoints_that_a_killed_attempt_left(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    make_root(root)
    first = make_checkpoints(root, keep=9)
    state = make_state()
    first.restore(state)
    for step in range(4):
        write(step, state, first)
    assert complete_steps(root) == [4, 3, 2, 1]
    assert make_checkpoints(root, keep=2).restore(make_state()) == 4
    assert complete_steps(root) == [4, 3]
