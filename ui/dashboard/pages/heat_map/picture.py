"""What the heat map page draws: the ranks of its rows, their values, and the colour scale that all its parts share."""

from dataclasses import dataclass

import numpy as np

from diagnose.model.collectives import GROUP_STAGES, group_axis
from diagnose.model.peers import medians
from telemetry.stages import Stage
from ui.dashboard.data import Reads
from ui.dashboard.data.compute_times import runs_inside_compute
from ui.dashboard.data.stage_times import pooled_times, stage_times, stored_steps
from ui.dashboard.defaults import chosen_stage, chosen_steps, collectives_of, suspects
from ui.dashboard.figures.heat_map import Colours, colours_for
from ui.dashboard.figures.metrics import BESIDE, values
from ui.dashboard.figures.rank_rows import ShownRanks, matching_ranks, shown_ranks
from ui.dashboard.records import Floats, Ints, PooledTimes, RunFacts, StageTimes
from ui.dashboard.view_state import Metric, ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The values of a heat map."""

    value: Floats
    """The value of each rank over the steps, in the units of the metric, [ranks]. NaN if unknown."""
    beside: Floats
    """The second value of the hover text for each rank, [ranks]. NaN if unknown."""
    suspects: tuple[int, ...]
    shown: ShownRanks
    cells: PooledTimes
    colours: Colours


def drawn_stage(state: ViewState, reads: Reads) -> Stage:
    """The stage of the address if it fits the metric. Otherwise the first stage that fits. For waiting times,
    this is a collective that does not run during compute. Collectives inside a replica come first: their groups are
    smaller, so their waiting points at fewer ranks."""
    facts = reads.facts(state)
    chosen = chosen_stage(state, facts)
    if state.metric is not Metric.WAIT or chosen is state.stage:
        return chosen
    newest = int(facts.steps.step[-1])
    inner_first = sorted(collectives_of(facts), key=lambda stage: group_axis(stage) == "dp")
    waits = (stage for stage in inner_first if not runs_inside_compute(reads, facts, stage, newest))
    return next(waits, chosen)


def times_of(state: ViewState, reads: Reads) -> tuple[RunFacts, StageTimes]:
    """The run of a view, and the time of each rank in the chosen stage and steps."""
    facts = reads.facts(state)
    stage, steps = drawn_stage(state, reads), chosen_steps(state, facts)
    return facts, stage_times(reads, facts, stage, state.clock, steps, state.metric)


def waits_of(state: ViewState, reads: Reads) -> StageTimes | None:
    """The times of a collective, compared within its groups. None if they do not show who waits for whom."""
    facts = reads.facts(state)
    stage, steps = drawn_stage(state, reads), chosen_steps(state, facts)
    if stage not in GROUP_STAGES:
        return None
    found = stage_times(reads, facts, stage, state.clock, steps, Metric.WAIT)
    return found if has_values(found, Metric.WAIT) else None


def is_during_compute(state: ViewState, reads: Reads) -> bool:
    """Whether operations of the stage run during compute. Then their duration is not waiting time."""
    facts = reads.facts(state)
    steps = stored_steps(facts, chosen_steps(state, facts))
    return bool(len(steps)) and runs_inside_compute(reads, facts, drawn_stage(state, reads), int(steps[-1]))


def has_values(times: StageTimes, metric: Metric) -> bool:
    """Whether there is a value to colour. Not every collective has waiting time (``data/compared_ranks.py``)."""
    if metric is Metric.WAIT and (times.stage not in GROUP_STAGES or not np.isfinite(times.ratio).any()):
        return False
    return bool(np.isfinite(times.ns).any())


def allowed_ranks(state: ViewState, facts: RunFacts) -> Ints:
    """The ranks that the filter of a view allows.

    Raises:
        UsageError: no rank matches.
    """
    return matching_ranks(state.only, facts.topology, facts.hosts, facts.roles)


def picture_of(state: ViewState, reads: Reads) -> Picture | None:
    """What a view draws, cached until new data arrives or other ranks are suspected. None if no rank has a value.

    Raises:
        UsageError: no rank matches the filter, or the steps are not stored.
    """
    facts, times = times_of(state, reads)
    if not has_values(times, state.metric):
        return None
    marked = suspects(reads.reports.of(facts.summary))
    steps = chosen_steps(state, facts)
    drawn = state.clock, state.metric, steps, state.only, state.sort, state.top
    key = ("heat-map", times.stage, times.basis, marked, *drawn)

    def draw() -> Picture:
        value, beside = (medians(values(times, metric), axis=0) for metric in (state.metric, BESIDE[state.metric]))
        allowed = allowed_ranks(state, facts)
        shown = shown_ranks(value, allowed, order=state.sort, top=state.top, suspects=marked)
        cells = pooled_times(reads, facts, times, state.metric, steps, shown.ranks)
        colours = colours_for(state.metric, values(cells, state.metric))
        return Picture(value=value, beside=beside, suspects=marked, shown=shown, cells=cells, colours=colours)

    return reads.cached(facts.summary, key, draw)
