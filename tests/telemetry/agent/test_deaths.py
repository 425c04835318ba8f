"""DeathWatch stamps the time at which a process ends, as the kernel reports it."""

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
def death_reported() -> threading.Event:
    return threading.Event()


@pytest.fixture
def deaths(death_reported: threading.Event) -> Iterator[DeathWatch]:
    deaths = DeathWatch(death_reported.set)
    yield deaths
    deaths.close()


def living() -> subprocess.Popen[bytes]:
    """A process that ends when its input does."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_death_times_of_processes_follow_the_order_of_their_ends(
    deaths: DeathWatch, death_reported: threading.Event
) -> None:
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
    assert death_reported.is_set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_signal_that_ended_a_process_is_known_before_its_parent_waits(
    deaths: DeathWatch, number: signal.Signals
) -> None:
    process = living()
    deaths.follow(process.pid)
    process.send_signal(number)
    until(lambda: deaths.died_ns(process.pid), what="the stamp")
    assert deaths.ended_by(process.pid) == number.name
    process.communicate()


def test_process_that_already_ended_is_not_followed_and_has_no_death_time(deaths: DeathWatch) -> None:
    process = living()
    end(process)
    assert not deaths.follow(process.pid)
    assert deaths.died_ns(process.pid) == 0


def test_no_death_time_is_stamped_when_pidfd_open_is_missing(
    deaths: DeathWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    process = living()
    assert not deaths.follow(process.pid)
    end(process)
    assert deaths.died_ns(process.pid) == 0


def test_closed_death_watch_keeps_known_death_times_and_follows_no_process() -> None:
    deaths = DeathWatch()
    process = living()
    assert deaths.follow(process.pid)
    end(process)
    until(lambda: deaths.died_ns(process.pid), what="the stamp")
    deaths.close()
    deaths.close()
    assert deaths.died_ns(process.pid)
    assert not deaths.follow(os.getpid())
