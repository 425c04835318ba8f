"""Processor time and wall time of work, in this process and in a collector over an embedded store."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from telemetry.collector.serving import listen
from tests.deadline import until

COMMAND = [sys.executable, "-m", "ui.cli"]
START_S = 300.0


class Cost(NamedTuple):
    """Seconds. On an idle machine, work that does not wait takes at most its processor time."""

    processor_s: float
    wall_s: float


class Collector(NamedTuple):
    """A collector with the dashboard."""

    address: str
    process: psutil.Process
    start: Cost
    """Until it answers a request for the dashboard."""


def cost_of(work: Callable[[], object], process: psutil.Process | None = None) -> Cost:
    """What ``work`` costs a process with all of its threads, by default this one."""
    spent_s = time.process_time if process is None else partial(_spent_s, process)
    before_s, began_s = spent_s(), time.monotonic()
    work()
    return Cost(spent_s() - before_s, time.monotonic() - began_s)


def _spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def collecting(folder: Path) -> Iterator[Collector]:
    """A collector over the store in ``folder``."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [*COMMAND, "collect", "--store", f"embedded:{folder}", "--port", str(port)]
    began_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _answers(address), seconds=START_S, what="the collector")
            lasted_s = time.monotonic() - began_s
            collector = psutil.Process(process.pid)
            yield Collector(address, collector, Cost(_spent_s(collector), lasted_s))
        finally:
            process.terminate()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/_dash-dependencies").is_success
    except httpx.TransportError:
        return False
