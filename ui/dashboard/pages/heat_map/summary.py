"""The heat map in one sentence: the unusual ranks, and the range of the others."""

import math
from collections.abc import Callable

import numpy as np

from diagnose.model.exposed import AXIS_OF_STAGE
from diagnose.model.peers import medians
from telemetry.stages import StageClass
from telemetry.topology import Topology
from ui.dashboard.data.stage_times import WALL
from ui.dashboard.figures.metrics import values, waited_for_ns
from ui.dashboard.records import Floats, RunFacts, StageTimes
from ui.dashboard.view_state import Metric
from ui.dashboard.wording import axes_text, duration, ranks_text

SLOW, ALIKE = 1.05, 0.02
"""A ratio to peers above SLOW is not noise. Values that differ by a share of less than ALIKE are about equal."""
LONG_PERCENT, TOGETHER = 1.0, 0.75
"""If the longest wait is below LONG_PERCENT of a step, no rank is named. Ranks with more than the share TOGETHER of the
longest wait, or of the excess of the slowest rank, are named together."""


def heat_map_summary(times: StageTimes, facts: RunFacts, metric: Metric, waits: StageTimes | None = None) -> str:
    """The picture in one sentence: its most unusual ranks, and the range of the others.

    ``waits``: the times of a collective, compared within its groups. None if they do not show which rank waits.
    """
    label = times.stage.label
    if metric is Metric.WAIT:
        return f"{label}: {_who_is_waited_for(times, facts)}"
    if metric is Metric.EXPOSED:
        return _who_is_exposed(times, facts)
    if times.stage.stage_class is StageClass.COMMUNICATION:
        who = [_who_takes_longest(times, facts), *([_who_is_waited_for(waits, facts)] if waits else [])]
        return f"{label}: {'; '.join(who)}"
    if metric is not Metric.RATIO and facts.topology.pp > 1:
        return f"{label}: {_between_pipeline_stages(times, facts, metric)}; {_within_peers(times, facts)}"
    return f"{label}: {_within_peers(times, facts)}"


def _within_peers(times: StageTimes, facts: RunFacts) -> str:
    """The slowest rank, if it is slow, and all ranks that are about as slow. The ranks of a tensor, context or expert
    group wait for the slowest of them. So if the wall times of a whole group are long, the group is named."""
    median = medians(times.ratio, axis=0)
    if not np.isfinite(median).any():
        return "no rank has a peer to compare with"
    highest = int(np.nanargmax(median))
    if median[highest] <= SLOW:
        return f"no rank takes longer than {SLOW}x its peers ({_range(median, '{:.2f}x'.format)})"
    slow = np.flatnonzero(median > max(SLOW, 1 + TOGETHER * (median[highest] - 1))).tolist()
    others = np.delete(median, slow)
    rest = f"; the other ranks: {_range(others, '{:.2f}x'.format)}" if np.isfinite(others).any() else ""
    name = _waiting_together(slow, facts.topology) if times.basis == WALL else ""
    who = f"the {name} group of ranks {ranks_text(slow)}" if name else _together(slow, facts)
    if len(slow) == 1 or name:
        return f"the slowest is {who}, {median[highest]:.2f}x its peers{rest}"
    return f"the slowest are {who}, {_range(median[slow], '{:.2f}x'.format)} their peers{rest}"


def _range(values: Floats, form: Callable[[float], str]) -> str:
    """The range of the values as text: ``0.97x to 1.01x``, or ``0.97x`` if both ends look the same. NaN is ignored."""
    least, most = form(float(np.nanmin(values))), form(float(np.nanmax(values)))
    return least if least == most else f"{least} to {most}"


INNER_AXES = {"tp": "tensor", "cp": "context", "ep": "expert"}
"""Axes whose collectives are inside compute spans, and the names of their groups."""


def _waiting_together(slow: list[int], topology: Topology) -> str:
    """``tensor`` if these ranks are one tensor group. Empty if they are no group along :data:`INNER_AXES`."""
    axes = topology.axes_of(topology.mask_of(slow))
    return " and ".join(INNER_AXES[name] for name in axes) if set(axes) <= set(INNER_AXES) else ""


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

    def form(value: float) -> str:
        return f"{value:.0f}%" if metric is Metric.SHARE else duration(value * 1e6)

    of = " of" if metric is Metric.SHARE else ""
    takes, rest = form(float(per_stage[heaviest])), _range(others, form)
    if np.isfinite(per_stage).all() and (takes == rest or _are_alike(per_stage)):
        return f"every pipeline stage takes about {form(float(np.median(per_stage)))}{of} a step"
    names = f"pp{1 - heaviest}" if len(per_stage) == 2 else "the other pipeline stages"
    return f"pp{heaviest} takes {takes}{of} a step, {names} {rest}"


def _are_alike(values: Floats) -> bool:
    return float(np.nanmax(values)) <= float(np.nanmin(values)) * (1 + ALIKE)


def _who_is_waited_for(times: StageTimes, facts: RunFacts) -> str:
    """The ranks that arrive last. A slow rank also delays its tensor group and its pipeline."""
    waited_ns, share = medians(waited_for_ns(times), axis=0), medians(values(times, Metric.WAIT), axis=0)
    last = int(np.nanargmax(waited_ns))
    if share[last] < LONG_PERCENT:
        longest = f"; the longest wait is {duration(float(waited_ns[last]))} a step" if waited_ns[last] else ""
        return f"no rank keeps others waiting{longest}"
    together = np.flatnonzero(waited_ns > TOGETHER * waited_ns[last])
    others = np.delete(share, together)
    waiting, who = _who_waits(together.tolist(), times, facts), _together(together.tolist(), facts)
    time, part = _range(waited_ns[together], duration), _range(share[together], "{:.0f}%".format)
    return f"{waiting} wait {time} a step for {who}, {part} of the step{_for_others(others)}"


def _who_waits(ranks: list[int], times: StageTimes, facts: RunFacts) -> str:
    """The ranks that are compared with ``ranks``, such as ``the other ranks of its expert group``."""
    grid = facts.topology
    groups = {grid.group_of(rank, times.group_mask) for rank in ranks}
    if not facts.roles and all(len(group) == grid.world_size for group in groups):
        return "the other ranks"
    axes = grid.axes_of(times.group_mask)
    kind = f"{INNER_AXES[axes[0]]} " if len(axes) == 1 and axes[0] in INNER_AXES else ""
    whose = "its" if len(ranks) == 1 else "their"
    return f"the other ranks of {whose} {kind}group{'s' * (len(groups) > 1)}"


def _for_others(share: Floats) -> str:
    """The longest wait for a rank that is not named. Empty if there is no such rank."""
    if not np.isfinite(share).any():
        return ""
    percent = math.ceil(round(float(np.nanmax(share)), 1))  # the picture shows one decimal
    return f"; at most {percent}% of the step for any other rank" if percent else "; no wait for any other rank"


def _together(ranks: list[int], facts: RunFacts) -> str:
    """Ranks with about the same value: ``pp1 dp_shard0 (ranks 4-5)`` if they are all ranks at this place."""
    if len(ranks) == 1:
        return facts.describe(ranks[0])
    indices = {name: facts.topology.along(name) for name, degree in facts.topology.mesh if degree > 1}
    chosen = {name: index[ranks] for name, index in indices.items() if index is not None}
    shared = {name: int(index[0]) for name, index in chosen.items() if (index == index[0]).all()}
    num_there = math.prod(degree for name, degree in facts.topology.mesh if name not in shared)
    place, named = " ".join(f"{name}{at}" for name, at in shared.items()), f"ranks {ranks_text(ranks)}"
    return f"{place} ({named})" if place and num_there == len(ranks) else named


def _who_is_exposed(times: StageTimes, facts: RunFacts) -> str:
    """The ranks with most and least exposed communication."""
    share = medians(values(times, Metric.EXPOSED), axis=0)
    most, least = int(np.nanargmax(share)), int(np.nanargmin(share))
    axis, on_rank = axes_text(AXIS_OF_STAGE[times.stage], facts.topology), facts.describe(most)
    return (
        f"{axis}: most exposed communication on {on_rank}, {share[most]:.1f}% of the step; least on rank {least}, "
        f"{share[least]:.1f}%"
    )


def _who_takes_longest(times: StageTimes, facts: RunFacts) -> str:
    """The ranks with the longest time in a collective or transfer. They are victims, because most of this time is
    waiting."""
    median = medians(times.ns, axis=0)
    longest = float(np.nanmax(median))
    if _are_alike(median):
        return f"each rank spends about {duration(longest)} a step in it"
    victims = np.flatnonzero(median >= longest * (1 - ALIKE)).tolist()
    spends = "spends" if len(victims) == 1 else "spend"
    others = _range(np.delete(median, victims), duration)
    return (
        f"{_together(victims, facts)} {spends} the longest time in it ({duration(longest)} a step), the others {others}"
    )
