"""The heat map in one sentence: the unusual rank or group of ranks, and the range of the others."""

import math
from itertools import combinations

import numpy as np

from diagnose.model.exposed import AXIS_OF_STREAM
from diagnose.model.peers import medians
from telemetry.stages import StageClass
from telemetry.topology import Topology
from ui.dashboard.data.stage_times import WALL
from ui.dashboard.figures.metrics import values, waited_for_ns
from ui.dashboard.records import Floats, RunFacts, StageTimes
from ui.dashboard.view_state import Metric
from ui.dashboard.wording import duration, ranks_text

SLOW, ALIKE = 1.05, 0.02
"""Ratios to peers. A higher ratio than SLOW is not noise. Ranks that wait for each other differ by less than ALIKE."""
LONG_PERCENT, TOGETHER = 1.0, 0.75
"""A wait below LONG_PERCENT of a step names no rank. Ranks with TOGETHER of the longest wait are named together."""


def heat_map_summary(times: StageTimes, facts: RunFacts, metric: Metric) -> str:
    """The picture in one sentence: its most unusual rank, and the range of the others."""
    if metric is Metric.WAIT:
        return _who_is_waited_for(times, facts)
    if metric is Metric.EXPOSED:
        return _who_is_exposed(times, facts)
    if times.stage.stage_class is StageClass.COMMUNICATION:
        return _who_waits(times, facts)
    if metric is not Metric.RATIO and facts.topology.pp > 1:
        between = _between_pipeline_stages(times, facts, metric)
        return f"{times.stage.label}: {between}; {_within_peers(times, facts)}"
    return f"{times.stage.label}: {_within_peers(times, facts)}"


def _within_peers(times: StageTimes, facts: RunFacts) -> str:
    """The slowest rank among its peers. The ranks of a tensor, context or expert group wait for the slowest of them: if
    wall times of a whole group are long, they do not show which rank is slow."""
    median = medians(times.ratio, axis=0)
    if not np.isfinite(median).any():
        return "no rank has a peer to compare with"
    highest = int(np.nanargmax(median))
    name, group = _waiting_together(median, highest, facts.topology) if times.basis == WALL else ("", (highest,))
    others = np.delete(median, group)
    rest = (
        f"; the other ranks: {np.nanmin(others):.2f}x to {np.nanmax(others):.2f}x" if np.isfinite(others).any() else ""
    )
    if name:
        return f"the slowest is the {name} group of ranks {ranks_text(group)}, {median[highest]:.2f}x its peers{rest}"
    return f"the slowest is {facts.describe(highest)}, {median[highest]:.2f}x its peers{rest}"


INNER_AXES = {"tp": "tensor", "cp": "context", "ep": "expert"}
"""Axes whose collectives are inside computes, and the names of their groups."""


def _waiting_together(median: Floats, highest: int, topology: Topology) -> tuple[str, tuple[int, ...]]:
    """The largest group of the slowest rank whose ranks are all slow, and its name. The rank alone, without a name, if
    there is no such group."""
    axes = [name for name, degree in topology.mesh if degree > 1 and name in INNER_AXES]
    for number in range(len(axes), 0, -1):
        for along in combinations(axes, number):
            group = topology.group_of(highest, topology.mask(*along))
            if np.nanmin(median[list(group)]) > max(SLOW, median[highest] - ALIKE):
                return " and ".join(INNER_AXES[name] for name in along), group
    return "", (highest,)


def _between_pipeline_stages(times: StageTimes, facts: RunFacts, metric: Metric) -> str:
    """The pipeline stage with the longest time per step, and the range of the others."""
    taken = values(times, metric)
    pp = facts.topology.index["pp"]
    per_step = np.stack([medians(taken[:, pp == value], axis=1) for value in range(facts.topology.pp)], axis=1)
    per_stage = medians(per_step, axis=0)
    heaviest = int(np.nanargmax(per_stage))
    others = np.delete(per_stage, heaviest)
    if not np.isfinite(others).any():
        return f"only pp{heaviest} recorded this stage"
    takes, least, most = (
        f"{value:.0f}%" if metric is Metric.SHARE else duration(float(value) * 1e6)
        for value in (per_stage[heaviest], np.nanmin(others), np.nanmax(others))
    )
    of = " of" if metric is Metric.SHARE else ""
    if takes == least == most and np.isfinite(per_stage).all():
        return f"every pipeline stage takes {takes}{of} a step"
    rest = least if least == most else f"{least} to {most}"
    return f"pp{heaviest} takes {takes}{of} a step, the other pipeline stages {rest}"


def _who_is_waited_for(times: StageTimes, facts: RunFacts) -> str:
    """The ranks that arrive last. A slow rank also delays its tensor group and its pipeline."""
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
    """Ranks that are late together, named as a replica if they are all of it."""
    if len(ranks) == 1:
        return facts.describe(ranks[0])
    grid, named = facts.topology, f"ranks {ranks_text(ranks)}"
    dp = grid.index["dp"][ranks]
    is_replica = len(ranks) == grid.pp * grid.tp and bool((dp == dp[0]).all())
    return f"{grid.replica(int(dp[0]))} ({named})" if is_replica else named


def _who_is_exposed(times: StageTimes, facts: RunFacts) -> str:
    """The ranks with most and least exposed communication."""
    share = medians(values(times, Metric.EXPOSED), axis=0)
    most, least = int(np.nanargmax(share)), int(np.nanargmin(share))
    axis, on_rank = AXIS_OF_STREAM[times.stage.stream], facts.describe(most)
    return (
        f"{axis}: most exposed communication on {on_rank}, {share[most]:.1f}% of the step; least on rank {least}, "
        f"{share[least]:.1f}%"
    )


def _who_waits(times: StageTimes, facts: RunFacts) -> str:
    """Time in a collective is mostly waiting: the rank with the longest time is a victim."""
    median = medians(times.ns, axis=0)
    longest, shortest = int(np.nanargmax(median)), int(np.nanargmin(median))
    return (
        f"{times.stage.label}: rank {longest} spends the longest time in it ({duration(float(median[longest]))}), "
        f"{facts.describe(shortest)} the shortest ({duration(float(median[shortest]))}). "
        "Most of that time is waiting: the last rank to arrive waits least"
    )
