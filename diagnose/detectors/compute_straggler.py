"""compute-straggler: a rank whose compute takes longer than that of its peers, step after step.

    log ratio to peers     rank 4   ..-.'..-.'.._'..     around zero: no finding
                           rank 5   ..-._''''''''''''    high from a step on: a slow rank since then
                           rank 6   .'._'.-''_.-.'_.     noise without persistence: no finding

For each compute stage and rank: the log of compute time over the median of its peers, and the stretch of steps in which
it is high. Four conditions must hold: median ratio, share of steps, significance over the steps, and distance from the
spread among the other ranks. Source of the comparison: MegaScale 5.1; GREYHOUND's 1.10 bound; median and MAD as in
EROICA. Victims do not appear, because compute time excludes waiting. For ranks with experts, the time that depends on
the number of their tokens is left out first.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS, named, sharing_a_cause, since, with_victims
from diagnose.findings import Basis, Finding, Kind, Severity, severity_of
from diagnose.model.expert_load import expert_load
from diagnose.model.operations import Floats
from diagnose.model.peers import (
    Excess,
    Stretch,
    highest_stretch,
    highest_stretches,
    least_excess,
    log_ratios,
    measure_excess,
    medians,
    peer_median,
    robust_sigma,
    step_noise,
)
from diagnose.model.roles import share_as_last
from diagnose.model.view import RunView
from telemetry.stages import Stage

NAME = "compute-straggler"
MIN_RATIO = 1.03
BARS = (MIN_RATIO, 1.3)
"""Ratios that are tried in this order. A rank that is always slightly slower than its peers has one long stretch at the
lower ratio. The higher ratio finds a larger slowdown that began later."""
MIN_SHARE = 0.7
MIN_Z = 6.0
MIN_COMPANION_Z = 3.0
"""Used instead of ``MIN_Z`` for ranks on the host of a rank that is certainly slow."""
MIN_SPREADS = 5.0
"""Least distance from the other ranks' median ratios, in their robust standard deviations, in a job of eight ranks."""
SPREADS_A_DECADE = 0.3
"""Added to ``MIN_SPREADS`` for each factor of ten in the number of ranks: the largest distance grows with it."""
FEW_PEERS = 4
SHADOW = 0.2
"""A rank with less than this share of the worst rank's log ratio is left out."""
CERTAIN_RATIO = 1.1
"""A rank with at least this ratio is not left out beside a slower rank."""
STEP_NOISE_FLOOR = 0.01
SAMPLED_RANKS = 1024
RANK_SPREAD_FLOOR = 0.005
ROUNDING = 1 - 1e-9
"""The test of all ranks together is this much lower than that of one rank, because sums are rounded differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowness:
    """A rank that is slow in a stage."""

    rank: int
    stage: Stage
    stretch: Stretch
    ratio: float
    share: float
    excess_ns: float
    """Excess for each step, median over the stretch."""
    num_peers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A stage with every rank compared with its peers: [steps, ranks]."""

    stage: Stage
    log_ratio: Floats
    excess_ns: Floats
    noise: float

    def noise_in(self, stretch: Stretch) -> float:
        """Noise from step to step: that of the run or that of the stretch, whichever is larger.

        In a noisy phase some rank is high by chance. Of many ranks, a sample is used.
        """
        sampled = slice(None, None, max(1, self.log_ratio.shape[1] // SAMPLED_RANKS))
        return max(self.noise, step_noise(self.log_ratio[stretch.rows, sampled], STEP_NOISE_FLOOR))


def detect_compute_stragglers(view: RunView) -> list[Finding]:
    """One finding for each slow rank, or for each host of which most ranks are slow."""
    if len(view.steps) < MIN_STEPS:
        return []
    slow: dict[int, list[Slowness]] = {}
    load = expert_load(view)
    for stage, work in view.work.items():
        compared = _compare(stage, work.ns if load is None else work.ns / load.factor(stage), view)
        certain = [each for rank in _candidates(compared) if (each := _slowness(rank, compared, view)) is not None]
        for found in [*_without_shadows(certain), *_companions(certain, compared, view)]:
            slow.setdefault(found.rank, []).append(found)
    slow = _without_shadows_in_other_stages(slow)
    return [_finding(view, ranks, [slow[rank] for rank in ranks]) for ranks in sharing_a_cause(view, sorted(slow))]


def _compare(stage: Stage, ns: Floats, view: RunView) -> _Compared:
    expected = peer_median(ns, view.pp_of_rank)
    log_ratio = log_ratios(ns, expected)
    noise = step_noise(log_ratio, STEP_NOISE_FLOOR)
    return _Compared(stage=stage, log_ratio=log_ratio, excess_ns=ns - expected, noise=noise)


def _candidates(compared: _Compared) -> list[int]:
    """The ranks that pass the first test of ``_slowness`` at one of ``BARS``, and perhaps a few more.

    All ranks are tested together. Of thousands of ranks, only a few are left to be examined one by one.
    """
    found = np.zeros(compared.log_ratio.shape[1], dtype=np.bool_)
    rows = np.arange(len(compared.log_ratio))[:, None]
    for bar in BARS:
        half_way = np.log(bar) / 2
        first, last = highest_stretches(compared.log_ratio - half_way)
        within = np.where((rows >= first) & (rows <= last), compared.log_ratio, np.nan)
        num_high, num_known = (within > half_way).sum(axis=0), (~np.isnan(within)).sum(axis=0)
        significant = least_excess(MIN_Z, compared.noise, num_rows=1) / np.sqrt(np.maximum(num_known, 1))
        found |= (
            (num_high >= MIN_SHARE * num_known * ROUNDING)
            & (num_high - 2 * (num_known - num_high) >= MIN_STEPS)
            & (medians(within, axis=0) >= np.maximum(np.log(bar), significant) * ROUNDING)
        )
    return np.flatnonzero(found).tolist()


def _slowness(rank: int, compared: _Compared, view: RunView) -> Slowness | None:
    """How slow a rank is, measured at the first of ``BARS`` that it passes, or None if it passes none."""
    series = compared.log_ratio[:, rank]
    for bar in BARS:
        half_way = np.log(bar) / 2
        stretch = highest_stretch(series - half_way)
        excess = measure_excess(series[stretch.rows], above=half_way, noise=compared.noise)
        if not _is_slow(excess, bar):
            continue
        noise = compared.noise_in(stretch)
        excess = measure_excess(series[stretch.rows], above=half_way, noise=noise)
        spread = _spread_of_others(rank, compared.log_ratio[stretch.rows], view)
        if _is_slow(excess, bar) and excess.median >= _min_spreads(view) * spread:
            return _measured(rank, compared, *_dated(series, stretch, excess, noise), view)
    return None


def _is_slow(excess: Excess, bar: float) -> bool:
    persists = excess.persists(MIN_STEPS) and excess.share >= MIN_SHARE
    return persists and excess.median >= np.log(bar) and excess.z >= MIN_Z


def _dated(series: Floats, stretch: Stretch, excess: Excess, noise: float) -> tuple[Stretch, Excess]:
    """The stretch, found again with half of the measured slowness as level. At this level, noise does not move its
    ends."""
    half_way = excess.median / 2
    again = highest_stretch(series - half_way)
    sure = measure_excess(series[again.rows], above=half_way, noise=noise)
    return (again, sure) if sure.num_rows >= MIN_STEPS else (stretch, excess)


def _min_spreads(view: RunView) -> float:
    return MIN_SPREADS + SPREADS_A_DECADE * max(0.0, float(np.log10(view.topology.world_size / 8)))


def _without_shadows(slow: list[Slowness]) -> list[Slowness]:
    """Beside a very slow rank, slightly slow ranks are left out: its problem may affect them."""
    worst = max((np.log(each.ratio) for each in slow), default=0.0)
    return [each for each in slow if np.log(each.ratio) >= worst * SHADOW or each.ratio >= CERTAIN_RATIO]


def _without_shadows_in_other_stages(slow: dict[int, list[Slowness]]) -> dict[int, list[Slowness]]:
    """Like ``_without_shadows``, over all stages: a rank may be very slow in one stage, and another rank slightly slow
    in another stage."""
    worst = [max(found, key=lambda each: each.ratio) for found in slow.values()]
    kept = {each.rank for each in _without_shadows(worst)}
    return {rank: found for rank, found in slow.items() if rank in kept}


def _companions(certain: list[Slowness], compared: _Compared, view: RunView) -> list[Slowness]:
    """Ranks on the host of a slow rank that are about as slow, but not certain by themselves."""
    found: dict[int, Slowness] = {}
    slow = {each.rank for each in certain}
    for each in certain:
        for rank in (rank for rank, host in enumerate(view.hosts) if host and host == view.hosts[each.rank]):
            series = compared.log_ratio[each.stretch.rows, rank]
            excess = measure_excess(series, above=np.log(MIN_RATIO) / 2, noise=compared.noise)
            alike = excess.median >= max(np.log(each.ratio) / 2, np.log(MIN_RATIO) / 2)
            if rank not in slow and alike and excess.z >= MIN_COMPANION_Z:
                found[rank] = _measured(rank, compared, each.stretch, excess, view)
    slow_on_host = Counter(view.hosts[rank] for rank in slow | found.keys())
    ranks_of_host = Counter(view.hosts)
    return [
        each
        for each in found.values()
        if 2 * slow_on_host[view.hosts[each.rank]] > ranks_of_host[view.hosts[each.rank]]
    ]


def _measured(rank: int, compared: _Compared, stretch: Stretch, excess: Excess, view: RunView) -> Slowness:
    return Slowness(
        rank=rank,
        stage=compared.stage,
        stretch=stretch,
        ratio=float(np.exp(excess.median)),
        share=excess.share,
        excess_ns=float(np.nanmedian(compared.excess_ns[stretch.rows, rank])),
        num_peers=int(np.sum(view.pp_of_rank == view.pp_of_rank[rank])) - 1,
    )


def _spread_of_others(rank: int, log_ratio: Floats, view: RunView) -> float:
    """Spread among the other ranks. If its peers are few, they are left out: they are measured against the rank."""
    others = np.ones(log_ratio.shape[1], dtype=bool)
    peers = view.pp_of_rank == view.pp_of_rank[rank]
    others[peers if peers.sum() <= (FEW_PEERS if view.topology.pp > 1 else 2) else rank] = False
    return robust_sigma(medians(log_ratio[:, others], axis=0), RANK_SPREAD_FLOOR)


def _finding(view: RunView, ranks: list[int], slow: list[list[Slowness]]) -> Finding:
    everything = [each for of_rank in slow for each in of_rank]
    worst = max(everything, key=lambda each: each.excess_ns)
    lost_ns = max(sum(each.excess_ns for each in of_rank) for of_rank in slow)
    if view.rank_numbers:
        lost_ns *= share_as_last(view, ranks, worst.stretch.rows)
    share_of_step = min(1.0, lost_ns / float(np.median(view.step_ns[worst.stretch.rows])))
    certainty = worst.share * worst.stretch.length / (worst.stretch.length + 2)  # rule of succession
    # A rank this far from its peers is faulty, even if its cost is hidden today.
    least = Severity.WARNING if worst.ratio >= 1.25 else Severity.INFO
    numbers = ", ".join(map(str, view.numbers(ranks)))
    return Finding(
        detector=NAME,
        kind=Kind.COMPUTE_STRAGGLER,
        severity=severity_of(share_of_step, least=least),
        least_severity=least,
        suspects=with_victims(view, ranks),
        stage=worst.stage.label,
        window=view.between(worst.stretch.first, worst.stretch.last),
        seconds_lost=lost_ns * worst.stretch.length / 1e9,
        share_lost=share_of_step,
        basis=Basis.EXCESS,
        confidence=round(certainty if worst.num_peers > 1 else certainty / 2, 2),
        summary=f"{named(view, ranks)}: {worst.stage.label} takes {worst.ratio:.2f}x its peers' time in "
        f"{worst.share:.0%} of steps{since(view, worst.stretch.first)}",
        next_step=f"on {view.hosts[ranks[0]] or 'its host'}: check for low clocks, high temperature, ECC or Xid errors "
        "and other processes (nvidia-smi -q, dmesg, top). If it stays slow after a restart, drain the host and replace "
        f"rank{'s' if len(ranks) > 1 else ''} {numbers}",
        evidence={
            "ratio": round(worst.ratio, 3),
            "share_of_steps": round(worst.share, 3),
            "excess_ms_per_step": round(lost_ns / 1e6, 3),
            "peers": worst.num_peers,
            "basis": str(view.work[worst.stage].basis),
            "stages": sorted({f"{each.stage.label} {each.ratio:.2f}x" for each in everything}),
        },
    )
