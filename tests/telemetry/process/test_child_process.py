"""A rank under torchrun ends with torchrun, even if torchrun is killed before the rank trains."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from telemetry.process.child_process import TORCHRUN
from tests.deadline import until
from tests.trainer.jobs import alive

STARTER = """
import subprocess, sys
print(subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid, flush=True)
sys.stdin.read()
"""
SLOW_TORCH = """
import pathlib, signal
pathlib.Path(__file__).with_name("imported").touch()
signal.pause()
"""
ORPHAN = """
import os, pathlib, sys, time
from telemetry.process import child_process
parent = os.getppid()
pathlib.Path(sys.argv[1]).touch()
while os.getppid() == parent:
    time.sleep(0.001)
child_process.end_with_torchrun()
pathlib.Path(sys.argv[2]).touch()
time.sleep(600)
"""


@contextmanager
def started(command: list[str], **variables: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process in the place of torchrun, and the pid of ``command``, which it started."""
    rank = {TORCHRUN: "job", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **rank, **variables},
    ) as starter:  # fmt: skip
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        try:
            yield starter, pid
        finally:
            starter.kill()
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_rank_ends_when_torchrun_is_killed_while_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SLOW_TORCH)
    command = [sys.executable, "-m", "ui.cli", "train", "--out", str(tmp_path / "out")]
    with started(command, PYTHONPATH=os.pathsep.join([str(tmp_path), os.getcwd()])) as (torchrun, rank):
        until((tmp_path / "torch" / "imported").exists, what="the import of torch")
        torchrun.kill()
        until(lambda: not alive(rank), seconds=5, what="the end of the rank")


def test_rank_ends_at_once_when_its_torchrun_has_already_ended(tmp_path: Path) -> None:
    imported, survived = tmp_path / "imported", tmp_path / "survived"
    with started([sys.executable, "-c", ORPHAN, str(imported), str(survived)]) as (torchrun, rank):
        until(imported.exists, what="its start")
        torchrun.kill()
        until(lambda: not alive(rank) or survived.exists(), what="its decision")
    assert not survived.exists()
