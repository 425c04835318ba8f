"""Queries of the pages about one attempt, as SQL to start from."""

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from telemetry.stages import Stage
from telemetry.stores.inserts import render
from telemetry.stores.interface import Query
from telemetry.stores.queries import (
    Alerts,
    Evidence,
    Heartbeats,
    HostClocks,
    HostSamples,
    Marks,
    RankStageMeans,
    RunSteps,
    RunStepTimes,
    Samples,
    Spans,
    StageCounts,
    StageTotals,
    Steps,
    StoredRuns,
)
from ui.dashboard.records import RunSummary
from ui.dashboard.view_state import View

NEWEST = 100
"""Number of steps in a query about several steps, and of marks."""


class StartingPoint(NamedTuple):
    """A query of a page."""

    view: View
    what: str
    sql: str


def starting_points(run: RunSummary) -> list[StartingPoint]:
    """Queries about an attempt, in the order of the tabs."""
    return [StartingPoint(view, what, as_text(query)) for view, what, query in _queries(run)]


def as_text(query: Query) -> str:
    """The SQL of a query with its parameters in place."""
    return textwrap.dedent(render(query.sql(), query.parameters())).strip()


def _queries(run: RunSummary) -> Iterator[tuple[View, str, Query]]:
    last = run.last_step
    first = max(run.first_step, last - NEWEST + 1)
    forward = (int(Stage.FORWARD_COMPUTE),)
    yield View.RUNS, "all attempts", StoredRuns()
    yield View.OVERVIEW, "step time of each step", Steps(**run.key, first_step=first)
    yield View.OVERVIEW, "loss by step", Samples(**run.key, metrics=("loss",), first_step=first)
    yield View.OVERVIEW, "marks", Marks(**run.key, limit=NEWEST)
    yield (
        View.HEAT_MAP,
        "forward-compute of each rank and step",
        StageTotals(**run.key, first_step=first, last_step=last, stages=forward),
    )
    yield (
        View.TIMELINE,
        "spans of rank 0 in the newest step",
        Spans(**run.key, first_step=last, last_step=last, ranks=(0,)),
    )
    yield View.GRID, "mean of each rank and stage", RankStageMeans(**run.key, first_step=first, last_step=last)
    yield View.WHATIF, "number and time of operations by stage", StageCounts(**run.key)
    yield View.COMPARE, "step time of all attempts of the run", RunSteps(run_ids=(run.run_id,))
    yield (
        View.GOODPUT,
        "steps of all attempts",
        RunStepTimes(run_id=run.run_id, before_attempt=run.attempt + 1, stages=(int(Stage.STEP),)),
    )
    yield View.HANG, "evidence of a stall", Evidence(**run.key, kinds=("state",))
    yield View.HANG, "last heartbeat of each rank", Heartbeats(**run.key)
    yield View.FLEET, "samples of hosts", HostSamples(**run.key, parts=False)
    yield View.CLOCK, "clock offsets of hosts", HostClocks(**run.key)
    yield View.ALERTS, "alerts", Alerts()
