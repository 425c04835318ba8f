"""What the kernel reports about the processes of ranks: how they run, what delays them, and when they are stopped.

    /proc/PID/stat        processor time, threads, memory, page faults, core, state
    /proc/PID/schedstat   time in which it was runnable without a core            main thread: it trains
    /proc/PID/status      voluntary and involuntary context switches              main thread
    cpu.stat              throttling by the processor quota of the cgroup (versions 1 and 2)

A stop that begins and ends between two samples is not visible.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from telemetry.agent.samplers.host_processes import Process, parse_stat
from telemetry.agent.samplers.interface import Event, Reading, Sample, counter, level
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile, read_once
from telemetry.host_metrics import Happening, Metric

STOPPED = frozenset("Tt")  # by a signal, or by a debugger
MOVED_AFTER_SAMPLES = 60
"""Number of samples after which the cgroup of a process is read again."""
_SWITCHES = (
    (Metric.RANK_VOLUNTARY_SWITCHES, b"\nvoluntary_ctxt_switches:"),
    (Metric.RANK_INVOLUNTARY_SWITCHES, b"\nnonvoluntary_ctxt_switches:"),
)
_QUOTA_UNITS_NS = {b"throttled_usec": 1000, b"throttled_time": 1}
"""Name of a line in ``cpu.stat`` -> its unit, in versions 2 and 1 of cgroups."""


class RankProcess:
    """Samples the process of one rank until that process ends."""

    def __init__(self, proc: Path, cgroups: Path, rank: int, pid: int, descriptors: Descriptors) -> None:
        self.pid = pid
        self._device = f"rank{rank}"
        self._folder = proc / str(pid)
        self._cgroups = cgroups
        self._stat = KeptFile(self._folder / "stat", descriptors)
        self._schedstat = KeptFile(self._folder / "schedstat", descriptors)
        self._status = KeptFile(self._folder / "status", descriptors)
        self._started: int | None = None
        self._stopped_at: int | None = None
        """The number of switches when it was found stopped; None while it runs."""
        self._samples = 0
        self._quota_paths: tuple[Path, ...] = ()

    def sample(self, at_ns: int, quotas: "Quotas") -> Sample:
        process = parse_stat(self._stat.content())
        if process is None or self._started not in (None, process.started):
            return Sample()
        self._started = process.started
        switches = dict(_switches(self._status.content()))
        readings = [
            *self._of_process(process),
            *(counter(metric, count, self._device) for metric, count in switches.items()),
            *self._throttled(quotas),
        ]
        fields = self._schedstat.content().split()
        if len(fields) == 3 and fields[1].isdigit():
            readings.append(counter(Metric.RANK_RUN_DELAY_NS, int(fields[1]), self._device))
        events = self._stops(at_ns, process.state in STOPPED, int(sum(switches.values())))
        return Sample(readings=tuple(readings), events=tuple(events))

    def close(self) -> None:
        for file in (self._stat, self._schedstat, self._status):
            file.close()

    def _of_process(self, process: Process) -> Iterator[Reading]:
        yield counter(Metric.RANK_CPU_NS, process.cpu_ns, self._device)
        yield counter(Metric.RANK_PAGE_FAULTS, process.page_faults, self._device)
        yield counter(Metric.RANK_MAJOR_FAULTS, process.major_faults, self._device)
        yield level(Metric.RANK_RESIDENT_BYTES, process.resident_bytes, self._device)
        yield level(Metric.RANK_THREADS, process.num_threads, self._device)
        if process.core >= 0:
            yield level(Metric.RANK_CORE, process.core, self._device)

    def _throttled(self, quotas: "Quotas") -> Iterator[Reading]:
        if self._samples % MOVED_AFTER_SAMPLES == 0:
            self._quota_paths = tuple(_quota_paths(read_once(str(self._folder / "cgroup")), self._cgroups))
        self._samples += 1
        throttled_ns = quotas.throttled_ns(self._quota_paths)
        if throttled_ns is not None:
            yield counter(Metric.RANK_THROTTLED_NS, throttled_ns, self._device)

    def _stops(self, at_ns: int, stopped: bool, switches: int) -> Iterator[Event]:
        """The events of a process that a signal or a debugger stopped: ``RANK_STOPPED`` and ``RANK_CONTINUED``.

        ``switches`` is the number of context switches. If the process is stopped in this sample and in the previous
        one, but this number changed, the process ran in between. Then both events are returned.
        """
        if self._stopped_at is not None and not (stopped and switches == self._stopped_at):
            yield Event(at_ns=at_ns, device=self._device, name=Happening.RANK_CONTINUED, text="")
            self._stopped_at = None
        if stopped and self._stopped_at is None:
            yield Event(at_ns=at_ns, device=self._device, name=Happening.RANK_STOPPED, text=f"process {self.pid}")
            self._stopped_at = switches


def _switches(status: bytes) -> Iterator[tuple[Metric, int]]:
    for metric, label in _SWITCHES:
        _, found, rest = status.partition(label)
        count = rest.split(b"\n", 1)[0].strip()
        if found and count.isdigit():
            yield metric, int(count)


class Quotas:
    """``cpu.stat`` of the cgroups of ranks, each read once in a sample."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._files: dict[Path, KeptFile] = {}
        self._throttled: dict[Path, int | None] = {}

    def begin(self) -> None:
        """Begin a new sample. Files that the previous sample did not use are closed."""
        for path in self._files.keys() - self._throttled.keys():
            self._files.pop(path).close()
        self._throttled = {}

    def throttled_ns(self, paths: tuple[Path, ...]) -> int | None:
        """The sum of the throttled times of these cgroups; None if no cgroup reports it."""
        for path in paths:
            if path not in self._throttled:
                file = self._files.setdefault(path, KeptFile(path, self._descriptors))
                self._throttled[path] = _throttled_ns(file.content())
        known = [throttled for path in paths if (throttled := self._throttled[path]) is not None]
        return sum(known) if known else None

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _throttled_ns(stat: bytes) -> int | None:
    for line in stat.split(b"\n"):
        name, _, number = line.partition(b" ")
        if name in _QUOTA_UNITS_NS and number.strip().isdigit():
            return int(number) * _QUOTA_UNITS_NS[name]
    return None


def _quota_paths(cgroup: bytes, cgroups: Path) -> Iterator[Path]:
    """``cpu.stat`` of a process's cgroup and of all its parents, from ``/proc/PID/cgroup``.

    ``0::/pod/container`` in version 2, ``4:cpu,cpuacct:/pod/container`` in version 1. In a container, the path may be
    that of the host, although only the part below the container's cgroup is mounted.
    """
    for line in cgroup.decode(errors="replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, found, path = rest.partition(":")
        folder = _mounted(number, controllers.split(","), cgroups)
        if not found or folder is None or ".." in PurePosixPath(path).parts:
            continue
        own = PurePosixPath(path.lstrip("/"))
        levels = [folder / own, *(folder / above for above in own.parents)] if own.parts else [folder]
        yield from (level / "cpu.stat" for level in levels if (level / "cpu.stat").exists())


def _mounted(number: str, controllers: list[str], cgroups: Path) -> Path | None:
    """The folder of the cgroup hierarchy; None if the hierarchy has no processor quotas."""
    if number == "0":
        return cgroups
    if "cpu" not in controllers:
        return None
    return next((cgroups / name for name in (",".join(controllers), "cpu") if (cgroups / name).is_dir()), None)


def follow(
    followed: dict[int, RankProcess], wanted: Mapping[int, int], proc: Path, cgroups: Path, descriptors: Descriptors
) -> dict[int, RankProcess]:
    """The processes of the ``wanted`` ranks. Other processes are closed."""
    kept = {rank: process for rank, process in followed.items() if wanted.get(rank) == process.pid}
    for rank in followed.keys() - kept.keys():
        followed[rank].close()
    fresh = wanted.keys() - kept.keys()
    return kept | {rank: RankProcess(proc, cgroups, rank, wanted[rank], descriptors) for rank in fresh}
