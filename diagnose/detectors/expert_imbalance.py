"""expert-imbalance: the experts of some ranks receive more tokens than those of others, step after step.

    tokens    rank 0 |==|      compute   rank 0 |====|            rank 1 computes longer because its experts get more
              rank 1 |=====|             rank 1 |========|        tokens. It is not faulty: all others wait for the
              rank 2 |==|                rank 2 |====|            router.

Two conditions must hold: some ranks receive more than their peers in most steps, and their compute time grows with it.
No rank is a suspect. (Auxiliary losses against it: Switch Transformer, arXiv 2101.03961.)
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Basis, Finding, Kind, Severity
from diagnose.model.expert_load import ExpertLoad, expert_load
from diagnose.model.operations import Floats, step_time_ns
from diagnose.model.peers import medians
from diagnose.model.view import RunView
from diagnose.ranges import name_some
from telemetry.stages import Stage

NAME = "expert-imbalance"
MIN_LOAD = 1.2
"""Tokens of a loaded rank relative to the mean of its peers. Smaller differences are natural."""
MIN_SHARE = 0.8
MIN_COST = 0.02
MOST_NAMED = 8


def detect_expert_imbalance(view: RunView) -> list[Finding]:
    """At most one finding, without suspects. The evidence contains the ranks with the most tokens."""
    load = expert_load(view) if len(view.steps) >= MIN_STEPS else None
    if load is None:
        return []
    hottest = [rank for rank in _hottest(load.ratio) if load.is_followed(rank, view)]
    if not hottest:
        return []
    lost_ns = float(np.median(np.maximum(load.extra_ns(view.work)[:, hottest].max(axis=1), 0.0)))
    share_of_step = min(1.0, lost_ns / step_time_ns(view.step_ns))
    return [_finding(view, load, hottest, lost_ns, share_of_step)] if share_of_step >= MIN_COST else []


def _hottest(ratio: Floats) -> list[int]:
    """Ranks that receive more than their peers in most steps, those with the most tokens first."""
    typical = np.nan_to_num(medians(ratio, axis=0))
    is_hot = (typical >= MIN_LOAD) & ((np.nan_to_num(ratio) > (1.0 + MIN_LOAD) / 2).mean(axis=0) >= MIN_SHARE)
    return [rank for rank in np.argsort(-typical, kind="stable").tolist() if is_hot[rank]]


def _finding(view: RunView, load: ExpertLoad, hottest: list[int], lost_ns: float, share_of_step: float) -> Finding:
    typical = medians(load.ratio, axis=0)
    named = view.numbers(hottest[:MOST_NAMED])
    return Finding(
        detector=NAME,
        kind=Kind.EXPERT_IMBALANCE,
        severity=Severity.WARNING if share_of_step >= 0.05 else Severity.INFO,
        stage=Stage.EP_ALL_TO_ALL.label,
        window=view.window,
        seconds_lost=lost_ns * len(view.steps) / 1e9,
        share_lost=share_of_step,
        basis=Basis.EXCESS,
        confidence=round(len(view.steps) / (len(view.steps) + 2), 2),
        summary=f"experts are loaded unequally: {_who(named, float(typical[hottest[0]]))} because of them",
        next_step="check the router: its balancing loss or bias, its capacity factor, and which experts share a rank. "
        f"The ranks with the most tokens ({name_some(named)}) are not faulty",
        evidence={
            "hottest_ranks": named,
            "load_of_hottest": [round(float(typical[rank]), 3) for rank in hottest[:MOST_NAMED]],
            "least_load": round(float(np.nanmin(typical)), 3),
            "excess_ms_per_step": round(lost_ns / 1e6, 3),
            "share_of_compute": [f"{stage.label} {share:.2f}" for stage, share in load.share.items()],
        },
    )


def _who(ranks: list[int], most: float) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} receives {most:.2f}x the mean number of tokens and computes longer"
    return f"ranks {name_some(ranks)} receive up to {most:.2f}x the mean number of tokens and compute longer"
