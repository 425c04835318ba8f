"""gpu-throttled: a GPU whose clocks are limited more than those of its peers, and whose rank computes slower.

    time throttled   gpu4  ......................     Two sources: the counters of the GPU, and the spans of its rank.
                     gpu5  ......./''''''''--''''    Steps in which gpu5 is throttled more than its peers are *hot*.
    compute time     rank 5  -----=========-=====      slower than its peers in hot steps, and than itself in others

No rank is named if all GPUs are throttled alike (a fleet at its power cap is healthy), or if throttling slowed no
rank. Because two sources agree, each may be less certain than in compute-straggler. Hosts a tenth slower than others
cost MegaScale 0.7% MFU (6.3). MegaScan injects lowered clocks. The thresholds are our own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from diagnose.detectors.contended import expected_of_ranks
from diagnose.detectors.evidence import MIN_STEPS, named, sharing_a_cause, since, with_victims
from diagnose.findings import Basis, Finding, Kind, severity_of
from diagnose.model.gpus import Gpu, gpu_of_ranks, growth_in_steps, level_between, series_of_ranks
from diagnose.model.operations import Bools, Floats, step_time_ns
from diagnose.model.peers import MEDIAN_EFFICIENCY, log_ratios, peer_median, robust_sigma, step_noise
from diagnose.model.view import RunView
from telemetry.host_metrics import Metric

NAME = "gpu-throttled"
MIN_EXTRA = 0.1
"""A step is hot if a GPU is throttled for this share of it longer than its peers."""
MIN_RATIO = 1.03
MIN_Z = 4.5
FEW_STEPS = 4.0
"""With this number of hot steps, twice the significance is required: their noise is known only roughly."""
MIN_SPREADS = 3.0
"""Distance from the ranks that are not throttled, in their robust standard deviations."""
FEW_PEERS = 4
NOISE_FLOOR = 0.01
SPREAD_FLOOR = 0.005


class Reason(StrEnum):
    """Why clocks are limited. NVML has several counters for some reasons."""

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
_TO_CHECK = {
    Reason.POWER: "compare power limit and draw with a peer (nvidia-smi -q -d POWER,PERFORMANCE). Look for a lower "
    "limit or a failed power feed of the node",
    Reason.THERMAL: "check the cooling: inlet temperature, fans or coolant flow, dust, a loose heat sink "
    "(nvidia-smi -q -d TEMPERATURE)",
    Reason.POWER_BRAKE: "check the power supplies and feeds of the node: they signal the GPUs to slow down "
    "(ipmitool sel list)",
    Reason.SYNC_BOOST: "find the slower GPU in its sync-boost group, or remove the group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """GPUs and ranks in each step, [steps, ranks]."""

    throttled: dict[Reason, Floats]
    """Share of the step in which a GPU is throttled, by reason. NaN without samples."""
    extra: dict[Reason, Floats]
    """The share above the median of the peers."""
    log_ratio: Floats
    """Log of compute time over that of the peers."""
    own_ns: Floats
    """Compute time."""
    peers_ns: Floats
    noise: float
    hot: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class _Throttled:
    """A rank that is slow because its GPU is throttled."""

    rank: int
    reason: Reason
    hot: Bools
    """[steps]"""
    throttled: float
    """Share of the time from the first to the last hot step."""
    peers_throttled: float
    ratio: float
    """Compute time in the hot steps over that of the peers."""
    share: float
    """Share of the hot steps in which the rank is slower."""
    excess_ns: float
    """Mean over the hot steps. Counters that are sampled less often than every step also mark neighbouring steps as
    hot. A median would jump between the two kinds of steps."""


def detect_gpu_throttled(view: RunView) -> list[Finding]:
    """One finding for each rank slowed by its throttled GPU, or for each host with mostly such ranks."""
    gpus = gpu_of_ranks(view)
    if len(view.steps) < MIN_STEPS or view.step_start_ns is None or not view.work:
        return []
    times = _measure_times(view, gpus)
    if times is None:
        return []
    found = [slowed for rank in range(len(gpus)) if (slowed := _judge_rank(rank, times, view)) is not None]
    # Sync boost slows a GPU because of another one on its host: that one is reported.
    leading = {view.hosts[slowed.rank] for slowed in found if slowed.reason is not Reason.SYNC_BOOST}
    by_rank = {
        slowed.rank: slowed
        for slowed in found
        if slowed.reason is not Reason.SYNC_BOOST or view.hosts[slowed.rank] not in leading
    }
    return [
        _finding(view, ranks, max((by_rank[rank] for rank in ranks), key=lambda slowed: slowed.excess_ns), gpus)
        for ranks in sharing_a_cause(view, sorted(by_rank))
    ]


def _measure_times(view: RunView, gpus: Sequence[Gpu | None]) -> _Times | None:
    """The times of all GPUs and ranks. None if no GPU has counters, or if none is throttled more than its peers."""
    throttled = {reason: share for reason in Reason if (share := _throttled_share(view, reason, gpus)) is not None}
    if not throttled:
        return None
    extra = {reason: share - expected_of_ranks(share, view) for reason, share in throttled.items()}
    hot: Bools = np.logical_or.reduce([share >= MIN_EXTRA for share in extra.values()])
    if not hot.any():
        return None
    own, theirs = np.zeros(hot.shape), np.zeros(hot.shape)
    for work in view.work.values():
        expected = peer_median(work.ns, view.pp_of_rank)
        known = ~np.isnan(work.ns) & ~np.isnan(expected)
        own[known] += work.ns[known]
        theirs[known] += expected[known]
    log_ratio = log_ratios(own, theirs)
    return _Times(
        throttled=throttled,
        extra=extra,
        log_ratio=log_ratio,
        own_ns=own,
        peers_ns=theirs,
        noise=step_noise(log_ratio, NOISE_FLOOR),
        hot=hot,
    )


def _throttled_share(view: RunView, reason: Reason, gpus: Sequence[Gpu | None]) -> Floats | None:
    """Share of each step in which a GPU was throttled for this reason, [steps, ranks]. None without counters.

    It is the largest share among the counters of the reason, because these overlap.
    """
    metrics = [metric for metric in COUNTERS[reason] if view.fleet.of(metric)]
    if not metrics:
        return None
    grown = [growth_in_steps(view, series_of_ranks(view, metric, gpus)) for metric in metrics]
    return np.asarray(np.clip(np.fmax.reduce(grown) / view.step_ns[:, None], 0.0, 1.0))


def _judge_rank(rank: int, times: _Times, view: RunView) -> _Throttled | None:
    """The rank, if its GPU is throttled more than its peers and the rank is certainly slower in these steps. Otherwise
    None."""
    known = ~np.isnan(times.log_ratio[:, rank])
    hot = times.hot[:, rank] & known
    if hot.sum() < MIN_STEPS:
        return None
    series = times.log_ratio[:, rank]
    slower = _slower(series, hot, known & ~times.hot[:, rank], times.noise)
    if slower < np.log(MIN_RATIO) or slower < MIN_SPREADS * _spread_of_others(rank, times, view):
        return None
    reason = max(times.extra, key=lambda each: float(np.nansum(times.extra[each][hot, rank])))
    throttled, extra = times.throttled[reason][:, rank], times.extra[reason][:, rank]
    own_ns, peers_ns = float(times.own_ns[hot, rank].sum()), float(times.peers_ns[hot, rank].sum())
    return _Throttled(
        rank=rank,
        reason=reason,
        hot=hot,
        throttled=_share_of_time(throttled, hot, view.step_ns),
        peers_throttled=_share_of_time(throttled - extra, hot, view.step_ns),
        ratio=own_ns / peers_ns,
        share=float(np.mean(series[hot] > np.log(MIN_RATIO) / 2)),
        excess_ns=(own_ns - peers_ns) / float(hot.sum()),
    )


def _share_of_time(share: Floats, hot: Bools, step_ns: Floats) -> float:
    """The mean of the known shares from the first to the last hot step, weighted by the step time."""
    rows = np.flatnonzero(hot)
    known = np.arange(rows[0], rows[-1] + 1)
    known = known[~np.isnan(share[known])]
    return float(np.average(share[known], weights=step_ns[known]))


def _slower(series: Floats, hot: Bools, calm: Bools, noise: float) -> float:
    """Log ratio by which a rank is certainly slower in hot steps; 0 if this may be chance.

    It is compared with its peers, and with itself in the other steps if these are at least ``MIN_STEPS``.
    """
    slower = float(np.median(series[hot]))
    variance = 1.0 / hot.sum()
    if calm.sum() >= MIN_STEPS:
        slower = min(slower, slower - float(np.median(series[calm])))
        variance += 1.0 / calm.sum()
    min_z = MIN_Z * (1.0 + FEW_STEPS / float(hot.sum()))
    return slower if slower >= min_z * MEDIAN_EFFICIENCY * noise * float(np.sqrt(variance)) else 0.0


def _spread_of_others(rank: int, times: _Times, view: RunView) -> float:
    """Spread among the ranks that are not throttled in the same steps.

    If its pipeline stage has at most ``FEW_PEERS`` ranks, the peers are left out, because they mirror the rank.
    """
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


def _finding(view: RunView, ranks: list[int], worst: _Throttled, gpus: Sequence[Gpu | None]) -> Finding:
    rows = np.flatnonzero(worst.hot)
    share_of_step = min(1.0, max(0.0, worst.excess_ns) / step_time_ns(view.step_ns[rows]))
    levels = _levels(view, worst, gpus)
    named_gpus = [gpu for rank in ranks if (gpu := gpus[rank]) is not None]
    clocks = ""
    if "sm_clock_mhz" in levels and "peers_sm_clock_mhz" in levels:
        clocks = f", at {levels['sm_clock_mhz']:,.0f} MHz against {levels['peers_sm_clock_mhz']:,.0f} MHz"
    return Finding(
        detector=NAME,
        kind=Kind.GPU_THROTTLED,
        severity=severity_of(share_of_step),
        suspects=with_victims(view, ranks),
        window=view.between(int(rows[0]), int(rows[-1])),
        seconds_lost=max(0.0, worst.excess_ns) * len(rows) / 1e9,
        share_lost=share_of_step,
        basis=Basis.EXCESS,
        confidence=round(worst.share * len(rows) / (len(rows) + 2), 2),
        summary=f"{named(view, ranks)}: {', '.join(gpu.device for gpu in named_gpus)} is throttled ({worst.reason}) "
        f"{worst.throttled:.0%} of the time, its peers {worst.peers_throttled:.0%}{since(view, int(rows[0]))}{clocks}; "
        f"compute takes {worst.ratio:.2f}x as long",
        next_step=f"on {view.hosts[ranks[0]]}: {_TO_CHECK[worst.reason]}; drain the host if throttling persists",
        evidence={
            "reason": str(worst.reason),
            "gpus": [f"{gpu.host}/{gpu.device}" for gpu in named_gpus],
            "throttled_share": round(worst.throttled, 3),
            "peers_throttled_share": round(worst.peers_throttled, 3),
            "ratio": round(worst.ratio, 3),
            "excess_ms_per_step": round(worst.excess_ns / 1e6, 3),
            **{name: round(value, 1) for name, value in levels.items()},
        },
    )


def _levels(view: RunView, worst: _Throttled, gpus: Sequence[Gpu | None]) -> dict[str, float]:
    """Known SM clocks (MHz) and temperature from the first to the last hot step."""
    assert view.step_start_ns is not None
    rows = np.flatnonzero(worst.hot)
    first_ns = float(view.step_start_ns[rows[0]])
    last_ns = float(view.step_start_ns[rows[-1]] + view.step_ns[rows[-1]])
    clocks = [
        level_between(series, first_ns, last_ns) for series in series_of_ranks(view, Metric.GPU_SM_CLOCK_MHZ, gpus)
    ]
    temperature = series_of_ranks(view, Metric.GPU_TEMPERATURE_C, gpus)[worst.rank]
    peers = [clock for rank, clock in enumerate(clocks) if rank != worst.rank and not np.isnan(clock)]
    levels = {
        "sm_clock_mhz": clocks[worst.rank],
        "peers_sm_clock_mhz": float(np.median(peers)) if peers else float("nan"),
        "temperature_c": level_between(temperature, first_ns, last_ns),
    }
    return {name: level for name, level in levels.items() if not np.isnan(level)}
