"""The change of one measure from A to B: of all ranks together, and of single ranks.

    log time of A   rank 0  -.'.-     d = location in B - location in A      rank 0   .00
                    rank 1  .-'-.                                            rank 1   .01    change of all: .00
    log time of B   rank 0  '.-.-                                            rank 2   .10    rank 2: .10 beyond it
                    rank 2  '''''

A rank is compared with itself in the other run, and the result with that of the other ranks. So ranks may have
different work, and a change of all ranks names none of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np

from diagnose.compare.inference import Located, Spread, locate, spread_between
from diagnose.compare.measures import Measure
from diagnose.model.operations import Bools, Floats, Ints
from diagnose.model.peers import medians, peer_median

Bound = Callable[[float], float]
"""Degrees of freedom -> the bound of Student's t for all tests together."""

USUAL_RANK_SPREAD = 0.005
"""Standard deviation between equal ranks: 0.1 to 0.6% in the published trace ST (``simulate/noise.py``)."""
USUAL_CHANGE = USUAL_RANK_SPREAD * 2**0.5
"""Standard deviation of the change between two runs, among equal ranks."""
USUAL_RUN_SPREAD = 0.0025
"""Standard deviation between equal runs, beyond what the spread of steps and ranks explains."""
RUN_DEGREES = 30.0
SHADOW = 0.2
"""A rank with less than this share of the largest change is not named, as in compute-straggler."""
LEAST_STEPS = 10
"""Steps with a stage, on each side, that its comparison needs."""
MOST_UNKNOWN = 0.1
"""A rank without a time in more than this share of the steps is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRanks:
    """One compute stage on the ranks that both sides have, without unknown values."""

    ranks: Ints
    a: Floats
    """Logarithms of A relative to the location of the rank in A, [steps of A, ranks]."""
    b: Floats
    """Logarithms of B relative to the location of the rank in A, [steps of B, ranks]."""
    a_ns: Floats
    """Typical time in A, [ranks]."""
    own: Floats
    """Log ratio B / A of each rank, [ranks]."""
    beyond: Located
    """Log ratio beyond that of the other ranks, with the spread between ranks, [ranks]. Unknown for a single rank."""
    spread: Spread
    """The spread between equal ranks."""

    def changed(self, bound: Bound, least: float) -> Bools:
        """Which ranks changed by more than the others, [ranks]."""
        if len(self.ranks) < 2:
            return np.zeros(len(self.ranks), dtype=bool)
        excess = np.abs(self.beyond.at)
        is_clear = (excess >= least) & is_beyond(self.beyond, bound)
        found = is_clear & (self.own * np.sign(self.beyond.at) >= excess / 2)
        return np.asarray(found & (excess >= SHADOW * excess[found].max(initial=0.0)))


def is_beyond(change: Located, bound: Bound) -> Bools:
    """Which changes are at least ``bound`` standard errors from zero, [columns]."""
    bounds = np.array([bound(degrees) for degrees in change.degrees.tolist()])
    return np.asarray(np.abs(change.at) >= bounds * np.sqrt(change.variance))


def pair_ranks(a: Measure, b: Measure) -> PairedRanks | None:
    """The ranks that a compute stage has in both runs, or None if no rank is known in enough steps of both runs."""
    ranks = np.intersect1d(_known_ranks(a), _known_ranks(b))
    values_a, values_b = _logs(a, ranks), _logs(b, ranks)
    if not len(ranks) or min(len(values_a), len(values_b)) < LEAST_STEPS:
        return None
    in_a, in_b = locate(values_a), locate(values_b)
    relative_a, relative_b = values_a - in_a.at, values_b - in_a.at
    beyond, spread = in_b.minus(in_a), Spread(variance=USUAL_CHANGE**2, degrees=RUN_DEGREES)
    if len(ranks) > 1:
        beyond = locate(_beyond_others(relative_b)).minus(locate(_beyond_others(relative_a)))
        spread = spread_between(beyond.at, USUAL_CHANGE)
    return PairedRanks(
        ranks=ranks,
        a=relative_a,
        b=relative_b,
        a_ns=np.exp(in_a.at),
        own=in_b.at - in_a.at,
        beyond=beyond.plus_variance(spread.variance, spread.degrees),
        spread=spread,
    )


def _known_ranks(measure: Measure) -> Ints:
    return np.asarray(measure.ranks[np.isnan(measure.ns).mean(axis=0) <= MOST_UNKNOWN])


def _logs(measure: Measure, ranks: Ints) -> Floats:
    """Logarithms of the times of these ranks, in the steps in which all are known, [steps, ranks]."""
    values = measure.ns[:, np.searchsorted(measure.ranks, ranks)]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    return np.asarray(logs[np.isfinite(logs).all(axis=1)])


def _beyond_others(relative: Floats) -> Floats:
    """Each rank relative to the median of the other ranks in the same step. So noise of whole steps cancels out."""
    return relative - peer_median(relative, np.zeros(relative.shape[1], dtype=np.int64))


def change_of_ranks(paired: PairedRanks, kept: Bools) -> Located:
    """The change that all kept ranks share."""
    change = locate(_row_means(paired.b[:, kept])).minus(locate(_row_means(paired.a[:, kept])))
    return with_runs(change.plus_variance(paired.spread.variance / kept.sum(), paired.spread.degrees))


def change_of_series(a: Measure, b: Measure, *, same_steps: bool) -> Located | None:
    """The change of the mean over all columns, or None if there are too few steps. The sides may have different numbers
    of columns.

    ``same_steps``: both sides are ranks of the same steps, so noise of whole steps cancels out.
    """
    series_a, series_b = _series(a), _series(b)
    if same_steps:
        both = np.isfinite(series_a) & np.isfinite(series_b)
        if both.sum() < LEAST_STEPS:
            return None
        change = locate((series_b - series_a)[both][:, None])
    else:
        known_a, known_b = (each[np.isfinite(each)][:, None] for each in (series_a, series_b))
        if min(len(known_a), len(known_b)) < LEAST_STEPS:
            return None
        change = locate(known_b).minus(locate(known_a))
    for side in (a, b):
        if len(side.ranks):
            spread = _spread_within(side)
            change = change.plus_variance(spread.variance / len(side.ranks), spread.degrees)
    return with_runs(change)


def _series(measure: Measure) -> Floats:
    """Log time in each step, [steps]: the mean of the logarithms. NaN if it is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(measure.ns)
    logs[~np.isfinite(logs)] = np.nan
    known = ~np.isnan(logs)
    total = np.where(known, logs, 0.0).sum(axis=1)
    count = known.sum(axis=1)
    return np.where(count == count.max(), total / np.maximum(count, 1), np.nan)


def _spread_within(measure: Measure) -> Spread:
    """Variance between the ranks of one side that do the same work."""
    with np.errstate(divide="ignore", invalid="ignore"):
        typical = medians(np.log(measure.ns), axis=0)
    for group in np.unique(measure.groups):
        mine = measure.groups == group
        typical[mine] -= np.nanmedian(typical[mine])
    return spread_between(typical[np.isfinite(typical)], USUAL_RANK_SPREAD)


def with_runs(change: Located) -> Located:
    """The change, with the spread between equal runs added to its variance."""
    return change.plus_variance(USUAL_RUN_SPREAD**2, RUN_DEGREES)


def mean_change(a_ns: Floats, b_ns: Floats) -> Located:
    """Log ratio of the mean step times (``step_time_ns``). Its variance is that of the means, relative to the means."""
    in_a, in_b = (locate((ns / ns.mean())[:, None], trim=0.0) for ns in (a_ns, b_ns))
    change = in_b.minus(in_a)
    ratio = log(float(b_ns.mean() / a_ns.mean()))
    return with_runs(Located(at=np.array([ratio]), variance=change.variance, degrees=change.degrees))


def typical_change(a_ns: Floats, b_ns: Floats) -> Located:
    """Log ratio of the trimmed mean step times."""
    return with_runs(locate(np.log(b_ns)[:, None]).minus(locate(np.log(a_ns)[:, None])))


def slowest_rank(spread: Spread, num_ranks: int) -> Spread:
    """Variance of the step time between equal runs: the variance of the slowest of ``num_ranks`` equal ranks.

    Source for the largest of n normal values: Gumbel, "Statistics of Extremes" (1958), section 4.2.
    """
    if num_ranks < 2:
        return spread
    scale = min(1.0, np.pi**2 / 6 / (2 * log(num_ranks)))
    return Spread(variance=spread.variance * scale, degrees=spread.degrees)


def _row_means(values: Floats) -> Floats:
    return np.asarray(values.mean(axis=1, keepdims=True))
