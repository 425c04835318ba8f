"""What keeps ranks off their cores, from the metrics and events of their host.

    what the host says, of them against others            cause
    ---------------------------------------------         -------
    seen stopped by a signal                              stopped
    the quota of their cgroup held threads back           quota
    major faults, and processes wait for memory           memory
    waited for a core, and a process sits on that one,    process
    or on several
    waited for a core, nobody in particular               crowded
    a hypervisor took the time                            steal

Each is a share of time, beyond that of the other hosts or ranks at the same time. The largest one names the cause.
The bounds are ours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from diagnose.detectors.host_series import Cause, Measures, Period, Place, Taker, Witness, stops_of, takers
from diagnose.model.fleet import HostEvent
from diagnose.model.operations import Floats
from diagnose.model.peers import robust_sigma
from diagnose.model.view import RunView
from telemetry.host_metrics import Happening, Metric

MIN_SHARE = 0.05
"""Of the time: less is no cause."""
MIN_FAULTS_A_SECOND = 2.0
"""Major faults of a rank beyond those of others, when it is memory that it waits for: each reads many pages, and who
has its memory has none of them."""
MIN_HELD = 0.1
"""Of the host's memory, that a process must hold to be named."""
STRONG_SHARE = 0.1
STRONG_TIMES = 2.0
"""What others have of it, so many times, and so many deviations: a witness beside which spans need say less."""
STRONG_SPREADS = 5.0
SPREAD_FLOOR = 0.01
LATER_NS = 15_000_000_000
"""Scans are ten seconds apart and tell of the time before."""
MOST_OTHERS = 64
"""Compared with, of thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A share of time of the accused, and that of the others."""

    share: float
    """Beyond the others' typical one."""
    strong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Accused:
    """Ranks of one host and when; ``whole_host``: they are most of those there."""

    ranks: tuple[int, ...]
    host: str
    period: Period
    whole_host: bool

    @property
    def places(self) -> list[Place]:
        return [(self.host, f"rank{rank}") for rank in self.ranks]


@dataclass(slots=True)
class HostWitness:
    """Asks the hosts of a view."""

    view: RunView
    _measures: Measures = field(init=False)

    def __post_init__(self) -> None:
        self._measures = Measures(self.view.fleet)

    @property
    def is_there(self) -> bool:
        """Whether any host said anything."""
        return bool(self.view.fleet.series or self.view.fleet.events)

    def about(self, ranks: Sequence[int], period: Period | None, cause: Cause | None = None) -> Witness | None:
        """Why these ranks of one host were kept off their cores, or whether this was a cause; None where the host saw
        nothing that says it."""
        if period is None or not self.is_there:
            return None
        host = self.view.hosts[ranks[0]]
        accused = Accused(
            ranks=tuple(ranks), host=host, period=period, whole_host=2 * len(ranks) > self.view.hosts.count(host)
        )
        told = [one for one in self._witnesses(accused) if cause in (None, one.cause)]
        return max(told, key=lambda one: one.share, default=None)

    def _witnesses(self, accused: Accused) -> Iterator[Witness]:
        yield from self._stopped(accused)
        quota = self._of_ranks(Metric.RANK_THROTTLED_NS, accused)
        if quota is not None and quota.share >= MIN_SHARE:
            words = f"the CPU quota of its cgroup throttled it {min(1.0, quota.share):.0%} of the time"
            yield Witness(cause=Cause.QUOTA, share=min(1.0, quota.share), words=words, strong=quota.strong)
        yield from self._memory(accused)
        yield from self._waited(accused, 0.0 if quota is None else quota.share)
        if accused.whole_host:
            yield from self._steal(accused)

    def _stopped(self, accused: Accused) -> Iterator[Witness]:
        stops = stops_of(accused.places, self.view.fleet.events, accused.period)
        share = sum(stops) / 1e9 / (accused.period.length_ns / 1e9 * len(accused.ranks))
        if share >= MIN_SHARE:
            times = "once" if len(stops) == 1 else f"{len(stops)} times"
            words = f"a signal stopped its process {times}, for {sum(stops) / 1e9:.1f} s"
            yield Witness(cause=Cause.STOPPED, share=share, words=words, strong=share >= STRONG_SHARE)

    def _memory(self, accused: Accused) -> Iterator[Witness]:
        """Stalls of the host beyond those of others; one rank among others must also be the one that faults."""
        short = self._named(accused, Happening.MEMORY_SHORT)
        stalled = self._of_hosts(Metric.HOST_PRESSURE_MEMORY_NS, accused)
        if stalled is None and short:
            stalled = Excess(share=STRONG_SHARE, strong=True)
        faults = self._of_ranks(Metric.RANK_MAJOR_FAULTS, accused)
        faulting = faults is not None and faults.share * 1e9 >= MIN_FAULTS_A_SECOND
        if stalled is None or stalled.share < MIN_SHARE or not (faulting or (accused.whole_host and faults is None)):
            return
        holder = self._holder(short, accused)
        process = "" if holder is None else holder.process
        held = "" if holder is None else f"; pid {process} holds {holder.amount / 2**30:.1f} GiB"
        words = f"memory is short: processes of its host waited for memory {stalled.share:.0%} of the time{held}"
        yield Witness(cause=Cause.MEMORY, share=stalled.share, words=words, process=process, strong=stalled.strong)

    def _waited(self, accused: Accused, quota_share: float) -> Iterator[Witness]:
        """For a core. What a quota takes counts as waiting, too, and is no neighbour's doing."""
        waited = self._of_ranks(Metric.RANK_RUN_DELAY_NS, accused)
        share = None if waited is None else waited.share - quota_share
        if share is not None and share < MIN_SHARE:
            return
        cores = self._cores(accused)
        busy = takers(self._named(accused, Happening.BUSY_PROCESS))
        beside = [one for one in busy if one.device in cores or (share is not None and not one.device)]
        strong = waited is not None and waited.strong
        if beside:
            words = beside[0].words(accused.host)
            if beside[0].device in cores:
                words = f"{words.removesuffix(f' of {accused.host}')}, where rank {cores[beside[0].device]} runs"
            taken = beside[0].amount if share is None else share
            yield Witness(cause=Cause.PROCESS, share=taken, words=words, process=beside[0].process, strong=strong)
        elif share is not None:
            busiest = f"; the busiest process: {busy[0].words(accused.host)}" if busy else ""
            words = f"it waited for a core {share:.0%} of the time more than its peers{busiest}"
            yield Witness(cause=Cause.CROWDED, share=share, words=words, strong=strong)

    def _steal(self, accused: Accused) -> Iterator[Witness]:
        places = self._host_places(accused)
        stolen = self._measures.mean_levels(Metric.HOST_CPU_STEAL, places, accused.period)
        excess = _excess(stolen[0], stolen[1:])
        if excess is not None and excess.share >= MIN_SHARE:
            words = f"the hypervisor took {excess.share:.0%} of the CPU time of its host"
            yield Witness(cause=Cause.STEAL, share=excess.share, words=words, strong=excess.strong)

    def _of_ranks(self, metric: Metric, accused: Accused) -> Excess | None:
        """A counter of ranks: the accused against others of the host, where it has some, and against all others."""
        own = self._measures.growths(metric, accused.places, accused.period)
        if np.isnan(own).all():
            return None
        hosts = self.view.hosts
        others = [rank for rank in range(len(hosts)) if rank not in accused.ranks]
        some = others[:: -(-len(others) // MOST_OTHERS) or 1]
        neighbours = [rank for rank in others if hosts[rank] == accused.host]
        found = [
            _excess(float(np.nanmedian(own)), self._growths_of(metric, ranks, accused.period))
            for ranks in (some, [] if accused.whole_host else neighbours)
        ]
        known = [one for one in found if one is not None]
        return min(known, key=lambda one: one.share, default=None)

    def _of_hosts(self, metric: Metric, accused: Accused) -> Excess | None:
        grown = self._measures.growths(metric, self._host_places(accused), accused.period)
        return _excess(grown[0], grown[1:])

    def _growths_of(self, metric: Metric, ranks: Sequence[int], period: Period) -> Floats:
        return self._measures.growths(metric, [(self.view.hosts[rank], f"rank{rank}") for rank in ranks], period)

    def _host_places(self, accused: Accused) -> list[Place]:
        """The host of the accused, then some of the others."""
        others = sorted({*self.view.hosts} - {accused.host, ""})
        return [(accused.host, ""), *((host, "") for host in others[:: -(-len(others) // MOST_OTHERS) or 1])]

    def _cores(self, accused: Accused) -> dict[str, int]:
        """Cores on which one of the accused stayed -> that rank. One that is moved about has no core of its own."""
        found: dict[str, int] = {}
        for rank, place in zip(accused.ranks, accused.places, strict=True):
            levels = self._measures.levels(Metric.RANK_CORE, place, accused.period)
            cores, counts = np.unique(levels, return_counts=True)
            if len(cores) and 2 * counts.max() > len(levels) and float(cores[counts.argmax()]).is_integer():
                found[f"core{int(cores[counts.argmax()])}"] = rank
        return found

    def _named(self, accused: Accused, name: Happening) -> list[HostEvent]:
        return [
            event
            for event in self.view.fleet.named(name)
            if event.host == accused.host and accused.period.holds(event.at_ns, later_ns=LATER_NS)
        ]

    def _holder(self, short: Sequence[HostEvent], accused: Accused) -> Taker | None:
        """Who holds much of the memory."""
        total = self._measures.levels(Metric.HOST_MEMORY_TOTAL_BYTES, (accused.host, ""), accused.period)
        least = MIN_HELD * float(total.max()) if len(total) else 0.0
        return next((taker for taker in takers(short) if taker.amount >= least), None)


def _excess(own: float, others: Floats) -> Excess | None:
    """None where the own is not known. With nobody to compare with it stands for itself."""
    if np.isnan(own):
        return None
    others = others[~np.isnan(others)]
    usual = float(np.median(others)) if len(others) else 0.0
    bound = max(STRONG_SHARE, (STRONG_TIMES - 1.0) * usual, STRONG_SPREADS * robust_sigma(others, SPREAD_FLOOR))
    return Excess(share=own - usual, strong=own - usual >= bound)
