"""``/proc`` as three generations of kernels write it, and a host whose values a test changes.

rhel5      no steal time, no MemAvailable, no schedstat, partitions in four columns
rhel8      all of that, but no pressure-stall information unless asked for
current    everything, and disks with columns for discards and flushes
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kernel = Literal["rhel5", "rhel8", "current"]
KERNELS: tuple[Kernel, ...] = ("rhel5", "rhel8", "current")
TICK_NS = 10_000_000
"""100 ticks per second."""
PAGE_BYTES = 4096


@dataclass(slots=True, kw_only=True)
class MadeProcess:
    """The values for its ``stat``, ``status`` and ``schedstat``."""

    pid: int
    name: str = "python"
    state: str = "S"
    parent: int = 1
    major_faults: int = 0
    cpu_ticks: int = 0
    num_threads: int = 1
    started: int = 1000
    resident_pages: int = 100
    core: int = 0
    run_delay_ns: int = 0
    switches: tuple[int, int] = (10, 2)
    """Voluntary and involuntary."""
    cgroup: str = "0::/"


@dataclass(slots=True, kw_only=True)
class MadeHost:
    """A host whose numbers a test sets. :meth:`write` writes them to the files."""

    root: Path
    kernel: Kernel = "current"
    cores: list[list[int]] = field(default_factory=lambda: [[0] * 10, [0] * 10])
    """Ticks of each core: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest nice."""
    running: int = 1
    available_kib: int = 20_000_000
    swapped_pages: tuple[int, int] = (0, 0)
    oom_kills: int = 0
    pressure_us: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("cpu", "memory", "io"), 0))
    disk: tuple[int, int, int] = (100, 200, 300)
    """Sectors read, sectors written, milliseconds busy."""
    processes: list[MadeProcess] = field(default_factory=list)

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def cgroups(self) -> Path:
        return self.root / "cgroup"

    def write(self) -> None:
        """Write in place, because a sampler holds the files open."""
        self.proc.mkdir(parents=True, exist_ok=True)
        (self.proc / "stat").write_text(self._stat())
        (self.proc / "meminfo").write_text(self._meminfo())
        (self.proc / "vmstat").write_text(self._vmstat())
        (self.proc / "diskstats").write_text(self._diskstats())
        if self.kernel == "current":
            (self.proc / "pressure").mkdir(exist_ok=True)
            for name, us in self.pressure_us.items():
                line = f"avg10=0.00 avg60=0.00 avg300=0.00 total={us}"
                (self.proc / "pressure" / name).write_text(f"some {line}\nfull {line}\n")
        for process in self.processes:
            self._write_process(process)

    def pass_time(self, ticks: int = 100, *, used: float = 0.0, stolen: float = 0.0) -> None:
        """Add ticks to each core. ``used`` and ``stolen`` are shares of them."""
        for core in self.cores:
            core[0] += round(ticks * used)
            core[7] += round(ticks * stolen)
            core[3] += ticks - round(ticks * used) - round(ticks * stolen)

    def _stat(self) -> str:
        num_uses = 7 if self.kernel == "rhel5" else 10
        together = [sum(uses) for uses in zip(*self.cores, strict=True)]
        lines = ["cpu  " + " ".join(map(str, together[:num_uses]))]
        lines += [f"cpu{core} " + " ".join(map(str, uses[:num_uses])) for core, uses in enumerate(self.cores)]
        return "\n".join([*lines, "intr 42 0 0 1", "ctxt 99", "btime 1790000000", f"procs_running {self.running}", ""])

    def _meminfo(self) -> str:
        available = "" if self.kernel == "rhel5" else f"MemAvailable:   {self.available_kib} kB\n"
        free = f"MemFree:        {self.available_kib - 3000} kB\n"
        return (
            f"MemTotal:       32000000 kB\n{free}{available}Buffers:            1000 kB\nCached:             2000 kB\n"
        )

    def _vmstat(self) -> str:
        came, went = self.swapped_pages
        kills = f"oom_kill {self.oom_kills}\n" if self.kernel != "rhel5" else ""
        swapped, faults = f"pswpin {came}\npswpout {went}\n", "pgfault 90\npgmajfault 7\n"
        return f"nr_free_pages 5\n{swapped}{faults}{kills}unevictable_pgs_culled 0\n"

    def _diskstats(self) -> str:
        read, written, busy = self.disk
        more = {"rhel5": "", "rhel8": " 0 0 0 0", "current": " 0 0 0 0 5 6"}[self.kernel]
        whole = f"10 0 {read} 5 20 0 {written} 5 0 {busy} 10{more}"
        part = "10 80 10 80" if self.kernel == "rhel5" else whole
        nothing = f"0 0 0 0 0 0 0 0 0 0 0{more}"
        return (
            f"   7    0 loop0 {nothing}\n 253    0 zram0 {whole}\n"
            f"   8    0 sda {whole}\n   8    1 sda1 {part}\n  11    0 sr0 {nothing}\n"
            f" 259    0 nvme0n1 {whole}\n 259    1 nvme0n1p1 {part}\n"
        )

    def _write_process(self, one: MadeProcess) -> None:
        folder = self.proc / str(one.pid)
        folder.mkdir(exist_ok=True)
        head = f"{one.pid} ({one.name}) {one.state} {one.parent} 1 1 0 -1 4194304 9 0 {one.major_faults} 0"
        times = f"{one.cpu_ticks} 0 0 0 20 0 {one.num_threads} 0 {one.started} 3133440 {one.resident_pages}"
        (folder / "stat").write_text(f"{head} {times} {'0 ' * 14}{one.core} 0 0 0 0 0\n")
        voluntary, involuntary = one.switches
        (folder / "status").write_text(
            f"Name:\t{one.name}\nThreads:\t{one.num_threads}\n"
            f"voluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n"
        )
        (folder / "cgroup").write_text(one.cgroup + "\n")
        if self.kernel != "rhel5":
            (folder / "schedstat").write_text(f"{one.cpu_ticks * TICK_NS} {one.run_delay_ns} 12\n")
