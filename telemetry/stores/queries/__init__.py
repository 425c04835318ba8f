"""Every query of rankscope to a store: typed, parameterised, answered as columns.

A query is a frozen dataclass: its fields are the parameters, its docstring names the columns of the answer.
SQL uses only what ClickHouse 18.16 and today's engine both know: no window functions, no ``WITH``, no Map.

    runs      runs, their ranks, and lists of runs       heat_map  many ranks over many steps, at most a cell a pixel
    steps     durations of steps                         reports   samples, marks, heartbeats, evidence, alerts
    spans     single spans, also as OpenTelemetry's      claims    who writes each rank, and how far it is stored
    totals    sums by rank, stage, step                  windows   windows of steps, and the roll-up of each
    hosts     readings and events of hosts               clocks    alignment of hosts' clocks
"""

from telemetry.stores.interface import Query
from telemetry.stores.queries.claims import HighWater, NumberedTable
from telemetry.stores.queries.clocks import ClockHistory, HostClocks, MeetingSpans
from telemetry.stores.queries.heat_map import HeatCells, StageGroups, StragglerScan
from telemetry.stores.queries.hosts import HostEventCounts, HostEvents, HostGrowth, HostSamples
from telemetry.stores.queries.reports import (
    AlertLooks,
    Alerts,
    Evidence,
    EvidenceCount,
    Heartbeats,
    Marks,
    News,
    SampleCurves,
    Samples,
)
from telemetry.stores.queries.runs import (
    MOST_NAMED,
    Ranks,
    RunBeats,
    RunGrids,
    RunRates,
    Runs,
    RunStalls,
    RunSteps,
    RunWallTimes,
    StoredRuns,
    in_portions,
)
from telemetry.stores.queries.spans import Lanes, OperationColumns, Spans, TraceSpans
from telemetry.stores.queries.steps import (
    InterruptedSteps,
    LastSteps,
    RankStageMeans,
    RankStageStats,
    RankSteps,
    StageCounts,
    StageTotals,
    Steps,
)
from telemetry.stores.queries.windows import LAST_STEP

QUERIES: dict[str, type[Query]] = {
    query.__name__: query
    for query in (
        Runs, StoredRuns, Ranks, Steps, InterruptedSteps, LastSteps, RankSteps, Spans, Lanes, OperationColumns,
        StageTotals, RankStageStats, RankStageMeans, StageCounts, HeatCells, StageGroups, StragglerScan, Samples,
        SampleCurves, Marks, Heartbeats, Evidence, EvidenceCount, News, HighWater, HostSamples, HostEvents,
        HostEventCounts, HostGrowth, HostClocks, ClockHistory, MeetingSpans, TraceSpans, RunGrids, RunBeats, RunStalls,
        RunSteps, RunRates, RunWallTimes, Alerts, AlertLooks,
    )
}  # fmt: skip
"""Queries that are allowed over the wire: name -> query."""

__all__ = [
    "LAST_STEP",
    "MOST_NAMED",
    "QUERIES",
    "AlertLooks",
    "Alerts",
    "ClockHistory",
    "Evidence",
    "EvidenceCount",
    "Heartbeats",
    "HeatCells",
    "HighWater",
    "HostClocks",
    "HostEventCounts",
    "HostEvents",
    "HostGrowth",
    "HostSamples",
    "InterruptedSteps",
    "Lanes",
    "LastSteps",
    "Marks",
    "MeetingSpans",
    "News",
    "NumberedTable",
    "OperationColumns",
    "RankStageMeans",
    "RankStageStats",
    "RankSteps",
    "Ranks",
    "RunBeats",
    "RunGrids",
    "RunRates",
    "RunStalls",
    "RunSteps",
    "RunWallTimes",
    "Runs",
    "SampleCurves",
    "Samples",
    "Spans",
    "StageCounts",
    "StageGroups",
    "StageTotals",
    "Steps",
    "StoredRuns",
    "StragglerScan",
    "TraceSpans",
    "in_portions",
]
