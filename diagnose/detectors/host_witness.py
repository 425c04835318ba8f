"""Why ranks wait for a CPU, from the metrics and events of their host.

    metrics of the ranks, compared with others            cause
    ---------------------------------------------         -------
    stopped by a signal                                   stopped
    throttled by the CPU quota of their cgroup            quota
    major faults, and processes wait for memory           memory
    waited for a core that another process uses           process
    waited for a core, no process in particular           crowded
    a hypervisor took the time                            steal

Each is a share of time above that of the other hosts or ranks at the same time. The metric with the largest share is
the cause. The bounds are our own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from diagnose.detectors.host_series import Measures, Period, Place, Taker, stops_of, takers
from diagnose.model.fleet import HostEvent
from diagnose.model.operations import Floats
from diagnose.model.peers import robust_sigma
from diagnose.model.view import RunView
from telemetry.host_metrics import Happening, Metric

MIN_SHARE = 0.05
"""Share of the time. A smaller share is no cause."""
MIN_FAULTS_A_SECOND = 2.0
"""Major faults of a rank above those of others, if it waits for memory. A rank with enough memory has none."""
MIN_HELD = 0.1
"""Share of the host's memory that a named process must hold."""
STRONG_SHARE = 0.1
STRONG_TIMES = 2.0
STRONG_SPREADS = 5.0
"""Least share of the time above the others, least multiple of their share, and least number of their deviations above
them. A witness that reaches all three is strong. Then less clear spans are enough."""
SPREAD_FLOOR = 0.01
LATER_NS = 15_000_000_000
"""Events up to this time after a period count: scans are ten seconds apart and describe the time before them."""
MOST_OTHERS = 64
"""Number of ranks or hosts that are compared."""
MIN_EXPLAINED = 0.5
"""Share of the lost time that a strong witness must explain."""
MIN_EXPLAINED_BY_MEMORY = 0.25
"""Used instead of ``MIN_EXPLAINED`` if memory is short: paging also takes CPU time."""


class Cause(StrEnum):
    """Why a rank waited for a CPU."""

    STOPPED = "stopped"
    QUOTA = "quota"
    MEMORY = "memory"
    PROCESS = "process"
    CROWDED = "crowded"
    STEAL = "steal"


_NEXT_STEPS: dict[Cause | None, str] = {
    None: "check for other processes on its cores, a stopped or niced process and quotas (top, ps -o stat,ni,psr, "
    "cpu.stat of its cgroup). Pin the rank to separate cores",
    Cause.CROWDED: "find the processes on its cores, on the host itself and not in a container "
    "(top, ps -eo pid,psr,pcpu,comm --sort=-pcpu). Pin the rank to separate cores",
    Cause.STOPPED: "find what stops the process: a debugger, a scheduler that suspends jobs, shell job control, or "
    "a cgroup freezer",
    Cause.QUOTA: "increase or remove the CPU limit of its container (cpu.max, resources.limits.cpu), or assign whole "
    "cores",
    Cause.MEMORY: "free memory: check what uses it (ps --sort=-rss, memory.stat and memory.max of the "
    "cgroup) and check swapping (vmstat 1)",
    Cause.STEAL: "other virtual machines use the same cores: get dedicated cores, or remove the machine from the job",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """Host data that shows a cause."""

    cause: Cause
    share: float
    """Share of the time, above that of others."""
    text: str
    """Continues a sentence about the rank or host."""
    process: str = ""
    """``4711 stress-ng``. Empty: none in particular."""
    strong: bool = False

    @property
    def evidence(self) -> dict[str, float | str]:
        found: dict[str, float | str] = {
            "cause": str(self.cause),
            "witnessed_share_of_time": round(float(self.share), 3),
        }
        return found | {"process": self.process} if self.process else found

    def explains(self, lost_share: float) -> bool:
        """Whether the witness is strong and its share explains enough of the lost time (``MIN_EXPLAINED``)."""
        least = MIN_EXPLAINED_BY_MEMORY if self.cause is Cause.MEMORY else MIN_EXPLAINED
        return self.strong and self.share >= least * lost_share


def next_step(witness: Witness | None) -> str:
    """What to do on the host, by cause."""
    if witness is None:
        return _NEXT_STEPS[None]
    if witness.cause is Cause.PROCESS:
        return (
            f"end pid {witness.process}, move it to other cores (taskset, a cpuset), or pin the ranks to separate cores"
        )
    if witness.cause is Cause.MEMORY and witness.process:
        return f"free memory: end or limit pid {witness.process}. Then check with vmstat 1 that swapping has stopped"
    return _NEXT_STEPS[witness.cause]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """A share of time of the suspects above that of the others."""

    extra: float
    strong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspects:
    """Ranks of one host, and a period. ``whole_host``: they are most of its ranks."""

    ranks: tuple[int, ...]
    numbers: tuple[int, ...]
    """Numbers of these ranks in the whole job."""
    host: str
    period: Period
    whole_host: bool

    @property
    def places(self) -> list[Place]:
        return [(self.host, f"rank{rank}") for rank in self.numbers]


class HostWitness:
    """The host data of a view."""

    def __init__(self, view: RunView) -> None:
        self.view = view
        self._measures = Measures(view.fleet)

    @property
    def is_there(self) -> bool:
        """Whether there is any host data."""
        return bool(self.view.fleet.series or self.view.fleet.events)

    def about(self, ranks: Sequence[int], period: Period | None, cause: Cause | None = None) -> Witness | None:
        """Why these ranks of one host waited for a CPU, or None if this is unknown.

        ``cause``: return a witness of this cause only.
        """
        if period is None or not self.is_there:
            return None
        host = self.view.hosts[ranks[0]]
        whole_host = 2 * len(ranks) > self.view.hosts.count(host)
        numbers = tuple(self.view.numbers(ranks))
        suspects = _Suspects(ranks=tuple(ranks), numbers=numbers, host=host, period=period, whole_host=whole_host)
        found = [witness for witness in self._witnesses(suspects) if cause in (None, witness.cause)]
        return max(found, key=lambda witness: witness.share, default=None)

    def _witnesses(self, suspects: _Suspects) -> Iterator[Witness]:
        yield from self._stopped(suspects)
        quota = self._of_ranks(Metric.RANK_THROTTLED_NS, suspects)
        if quota is not None and quota.extra >= MIN_SHARE:
            text = f"the CPU quota of its cgroup throttled it {min(1.0, quota.extra):.0%} of the time"
            yield Witness(cause=Cause.QUOTA, share=min(1.0, quota.extra), text=text, strong=quota.strong)
        yield from self._memory(suspects)
        yield from self._waited(suspects, 0.0 if quota is None else quota.extra)
        if suspects.whole_host:
            yield from self._steal(suspects)

    def _stopped(self, suspects: _Suspects) -> Iterator[Witness]:
        stops = stops_of(suspects.places, self.view.fleet.events, suspects.period)
        share = sum(stops) / 1e9 / (suspects.period.length_ns / 1e9 * len(suspects.ranks))
        if share >= MIN_SHARE:
            times = "once" if len(stops) == 1 else f"{len(stops)} times"
            text = f"a signal stopped its process {times}, for {sum(stops) / 1e9:.1f} s"
            yield Witness(cause=Cause.STOPPED, share=share, text=text, strong=share >= STRONG_SHARE)

    def _memory(self, suspects: _Suspects) -> Iterator[Witness]:
        """Memory stalls of the host above those of others. A single rank must also have major faults."""
        short = self._named(suspects, Happening.MEMORY_SHORT)
        stalled = self._of_hosts(Metric.HOST_PRESSURE_MEMORY_NS, suspects)
        if stalled is None and short:
            stalled = _Share(extra=STRONG_SHARE, strong=True)
        faults = self._of_ranks(Metric.RANK_MAJOR_FAULTS, suspects)
        faulting = faults is not None and faults.extra * 1e9 >= MIN_FAULTS_A_SECOND
        if stalled is None or stalled.extra < MIN_SHARE or not (faulting or (suspects.whole_host and faults is None)):
            return
        holder = self._holder(short, suspects)
        process = "" if holder is None else holder.process
        held = "" if holder is None else f"; pid {process} holds {holder.amount / 2**30:.1f} GiB"
        text = f"memory is short: processes of its host waited for memory {stalled.extra:.0%} of the time{held}"
        yield Witness(cause=Cause.MEMORY, share=stalled.extra, text=text, process=process, strong=stalled.strong)

    def _waited(self, suspects: _Suspects, quota_share: float) -> Iterator[Witness]:
        """Waiting for a core. Waiting because of a quota is subtracted: no other process causes it."""
        waited = self._of_ranks(Metric.RANK_RUN_DELAY_NS, suspects)
        share = None if waited is None else waited.extra - quota_share
        if share is not None and share < MIN_SHARE:
            return
        cores = self._cores(suspects)
        busy = takers(self._named(suspects, Happening.BUSY_PROCESS))
        beside = [taker for taker in busy if taker.device in cores or (share is not None and not taker.device)]
        strong = waited is not None and waited.strong
        if beside:
            text = beside[0].describe(suspects.host)
            if beside[0].device in cores:
                text = f"{text.removesuffix(f' of {suspects.host}')}, where rank {cores[beside[0].device]} runs"
            taken = beside[0].amount if share is None else share
            yield Witness(cause=Cause.PROCESS, share=taken, text=text, process=beside[0].process, strong=strong)
        elif share is not None:
            busiest = f"; the busiest process: {busy[0].describe(suspects.host)}" if busy else ""
            text = f"it waited for a core {share:.0%} of the time more than its peers{busiest}"
            yield Witness(cause=Cause.CROWDED, share=share, text=text, strong=strong)

    def _steal(self, suspects: _Suspects) -> Iterator[Witness]:
        places = self._host_places(suspects)
        stolen = self._measures.mean_levels(Metric.HOST_CPU_STEAL, places, suspects.period)
        excess = _share_above(stolen[0], stolen[1:])
        if excess is not None and excess.extra >= MIN_SHARE:
            text = f"the hypervisor took {excess.extra:.0%} of the CPU time of its host"
            yield Witness(cause=Cause.STEAL, share=excess.extra, text=text, strong=excess.strong)

    def _of_ranks(self, metric: Metric, suspects: _Suspects) -> _Share | None:
        """Growth of a counter of the suspects above that of other ranks. None if it is unknown.

        The suspects are compared with all others, and also with the others on the host if they are not most of it. The
        smaller result is returned.
        """
        own = self._measures.growths(metric, suspects.places, suspects.period)
        if np.isnan(own).all():
            return None
        hosts = self.view.hosts
        others = [rank for rank in range(len(hosts)) if rank not in suspects.ranks]
        some = others[:: -(-len(others) // MOST_OTHERS) or 1]
        neighbours = [rank for rank in others if hosts[rank] == suspects.host]
        found = [
            _share_above(float(np.nanmedian(own)), self._growths_of(metric, ranks, suspects.period))
            for ranks in (some, [] if suspects.whole_host else neighbours)
        ]
        known = [share for share in found if share is not None]
        return min(known, key=lambda share: share.extra, default=None)

    def _of_hosts(self, metric: Metric, suspects: _Suspects) -> _Share | None:
        grown = self._measures.growths(metric, self._host_places(suspects), suspects.period)
        return _share_above(grown[0], grown[1:])

    def _growths_of(self, metric: Metric, ranks: Sequence[int], period: Period) -> Floats:
        places = [(self.view.hosts[rank], f"rank{self.view.number(rank)}") for rank in ranks]
        return self._measures.growths(metric, places, period)

    def _host_places(self, suspects: _Suspects) -> list[Place]:
        """The host of the suspects, then a sample of the others."""
        others = sorted({*self.view.hosts} - {suspects.host, ""})
        return [(suspects.host, ""), *((host, "") for host in others[:: -(-len(others) // MOST_OTHERS) or 1])]

    def _cores(self, suspects: _Suspects) -> dict[str, int]:
        """Cores on which one of the suspects stayed, and that rank. A rank that moves between cores is left out."""
        found: dict[str, int] = {}
        for rank, place in zip(suspects.numbers, suspects.places, strict=True):
            levels = self._measures.levels(Metric.RANK_CORE, place, suspects.period)
            cores, counts = np.unique(levels, return_counts=True)
            if len(cores) and 2 * counts.max() > len(levels) and float(cores[counts.argmax()]).is_integer():
                found[f"core{int(cores[counts.argmax()])}"] = rank
        return found

    def _named(self, suspects: _Suspects, name: Happening) -> list[HostEvent]:
        return [
            event
            for event in self.view.fleet.named(name)
            if event.host == suspects.host and suspects.period.holds(event.at_ns, later_ns=LATER_NS)
        ]

    def _holder(self, short: Sequence[HostEvent], suspects: _Suspects) -> Taker | None:
        """The process that holds the most memory, if it holds at least ``MIN_HELD`` of the host's memory."""
        total = self._measures.levels(Metric.HOST_MEMORY_TOTAL_BYTES, (suspects.host, ""), suspects.period)
        least = MIN_HELD * float(total.max()) if len(total) else 0.0
        return next((taker for taker in takers(short) if taker.amount >= least), None)


def _share_above(own: float, others: Floats) -> _Share | None:
    """The share above the median of ``others``, or None if ``own`` is unknown. Without others, it is ``own`` itself."""
    if np.isnan(own):
        return None
    others = others[~np.isnan(others)]
    usual = float(np.median(others)) if len(others) else 0.0
    bound = max(STRONG_SHARE, (STRONG_TIMES - 1.0) * usual, STRONG_SPREADS * robust_sigma(others, SPREAD_FLOOR))
    return _Share(extra=own - usual, strong=own - usual >= bound)
