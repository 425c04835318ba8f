"""Cost of sampling a host for the agent: each sampler on this machine, compared with psutil.

python -m tests.benchmarks.samplers [--json]

Figures are microseconds of processor time of the sampling thread, per sample. With one sample per second the bound of
1,000 is a thousandth of a core. Eight sleeping processes stand for ranks. Without a GPU driver, the GPU sampler reads
an in-memory library.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil
import pynvml

from telemetry.agent.samplers.host import HostSampler
from telemetry.agent.samplers.network import open_network_samplers
from telemetry.agent.samplers.nvml import open_nvml_sampler
from tests.benchmarks.figures import Figure, report
from tests.telemetry.agent.samplers.scripted_nvml import ScriptedNvml, h100s

BOUND_US = 1_000.0
LOOKS = 200
WARM_UP = 20
NUM_RANKS = 8
RIVAL = "psutil, same values of host and ranks"
Look = Callable[[], object]


class SamplerCost:
    """All samplers take turns, so that other load on the machine affects all of them equally."""

    title = "Cost of one sample of a host"
    command = "python -m tests.benchmarks.samplers"

    def run(self) -> list[Figure]:
        with _ranks() as pids:
            looks = _looks(pids)
            rounds = [{name: _cpu_us(look) for name, look in looks.items()} for _ in range(LOOKS)][WARM_UP:]
        costs = {name: [one[name] for one in rounds] for name in looks}
        rival = statistics.median(costs.pop(RIVAL))
        figures = [
            _figure(name, values, bound=BOUND_US, **({"rival": RIVAL, "rival_value": rival} if name == "host" else {}))
            for name, values in costs.items()
        ]
        return [*figures, Figure(name=RIVAL, value=rival, unit="us")]


def _figure(name: str, values: list[float], **fields: Any) -> Figure:
    tenths = statistics.quantiles(values, n=10)
    return Figure(name=name, value=statistics.median(values), unit="us", low=tenths[0], high=tenths[-1], **fields)


def _looks(pids: Mapping[int, int]) -> dict[str, Look]:
    samplers = [*open_network_samplers(), HostSampler(ranks=lambda: pids)]
    gpus = open_nvml_sampler(pynvml)
    found: dict[str, Look] = {one.name: lambda one=one: one.sample(time.time_ns()) for one in samplers}
    if gpus is not None:
        found[gpus.name] = lambda: gpus.sample(time.time_ns())
    else:
        scripted = open_nvml_sampler(ScriptedNvml(h100s(NUM_RANKS)))
        assert scripted is not None
        found["nvml, eight simulated GPUs"] = lambda: scripted.sample(time.time_ns())
    processes = [psutil.Process(pid) for pid in pids.values()]
    return {**found, RIVAL: lambda: _by_psutil(processes)}


def _by_psutil(processes: list[psutil.Process]) -> object:
    host = (psutil.cpu_times(percpu=True), psutil.virtual_memory(), psutil.swap_memory(), psutil.disk_io_counters(True))
    ranks = []
    for process in processes:
        with process.oneshot():
            ranks.append(
                (process.cpu_times(), process.memory_info(), process.num_threads(), process.num_ctx_switches())
            )
    return host, ranks, os.getloadavg()


def _cpu_us(look: Look) -> float:
    began = time.thread_time_ns()
    look()
    return (time.thread_time_ns() - began) / 1e3


@contextmanager
def _ranks() -> Iterator[dict[int, int]]:
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(NUM_RANKS)]
    try:
        yield {rank: child.pid for rank, child in enumerate(children)}
    finally:
        for child in children:
            child.kill()
            child.wait()


BENCHMARK = SamplerCost()

if __name__ == "__main__":
    sys.exit(report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv))
