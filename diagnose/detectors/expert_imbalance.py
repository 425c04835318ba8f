"""expert-imbalance: the experts of some ranks receive more tokens than those of others, step after step.

    tokens    rank 0 |==|      compute   rank 0 |====|            rank 1 computes longer because its experts get more
              rank 1 |=====|             rank 1 |========|        tokens. It is not faulty: all others wait for the
              rank 2 |==|                rank 2 |====|            router.

Two conditions must hold: some ranks receive more than their peers in most steps, and their compute time grows with it.
No rank is a suspect. (Auxiliary losses against it: Switch Transformer, arXiv 2101.03961.)
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Finding, Kind, Severity, StepWindow, severity_of
from diagnose.model.expert_load import ExpertLoad, expert_load
from diagnose.model.operations import Floats
from diagnose.model.peers import log_ratios, medians, peer_median
from diagnose.model.view import RunView
from diagnose.ranges import name_some

NAME = "expert-imbalance"
MIN_LOAD = 1.2
"""Tokens of a loaded rank relative to the mean of its peers. Smaller differences are natural."""
MIN_SHARE = 0.8
MIN_GROWTH = 0.5
"""Share of the expected longer compute time that the loaded ranks must show."""
MIN_COST = 0.02
MOST_NAMED = 8


def detect_expert_imbalance(view: RunView) -> list[Finding]:
    """At most one finding, without suspects. The evidence contains the ranks with the most tokens."""
    load = expert_load(view) if len(view.steps) >= MIN_STEPS else None
    if load is None:
        return []
    hottest = _hottest(load.ratio)
    hottest = [rank for rank in hottest if _grows(rank, load, view)]
    if not hottest:
        return []
    lost_ns = float(np.median(np.maximum(_extra_ns(load, view)[:, hottest].max(axis=1), 0.0)))
    share_of_step = min(1.0, lost_ns / float(np.median(view.step_ns)))
    return [_finding(view, load, hottest, lost_ns, share_of_step)] if share_of_step >= MIN_COST else []


def _hottest(ratio: Floats) -> list[int]:
    """Ranks that receive more than their peers in most steps, those with the most tokens first."""
    typical = medians(ratio, axis=0)
    half_way = 1.0 + (MIN_LOAD - 1.0) / 2
    with np.errstate(invalid="ignore"):
        is_hot = (typical >= MIN_LOAD) & ((ratio > half_way).mean(axis=0) >= MIN_SHARE)
    return [rank for rank in np.argsort(-np.nan_to_num(typical), kind="stable").tolist() if is_hot[rank]]


def _grows(rank: int, load: ExpertLoad, view: RunView) -> bool:
    """Whether the compute time of a loaded rank is longer than that of its peers, as far as its load explains."""
    for stage, work in view.work.items():
        factor = load.factor(stage)
        expected = _typical_log_ratio(factor, rank, view)
        measured = _typical_log_ratio(work.ns, rank, view)
        if expected >= np.log1p(MIN_COST) and measured >= MIN_GROWTH * expected:
            return True
    return False


def _typical_log_ratio(values: Floats, rank: int, view: RunView) -> float:
    """Median over the steps. -infinity if it is not known."""
    series = log_ratios(values, peer_median(values, view.pp_of_rank))[:, rank]
    return float(np.nanmedian(series)) if np.isfinite(series).any() else -np.inf


def _extra_ns(load: ExpertLoad, view: RunView) -> Floats:
    """Compute time of each rank beyond that at mean load, [steps, ranks]."""
    extra = [work.ns * (1.0 - 1.0 / load.factor(stage)) for stage, work in view.work.items()]
    return np.asarray(np.nansum(extra, axis=0))


def _finding(view: RunView, load: ExpertLoad, hottest: list[int], lost_ns: float, share_of_step: float) -> Finding:
    typical = medians(load.ratio, axis=0)
    named = view.numbers(hottest[:MOST_NAMED])
    steps = StepWindow(first_step=view.window.first_step, last_step=view.window.last_step)
    return Finding(
        detector=NAME,
        kind=Kind.EXPERT_IMBALANCE,
        severity=min(severity_of(share_of_step), Severity.WARNING, key=[*Severity][::-1].index),
        stage="ep-all-to-all",
        window=steps,
        seconds_lost=lost_ns * len(view.steps) / 1e9,
        confidence=round(len(view.steps) / (len(view.steps) + 2), 2),
        summary=f"experts are loaded unequally: rank {view.number(hottest[0])} receives {typical[hottest[0]]:.2f}x the "
        f"mean number of tokens and computes longer because of them; costs {share_of_step:.0%} of each step",
        next_step="check the router: its balancing loss or bias, its capacity factor, and which experts share a rank. "
        f"The ranks with the most tokens ({name_some(named)}) are not faulty",
        evidence={
            "hottest_ranks": named,
            "load_of_hottest": [round(float(typical[rank]), 3) for rank in hottest[:MOST_NAMED]],
            "least_load": round(float(np.nanmin(typical)), 3),
            "share_of_step_time": round(share_of_step, 3),
            "excess_ms_per_step": round(lost_ns / 1e6, 3),
            "share_of_compute": [f"{stage.label} {share:.2f}" for stage, share in load.share.items()],
        },
    )
