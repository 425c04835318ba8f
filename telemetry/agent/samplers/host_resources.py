"""Resources of the whole host and their use, from ``/proc``.

    stat            time of each core by use, number of runnable threads
    meminfo         total and available memory
    vmstat          pages swapped in and out, page faults, out-of-memory kills
    diskstats       bytes and busy time of each disk
    pressure/*      time in which a process waited for cores, memory or disks; not on every kernel

Kernels differ in what they report. Missing and implausible values are left out.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from telemetry.agent.samplers.interface import Reading, WrappingCounter, counter, level
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile
from telemetry.host_metrics import Metric

CORES_A_SAMPLE = 16
"""On hosts with more cores, single cores are reported less often, as shares since their previous report."""
MAX_DISKS = 32
SECTOR_BYTES = 512
"""The unit of ``diskstats``, independent of the sector size of the disk."""
_USED = (0, 1, 2, 5, 6)
"""Columns of user, nice, system, irq and softirq. The times of guests are part of user and nice."""
_STEAL, _NUM_USES = 7, 8
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PAGE_COUNTERS = (
    (Metric.HOST_SWAP_IN_BYTES, b"pswpin", _PAGE_BYTES),
    (Metric.HOST_SWAP_OUT_BYTES, b"pswpout", _PAGE_BYTES),
    (Metric.HOST_PAGE_FAULTS, b"pgfault", 1),
    (Metric.HOST_MAJOR_FAULTS, b"pgmajfault", 1),
)
_PRESSURES = (
    (Metric.HOST_PRESSURE_CPU_NS, "cpu"),
    (Metric.HOST_PRESSURE_MEMORY_NS, "memory"),
    (Metric.HOST_PRESSURE_IO_NS, "io"),
)
_PAGES = re.compile(rb"\n(pswpin|pswpout|pgfault|pgmajfault|oom_kill) (\d+)")
_MEMORY = re.compile(rb"\n(MemTotal|MemAvailable|MemFree|Buffers|Cached): +(\d+)")
_NO_DISK = re.compile(rb"(?:loop|ram|zram)\d")

Ticks = tuple[int, int, int]
"""Ticks of a core, or of all cores: used, stolen, total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """One sample of a host."""

    readings: tuple[Reading, ...]
    num_cores: int
    oom_kills: int | None
    """Number since the machine started; None if the kernel does not report it."""


class HostResources:
    """Reads the files of one ``/proc``. Shares are relative to the previous sample."""

    def __init__(self, proc: Path, descriptors: Descriptors) -> None:
        self._stat = KeptFile(proc / "stat", descriptors)
        self._memory = KeptFile(proc / "meminfo", descriptors)
        self._pages = KeptFile(proc / "vmstat", descriptors)
        self._disks = KeptFile(proc / "diskstats", descriptors)
        self._pressures = [(metric, KeptFile(proc / "pressure" / name, descriptors)) for metric, name in _PRESSURES]
        self._ticks: dict[str, Ticks] = {}
        self._core_ticks: dict[str, Ticks] = {}
        self._samples = 0
        self._busy_ms: defaultdict[str, WrappingCounter] = defaultdict(WrappingCounter)

    def sample(self) -> Resources:
        """All readings; empty if there is no ``/proc``."""
        stat = self._stat.content()
        num_cores = stat.count(b"\ncpu")
        pages = _numbers(self._pages.content(), _PAGES)
        readings = [
            *self._shares(stat, num_cores),
            *_memory(_numbers(self._memory.content(), _MEMORY)),
            *(counter(metric, pages[name] * unit) for metric, name, unit in _PAGE_COUNTERS if name in pages),
            *self._disk_counters(),
        ]
        running = stat.rpartition(b"\nprocs_running ")[2].partition(b"\n")[0]
        if running.isdigit():
            readings.append(level(Metric.HOST_RUN_QUEUE, int(running)))
        for metric, file in self._pressures:
            if found := re.match(rb"some [^\n]*total=(\d+)", file.content()):
                readings.append(counter(metric, int(found[1]) * 1000))
        return Resources(readings=tuple(readings), num_cores=num_cores, oom_kills=pages.get(b"oom_kill"))

    def close(self) -> None:
        for file in (self._stat, self._memory, self._pages, self._disks, *(file for _, file in self._pressures)):
            file.close()

    def _shares(self, stat: bytes, num_cores: int) -> Iterator[Reading]:
        """Shares of all cores together in each sample. Shares of single cores are read less often if there are many."""
        first, _, cores = stat.partition(b"\n")
        due = self._samples % max(1, -(-num_cores // CORES_A_SAMPLE)) == 0
        self._samples += 1
        for lines, before in ((first, self._ticks), (cores if due else b"", self._core_ticks)):
            for device, now in _ticks(lines):
                yield from _share(before.get(device), now, device)
                before[device] = now

    def _disk_counters(self) -> Iterator[Reading]:
        for name, (read, written, busy_ms) in _disks(self._disks.content()):
            yield counter(Metric.HOST_DISK_READ_BYTES, read * SECTOR_BYTES, name)
            yield counter(Metric.HOST_DISK_WRITE_BYTES, written * SECTOR_BYTES, name)
            yield counter(Metric.HOST_DISK_BUSY_NS, self._busy_ms[name].unwrapped(busy_ms) * 1_000_000, name)


def _ticks(lines: bytes) -> Iterator[tuple[str, Ticks]]:
    """Pairs of device and ticks. The device is empty for all cores together. Without a report, steal is 0."""
    for line in lines.split(b"\n"):
        if not line.startswith(b"cpu"):
            return
        name, *fields = line.split()
        try:
            uses = [int(field) for field in fields[:_NUM_USES]]
        except ValueError:
            continue
        if len(uses) >= 4:
            used = sum(uses[place] for place in _USED if place < len(uses))
            device = f"core{name[3:].decode(errors='replace')}" if name != b"cpu" else ""
            yield device, (used, uses[_STEAL] if len(uses) > _STEAL else 0, sum(uses))


def _share(before: Ticks | None, now: Ticks, device: str) -> Iterator[Reading]:
    if before is None or now[2] <= before[2]:
        return
    used, stolen = ((now[place] - before[place]) / (now[2] - before[2]) for place in (0, 1))
    yield level(Metric.HOST_CPU_BUSY, min(1.0, max(0.0, used)), device)
    if not device:
        yield level(Metric.HOST_CPU_STEAL, min(1.0, max(0.0, stolen)))


def _numbers(content: bytes, lines: re.Pattern[bytes]) -> dict[bytes, int]:
    """Name -> number, for the lines that match ``lines``."""
    return {name: int(number) for name, number in lines.findall(b"\n" + content)}


def _memory(kib: dict[bytes, int]) -> Iterator[Reading]:
    """Readings of memory. Before Linux 3.14, available memory is computed from free memory and caches."""
    available = kib.get(b"MemAvailable")
    if available is None and b"MemFree" in kib:
        available = sum(kib.get(part, 0) for part in (b"MemFree", b"Buffers", b"Cached"))
    if available is not None:
        yield level(Metric.HOST_MEMORY_AVAILABLE_BYTES, available * 1024)
    if b"MemTotal" in kib:
        yield level(Metric.HOST_MEMORY_TOTAL_BYTES, kib[b"MemTotal"] * 1024)


def _disks(content: bytes) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Whole disks with any activity: sectors read, sectors written, milliseconds busy."""
    disk, count = b"", 0
    for line in content.split(b"\n"):
        fields = line.split()
        if len(fields) < 14 or _NO_DISK.match(fields[2]) or _is_part(fields[2], disk):
            continue  # partitions have fewer columns on old kernels
        disk = fields[2]
        if not all(field.isdigit() for field in fields[3:14]) or not int(fields[3]) + int(fields[7]):
            continue
        count += 1
        if count > MAX_DISKS:
            return
        yield disk.decode(errors="replace"), (int(fields[5]), int(fields[9]), int(fields[12]))


def _is_part(name: bytes, disk: bytes) -> bool:
    """Whether ``name`` is a partition of ``disk``: ``sda1`` of ``sda``, ``nvme0n1p1`` of ``nvme0n1``."""
    if not disk or not name.startswith(disk):
        return False
    rest = name[len(disk) :]
    return rest.removeprefix(b"p").isdigit() and (rest.startswith(b"p") or not disk[-1:].isdigit())
