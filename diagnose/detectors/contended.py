"""Ranks that wait for a CPU, from spans only: a rank compared with its peers and neighbours, or most of a host.

    rank 4   |cpu|..|cpu|.|cpu|          .  compute span without CPU time
    rank 5   |cpu|.......|cpu|.....|cpu|    more than its peers of the pipeline stage and than the others of its host,
                                            in most steps of a stretch, beyond noise and spread

The statistics are robust, as in compute-straggler. The thresholds (``Bars``) are our own.
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
    """For each step and rank, the median of its peers: its pipeline stage, or all others if it is alone there."""
    alone = np.bincount(view.pp_of_rank)[view.pp_of_rank] == 1
    everybody = np.zeros_like(view.pp_of_rank)
    return np.where(alone, peer_median(values, everybody), peer_median(values, view.pp_of_rank))


SPREAD_FLOOR = 0.03
UPPER_TENTH_TO_SIGMA = 1.2816
"""Distance of the upper tenth from the median, in standard deviations of a normal distribution."""
MOST_OVERLAP = 0.5
"""If collectives cover more than this share of the self time of a stage, the stage is left out: its remaining time off
the core shows little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffCore:
    """Time of each rank over all compute stages, nanoseconds [steps, ranks]. NaN if it was not measured."""

    off_ns: Floats
    cpu_ns: Floats
    log_stretch: Floats
    """Log of self time over CPU time: zero for a rank that is always on its core."""
    whole: bool = False
    """Whether ``off_ns`` is the wall time of compute instead. Then ``log_stretch`` is its logarithm minus that of the
    peers."""


def off_core(view: RunView) -> OffCore | None:
    """Time off the core, with waiting in collectives of gradients. None if CPU time was not measured: ranks on GPUs."""
    return _together(view.off_cpu, view)


def off_core_alone(view: RunView) -> OffCore | None:
    """Time off the core without waiting for peers, in stages that are mostly free of collectives. None if there are no
    such stages."""
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


def _spread_of(medians: Floats) -> float:
    """Spread among ranks, as a standard deviation. Time off the core has a long upper tail, so the upper tenth counts
    as well."""
    known = medians[~np.isnan(medians)]
    if not len(known):
        return SPREAD_FLOOR
    upper = float(np.quantile(known, 0.9) - np.median(known)) / UPPER_TENTH_TO_SIGMA
    return max(upper, robust_sigma(known, SPREAD_FLOOR))


CERTAIN_EXTRA = 1.0
CERTAIN_SHARE = 0.8
CERTAIN_Z = 12.0
CERTAIN_SPREADS = 2.0
"""If an excess reaches the first three limits, a distance of ``CERTAIN_SPREADS`` is enough: replicas of a job that
waits for one rank use their cores at different times, so the spread is wide."""
NOISE_FLOOR = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Limits that the excess of a rank or host must exceed."""

    ratio: float
    """Self time over CPU time, divided by the same of the peers."""
    extra: float
    """Time off the core above that of the peers, in units of CPU time."""
    share: float
    """Share of steps."""
    z: float
    spreads: float
    """Distance from the others, in units of their spread."""

    @property
    def log_ratio(self) -> float:
        return float(np.log(self.ratio))


ALONE = Bars(ratio=1.3, extra=0.3, share=0.6, z=6.0, spreads=5.0)
WITNESSED = Bars(ratio=1.1, extra=0.1, share=0.6, z=5.0, spreads=1.5)
"""Limits if host data shows the cause strongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contended:
    """Ranks that wait for a CPU: one, or those of a host."""

    ranks: tuple[int, ...]
    stretch: Stretch
    ratio: float
    extra: float
    share: float
    excess_ns: float
    """Excess of the worst rank for each step, median over the stretch."""
    whole_host: bool
    by_whole_time: bool
    """Whether ``ratio`` and ``extra`` refer to the wall time of compute, not to the time off the core."""


def contended(time: OffCore, view: RunView, bars: Bars) -> list[Contended]:
    """Hosts on which most ranks wait for a CPU, and single ranks elsewhere."""
    hosts = _contended_hosts(time, view, bars)
    taken = {rank for found in hosts for rank in found.ranks}
    return [*hosts, *(found for found in _contended_ranks(time, view, bars) if not taken & {*found.ranks})]


def with_processor_time(time: OffCore, view: RunView) -> OffCore:
    """``time`` with the whole self time in place of the time off the core: paging takes CPU time as well."""
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
        _contended_rank(rank, time, above, noise, extra_ns, host, bars) for rank in _candidates(above, noise, bars)
    )
    return [each for each in found if each is not None]


def _extra_ns(time: OffCore, usual_off_ns: Floats, usual_cpu_ns: Floats) -> Floats:
    """Time off the core above the usual, limited by the excess of self time.

    The limit removes waiting in collectives that were not recorded: a rank that waits for a peer takes as long as that
    peer.
    """
    extra_ns: Floats = time.off_ns - usual_off_ns
    return extra_ns if time.whole else np.minimum(extra_ns, extra_ns + time.cpu_ns - usual_cpu_ns)


def _candidates(above: Floats, noise: float, bars: Bars) -> list[int]:
    """Columns that are high in enough steps for the shortest stretch. These are few of thousands."""
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
    if others.sum() == 1:  # it mirrors the rank
        others[:] = False
    return _judged((rank,), series, above[:, others], noise, time, extra_ns, bars, whole_host=False)


def _contended_hosts(time: OffCore, view: RunView, bars: Bars) -> list[Contended]:
    """Hosts whose typical rank, and most of whose ranks, wait longer than those of the other hosts.

    The spread among few hosts is uncertain, so the spread among the ranks of one host is used as well.
    """
    host = _host_of_rank(view)
    if host.max() == 0:
        return []
    typical = np.stack([medians(time.log_stretch[:, host == each], axis=1) for each in range(host.max() + 1)], axis=1)
    above = typical - peer_median(typical, np.zeros(typical.shape[1], dtype=np.int64))
    noise = noise_between_steps(above, NOISE_FLOOR)
    elsewhere = medians(time.log_stretch, axis=1)[:, None]
    extra_ns = _extra_ns(time, medians(time.off_ns, axis=1)[:, None], medians(time.cpu_ns, axis=1)[:, None])
    within = robust_sigma(medians(time.log_stretch - typical[:, host], axis=0), SPREAD_FLOOR)
    within *= MEDIAN_EFFICIENCY * float(np.sqrt(1.0 + 1.0 / host.max()))  # against the median of the other hosts
    found: list[Contended] = []
    for suspect in _candidates(above, noise, bars):
        members = np.flatnonzero(host == suspect)
        high = np.nanmedian(time.log_stretch[:, members] - elsewhere, axis=0) >= bars.log_ratio / 2
        others = np.arange(typical.shape[1]) != suspect if typical.shape[1] > 2 else np.zeros(2, dtype=bool)
        if len(members) < 2 or not view.hosts[members[0]]:
            continue
        ranks = tuple(members[high].tolist())
        judged = _judged(
            ranks,
            above[:, suspect],
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
    """The ranks, if ``series`` exceeds ``bars`` and its distance from ``others`` is large enough. Otherwise None."""
    stretch = highest_stretch(series - bars.log_ratio / 2)
    excess = measure_excess(series[stretch.rows], above=bars.log_ratio / 2, noise=noise)
    if not ranks or excess.num_rows < MIN_STEPS or excess.median < bars.log_ratio:
        return None
    if excess.share < bars.share or excess.z < bars.z:
        return None
    beside = (others if others.shape[1] else series[:, None])[stretch.rows]
    noise_within = noise_between_steps(beside, NOISE_FLOOR)  # all ranks may be noisy in this stretch
    if excess.median < least_excess(bars.z, noise_within, excess.num_rows):
        return None
    spread = max(least_spread, _spread_of(medians(others[stretch.rows], axis=0)))
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
    """Required distance from the others, in units of their spread. It is smaller if the excess is certain, see
    ``CERTAIN_SPREADS``."""
    certain = excess.z >= CERTAIN_Z and excess.share >= CERTAIN_SHARE and float(np.nanmedian(extra)) >= CERTAIN_EXTRA
    return min(CERTAIN_SPREADS, bars.spreads) if certain else bars.spreads
