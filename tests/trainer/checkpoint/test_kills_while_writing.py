import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("count", [6, pytest.param(200, marks=pytest.mark.long)])
def test_the_newest_complete_checkpoint_loads_whenever_its_writer_is_killed(count: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trainer.checkpoint.killed_writer", str(tmp_path / "checkpoints")]
    done = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, timeout=60 + 2 * count)
    assert done.returncode == 0, done.stderr
    kills, reached = map(int, done.stdout.split())
    assert kills == count
    assert reached > count / 4
    assert len(list((tmp_path / "checkpoints").iterdir())) < 10
