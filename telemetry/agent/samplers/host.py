"""The host as a sampler: its resources, the processes of its ranks, and other processes that compete with them.

    sample --+-- resources      cores, memory, swap, disks, pressure         every time
             +-- ranks          one RankProcess each                         every time
             '-- did a rank wait since the last sample?  -- yes -->  scan of all processes   busy-process, memory-short

All values are read directly from ``/proc`` and the cgroup files. Files that are read every second stay open. This costs
less than a library, and libraries report neither pressure nor the time for which a process waited for a core.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from telemetry.agent.samplers.host_processes import ProcessWatch
from telemetry.agent.samplers.host_ranks import Quotas, RankProcess, follow
from telemetry.agent.samplers.host_resources import HostResources
from telemetry.agent.samplers.interface import Event, GoneError, Reading, Sample
from telemetry.agent.samplers.kept_files import Descriptors
from telemetry.host_metrics import Happening, Metric

MOST_FILES = 256
"""Largest number of files kept open: three for each rank, eight for the host, and those of cgroups. Other files are
opened for each sample."""
MIN_WAITING = 0.1
"""Other processes are scanned if a process waited for a core or for memory for this share of the time."""
MIN_SWITCHES_A_SECOND = 20.0
"""Involuntary switches of a rank: a sign of waiting for a core on kernels that do not report waiting times."""
MIN_AVAILABLE = 0.03
"""Memory is also short if less than this share of it is available: not every kernel reports waiting for memory."""
_WAITING: dict[str, float] = {
    Metric.HOST_PRESSURE_CPU_NS: MIN_WAITING * 1e9,
    Metric.RANK_RUN_DELAY_NS: MIN_WAITING * 1e9,
    Metric.RANK_INVOLUNTARY_SWITCHES: MIN_SWITCHES_A_SECOND,
}
"""Counter -> growth per second above which a process waits for a core."""
_SHORT: dict[str, float] = {
    Metric.HOST_PRESSURE_MEMORY_NS: MIN_WAITING * 1e9,
    Metric.HOST_SWAP_IN_BYTES: 1e6,
    Metric.HOST_SWAP_OUT_BYTES: 1e6,
}
"""Counter -> growth per second above which memory is short."""
_LEVELS = (Metric.HOST_RUN_QUEUE, Metric.HOST_MEMORY_AVAILABLE_BYTES, Metric.HOST_MEMORY_TOTAL_BYTES)
_WITNESSES: frozenset[str] = frozenset((*_WAITING, *_SHORT, *_LEVELS))

Key = tuple[str, str]
"""Metric and device of a reading."""


class HostSampler:
    """A sampler of this host. ``ranks``: rank -> pid of the current training processes. ``clock``: processor time of
    this thread in nanoseconds; the longer a scan takes, the longer is the pause after it.

    Raises:
        GoneError: there is no ``/proc``.
    """

    name = "host"

    def __init__(
        self,
        *,
        ranks: Callable[[], Mapping[int, int]],
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
        clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        if not (proc / "stat").exists():
            raise GoneError(f"{proc}/stat does not exist")
        self._ranks = ranks
        self._proc, self._cgroups = proc, cgroups
        self._descriptors = Descriptors(MOST_FILES)
        self._resources = HostResources(proc, self._descriptors)
        self._followed: dict[int, RankProcess] = {}
        self._quotas = Quotas(self._descriptors)
        self._others = ProcessWatch(proc, clock=clock)
        self._before: dict[Key, float] = {}
        self._before_ns = 0
        self._oom_kills: int | None = None

    def sample(self, at_ns: int) -> Sample:
        resources = self._resources.sample()
        self._followed = follow(self._followed, self._ranks(), self._proc, self._cgroups, self._descriptors)
        self._quotas.begin()
        samples = [process.sample(at_ns, self._quotas) for process in self._followed.values()]
        readings = (*resources.readings, *(reading for sample in samples for reading in sample.readings))
        if not readings and not (self._proc / "stat").exists():
            raise GoneError(f"{self._proc} is gone")
        events = [event for sample in samples for event in sample.events]
        if (kills := resources.oom_kills) is not None:
            if self._oom_kills is not None and kills > self._oom_kills:
                text = str(kills - self._oom_kills)
                events.append(Event(at_ns=at_ns, device="", name=Happening.OOM_KILL, text=text))
            self._oom_kills = kills
        events += self._busy_others(at_ns, readings, resources.num_cores)
        return Sample(readings=readings, events=tuple(events))

    def close(self) -> None:
        self._resources.close()
        self._quotas.close()
        self._followed = follow(self._followed, {}, self._proc, self._cgroups, self._descriptors)

    def _busy_others(self, at_ns: int, readings: Sequence[Reading], num_cores: int) -> list[Event]:
        now = {(reading.metric, reading.device): reading.value for reading in readings if reading.metric in _WITNESSES}
        seconds = (at_ns - self._before_ns) / 1e9
        grown = {
            key: (now[key] - self._before[key]) / seconds for key in now.keys() & self._before.keys() if seconds > 0
        }
        self._before, self._before_ns = now, at_ns
        waiting = now.get((Metric.HOST_RUN_QUEUE, ""), 0) - 1 > num_cores > 0  # the sampler runs, too
        total = now.get((Metric.HOST_MEMORY_TOTAL_BYTES, ""), 0.0)
        available = now.get((Metric.HOST_MEMORY_AVAILABLE_BYTES, ""), total)
        return self._others.sample(
            at_ns,
            crowded=waiting or _any_grew(grown, _WAITING),
            memory_short=_any_grew(grown, _SHORT) or available < MIN_AVAILABLE * total,
            roots={os.getpid(), *(process.pid for process in self._followed.values())},
        )


def _any_grew(grown: Mapping[Key, float], bounds: Mapping[str, float]) -> bool:
    return any(rate > bounds[metric] for (metric, _), rate in grown.items() if metric in bounds)
