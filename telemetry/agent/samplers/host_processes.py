"""The busiest processes of a host. All processes are scanned only while a rank waits for a core or for memory.

    a rank waits -- scan -- 2 s -- scan -- 10 s -- scan ...      processor time between two scans -> shares
                                                                 the newest scan -> largest memory users

A scan reads one file per process. The pause after a scan is at least two thousand times its duration. So the cost does
not grow with the number of processes: large hosts are scanned less often.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from telemetry.agent.samplers.interface import Event
from telemetry.agent.samplers.kept_files import read_once
from telemetry.host_metrics import Happening

MIN_SHARE = 0.5
MAX_REPORTED = 8
FIRST_GAP_NS = 2_000_000_000
GAP_NS = 10_000_000_000
PAUSES_PER_COST = 2000
SEVERAL_CORES = 1.05

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One line of ``/proc/PID/stat``."""

    pid: int
    name: str
    state: str
    parent: int
    page_faults: int
    """Minor and major page faults."""
    major_faults: int
    cpu_ns: int
    num_threads: int
    started: int
    """Start time, in ticks since the machine started. Together with the pid, it identifies a process."""
    resident_bytes: int
    core: int
    """Core on which its main thread last ran; -1 on old kernels."""


def parse_stat(stat: bytes) -> Process | None:
    """The process of a text; None if the text is invalid. A name may contain brackets: it ends at the last one."""
    head, _, tail = stat.rpartition(b")")
    pid, _, name = head.partition(b" (")
    fields = tail.split()
    try:
        return Process(
            pid=int(pid),
            name=name.decode(errors="replace"),
            state=fields[0].decode(),
            parent=int(fields[1]),
            page_faults=int(fields[7]) + int(fields[9]),
            major_faults=int(fields[9]),
            cpu_ns=(int(fields[11]) + int(fields[12])) * _TICK_NS,
            num_threads=int(fields[17]),
            started=int(fields[19]),
            resident_bytes=max(0, int(fields[21])) * _PAGE_BYTES,
            core=int(fields[36]) if len(fields) > 36 else -1,
        )
    except (ValueError, IndexError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """All processes at one time, without those that ended during the scan."""

    at_ns: int
    processes: dict[int, Process]


def scan(proc: Path, at_ns: int) -> Scan:
    root = str(proc)
    found = (parse_stat(read_once(f"{root}/{name}/stat")) for name in os.listdir(root) if name.isdigit())
    return Scan(at_ns=at_ns, processes={process.pid: process for process in found if process is not None})


def busiest(before: Scan, now: Scan, family: Collection[int]) -> list[tuple[Process, float]]:
    """Processes that used more than half of a core since the last scan, with their shares of a core, the busiest
    first, without ``family``.

    Small processes with the same name and core are added up: together they can fill that core.
    """
    elapsed_ns = now.at_ns - before.at_ns
    shares: dict[int, float] = {}
    for pid, process in now.processes.items():
        earlier = before.processes.get(pid)
        same = earlier is not None and earlier.started == process.started
        spent_ns = process.cpu_ns - (earlier.cpu_ns if earlier is not None and same else 0)
        if spent_ns > 0 and pid not in family:
            shares[pid] = spent_ns / elapsed_ns
    busy_shares = {pid: share for pid, share in shares.items() if share > MIN_SHARE}
    small: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for pid in shares.keys() - busy_shares.keys():
        small[now.processes[pid].name, now.processes[pid].core].append(pid)
    for pids in small.values():
        together = sum(shares[pid] for pid in pids)
        if together > MIN_SHARE:
            busy_shares[max(pids, key=lambda pid: (shares[pid], -pid))] = min(1.0, together)
    ordered = sorted(busy_shares.items(), key=lambda item: -item[1])
    return [(now.processes[pid], share) for pid, share in ordered[:MAX_REPORTED]]


def family_of(roots: Collection[int], processes: dict[int, Process]) -> set[int]:
    """``roots`` and all their descendants."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    family, fresh = set(roots), list(roots)
    while fresh:
        born = [child for child in children[fresh.pop()] if child not in family]
        family.update(born)
        fresh.extend(born)
    return family


class ProcessWatch:
    """Scans when a rank waits. Reports busy processes, and the largest memory user."""

    def __init__(self, proc: Path, *, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._proc = proc
        self._clock = clock
        self._before: Scan | None = None
        """The last scan if a rank waited at that time, otherwise None. So one scan follows the end of the wait."""
        self._last_ns = 0
        self._pause_ns = 0

    def sample(self, at_ns: int, *, crowded: bool, memory_short: bool, roots: Collection[int]) -> list[Event]:
        """Scan if necessary, and return the new events.

        ``roots``: ranks and processes of rankscope. They and their descendants are not reported.
        """
        if 0 <= at_ns - self._last_ns < self._pause_ns or not (crowded or memory_short or self._before):
            return []
        began_ns = self._clock()
        now, before = scan(self._proc, at_ns), self._before
        family = family_of(roots, now.processes)
        events = [_memory_short(now, family)] if memory_short else []
        measured = before is not None and before.at_ns < at_ns
        if before is not None and measured:
            events += [_busy_process(process, share, at_ns) for process, share in busiest(before, now, family)]
        self._before = now if crowded or memory_short else None
        self._last_ns = at_ns
        self._pause_ns = max(GAP_NS if measured else FIRST_GAP_NS, PAUSES_PER_COST * (self._clock() - began_ns))
        return events


def _memory_short(now: Scan, family: Collection[int]) -> Event:
    """The event for a lack of memory. It names the process outside ``family`` with the most memory."""
    others = (process for pid, process in now.processes.items() if pid not in family and process.resident_bytes)
    largest = max(others, key=lambda process: process.resident_bytes, default=None)
    text = f"{largest.pid} {largest.name} {largest.resident_bytes}" if largest is not None else ""
    return Event(at_ns=now.at_ns, device="", name=Happening.MEMORY_SHORT, text=text)


def _busy_process(process: Process, share: float, at_ns: int) -> Event:
    """The event for a busy process. Its device is empty if the process used several cores, or its core is unknown."""
    device = "" if share > SEVERAL_CORES or process.core < 0 else f"core{process.core}"
    text = f"{process.pid} {process.name} {share:.2f}"
    return Event(at_ns=at_ns, device=device, name=Happening.BUSY_PROCESS, text=text)
