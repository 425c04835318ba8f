"""All queries of rankscope to a store, with typed parameters. The answer is a table of columns.

A query is a frozen dataclass. Its fields are the parameters, its docstring lists the columns of the answer.
SQL uses only features of both ClickHouse 18.16 and the current engine: no window functions, no ``WITH``, no Map.

    runs      runs, their ranks, and lists of runs       heat_map  many ranks and many steps, at most one cell per pixel
    steps     durations of steps and stages              reports   samples, marks, heartbeats, evidence, alerts
    spans     single spans, also for OpenTelemetry       claims    which collector writes a rank, and what is stored
    hosts     samples and events of hosts                windows   windows of steps, and their roll-ups
    clocks    offsets between the clocks of hosts               profiles  profiles on demand
    findings  the findings log, and the actions of people      curves    samples and marks for charts
    annotations  tags and notes of runs, saved views
"""

from telemetry.stores.interface import Query
from telemetry.stores.queries.annotations import AnnotationCount, Annotations
from telemetry.stores.queries.claims import HighWater, NumberedTable
from telemetry.stores.queries.clocks import ClockHistory, HostClocks, MeetingSpans
from telemetry.stores.queries.curves import MarkColumns, SampleCurves, SampleMedians, SampleNames
from telemetry.stores.queries.findings import (
    FindingActions,
    FindingCount,
    FindingDecisions,
    Findings,
    UnresolvedFindings,
)
from telemetry.stores.queries.heat_map import HeatCells, StageGroups, StragglerScan
from telemetry.stores.queries.histories import RunFirstSteps, RunMarks, RunStepTimes
from telemetry.stores.queries.hosts import HostEventCounts, HostEvents, HostGrowth, HostSamples, RunDecisions
from telemetry.stores.queries.profiles import OpenProfileRequests, ProfileParts, ProfileRequests, ProfileStates
from telemetry.stores.queries.reports import (
    AlertLooks,
    Alerts,
    Evidence,
    EvidenceCount,
    Heartbeats,
    LargestSamples,
    Marks,
    News,
    Samples,
)
from telemetry.stores.queries.runs import (
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
    RunStageTimes,
    StageCounts,
    StageSteps,
    StageTotals,
    Steps,
)
from telemetry.stores.queries.windows import LAST_STEP

QUERIES: dict[str, type[Query]] = {
    query.__name__: query
    for query in (
        Runs, StoredRuns, Ranks, Steps, InterruptedSteps, LastSteps, RankSteps, Spans, Lanes, OperationColumns,
        StageTotals, RankStageStats, RankStageMeans, StageCounts, StageSteps, HeatCells, StageGroups, StragglerScan,
        Samples, LargestSamples, SampleNames, SampleCurves, SampleMedians, Marks, MarkColumns, Heartbeats, Evidence,
        EvidenceCount, News, HighWater, HostSamples, HostEvents,
        HostEventCounts, HostGrowth, HostClocks, ClockHistory, MeetingSpans, TraceSpans, RunGrids, RunBeats, RunStalls,
        RunSteps, RunFirstSteps, RunRates, RunWallTimes, RunStageTimes, RunStepTimes, RunMarks, RunDecisions, Alerts,
        AlertLooks, ProfileRequests, ProfileStates, ProfileParts, Findings, FindingCount, FindingActions,
        FindingDecisions, UnresolvedFindings, Annotations, AnnotationCount,
    )
}  # fmt: skip
"""Queries that are allowed over the wire: name -> query."""

__all__ = [
    "LAST_STEP",
    "QUERIES",
    "AlertLooks",
    "Alerts",
    "AnnotationCount",
    "Annotations",
    "ClockHistory",
    "Evidence",
    "EvidenceCount",
    "FindingActions",
    "FindingCount",
    "FindingDecisions",
    "Findings",
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
    "LargestSamples",
    "LastSteps",
    "MarkColumns",
    "Marks",
    "MeetingSpans",
    "News",
    "NumberedTable",
    "OpenProfileRequests",
    "OperationColumns",
    "ProfileParts",
    "ProfileRequests",
    "ProfileStates",
    "RankStageMeans",
    "RankStageStats",
    "RankSteps",
    "Ranks",
    "RunBeats",
    "RunDecisions",
    "RunFirstSteps",
    "RunGrids",
    "RunMarks",
    "RunRates",
    "RunStageTimes",
    "RunStalls",
    "RunStepTimes",
    "RunSteps",
    "RunWallTimes",
    "Runs",
    "SampleCurves",
    "SampleMedians",
    "SampleNames",
    "Samples",
    "Spans",
    "StageCounts",
    "StageGroups",
    "StageSteps",
    "StageTotals",
    "Steps",
    "StoredRuns",
    "StragglerScan",
    "TraceSpans",
    "UnresolvedFindings",
    "in_portions",
]
