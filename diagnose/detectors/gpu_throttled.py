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

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS, named, sharing_a_cause, with_victims
from diagnose.detectors.throttled_gpus import Reason, Throttled, judge_rank, measure_times
from diagnose.findings import Evidence, Finding, Kind, severity_of
from diagnose.model.gpus import Gpu, gpu_of_ranks, level_between, series_of_ranks
from diagnose.model.view import RunView
from telemetry.host_metrics import Metric

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
