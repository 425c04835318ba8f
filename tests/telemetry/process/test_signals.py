"""A process that does not end in time is ended: with the status of its first signal, or by the alarm."""

import signal
import subprocess
import sys

import pytest

CHILD = """
import ctypes, signal, time
from telemetry.process import signals

signals.SHORT_LIMIT_S = 0.2
signals.raise_on_ending()
try:
    print("ready", flush=True)
    signal.pause()
except KeyboardInterrupt:
    {end}
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        ("time.sleep(60)", 128 + signal.SIGINT),
        ("ctypes.PyDLL(None).sleep(60)  # holds the lock of the interpreter", -signal.SIGALRM),
    ],
    ids=["ends by itself", "main thread is held up", "no thread can run"],
)
def test_a_process_ends_within_the_limit_after_its_first_signal(end: str, status: int) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD.format(end=end)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == status
