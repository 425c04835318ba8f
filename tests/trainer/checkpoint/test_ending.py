"""SIGTERM asks a rank to end; a rank that cannot finish its step ends within a limit."""

import os
import signal
import subprocess
import sys

import pytest

from trainer.checkpoint.ending import FAILED

WAITS = """
import sys, threading, time
from trainer.checkpoint import ending
ending.STEP_LIMIT_S, ending.COPY_S = map(float, sys.argv[1:])
request = ending.EndingRequest()
print("ready", flush=True)
lock = threading.Lock()
lock.acquire()
{work}
"""
STUCK = "lock.acquire()"
STEPS = """
while not request.asked:
    time.sleep(0.01)
for _ in range(20):
    request.step_done()
    time.sleep(0.1)
sys.exit(7)
"""


def start(work: str, *, step_limit_s: float, copy_s: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WAITS.format(work=work), str(step_limit_s), str(copy_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_rank_that_completes_no_step_after_sigterm_ends_at_the_limit() -> None:
    process = start(STUCK, step_limit_s=0.2)
    process.send_signal(signal.SIGTERM)
    _, messages = process.communicate(timeout=30)
    assert process.returncode == FAILED
    assert "no step was completed within 0.2 s after SIGTERM" in messages


def test_second_sigterm_ends_a_stuck_rank_at_once() -> None:
    process = start(STUCK, step_limit_s=600)
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:  # signals that arrive together count as one
        os.kill(process.pid, signal.SIGTERM)
    process.communicate()
    assert process.returncode == FAILED


@pytest.mark.parametrize("signals", [1, 2])
def test_rank_that_completes_steps_after_sigterm_is_not_ended_early(signals: int) -> None:
    process = start(STEPS, step_limit_s=1.0, copy_s=60.0)
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 7


FORKS = """
import os, signal
child = os.fork()
if not child:
    while True:
        signal.pause()
time.sleep(0.2)
os.kill(child, signal.SIGTERM)
time.sleep(0.5)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
sys.exit(8 if request.asked else 7)
"""


def test_sigterm_for_a_forked_child_does_not_end_its_parent() -> None:
    """As for a worker of a data loader: the child inherits the descriptor to which Python writes signals."""
    process = start(FORKS, step_limit_s=60.0)
    process.communicate(timeout=60)
    assert process.returncode == 7
