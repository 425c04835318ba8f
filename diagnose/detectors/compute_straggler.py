"""compute-straggler: a rank whose compute takes longer than that of its peers, step after step.

    log ratio to peers     rank 4   ..-.'..-.'.._'..     around zero: silent
                           rank 5   ..-._''''''''''''    high from a step on: a straggler since then
                           rank 6   .'._'.-''_.-.'_.     jitter without persistence: silent

Per compute stage and rank: log of compute time over the median of its peers, the stretch of steps in which it is high,
and four conditions, all of which must hold (median ratio, share of steps, significance over the steps, and distance
from the spread among the other ranks). Source of the comparison: MegaScale 5.1; GREYHOUND's 1.10 bound; median and
MAD as in EROICA. Victims do not appear: compute time excludes waiting.
"""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS, named, sharing_a_cause, with_victims
from diagnose.findings import Finding, Kind, Severity, StepWindow
from diagnose.model.peers import (
    Excess,
    FloatVector,
    Stretch,
    highest_stretch,
    measure_excess,
    medians,
    peer_median,
    robust_sigma,
    step_noise,
)
from diagnose.model.view import FloatMatrix, RunView
from telemetry.stages import Stage

NAME = "compute-straggler"
MIN_RATIO = 1.03
BARS = (MIN_RATIO, 1.3)
"""A rank that was always a little above its peers has one long stretch: what came later is seen over the higher bar."""
MIN_SHARE = 0.7
MIN_Z = 6.0
MIN_COMPANION_Z = 3.0
"""Beside a rank that is slow for certain, on the same host."""
MIN_SPREADS = 5.0
"""Distance from the other ranks' median ratios, in their robust standard deviations, among eight ranks."""
SPREADS_A_DECADE = 0.3
"""More of them for ten times as many ranks: somebody is always the furthest."""
FEW_PEERS = 4
SHADOW = 0.2
"""Of the worst rank's log ratio."""
CERTAIN_RATIO = 1.1
"""Told in any case."""
STEP_NOISE_FLOOR = 0.01
RANKS_THAT_TELL = 1024
RANK_SPREAD_FLOOR = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowness:
    """A rank that is slow in a stage."""

    rank: int
    stage: Stage
    stretch: Stretch
    ratio: float
    share: float
    excess_ns: float
    """A step, median over the stretch."""
    num_peers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A stage with every rank beside its peers: [steps, ranks]."""

    stage: Stage
    log_ratio: FloatMatrix
    excess_ns: FloatMatrix
    noise: float

    def noise_in(self, stretch: Stretch) -> float:
        """From step to step, over the run or over the stretch, whichever is more: where everybody is restless for a
        while, somebody is high for a while. Of many ranks some tell of all."""
        some = slice(None, None, max(1, self.log_ratio.shape[1] // RANKS_THAT_TELL))
        return max(self.noise, step_noise(self.log_ratio[stretch.rows, some], STEP_NOISE_FLOOR))


def detect_compute_stragglers(view: RunView) -> list[Finding]:
    """One finding for each slow rank, or for each host of which most ranks are slow."""
    if len(view.steps) < MIN_STEPS:
        return []
    slow: dict[int, list[Slowness]] = {}
    for stage, work in view.work.items():
        compared = _compare(stage, work.ns, view)
        alone = [one for rank in range(work.ns.shape[1]) if (one := _slowness(rank, compared, view)) is not None]
        for found in [*_without_shadows(alone), *_companions(alone, compared, view)]:
            slow.setdefault(found.rank, []).append(found)
    return [_finding(view, ranks, [slow[rank] for rank in ranks]) for ranks in sharing_a_cause(view, sorted(slow))]


def _compare(stage: Stage, ns: FloatMatrix, view: RunView) -> _Compared:
    expected = peer_median(ns, view.pp_of_rank)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(ns / expected)
    log_ratio[~np.isfinite(log_ratio)] = np.nan
    return _Compared(
        stage=stage, log_ratio=log_ratio, excess_ns=ns - expected, noise=step_noise(log_ratio, STEP_NOISE_FLOOR)
    )


def _slowness(rank: int, compared: _Compared, view: RunView) -> Slowness | None:
    """How slow a rank is, by the first bar at which it passes."""
    series = compared.log_ratio[:, rank]
    for bar in BARS:
        half_way = np.log(bar) / 2
        stretch = highest_stretch(series - half_way)
        excess = measure_excess(series[stretch.rows], above=half_way, noise=compared.noise)
        if not _is_slow(excess, bar):
            continue
        noise = compared.noise_in(stretch)
        excess = measure_excess(series[stretch.rows], above=half_way, noise=noise)
        if _is_slow(excess, bar) and not _is_usual(rank, excess, stretch, compared, view):
            return _told(rank, compared, *_dated(series, stretch, excess, noise), view)
    return None


def _is_slow(excess: Excess, bar: float) -> bool:
    """So long, so much, so often and so surely."""
    persists = excess.persists(MIN_STEPS) and excess.share >= MIN_SHARE
    return persists and excess.median >= np.log(bar) and excess.z >= MIN_Z


def _is_usual(rank: int, excess: Excess, stretch: Stretch, compared: _Compared, view: RunView) -> bool:
    """Whether other ranks lie as far from each other."""
    return excess.median < _min_spreads(view) * _spread_of_others(rank, compared.log_ratio[stretch.rows], view)


def _dated(series: FloatVector, stretch: Stretch, excess: Excess, noise: float) -> tuple[Stretch, Excess]:
    """The stretch drawn again, half way up to how slow the rank turned out to be: noise no longer pulls at its ends."""
    half_way = excess.median / 2
    again = highest_stretch(series - half_way)
    sure = measure_excess(series[again.rows], above=half_way, noise=noise)
    return (again, sure) if sure.num_rows >= MIN_STEPS else (stretch, excess)


def _min_spreads(view: RunView) -> float:
    return MIN_SPREADS + SPREADS_A_DECADE * max(0.0, float(np.log10(view.topology.world_size / 8)))


def _without_shadows(slow: list[Slowness]) -> list[Slowness]:
    """Beside a very slow rank, a slight slowness of others is not told: whatever ails it may reach them."""
    worst = max((np.log(one.ratio) for one in slow), default=0.0)
    return [one for one in slow if np.log(one.ratio) >= worst * SHADOW or one.ratio >= CERTAIN_RATIO]


def _companions(alone: list[Slowness], compared: _Compared, view: RunView) -> list[Slowness]:
    """Ranks beside a slow one on its host, about as slow, that would not have been seen by themselves."""
    found: dict[int, Slowness] = {}
    slow = {one.rank for one in alone}
    for one in alone:
        for rank in (rank for rank, host in enumerate(view.hosts) if host and host == view.hosts[one.rank]):
            series = compared.log_ratio[one.stretch.rows, rank]
            excess = measure_excess(series, above=np.log(MIN_RATIO) / 2, noise=compared.noise)
            alike = excess.median >= max(np.log(one.ratio) / 2, np.log(MIN_RATIO) / 2)
            if rank not in slow and alike and excess.z >= MIN_COMPANION_Z:
                found[rank] = _told(rank, compared, one.stretch, excess, view)
    return [one for one in found.values() if _most_of_host(view, one.rank, slow | found.keys())]


def _most_of_host(view: RunView, rank: int, ranks: Set[int]) -> bool:
    host = view.hosts[rank]
    return 2 * sum(view.hosts[one] == host for one in ranks) > view.hosts.count(host)


def _told(rank: int, compared: _Compared, stretch: Stretch, excess: Excess, view: RunView) -> Slowness:
    return Slowness(
        rank=rank,
        stage=compared.stage,
        stretch=stretch,
        ratio=float(np.exp(excess.median)),
        share=excess.share,
        excess_ns=float(np.nanmedian(compared.excess_ns[stretch.rows, rank])),
        num_peers=int(np.sum(view.pp_of_rank == view.pp_of_rank[rank])) - 1,
    )


def _spread_of_others(rank: int, log_ratio: FloatMatrix, view: RunView) -> float:
    """How far apart ranks lie that nobody suspects: the rank is left out, and its peers too where they are few, for
    they are measured against it."""
    others = np.ones(log_ratio.shape[1], dtype=bool)
    peers = view.pp_of_rank == view.pp_of_rank[rank]
    others[peers if peers.sum() <= (FEW_PEERS if view.topology.pp > 1 else 2) else rank] = False
    return robust_sigma(medians(log_ratio[:, others], axis=0), RANK_SPREAD_FLOOR)


def _finding(view: RunView, ranks: list[int], slow: list[list[Slowness]]) -> Finding:
    everything = [one for per_rank in slow for one in per_rank]
    worst = max(everything, key=lambda one: one.excess_ns)
    lost_ns = max(sum(one.excess_ns for one in per_rank) for per_rank in slow)
    window = view.between(worst.stretch.first, worst.stretch.last)
    share_of_step = min(1.0, lost_ns / float(np.median(view.step_ns[worst.stretch.rows])))
    return Finding(
        detector=NAME,
        kind=Kind.COMPUTE_STRAGGLER,
        severity=_severity(share_of_step, worst.ratio),
        suspects=with_victims(view, ranks),
        stage=worst.stage.label,
        window=window,
        seconds_lost=lost_ns * worst.stretch.length / 1e9,
        confidence=_confidence(worst),
        summary=_summary(view, ranks, worst, share_of_step, window),
        next_step=_next_step(view, ranks),
        evidence={
            "ratio": round(worst.ratio, 3),
            "share_of_steps": round(worst.share, 3),
            "share_of_step_time": round(share_of_step, 3),
            "excess_ms_per_step": round(lost_ns / 1e6, 3),
            "peers": worst.num_peers,
            "basis": str(view.work[worst.stage].basis),
            "stages": sorted({f"{one.stage.label} {one.ratio:.2f}x" for one in everything}),
        },
    )


def _severity(share_of_step: float, ratio: float) -> Severity:
    """By what it costs; a rank this far off its peers is sick, whatever hides its cost today."""
    if share_of_step >= 0.2:
        return Severity.CRITICAL
    return Severity.WARNING if share_of_step >= 0.05 or ratio >= 1.25 else Severity.INFO


def _confidence(slow: Slowness) -> float:
    """Share of slow steps, less where steps are few (rule of succession) or where there is only one peer."""
    certainty = slow.share * slow.stretch.length / (slow.stretch.length + 2)
    return round(certainty if slow.num_peers > 1 else certainty / 2, 2)


def _summary(view: RunView, ranks: list[int], worst: Slowness, share_of_step: float, window: StepWindow) -> str:
    since = f" since step {window.first_step}" if worst.stretch.first > MIN_STEPS else ""
    return (
        f"{named(view, ranks)}: {worst.stage.label} takes {worst.ratio:.2f}x its peers' time in {worst.share:.0%} "
        f"of steps{since}; "
        f"costs {share_of_step:.0%} of each step"
    )


def _next_step(view: RunView, ranks: list[int]) -> str:
    host = view.hosts[ranks[0]] or "its host"
    return (
        f"on {host}: check for low clocks, high temperature, ECC or Xid errors and other processes "
        f"(nvidia-smi -q, dmesg, top). If it stays slow after a restart, drain the host and replace "
        f"rank{'s' if len(ranks) > 1 else ''} {_listed(ranks)}"
    )


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
