"""How many tokens the experts of each rank receive, and how much of its compute time depends on that.

    received   rank 0 |====|        compute   rank 0 |=====|           compute = base * (1 - share + share * load)
               rank 1 |=========|             rank 1 |=======|         load = received / mean of the peers
               rank 2 |===|                   rank 2 |====|            share: the same for all ranks

Half of the exchanges return tokens to the ranks that they came from. All ranks receive about as much in those, so
exchanges with equal sizes are left out. ``share`` has the least sum of absolute differences over all steps and ranks: a
slow rank changes it little. (Load of experts: GShard, arXiv 2006.16668; Switch Transformer, arXiv 2101.03961.)
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import Floats, Ints, Operations
from diagnose.model.peers import log_ratios, medians, peer_median
from diagnose.model.view import RunView, Work
from telemetry.stages import Stage

SHARES = np.linspace(0.0, 1.0, 51)
MIN_EFFECT = 0.02
"""A smaller expected effect of the load on the compute time is ignored."""
MIN_GROWTH = 0.5
"""Share of the expected longer compute time that a loaded rank must show."""
LEAST_SPREAD = 0.5
"""Spread of an exchange between ranks, relative to the largest one. Exchanges below it return tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoad:
    """The load of the experts of each rank."""

    ratio: Floats
    """Bytes received relative to the mean of the peers, [steps, ranks]. NaN if they are not known."""
    share: Mapping[Stage, float]
    """Share of the compute time that is in proportion to the load, for each compute stage."""

    def factor(self, stage: Stage) -> Floats:
        """Compute time relative to that at mean load, [steps, ranks]. 1 if the load is not known."""
        factor = 1.0 + self.share.get(stage, 0.0) * (self.ratio - 1.0)
        return np.where(np.isfinite(factor) & (factor > 0), factor, 1.0)

    def extra_ns(self, work: Mapping[Stage, Work]) -> Floats:
        """Compute time of each rank beyond that at mean load, [steps, ranks]."""
        return np.asarray(
            np.nansum([each.ns * (1.0 - 1.0 / self.factor(stage)) for stage, each in work.items()], axis=0)
        )

    def is_followed(self, rank: int, view: RunView) -> bool:
        """Whether the compute time of a loaded rank is as much longer than that of its peers as its load explains."""
        for stage, work in view.work.items():
            expected = typical_log_ratio(self.factor(stage), view.pp_of_rank)[rank]
            if expected >= MIN_EFFECT and typical_log_ratio(work.ns, view.pp_of_rank)[rank] >= MIN_GROWTH * expected:
                return True
        return False


def expert_load(view: RunView) -> ExpertLoad | None:
    """The load of the experts, or None if the run has no ep-all-to-all, or its sizes are not known."""
    if view.exchanges is None or view.exchanges.size_bytes is None or not view.work:
        return None
    ratio = _ratio(view.exchanges, view.pp_of_rank)
    if np.isnan(ratio).all():
        return None
    share = {stage: _share(work.ns, ratio, view.pp_of_rank) for stage, work in view.work.items()}
    return ExpertLoad(ratio=ratio, share=share)


def _ratio(exchanges: Operations, group_of_rank: Ints) -> Floats:
    assert exchanges.size_bytes is not None
    ratio = np.full((len(exchanges.present), len(group_of_rank)), np.nan)
    sizes = np.where(exchanges.present, exchanges.size_bytes, np.nan)
    for group in np.unique(group_of_rank):
        members = np.flatnonzero(group_of_rank == group)
        received = _received(sizes[:, :, members])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio[:, members] = received / received.mean(axis=1, keepdims=True)
    return ratio


def _received(sizes: Floats) -> Floats:
    """Bytes of the exchanges that bring tokens to the experts, [steps, ranks]. NaN if an exchange is not complete."""
    sizes = sizes[:, ~np.isnan(sizes).all(axis=(0, 2))]
    mean = sizes.mean(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.nan_to_num(sizes.std(axis=2) / mean).mean(axis=0)
    return np.asarray(sizes[:, spread >= LEAST_SPREAD * spread.max(initial=0.0)].sum(axis=1))


def typical_log_ratio(values: Floats, group_of_rank: Ints) -> Floats:
    """Log ratio of each rank to its peers, median over the steps, [ranks]. NaN if it is not known."""
    return medians(log_ratios(values, peer_median(values, group_of_rank)), axis=0)


def _share(ns: Floats, ratio: Floats, group_of_rank: Ints) -> float:
    measured = log_ratios(ns, peer_median(ns, group_of_rank))
    best, least = 0.0, np.inf
    for share in SHARES:
        expected = 1.0 + share * (ratio - 1.0)
        difference = np.abs(measured - log_ratios(expected, peer_median(expected, group_of_rank)))
        total = float(np.nanmean(difference)) if np.isfinite(difference).any() else np.inf
        if total < least:
            best, least = float(share), total
    return best
