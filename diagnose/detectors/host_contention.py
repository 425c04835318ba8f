"""host-contention: a rank that wants to compute but is kept off the processor, more than anyone beside it.

    rank 4   |cpu|..|cpu|.|cpu|          .  own wall time without processor time: everybody has some on a busy machine
    rank 5   |cpu|.......|cpu|.....|cpu|    a stopped process, or a core shared with a competing load: twice as much

Only ranks on processors tell (own wall time less processor time; collectives inside are left out, so whoever merely
waits does not show). On a machine with more ranks than cores all have much of it, scattered widely from step to step:
a rank is named only if it lies far from its peers of the pipeline stage and from the others on its host, a host if
most of its ranks are high and those of the others are not. Robust statistics as in compute-straggler; thresholds ours.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.accused import with_victims
from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Finding, Kind, severity_of
from diagnose.meetings import least_excess, noise_between_steps
from diagnose.peers import (
    MEDIAN_EFFICIENCY,
    Excess,
    Stretch,
    highest_stretch,
    measure_excess,
    peer_median,
    robust_sigma,
)
from diagnose.ranges import fold_ranks
from diagnose.view import Basis, FloatMatrix, FloatVector, IntVector, RunView

NAME = "host-contention"
MIN_RATIO = 1.3
"""Of own wall time to processor time, over the same of its peers."""
MIN_EXTRA = 0.3
"""Time off the core beyond that of its peers, in units of its processor time."""
MIN_SHARE = 0.6
MIN_Z = 6.0
MIN_SPREADS = 5.0
CERTAIN_EXTRA = 1.0
CERTAIN_SHARE = 0.8
CERTAIN_Z = 12.0
CERTAIN_SPREADS = 2.0
"""In place of the above, where it is that much, that often and that surely: replicas of a job that waits for one rank
crowd their cores at different times, so that few ranks lie far apart."""
MIN_COST = 0.02
"""Of step time; below it nothing is said."""
NOISE_FLOOR = 0.03
SPREAD_FLOOR = 0.03
UPPER_TENTH_TO_SIGMA = 1.2816
"""Distance of the upper tenth from the median, in standard deviations of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffCore:
    """Own time of each rank over all compute stages, nanoseconds [steps, ranks]; NaN where it was not measured."""

    off_ns: FloatMatrix
    cpu_ns: FloatMatrix
    log_stretch: FloatMatrix
    """Log of own wall time over processor time: zero for who is never off the core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contended:
    """Ranks kept off their cores: one, or those of a host."""

    ranks: tuple[int, ...]
    stretch: Stretch
    ratio: float
    extra: float
    share: float
    excess_ns: float
    """A step, median over the stretch, of the worst rank."""
    whole_host: bool


def detect_host_contention(view: RunView) -> list[Finding]:
    """One finding for each host of which most ranks are kept off their cores, and for each single rank elsewhere."""
    time = _off_core(view)
    if time is None or len(view.steps) < MIN_STEPS:
        return []
    hosts = _contended_hosts(time, view)
    taken = {rank for one in hosts for rank in one.ranks}
    ranks = [one for one in _contended_ranks(time, view) if not taken & set(one.ranks)]
    findings = [_finding(view, one) for one in (*hosts, *ranks)]
    return [one for one in findings if one is not None]


def _off_core(view: RunView) -> OffCore | None:
    stages = [stage for stage in view.off_cpu if stage in view.work]
    if not stages or any(view.work[stage].basis is not Basis.PROCESSOR_TIME for stage in stages):
        return None
    off_ns: FloatMatrix = np.sum([view.off_cpu[stage] for stage in stages], axis=0)
    cpu_ns: FloatMatrix = np.sum([view.work[stage].ns for stage in stages], axis=0)
    known = (cpu_ns > 0) & (off_ns >= 0)
    off_ns, cpu_ns = np.where(known, off_ns, np.nan), np.where(known, cpu_ns, np.nan)
    return OffCore(off_ns=off_ns, cpu_ns=cpu_ns, log_stretch=np.log1p(off_ns / cpu_ns))


def _contended_ranks(time: OffCore, view: RunView) -> list[Contended]:
    level = time.log_stretch
    above = level - _expected(level, view.pp_of_rank)
    noise = noise_between_steps(above, NOISE_FLOOR)
    extra_ns = time.off_ns - _expected(time.off_ns, view.pp_of_rank)
    host = _host_of_rank(view)
    found = (_contended_rank(rank, time, above, noise, extra_ns, host) for rank in _worth_a_look(above, noise))
    return [one for one in found if one is not None]


def _expected(values: FloatMatrix, group_of_rank: IntVector) -> FloatMatrix:
    """Median of a rank's peers; of all other ranks where it is alone in its group."""
    return np.where(
        np.bincount(group_of_rank)[group_of_rank] > 1,
        peer_median(values, group_of_rank),
        peer_median(values, np.zeros_like(group_of_rank)),
    )


def _worth_a_look(above: FloatMatrix, noise: float) -> list[int]:
    """Columns that are high enough, often enough for the shortest stretch: few, of thousands."""
    level = max(np.log(MIN_RATIO), least_excess(MIN_Z, noise, len(above)))
    return np.flatnonzero((above >= level).sum(axis=0) >= MIN_STEPS // 2).tolist()


def _host_of_rank(view: RunView) -> IntVector:
    return np.unique(view.hosts, return_inverse=True)[1].astype(np.int64)


def _contended_rank(
    rank: int, time: OffCore, above: FloatMatrix, noise: float, extra_ns: FloatMatrix, host: IntVector
) -> Contended | None:
    neighbours = np.flatnonzero((host == host[rank]) & (np.arange(len(host)) != rank))
    series = above[:, rank]
    if len(neighbours):
        series = np.minimum(series, time.log_stretch[:, rank] - _row_medians(time.log_stretch[:, neighbours]))
    others = np.arange(len(host)) != rank
    if others.sum() == 1:  # the mirror image of the one rank
        others[:] = False
    return _judged((rank,), series, above[:, others], noise, time, extra_ns, whole_host=False)


def _contended_hosts(time: OffCore, view: RunView) -> list[Contended]:
    """Hosts whose typical rank, and most of whose ranks, lie above those of the other hosts.

    Few hosts tell little about how far hosts lie apart by chance; how far ranks of one host do, tells the rest.
    """
    host = _host_of_rank(view)
    if host.max() == 0:
        return []
    typical = np.stack([_row_medians(time.log_stretch[:, host == one]) for one in range(host.max() + 1)], axis=1)
    above = typical - peer_median(typical, np.zeros(typical.shape[1], dtype=np.int64))
    noise = noise_between_steps(above, NOISE_FLOOR)
    elsewhere = _row_medians(time.log_stretch)[:, None]
    extra_ns = time.off_ns - _row_medians(time.off_ns)[:, None]
    within = robust_sigma(_row_medians((time.log_stretch - typical[:, host]).T), SPREAD_FLOOR)
    within *= MEDIAN_EFFICIENCY * float(np.sqrt(1.0 + 1.0 / host.max()))  # against the median of the other hosts
    found: list[Contended] = []
    for one in _worth_a_look(above, noise):
        members = np.flatnonzero(host == one)
        high = np.nanmedian(time.log_stretch[:, members] - elsewhere, axis=0) >= np.log(MIN_RATIO) / 2
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
            whole_host=True,
            least_spread=within / float(np.sqrt(len(members))),
        )
        if judged is not None and 2 * len(ranks) > len(members):
            found.append(judged)
    return found


def _row_medians(values: FloatMatrix) -> FloatVector:
    """Median along the columns; NaN for a row without values."""
    missing = np.isnan(values)
    if values.size and not missing.any():
        return np.asarray(np.median(values, axis=1))
    medians = np.full(len(values), np.nan)
    known = ~missing.all(axis=1)
    if known.any():
        medians[known] = np.nanmedian(values[known], axis=1)
    return medians


def _judged(
    ranks: tuple[int, ...],
    series: FloatVector,
    others: FloatMatrix,
    noise: float,
    time: OffCore,
    extra_ns: FloatMatrix,
    *,
    whole_host: bool,
    least_spread: float = 0.0,
) -> Contended | None:
    """The ranks as contended, if ``series`` is high enough, often enough and surely enough, and far from ``others``."""
    stretch = highest_stretch(series - np.log(MIN_RATIO) / 2)
    excess = measure_excess(series[stretch.rows], above=np.log(MIN_RATIO) / 2, noise=noise)
    if not ranks or excess.num_rows < MIN_STEPS or excess.median < np.log(MIN_RATIO):
        return None
    if excess.share < MIN_SHARE or excess.z < MIN_Z:
        return None
    spread = max(least_spread, _spread(_row_medians(others[stretch.rows].T)))
    excess_ns = _row_medians(extra_ns[stretch.rows][:, list(ranks)].T)
    extra = _row_medians((extra_ns / time.cpu_ns)[stretch.rows][:, list(ranks)].T)
    if not float(np.nanmedian(extra)) >= MIN_EXTRA or excess.median < _min_spreads(excess, extra) * spread:
        return None
    return Contended(
        ranks=ranks,
        stretch=stretch,
        ratio=float(np.exp(excess.median)),
        extra=float(np.nanmax(extra)),
        share=excess.share,
        excess_ns=float(np.nanmax(excess_ns)),
        whole_host=whole_host,
    )


def _min_spreads(excess: Excess, extra: FloatVector) -> float:
    """How far from the others a rank must lie: less where it loses more than it computes, step after step."""
    certain = excess.z >= CERTAIN_Z and excess.share >= CERTAIN_SHARE and float(np.nanmedian(extra)) >= CERTAIN_EXTRA
    return CERTAIN_SPREADS if certain else MIN_SPREADS


def _spread(medians: FloatVector) -> float:
    """How far apart ranks lie that nobody suspects, as a standard deviation. Time off the core has a long upper tail,
    so its upper end tells as well."""
    known = medians[~np.isnan(medians)]
    if not len(known):
        return SPREAD_FLOOR
    upper = float(np.quantile(known, 0.9) - np.median(known)) / UPPER_TENTH_TO_SIGMA
    return max(upper, robust_sigma(known, SPREAD_FLOOR))


def _finding(view: RunView, one: Contended) -> Finding | None:
    step_ns = float(np.median(view.step_ns[one.stretch.rows]))
    lost_ns = min(step_ns, one.excess_ns)
    if lost_ns < MIN_COST * step_ns:
        return None
    worst = max(view.off_cpu, key=lambda stage: float(np.nansum(view.off_cpu[stage][:, list(one.ranks)])))
    window = view.between(one.stretch.first, one.stretch.last)
    since = f" since step {window.first_step}" if one.stretch.first > MIN_STEPS else ""
    host = view.hosts[one.ranks[0]]
    who = f"host {host} (ranks {fold_ranks(one.ranks)})" if one.whole_host else view.describe(one.ranks[0])
    return Finding(
        detector=NAME,
        kind=Kind.HOST_CONTENTION,
        severity=severity_of(lost_ns / step_ns),
        suspects=with_victims(view, one.ranks),
        stage=worst.label,
        window=window,
        seconds_lost=lost_ns * one.stretch.length / 1e9,
        confidence=round(one.share * one.stretch.length / (one.stretch.length + 2), 2),
        summary=f"{who}: kept off the processor for {one.extra:.1f}x its computing time beyond its peers "
        f"in {one.share:.0%} of steps{since}; costs up to {lost_ns / step_ns:.0%} of each step",
        next_step=f"on {host or 'its host'}: look for other processes on its cores, a stopped or niced process and "
        "quotas (top, ps -o stat,ni,psr, cpu.stat of its cgroup); pin the rank to cores of its own",
        evidence={
            "wall_over_cpu_ratio": round(one.ratio, 3),
            "extra_off_core_over_cpu": round(one.extra, 3),
            "share_of_steps": round(one.share, 3),
            "share_of_step_time": round(lost_ns / step_ns, 3),
            "excess_ms_per_step": round(one.excess_ns / 1e6, 3),
        },
    )
