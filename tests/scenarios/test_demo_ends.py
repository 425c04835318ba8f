"""However a demo is ended, nothing of it stays behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.deadline import until

pytestmark = [pytest.mark.gloo, pytest.mark.chaos]


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """Everything below it: collector, trainer, ranks, agent."""
    return process.children(recursive=True)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_ended_ends_all_that_it_started(ending: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ui.cli", "demo", "--exit", "--out", str(tmp_path), "--steps", "500"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as demo:
        until(lambda: len(family_of(psutil.Process(demo.pid))) >= 10, seconds=90, what="collector, trainer and ranks")
        family = family_of(psutil.Process(demo.pid))
        os.kill(demo.pid, ending)
        assert demo.wait(60) != 0
    until(lambda: not any(one.is_running() for one in family), seconds=30, what="the end of every process")
