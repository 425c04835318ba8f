"""When processes end: stamped by the kernel's word, in order, also where nobody looked."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from telemetry.agent.watched_job import DeathWatch
from tests.deadline import until


@pytest.fixture
def told() -> threading.Event:
    return threading.Event()


@pytest.fixture
def deaths(told: threading.Event) -> Iterator[DeathWatch]:
    deaths = DeathWatch(told.set)
    yield deaths
    deaths.close()


def living() -> subprocess.Popen[bytes]:
    """A process that ends when its input does."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_each_end_is_stamped_in_its_turn(deaths: DeathWatch, told: threading.Event) -> None:
    processes = [living() for _ in range(3)]
    assert all(deaths.follow(process.pid) for process in processes)
    assert not any(deaths.died_ns(process.pid) for process in processes)
    before_ns = time.time_ns()
    order = [processes[1], processes[2], processes[0]]
    for process in order:
        process.kill()
        until(lambda process=process: deaths.died_ns(process.pid), what="the stamp")
        process.communicate()
    stamps = [deaths.died_ns(process.pid) for process in order]
    assert before_ns < stamps[0] < stamps[1] < stamps[2] <= time.time_ns()
    assert told.is_set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_ended_a_process_is_read_before_its_parent_asks(deaths: DeathWatch, number: signal.Signals) -> None:
    process = living()
    deaths.follow(process.pid)
    process.send_signal(number)
    until(lambda: deaths.died_ns(process.pid), what="the stamp")
    assert deaths.ended_by(process.pid) == number.name
    process.communicate()


def test_of_a_process_that_is_gone_nothing_is_known(deaths: DeathWatch) -> None:
    process = living()
    end(process)
    assert not deaths.follow(process.pid)
    assert deaths.died_ns(process.pid) == 0


def test_where_the_kernel_knows_no_such_thing_nothing_is_stamped(
    deaths: DeathWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    process = living()
    assert not deaths.follow(process.pid)
    end(process)
    assert deaths.died_ns(process.pid) == 0


def test_after_its_end_it_follows_nobody_and_tells_what_it_knew() -> None:
    deaths = DeathWatch()
    process = living()
    assert deaths.follow(process.pid)
    end(process)
    until(lambda: deaths.died_ns(process.pid), what="the stamp")
    deaths.close()
    deaths.close()
    assert deaths.died_ns(process.pid)
    assert not deaths.follow(os.getpid())
