"""gpu-throttled: a GPU whose clocks are held down, more than those of its peers, and whose rank computes slower for it.

    time throttled   gpu4  ......................     two witnesses: the GPU's own counters, and the spans of its rank
                     gpu5  ......./''''''''--''''''    steps in which gpu5 is throttled beyond its peers: hot
    compute time     rank 5  -----=========-=====      slower than its peers in the hot steps, and than itself in others

No rank is named if all GPUs are throttled alike (a fleet at its power cap is healthy), or if throttling slowed no
rank. Because two sources agree, each may be less certain than compute-straggler alone. Hosts a tenth
slower than others cost MegaScale 0.7% MFU (6.3); lowered clocks are what MegaScan injects. Thresholds ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from diagnose.detectors.contended import expected_of_ranks
from diagnose.detectors.evidence import MIN_STEPS, named, sharing_a_cause, with_victims
from diagnose.findings import Evidence, Finding, Kind, severity_of
from diagnose.model.gpus import Gpu, gpu_of_ranks, growth_in_steps, level_between, series_of_ranks
from diagnose.model.operations import Bools, Floats
from diagnose.model.peers import MEDIAN_EFFICIENCY, peer_median, robust_sigma, step_noise
from diagnose.model.view import RunView
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

    throttled: dict[Reason, Floats]
    """Share of the step; NaN where nobody looked."""
    extra: dict[Reason, Floats]
    """Beyond the peers' median."""
    log_ratio: Floats
    """Of own work to that of the peers."""
    excess_ns: Floats
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


def _throttled_share(view: RunView, reason: Reason, gpus: Sequence[Gpu | None]) -> Floats | None:
    """Of each step, the longest among the counters of a reason: they overlap."""
    told = [metric for metric in COUNTERS[reason] if view.fleet.of(metric)]
    if not told:
        return None
    grown = [growth_in_steps(view, series_of_ranks(view, metric, gpus)) for metric in told]
    return np.asarray(np.clip(np.fmax.reduce(grown) / view.step_ns[:, None], 0.0, 1.0))


def _slowness(view: RunView) -> tuple[Floats, Floats]:
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


def _slower(series: Floats, hot: Bools, calm: Bools, noise: float) -> float:
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


NAME = "gpu-throttled"
_LOOK_AT = {
    Reason.POWER: "compare power limit and draw with a peer (nvidia-smi -q -d POWER,PERFORMANCE). Look for a lower "
    "limit "
    "or a failed power feed of the node",
    Reason.THERMAL: "check the cooling: inlet temperature, fans or coolant flow, dust, a loose heat sink "
    "(nvidia-smi -q -d TEMPERATURE)",
    Reason.POWER_BRAKE: "check the power supplies and feeds of the node: they signal the GPUs to slow down "
    "(ipmitool sel list)",
    Reason.SYNC_BOOST: "find the slower GPU in its sync-boost group, or remove the group",
}


def detect_gpu_throttled(view: RunView) -> list[Finding]:
    """One finding for each rank slowed by its throttled GPU, or for each host of which most are."""
    gpus = gpu_of_ranks(view)
    if len(view.steps) < MIN_STEPS or view.step_start_ns is None or not view.work:
        return []
    times = measure_times(view, gpus)
    if times is None:
        return []
    found = [one for rank in range(len(gpus)) if (one := judge_rank(rank, times, view)) is not None]
    slowed = {one.rank: one for one in _without_followers(found, view)}
    return [
        _finding(view, ranks, [slowed[rank] for rank in ranks], gpus) for ranks in sharing_a_cause(view, sorted(slowed))
    ]


def _without_followers(found: list[Throttled], view: RunView) -> list[Throttled]:
    """Sync boost holds a GPU down because of another of its host: it is not told beside that one."""
    leading = {view.hosts[one.rank] for one in found if one.reason is not Reason.SYNC_BOOST}
    return [one for one in found if one.reason is not Reason.SYNC_BOOST or view.hosts[one.rank] not in leading]


def _finding(view: RunView, ranks: list[int], slowed: list[Throttled], gpus: Sequence[Gpu | None]) -> Finding:
    worst = max(slowed, key=lambda one: one.excess_ns)
    rows = np.flatnonzero(worst.hot)
    window = view.between(int(rows[0]), int(rows[-1]))
    share_of_step = min(1.0, max(0.0, worst.excess_ns) / float(np.median(view.step_ns[rows])))
    since = f" since step {window.first_step}" if rows[0] > MIN_STEPS else ""
    clocks = _clocks(view, worst, gpus)
    return Finding(
        detector=NAME,
        kind=Kind.GPU_THROTTLED,
        severity=severity_of(share_of_step),
        suspects=with_victims(view, ranks),
        stage="",
        window=window,
        seconds_lost=max(0.0, worst.excess_ns) * len(rows) / 1e9,
        confidence=round(worst.share * len(rows) / (len(rows) + 2), 2),
        summary=f"{named(view, ranks)}: {_devices(gpus, ranks)} is throttled ({worst.reason}) {worst.throttled:.0%} of "
        f"the time, its peers {worst.peers_throttled:.0%}{since}{_told_clocks(clocks)}; compute takes "
        f"{worst.ratio:.2f}x as "
        f"long and costs {share_of_step:.0%} of each such step",
        next_step=f"on {view.hosts[ranks[0]]}: {_LOOK_AT[worst.reason]}; drain the host if throttling persists",
        evidence=_evidence(worst, gpus, ranks, clocks, share_of_step),
    )


def _devices(gpus: Sequence[Gpu | None], ranks: list[int]) -> str:
    return ", ".join(gpu.device for rank in ranks if (gpu := gpus[rank]) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clocks:
    """SM clocks while throttled; NaN where not known."""

    own_mhz: float
    peers_mhz: float
    temperature_c: float


def _clocks(view: RunView, worst: Throttled, gpus: Sequence[Gpu | None]) -> _Clocks:
    assert view.step_start_ns is not None
    rows = np.flatnonzero(worst.hot)
    first_ns = float(view.step_start_ns[rows[0]])
    last_ns = float(view.step_start_ns[rows[-1]] + view.step_ns[rows[-1]])
    clocks = [level_between(one, first_ns, last_ns) for one in series_of_ranks(view, Metric.GPU_SM_CLOCK_MHZ, gpus)]
    heat = series_of_ranks(view, Metric.GPU_TEMPERATURE_C, gpus)[worst.rank]
    peers = np.array([clock for rank, clock in enumerate(clocks) if rank != worst.rank and not np.isnan(clock)])
    return _Clocks(
        own_mhz=clocks[worst.rank],
        peers_mhz=float(np.median(peers)) if len(peers) else float("nan"),
        temperature_c=level_between(heat, first_ns, last_ns),
    )


def _told_clocks(clocks: _Clocks) -> str:
    if np.isnan(clocks.own_mhz) or np.isnan(clocks.peers_mhz):
        return ""
    return f", at {clocks.own_mhz:.0f} MHz against {clocks.peers_mhz:.0f} MHz"


def _evidence(
    worst: Throttled, gpus: Sequence[Gpu | None], ranks: list[int], clocks: _Clocks, share_of_step: float
) -> Evidence:
    measured = {
        "sm_clock_mhz": clocks.own_mhz,
        "peers_sm_clock_mhz": clocks.peers_mhz,
        "temperature_c": clocks.temperature_c,
    }
    return {
        "reason": str(worst.reason),
        "gpus": [f"{gpu.host}/{gpu.device}" for rank in ranks if (gpu := gpus[rank]) is not None],
        "throttled_share": round(worst.throttled, 3),
        "peers_throttled_share": round(worst.peers_throttled, 3),
        "ratio": round(worst.ratio, 3),
        "share_of_step_time": round(share_of_step, 3),
        "excess_ms_per_step": round(worst.excess_ns / 1e6, 3),
        **{name: round(value, 1) for name, value in measured.items() if not np.isnan(value)},
    }
