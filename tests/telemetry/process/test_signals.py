"""A process that does not end in time is ended with the status of its first signal, or by SIGALRM."""

import signal
import subprocess
import sys

import pytest

from telemetry.process import signals
from tests.each_case import each_case

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


@each_case(
    ("end", "status"),
    [
        ("pass", 0),
        ("time.sleep(60)", 128 + signal.SIGINT),
        ("ctypes.PyDLL(None).sleep(60)  # holds the lock of the interpreter", -signal.SIGALRM),
    ],
)
def test_a_process_ends_within_the_limit_after_its_first_signal(end: str, status: int) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD.format(end=end)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == status


@each_case("number", signals.ENDING)
def test_time_limit_of_a_process_that_saves_its_work_is_the_same_for_each_signal(number: signal.Signals) -> None:
    child = (
        "import signal\nfrom telemetry.process import signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run under nohup
        "left_s = lambda _: print(signal.getitimer(signal.ITIMER_REAL)[0], flush=True)\n"
        "signals.on_first_ending(left_s, limit_s=60, for_all=True)\n"
        f"signal.raise_signal({int(number)})\n"
    )
    done = subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert float(done.stdout) == pytest.approx(60, abs=5)
