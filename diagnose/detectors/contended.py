"""Ranks that wait for a CPU, found from spans alone: one rank among its peers and neighbours, or most of a host.

    rank 4   |cpu|..|cpu|.|cpu|          .  compute span without CPU time
    rank 5   |cpu|.......|cpu|.....|cpu|    above its peers of the pipeline stage, above the others of its host, in most
                                            steps of a stretch, by much more than it moves and than others lie apart

Robust statistics as in compute-straggler; thresholds ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.model.operations import Floats, Ints
from diagnose.model.peers import (
    MEDIAN_EFFICIENCY,
    Excess,
    Stretch,
    highest_stretch,
    least_excess,
    measure_excess,
    medians,
    noise_between_steps,
    peer_median,
    robust_sigma,
)
from diagnose.model.view import Basis, RunView
from telemetry.stages import Stage


def expected_of_ranks(values: Floats, view: RunView) -> Floats:
    """For each step and rank the median of the peers of its pipeline stage; of all others where it is alone there."""
    alone = np.bincount(view.pp_of_rank)[view.pp_of_rank] == 1
    everybody = np.zeros_like(view.pp_of_rank)
    return np.where(alone, peer_median(values, everybody), peer_median(values, view.pp_of_rank))


SPREAD_FLOOR = 0.03
UPPER_TENTH_TO_SIGMA = 1.2816
"""Distance of the upper tenth from the median, in standard deviations of a normal distribution."""
MOST_OVERLAP = 0.5
"""Of the own wall time of a stage: where collectives cover more, time off the core beside them says little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffCore:
    """Own time of each rank over all compute stages, nanoseconds [steps, ranks]; NaN where it was not measured."""

    off_ns: Floats
    cpu_ns: Floats
    log_stretch: Floats
    """Log of own wall time over processor time: zero for who is never off the core."""
    whole: bool = False
    """``off_ns`` is the wall time of compute, and ``log_stretch`` is its logarithm minus the logarithm of its peers."""


def off_core(view: RunView) -> OffCore | None:
    """Waiting in collectives of gradients included. None where processor time was not measured: ranks on GPUs."""
    return _together(view.off_cpu, view)


def off_core_alone(view: RunView) -> OffCore | None:
    """The same while ranks waited for nobody, in stages that are mostly free of collectives; None without such."""
    return _together(
        {stage: view.alone_off_cpu(stage) for stage in view.off_cpu if _is_mostly_alone(stage, view)}, view
    )


def _is_mostly_alone(stage: Stage, view: RunView) -> bool:
    if stage not in view.overlap or stage not in view.work:
        return True
    share = view.overlap[stage] / np.maximum(view.work[stage].ns + view.off_cpu[stage], 1.0)
    return not float(np.nanmedian(share)) > MOST_OVERLAP


def _together(off_cpu: Mapping[Stage, Floats], view: RunView) -> OffCore | None:
    stages = [stage for stage in off_cpu if stage in view.work]
    if not stages or any(view.work[stage].basis is not Basis.PROCESSOR_TIME for stage in stages):
        return None
    off_ns: Floats = np.sum([off_cpu[stage] for stage in stages], axis=0)
    cpu_ns: Floats = np.sum([view.work[stage].ns for stage in stages], axis=0)
    known = (cpu_ns > 0) & (off_ns >= 0)
    off_ns, cpu_ns = np.where(known, off_ns, np.nan), np.where(known, cpu_ns, np.nan)
    return OffCore(off_ns=off_ns, cpu_ns=cpu_ns, log_stretch=np.log1p(off_ns / cpu_ns))


def spread_of(medians: Floats) -> float:
    """How far apart ranks lie that nobody suspects, as a standard deviation. Time off the core has a long upper tail,
    so its upper end tells as well."""
    known = medians[~np.isnan(medians)]
    if not len(known):
        return SPREAD_FLOOR
    upper = float(np.quantile(known, 0.9) - np.median(known)) / UPPER_TENTH_TO_SIGMA
    return max(upper, robust_sigma(known, SPREAD_FLOOR))


CERTAIN_EXTRA = 1.0
CERTAIN_SHARE = 0.8
CERTAIN_Z = 12.0
CERTAIN_SPREADS = 2.0
"""In place of the above, where it is that much, that often and that surely: replicas of a job that waits for one rank
crowd their cores at different times, so that few ranks lie far apart."""
NOISE_FLOOR = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """What spans must show."""

    ratio: float
    """Of own wall time to processor time, over the same of its peers."""
    extra: float
    """Time off the core beyond that of its peers, in units of its processor time."""
    share: float
    """Of steps."""
    z: float
    spreads: float
    """Distance from the others, in units of how far those lie apart."""

    @property
    def log_ratio(self) -> float:
        return float(np.log(self.ratio))


ALONE = Bars(ratio=1.3, extra=0.3, share=0.6, z=6.0, spreads=5.0)
WITNESSED = Bars(ratio=1.1, extra=0.1, share=0.6, z=5.0, spreads=1.5)
"""Beside a strong witness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contended:
    """Ranks kept from their work: one, or those of a host."""

    ranks: tuple[int, ...]
    stretch: Stretch
    ratio: float
    extra: float
    share: float
    excess_ns: float
    """A step, median over the stretch, of the worst rank."""
    whole_host: bool
    by_whole_time: bool
    """``ratio`` and ``extra`` refer to the wall time of compute, not to the time off the core."""


def contended(time: OffCore, view: RunView, bars: Bars) -> list[Contended]:
    """Hosts most of whose ranks are, and single ranks elsewhere."""
    hosts = _contended_hosts(time, view, bars)
    taken = {rank for one in hosts for rank in one.ranks}
    return [*hosts, *(one for one in _contended_ranks(time, view, bars) if not taken & {*one.ranks})]


def with_processor_time(time: OffCore, view: RunView) -> OffCore:
    """All wall time of own work against that of peers, in place of time off the core alone: paging in takes processor
    time as well as waiting."""
    wall_ns = time.off_ns + time.cpu_ns
    level = np.log(wall_ns)
    relative: Floats = level - expected_of_ranks(level, view)
    return OffCore(off_ns=wall_ns, cpu_ns=time.cpu_ns, log_stretch=relative, whole=True)


def _contended_ranks(time: OffCore, view: RunView, bars: Bars) -> list[Contended]:
    level = time.log_stretch
    above = level - expected_of_ranks(level, view)
    noise = noise_between_steps(above, NOISE_FLOOR)
    extra_ns = _extra_ns(time, expected_of_ranks(time.off_ns, view), expected_of_ranks(time.cpu_ns, view))
    host = _host_of_rank(view)
    found = (
        _contended_rank(rank, time, above, noise, extra_ns, host, bars) for rank in _worth_a_look(above, noise, bars)
    )
    return [one for one in found if one is not None]


def _extra_ns(time: OffCore, usual_off_ns: Floats, usual_cpu_ns: Floats) -> Floats:
    """Time off the core beyond what is usual, but no more than own work takes longer than usual: a rank that waits for
    a peer inside a compute, in a collective that nobody recorded, takes as long as that peer."""
    extra_ns: Floats = time.off_ns - usual_off_ns
    return extra_ns if time.whole else np.minimum(extra_ns, extra_ns + time.cpu_ns - usual_cpu_ns)


def _worth_a_look(above: Floats, noise: float, bars: Bars) -> list[int]:
    """Columns that are high enough, often enough for the shortest stretch: few, of thousands."""
    level = max(bars.log_ratio, least_excess(bars.z, noise, len(above)))
    return np.flatnonzero((above >= level).sum(axis=0) >= MIN_STEPS // 2).tolist()


def _host_of_rank(view: RunView) -> Ints:
    return np.unique(view.hosts, return_inverse=True)[1].astype(np.int64)


def _contended_rank(
    rank: int,
    time: OffCore,
    above: Floats,
    noise: float,
    extra_ns: Floats,
    host: Ints,
    bars: Bars,
) -> Contended | None:
    neighbours = np.flatnonzero((host == host[rank]) & (np.arange(len(host)) != rank))
    series = above[:, rank]
    if len(neighbours):
        series = np.minimum(series, time.log_stretch[:, rank] - medians(time.log_stretch[:, neighbours], axis=1))
    others = np.arange(len(host)) != rank
    if others.sum() == 1:  # the mirror image of the one rank
        others[:] = False
    return _judged((rank,), series, above[:, others], noise, time, extra_ns, bars, whole_host=False)


def _contended_hosts(time: OffCore, view: RunView, bars: Bars) -> list[Contended]:
    """Hosts whose typical rank, and most of whose ranks, lie above those of the other hosts.

    Few hosts tell little about how far hosts lie apart by chance; how far ranks of one host do, tells the rest.
    """
    host = _host_of_rank(view)
    if host.max() == 0:
        return []
    typical = np.stack([medians(time.log_stretch[:, host == one], axis=1) for one in range(host.max() + 1)], axis=1)
    above = typical - peer_median(typical, np.zeros(typical.shape[1], dtype=np.int64))
    noise = noise_between_steps(above, NOISE_FLOOR)
    elsewhere = medians(time.log_stretch, axis=1)[:, None]
    extra_ns = _extra_ns(time, medians(time.off_ns, axis=1)[:, None], medians(time.cpu_ns, axis=1)[:, None])
    within = robust_sigma(medians(time.log_stretch - typical[:, host], axis=0), SPREAD_FLOOR)
    within *= MEDIAN_EFFICIENCY * float(np.sqrt(1.0 + 1.0 / host.max()))  # against the median of the other hosts
    found: list[Contended] = []
    for one in _worth_a_look(above, noise, bars):
        members = np.flatnonzero(host == one)
        high = np.nanmedian(time.log_stretch[:, members] - elsewhere, axis=0) >= bars.log_ratio / 2
        others = np.arange(typical.shape[1]) != one if typical.shape[1] > 2 else np.zeros(2, dtype=bool)
        if len(members) < 2 or not view.hosts[members[0]]:
            continue
        ranks = tuple(members[high].tolist())
        judged = _judged(
            ranks,
            above[:, one],
            above[:, others],
            noise,
            time,
            extra_ns,
            bars,
            whole_host=True,
            least_spread=within / float(np.sqrt(len(members))),
        )
        if judged is not None and 2 * len(ranks) > len(members):
            found.append(judged)
    return found


def _judged(
    ranks: tuple[int, ...],
    series: Floats,
    others: Floats,
    noise: float,
    time: OffCore,
    extra_ns: Floats,
    bars: Bars,
    *,
    whole_host: bool,
    least_spread: float = 0.0,
) -> Contended | None:
    """The ranks as contended, if ``series`` is high enough, often enough and surely enough, and far from ``others``."""
    stretch = highest_stretch(series - bars.log_ratio / 2)
    excess = measure_excess(series[stretch.rows], above=bars.log_ratio / 2, noise=noise)
    if not ranks or excess.num_rows < MIN_STEPS or excess.median < bars.log_ratio:
        return None
    if excess.share < bars.share or excess.z < bars.z:
        return None
    beside = (others if others.shape[1] else series[:, None])[stretch.rows]
    restless = noise_between_steps(beside, NOISE_FLOOR)  # everybody may be, for a while
    if excess.median < least_excess(bars.z, restless, excess.num_rows):
        return None
    spread = max(least_spread, spread_of(medians(others[stretch.rows], axis=0)))
    excess_ns = medians(extra_ns[stretch.rows][:, list(ranks)], axis=0)
    extra = medians((extra_ns / time.cpu_ns)[stretch.rows][:, list(ranks)], axis=0)
    if not float(np.nanmedian(extra)) >= bars.extra or excess.median < _min_spreads(excess, extra, bars) * spread:
        return None
    return Contended(
        ranks=ranks,
        stretch=stretch,
        ratio=float(np.exp(excess.median)),
        extra=float(np.nanmax(extra)),
        share=excess.share,
        excess_ns=float(np.nanmax(excess_ns)),
        whole_host=whole_host,
        by_whole_time=time.whole,
    )


def _min_spreads(excess: Excess, extra: Floats, bars: Bars) -> float:
    """How far from the others a rank must lie: less where it loses more than it computes, step after step."""
    certain = excess.z >= CERTAIN_Z and excess.share >= CERTAIN_SHARE and float(np.nanmedian(extra)) >= CERTAIN_EXTRA
    return min(CERTAIN_SPREADS, bars.spreads) if certain else bars.spreads
