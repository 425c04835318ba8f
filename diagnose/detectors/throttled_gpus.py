"""Throttled GPUs and the compute time of their ranks: both must agree.

share of each step for which a GPU is throttled, by reason,  less that of its peers   >= MIN_EXTRA: a hot step
compute of the rank  over that of its peers,  in hot steps,  less that in calm steps  >= MIN_RATIO: slowed by it
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from diagnose.detectors.contended import expected_of_ranks
from diagnose.detectors.evidence import MIN_STEPS
from diagnose.model.gpus import Gpu, growth_in_steps, series_of_ranks
from diagnose.model.peers import MEDIAN_EFFICIENCY, peer_median, robust_sigma, step_noise
from diagnose.model.view import FloatMatrix, FloatVector, RunView
from telemetry.host_metrics import Metric

MIN_EXTRA = 0.1
"""Share of a step for which a GPU is throttled beyond its peers, for the step to be hot."""
MIN_RATIO = 1.03
MIN_Z = 4.5
FEW_STEPS = 4.0
"""Of so many hot steps twice the significance is asked for: how much they scatter by chance is itself a guess."""
MIN_SPREADS = 3.0
"""Distance from the ranks that are not throttled, in their robust standard deviations."""
FEW_PEERS = 4
NOISE_FLOOR = 0.01
SPREAD_FLOOR = 0.005

Bools = npt.NDArray[np.bool_]


class Reason(StrEnum):
    """Why clocks are held down; NVML counts some of them more than once."""

    POWER = "power cap"
    THERMAL = "heat"
    POWER_BRAKE = "power brake"
    SYNC_BOOST = "sync boost"


COUNTERS = {
    Reason.POWER: (Metric.GPU_THROTTLE_POWER_NS, Metric.GPU_THROTTLE_BOARD_NS),
    Reason.THERMAL: (
        Metric.GPU_THROTTLE_THERMAL_NS,
        Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS,
        Metric.GPU_THROTTLE_HARDWARE_THERMAL_NS,
    ),
    Reason.POWER_BRAKE: (Metric.GPU_THROTTLE_POWER_BRAKE_NS,),
    Reason.SYNC_BOOST: (Metric.GPU_THROTTLE_SYNC_BOOST_NS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What GPUs and ranks did in each step, [steps, ranks]."""

    throttled: dict[Reason, FloatMatrix]
    """Share of the step; NaN where nobody looked."""
    extra: dict[Reason, FloatMatrix]
    """Beyond the peers' median."""
    log_ratio: FloatMatrix
    """Of own work to that of the peers."""
    excess_ns: FloatMatrix
    noise: float
    hot: Bools
    """Throttled beyond the peers for a worthwhile share of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """A rank whose GPU is throttled, and slows it."""

    rank: int
    reason: Reason
    hot: Bools
    """Of the steps."""
    throttled: float
    peers_throttled: float
    ratio: float
    share: float
    """Of the hot steps, those in which it is slower."""
    excess_ns: float
    """A hot step, median."""


def measure_times(view: RunView, gpus: Sequence[Gpu | None]) -> Times | None:
    """None where no GPU tells, or none is throttled beyond its peers."""
    throttled = {reason: share for reason in Reason if (share := _throttled_share(view, reason, gpus)) is not None}
    if not throttled:
        return None
    extra = {reason: share - expected_of_ranks(share, view) for reason, share in throttled.items()}
    hot: Bools = np.logical_or.reduce([one >= MIN_EXTRA for one in extra.values()])
    if not hot.any():
        return None
    log_ratio, excess_ns = _slowness(view)
    return Times(
        throttled=throttled,
        extra=extra,
        log_ratio=log_ratio,
        excess_ns=excess_ns,
        noise=step_noise(log_ratio, NOISE_FLOOR),
        hot=hot,
    )


def _throttled_share(view: RunView, reason: Reason, gpus: Sequence[Gpu | None]) -> FloatMatrix | None:
    """Of each step, the longest among the counters of a reason: they overlap."""
    told = [metric for metric in COUNTERS[reason] if view.fleet.of(metric)]
    if not told:
        return None
    grown = [growth_in_steps(view, series_of_ranks(view, metric, gpus)) for metric in told]
    return np.asarray(np.clip(np.fmax.reduce(grown) / view.step_ns[:, None], 0.0, 1.0))


def _slowness(view: RunView) -> tuple[FloatMatrix, FloatMatrix]:
    """Over all stages of work that a rank and its peers have: log of its time over theirs, and the difference."""
    shape = (len(view.steps), view.topology.world_size)
    own, theirs = np.zeros(shape), np.zeros(shape)
    for work in view.work.values():
        expected = peer_median(work.ns, view.pp_of_rank)
        known = ~np.isnan(work.ns) & ~np.isnan(expected)
        own[known] += work.ns[known]
        theirs[known] += expected[known]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(own / theirs)
    log_ratio[~np.isfinite(log_ratio)] = np.nan
    return log_ratio, own - theirs


def judge_rank(rank: int, times: Times, view: RunView) -> Throttled | None:
    """The rank, if its GPU is throttled beyond its peers and it is surely slower for it."""
    known = ~np.isnan(times.log_ratio[:, rank])
    hot = times.hot[:, rank] & known
    if hot.sum() < MIN_STEPS:
        return None
    series = times.log_ratio[:, rank]
    slower = _slower(series, hot, known & ~times.hot[:, rank], times.noise)
    share = float(np.mean(series[hot] > np.log(MIN_RATIO) / 2))
    if slower < np.log(MIN_RATIO) or slower < MIN_SPREADS * _spread_of_others(rank, times, view):
        return None
    reason = max(times.extra, key=lambda one: float(np.nansum(times.extra[one][hot, rank])))
    told = times.throttled[reason][hot, rank]
    return Throttled(
        rank=rank,
        reason=reason,
        hot=hot,
        throttled=float(np.nanmean(told)),
        peers_throttled=float(np.nanmean(told - times.extra[reason][hot, rank])),
        ratio=float(np.exp(np.median(series[hot]))),
        share=share,
        excess_ns=float(np.median(times.excess_ns[hot, rank])),
    )


def _slower(series: FloatVector, hot: Bools, calm: Bools, noise: float) -> float:
    """Log ratio by which a rank is surely slower while throttled: than its peers, and than itself in calm steps where
    there are enough of them; 0 where it might be chance."""
    slower = float(np.median(series[hot]))
    variance = 1.0 / hot.sum()
    if calm.sum() >= MIN_STEPS:
        slower = min(slower, slower - float(np.median(series[calm])))
        variance += 1.0 / calm.sum()
    min_z = MIN_Z * (1.0 + FEW_STEPS / float(hot.sum()))
    return slower if slower >= min_z * MEDIAN_EFFICIENCY * noise * float(np.sqrt(variance)) else 0.0


def _spread_of_others(rank: int, times: Times, view: RunView) -> float:
    """How far apart ranks lie in the same steps that are not throttled themselves; those few that are measured against
    the rank are left out."""
    hot = times.hot[:, rank]
    peers = view.pp_of_rank == view.pp_of_rank[rank]
    others = times.hot[hot].mean(axis=0) < 0.5
    others[rank] = False
    if peers.sum() <= FEW_PEERS:
        others[peers] = False
    others &= ~np.isnan(times.log_ratio[hot]).all(axis=0)
    if not others.any():
        return SPREAD_FLOOR
    return robust_sigma(np.nanmedian(times.log_ratio[hot][:, others], axis=0), SPREAD_FLOOR)
