"""A one-sentence summary of the heat map: the slow rank, the slow pipeline stage, or the waiting ranks."""

import math

import numpy as np

from diagnose.model.peers import medians
from telemetry.stages import StageClass
from ui.dashboard.metrics import values, waited_for_ns
from ui.dashboard.records import RunFacts, StageTimes
from ui.dashboard.stage_times import WALL
from ui.dashboard.view_state import Metric
from ui.dashboard.wording import duration, ranks_in_words

SLOW, ALIKE = 1.05, 0.02
"""Ratios to peers: what is more than noise, and how near those lie that wait for each other."""
LONG_PERCENT, TOGETHER = 1.0, 0.75
"""Of a step: what is worth a name. Of the longest wait: who comes as late as the last."""


def heat_in_words(times: StageTimes, facts: RunFacts, metric: Metric) -> str:
    """The picture in words: what stands out most in it, and where the others lie."""
    if metric is Metric.WAIT:
        return _who_is_waited_for(times, facts)
    if times.stage.stage_class is StageClass.COMMUNICATION:
        return _who_waits(times, facts)
    if metric is not Metric.RATIO and facts.topology.pp > 1:
        between = _between_pipeline_stages(times, facts, metric)
        return f"{times.stage.label}: {between}; {_within_peers(times, facts)}"
    return f"{times.stage.label}: {_within_peers(times, facts)}"


def _within_peers(times: StageTimes, facts: RunFacts) -> str:
    """The rank that takes longest beside those that do the same work. Inside a stage a tensor group waits for its
    slowest: where all of it takes as long, the time on the wall does not tell which of them is slow."""
    median = medians(times.ratio, axis=0)
    if not np.isfinite(median).any():
        return "no rank has a peer to compare with"
    highest = int(np.nanargmax(median))
    group = list(facts.topology.group(highest, along="tp"))
    is_shared = times.basis == WALL and np.nanmin(median[group]) > max(SLOW, median[highest] - ALIKE)
    others = np.delete(median, group if is_shared else highest)
    rest = (
        f"; the other ranks: {np.nanmin(others):.2f}x to {np.nanmax(others):.2f}x" if np.isfinite(others).any() else ""
    )
    if is_shared and len(group) > 1:
        return (
            f"the slowest is the tensor group of ranks {ranks_in_words(group)}, {median[highest]:.2f}x its peers{rest}"
        )
    return f"the slowest is {facts.describe(highest)}, {median[highest]:.2f}x its peers{rest}"


def _between_pipeline_stages(times: StageTimes, facts: RunFacts, metric: Metric) -> str:
    """The pipeline stage whose ranks take longest in a step, and what those of the others take."""
    taken = values(times, metric)
    pp = facts.topology.index["pp"]
    per_step = np.stack([medians(taken[:, pp == one], axis=1) for one in range(facts.topology.pp)], axis=1)
    per_stage = medians(per_step, axis=0)
    heaviest = int(np.nanargmax(per_stage))
    others = np.delete(per_stage, heaviest)
    if not np.isfinite(others).any():
        return f"only pp{heaviest} recorded this stage"
    takes, least, most = (
        f"{one:.0f}%" if metric is Metric.SHARE else duration(float(one) * 1e6)
        for one in (per_stage[heaviest], np.nanmin(others), np.nanmax(others))
    )
    of = " of" if metric is Metric.SHARE else ""
    if takes == least == most and np.isfinite(per_stage).all():
        return f"every pipeline stage takes {takes}{of} a step"
    rest = least if least == most else f"{least} to {most}"
    return f"pp{heaviest} takes {takes}{of} a step, the other pipeline stages {rest}"


def _who_is_waited_for(times: StageTimes, facts: RunFacts) -> str:
    """The ranks that come last, together where they do: a slow one holds up its tensor group and its pipeline."""
    waited_ns, share = medians(waited_for_ns(times), axis=0), medians(values(times, Metric.WAIT), axis=0)
    last = int(np.nanargmax(waited_ns))
    most = duration(float(waited_ns[last]))
    if share[last] < LONG_PERCENT:
        return f"{times.stage.label}: no rank keeps others waiting; the longest wait is {most} a step"
    together = np.flatnonzero(waited_ns > TOGETHER * waited_ns[last])
    others = np.delete(share, together)
    rest = f"; at most {math.ceil(np.nanmax(others))}% for any other rank" if np.isfinite(others).any() else ""
    who = _together(together.tolist(), facts)
    return f"{times.stage.label}: the other ranks wait {most} a step for {who}, {share[last]:.0f}% of the step{rest}"


def _together(ranks: list[int], facts: RunFacts) -> str:
    """Who is late together, by the replica where that is all of it."""
    if len(ranks) == 1:
        return facts.describe(ranks[0])
    grid, words = facts.topology, f"ranks {ranks_in_words(ranks)}"
    dp = grid.index["dp"][ranks]
    is_replica = len(ranks) == grid.pp * grid.tp and bool((dp == dp[0]).all())
    return f"{grid.replica(int(dp[0]))} ({words})" if is_replica else words


def _who_waits(times: StageTimes, facts: RunFacts) -> str:
    """In a collective or transfer time is mostly waiting: the longest is a victim, never the culprit."""
    median = medians(times.ns, axis=0)
    longest, shortest = int(np.nanargmax(median)), int(np.nanargmin(median))
    return (
        f"{times.stage.label}: rank {longest} spends the longest time in it ({duration(float(median[longest]))}), "
        f"{facts.describe(shortest)} the shortest ({duration(float(median[shortest]))}). "
        "Most of that time is waiting: the last rank to arrive waits least"
    )
