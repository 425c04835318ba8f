from pathlib import Path

import pytest

from tests.trainer.checkpoint.killed_writer import kill_writers, make_checkpoints, make_state, write
from trainer.checkpoint.folder import complete_steps, make_root


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("count", [4, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_the_newest_complete_checkpoint_loads_whenever_its_writer_is_killed(count: int, tmp_path: Path) -> None:
    kills = list(kill_writers(tmp_path / "checkpoints", count=count))
    assert kills[-1].step > count / 4
    assert any(kill.is_partial for kill in kills)
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
