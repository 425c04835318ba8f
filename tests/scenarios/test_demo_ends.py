"""A demo that is terminated leaves no process."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.deadline import until

pytestmark = [pytest.mark.gloo, pytest.mark.chaos]


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """All child processes: collector, trainer, ranks, agent."""
    return process.children(recursive=True)


@pytest.mark.long
def test_terminated_demo_ends_every_process_that_it_started(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ui.cli", "demo", "--exit", "--out", str(tmp_path), "--steps", "500"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as demo:
        family: list[psutil.Process] = []
        try:
            until(lambda: len(family_of(psutil.Process(demo.pid))) >= 10, seconds=90, what="collector and ranks")
            family = family_of(psutil.Process(demo.pid))
            demo.terminate()
            assert demo.wait(60) != 0
        finally:
            demo.kill()
    until(lambda: not any(one.is_running() for one in family), seconds=30, what="the end of every process")
