"""Every query returns the rows that its docstring promises, with the same column types on both engines."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

from telemetry.stages import Stage
from telemetry.stores.inserts import render
from telemetry.stores.interface import Query, Store, StoreReader
from telemetry.stores.queries import (
    QUERIES,
    AlertLooks,
    Alerts,
    AnnotationCount,
    Annotations,
    ClockHistory,
    Evidence,
    EvidenceCount,
    FindingActions,
    FindingCount,
    FindingDecisions,
    Findings,
    Heartbeats,
    HeatCells,
    HighWater,
    HostClocks,
    InterruptedSteps,
    Lanes,
    LargestSamples,
    LastSteps,
    MarkColumns,
    Marks,
    MeetingSpans,
    News,
    OpenProfileRequests,
    OperationColumns,
    ProfileParts,
    ProfileRequests,
    ProfileStates,
    Ranks,
    RankStageMeans,
    RankStageStats,
    RankSteps,
    RunBeats,
    RunDecisions,
    RunFirstSteps,
    RunGrids,
    RunMarks,
    RunRates,
    Runs,
    RunStageTimes,
    RunStalls,
    RunSteps,
    RunStepTimes,
    RunWallTimes,
    SampleCurves,
    SampleMedians,
    SampleNames,
    Samples,
    Spans,
    StageCounts,
    StageGroups,
    StageSteps,
    StageTotals,
    Steps,
    StoredRuns,
    StragglerScan,
    TraceSpans,
    UnresolvedFindings,
    in_portions,
)
from telemetry.stores.queries.hosts import HostEventCounts, HostEvents, HostGrowth, HostSamples
from telemetry.tables import ANNOTATIONS, FINDING_ACTIONS, HEARTBEATS, HOST_CLOCKS, PROFILE_REQUESTS, SPANS
from tests.each_case import each_case
from tests.telemetry.either_store import ENGINES, either_store
from tests.telemetry.made_rows import insert, made

STEP, FORWARD, BACKWARD = int(Stage.STEP), int(Stage.FORWARD_COMPUTE), int(Stage.BACKWARD_COMPUTE)
RUN: dict[str, Any] = {"run_id": 'it\'s "a" run; -- 100% \\', "attempt": 2}
RUNS: dict[str, Any] = {"run_ids": (RUN["run_id"], "nobody's")}
WINDOW: dict[str, Any] = {**RUN, "first_step": 1, "last_step": 2}
REPLACING = (
    *("ranks", "heartbeats", "evidence", "host_samples", "host_events", "host_clocks", "alerts"),
    *("profile_requests", "profile_states", "profile_parts", "findings", "finding_actions", "annotations"),
)
"""Tables in which merges drop replaced rows."""
EVERY_QUERY: tuple[Query, ...] = (
    Runs(),
    StoredRuns(),
    Ranks(**RUN),
    Steps(**RUN, newest=2),
    Steps(**RUN, stage=FORWARD),
    LastSteps(**RUN),
    InterruptedSteps(run_id="other", attempt=0),
    RankSteps(**WINDOW, ranks=(0, 1)),
    Lanes(**WINDOW),
    Spans(**WINDOW, ranks=(0, 1), stages=(FORWARD,)),
    OperationColumns(**WINDOW, stages=(FORWARD, BACKWARD), ranks=(0, 1)),
    StageTotals(**WINDOW, stages=(FORWARD, BACKWARD)),
    RankStageStats(**WINDOW),
    RankStageMeans(**WINDOW),
    HeatCells(**WINDOW, stage=FORWARD, num_ranks=2, max_rows=1, max_columns=2),
    StageGroups(run_id="other", attempt=0, stage=STEP, first_step=9, last_step=9),
    StragglerScan(**WINDOW, stages=(FORWARD,)),
    StageCounts(**RUN),
    StageSteps(**WINDOW),
    Samples(**RUN, metrics=("loss", "it's")),
    SampleNames(**RUN),
    SampleCurves(run_id=RUN["run_id"], attempts=(RUN["attempt"], 9), metrics=("loss", "it's"), column_steps=2),
    SampleMedians(run_id=RUN["run_id"], attempts=(RUN["attempt"], 9), metrics=("loss", "it's"), column_steps=2),
    Marks(**RUN),
    MarkColumns(run_id=RUN["run_id"], attempts=(RUN["attempt"], 9), column_ns=10),
    Heartbeats(**RUN),
    Evidence(**RUN, kinds=("state", "it's")),
    EvidenceCount(**RUN),
    News(**RUN, names=("link-down", "it's")),
    HighWater(**RUN, table="spans"),
    HostSamples(**RUN, metrics=("nic-up", "it's"), period_ns=10, parts=False),
    HostEvents(**RUN, names=("link-down", "it's")),
    HostEventCounts(**RUN, names=("link-down", "it's")),
    HostGrowth(**RUN, metrics=("nic-up", "it's")),
    HostClocks(**RUN),
    ClockHistory(**RUN, hosts=("h1", "it's")),
    MeetingSpans(run_id="other", attempt=0, stages=(), steps=(9,), ranks=(7,)),
    TraceSpans(**WINDOW, detail="stages"),
    RunGrids(**RUNS),
    RunBeats(**RUNS),
    RunStalls(**RUNS),
    RunSteps(**RUNS),
    RunFirstSteps(**RUNS),
    LargestSamples(**RUN, metrics=("loss", "it's")),
    RunRates(**RUNS, metric="loss"),
    RunWallTimes(**RUNS),
    RunStageTimes(**RUNS, stage=FORWARD),
    RunStepTimes(run_id=RUN["run_id"], before_attempt=3, stages=(STEP, FORWARD)),
    RunMarks(run_id=RUN["run_id"], before_attempt=3, names=("it's", "restart")),
    RunDecisions(run_ids=("driven", RUN["run_id"])),
    Alerts(),
    AlertLooks(),
    ProfileRequests(**RUN),
    ProfileStates(**RUN),
    ProfileParts(**RUN, profile_id="it's", rank=1, first_part=0, last_part=1),
    Findings(),
    FindingCount(),
    FindingActions(),
    FindingDecisions(since_ns=40, lasting_ns=49),
    UnresolvedFindings(**RUNS),
    Annotations(),
    Annotations(kinds=("tag", "it's"), **RUNS, names=("baseline",), edits=("set", "remove")),
    AnnotationCount(),
)


def fill(store: Store) -> None:
    """Two ranks, steps 0 to 3. Rank 1 computes 10 times as long. No answer may include rows of the other run."""
    insert(store, "spans", made("spans", _spans()), **RUN)
    stray = {"stage": STEP, "step": 9, "start_ns": 1, "duration_ns": 4, "rank": 7, "op_seq": 2, "peer": -4}
    insert(store, "spans", made("spans", [stray]), run_id="other")
    insert(store, "evidence", made("evidence", [{"rank": 7, "at_ns": 3, "kind": "state", "body": "x"}]), run_id="other")
    insert(store, "heartbeats", made("heartbeats", [{"rank": 7, "at_ns": 6, "step": 9}]), run_id="other")
    grid = {"dp_size": 2, "pp_size": 1, "tp_size": 1}
    ranks = [
        {**grid, "rank": rank, "host": f"h{rank}", "pid": pid, "started_ns": started_ns}
        for rank, pid, started_ns in ((0, 10, 5), (1, 11, 6), (1, 12, 8))
    ]
    insert(store, "ranks", made("ranks", ranks), **RUN)
    values = [(0, 0, "loss", 5.0), (1, 0, "loss", 4.0), (1, 1, "loss", 3.5), (0, 0, "it's", -0.25), (0, 0, "mfu", 1.0)]
    samples = [
        {"rank": rank, "seq": seq, "step": step, "at_ns": seq, "metric": metric, "value": value}
        for seq, (rank, step, metric, value) in enumerate(values)
    ]
    insert(store, "samples", made("samples", samples), **RUN)
    marks = [
        {"rank": 1, "seq": 2, "step": 1, "at_ns": 30, "name": "restart", "text": "naïve; \n'quoted' 100%"},
        {"rank": 0, "seq": 1, "at_ns": 20, "name": "gc"},
    ]
    insert(store, "marks", made("marks", marks), **RUN)
    for texts in (
        [(100, "state", "old"), (300, "stack", "here"), (5, "log", "x")],
        [(300, "state", "new 100%"), (400, "stack", "")],
    ):
        evidence = [{"rank": 1, "at_ns": at_ns, "kind": kind, "body": body} for at_ns, kind, body in texts]
        insert(store, "evidence", made("evidence", evidence), **RUN)
    for at_ns in (100, 200, 300):
        beat = {"beat_ns": at_ns, "step": at_ns, "alive": 1, "recorded": at_ns}
        beats = [{**beat, "rank": rank, "at_ns": at_ns + rank} for rank in (0, 1)]
        insert(store, "heartbeats", made("heartbeats", beats), **RUN)
    _fill_hosts(store)
    _fill_alerts(store)
    _fill_profiles(store)
    _fill_findings(store)
    _fill_annotations(store)
    clock = dict.fromkeys(HOST_CLOCKS.names, 1) | {"host": "h1", "reference": "h0", "method": "it's", "reason": ""}
    for at_ns in (5, 9):
        clocks = [{**clock, "estimated_ns": at_ns, "offset_ns": -at_ns}]
        insert(store, "host_clocks", pa.Table.from_pylist(clocks, schema=HOST_CLOCKS), **RUN)


def _fill_alerts(store: Store) -> None:
    first = [
        ("ab", 5, 10, "pending", "first"),
        ("ab", 1, 4, "resolved", "earlier"),
        ("cd", 6, 10, "pending", "was"),
        ("", 0, 7, "looked", ""),
    ]
    later = [
        ("ab", 5, 20, "firing", "naïve; 'quoted' 100%"),
        ("cd", 6, 30, "dropped", "was"),
        ("", 0, 9, "looked", ""),
    ]
    names = ("fingerprint", "began_ns", "at_ns", "phase", "body")
    for rows in (first, later):
        insert(store, "alerts", made("alerts", (dict(zip(names, row, strict=True)) for row in rows)), **RUN)


def _fill_findings(store: Store) -> None:
    """Three findings; each row and action is sent twice, and one change has the time of the one before it."""
    changes = [
        ("ab", 5, 5, "raised", "warning", "h1"),
        ("ab", 5, 5, "worse", "critical", "h1,it's"),
        ("cd", 7, 7, "raised", "critical", "h2"),
        ("cd", 7, 6, "resolved", "critical", "h2"),
        ("ab", 9, 9, "raised", "warning", "h1"),
    ]
    acted = [
        ("ab", 5, 20, "1", "silence", 50),
        ("cd", 7, 30, "2", "note", 0),
        ("ef", 8, 31, "3", "silence", 99),
        ("ef", 8, 32, "4", "end-silence", 0),
        ("ef", 8, 33, "5", "acknowledge", 0),
        ("ef", 9, 33, "6", "reopen", 0),
    ]
    names = ("fingerprint", "raised_ns", "at_ns", "state", "severity", "hosts")
    alike = {"kind": "nic-flap", "onset_step": -1, "summary": "naïve; 100%"}
    findings = [alike | dict(zip(names, values, strict=True)) for values in changes]
    names = ("fingerprint", "raised_ns", "at_ns", "action_id", "action", "until_ns")
    actions = [{"who": "it's", "text": "\\"} | dict(zip(names, values, strict=True)) for values in acted]
    for _ in range(2):
        insert(store, "findings", made("findings", findings), **RUN)
        insert(store, "finding_actions", pa.Table.from_pylist(actions, schema=FINDING_ACTIONS), **RUN)


def _fill_annotations(store: Store) -> None:
    """Each row twice, tags that are removed and set again, and a note and a view with the same time."""
    rows = [
        (RUN["run_id"], "tag", "baseline", 5, "1", "set"),
        (RUN["run_id"], "tag", "baseline", 6, "2", "remove"),
        (RUN["run_id"], "tag", "baseline", 7, "3", "set"),
        (RUN["run_id"], "tag", "it's", 5, "4", "set"),
        (RUN["run_id"], "tag", "it's", 5, "5", "remove"),
        (RUN["run_id"], "note", "", 8, "6", "set"),
        (RUN["run_id"], "note", "", 8, "7", "set"),
        ("", "view", "start", 8, "8", "set"),
    ]
    names = ("run_id", "kind", "name", "at_ns", "annotation_id", "edit")
    alike = {"who": "Ada", "text": "naïve; 'quoted' 100%"}
    annotations = [alike | dict(zip(names, values, strict=True)) for values in rows]
    for _ in range(2):
        store.insert("annotations", pa.Table.from_pylist(annotations, schema=ANNOTATIONS))


def _fill_profiles(store: Store) -> None:
    """Each request and part twice, and the states of one rank."""
    asked = {"profile_id": "it's", "at_ns": 7, "steps": 5, "seconds": 60, "finding": "x"}
    requests = pa.Table.from_pylist([{**asked, "rank": rank} for rank in (1, 0)], schema=PROFILE_REQUESTS)
    parts = [{"profile_id": "it's", "rank": 1, "part": part, "content": f"cGFydA=={part}"} for part in (0, 1, 2)]
    for _ in range(2):
        insert(store, "profile_requests", requests, **RUN)
        insert(store, "profile_parts", made("profile_parts", parts), **RUN)
    for at_ns, phase, body in ((8, "taken", ""), (9, "stored", "naïve; 'quoted' 100%")):
        state = {"profile_id": "it's", "rank": 1, "at_ns": at_ns, "phase": phase, "body": body}
        insert(store, "profile_states", made("profile_states", [state]), **RUN)


def _fill_hosts(store: Store) -> None:
    """Insert each row twice, as an agent does if the first answer was lost."""
    up = {"host": "h0", "device": "eth0", "metric": "nic-up"}
    samples = [{**up, "at_ns": at_ns, "value": value} for at_ns, value in ((11, 1.0), (18, 0.0), (25, 1.0))]
    events = [
        {"host": "h0", "device": "eth0", "at_ns": at_ns, "name": name, "text": "naïve; 'quoted' 100%"}
        for at_ns, name in ((25, "link-up"), (18, "link-down"), (3, "it's"))
    ]
    for _ in range(2):
        insert(store, "host_samples", made("host_samples", samples), **RUN)
        insert(store, "host_events", made("host_events", events), **RUN)
    decided = {**events[0], "device": "driver", "name": "driver", "text": "start: attempt 0"}
    insert(store, "host_events", made("host_events", [decided]), run_id="driven")
    insert(store, "host_samples", made("host_samples", samples[:1]), **RUN)
    insert(store, "host_samples", made("host_samples", [{**up, "at_ns": 12, "value": 7.0}]), run_id="other")


def _spans() -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = []
    for rank in (0, 1):
        for step in range(4):
            start_ns, work_ns = 1000 * (step + 1) + rank, (step + 1) * (10 if rank else 1)
            of_step = {"rank": rank, "step": step}
            spans.append({**of_step, "stage": STEP, "start_ns": start_ns, "duration_ns": 900 + rank})
            for microbatch in (0, 1):
                work = {"stage": FORWARD, "microbatch": microbatch, "chunk": 0, "start_ns": start_ns + 10 + microbatch}
                spans.append({**of_step, **work, "duration_ns": work_ns, "cpu_ns": work_ns - 1})
            spans.append({**of_step, "stage": BACKWARD, "start_ns": start_ns + 50, "duration_ns": 7})
    return [{**span, "seq": seq} for seq, span in enumerate(spans)]


@pytest.fixture(scope="module", params=ENGINES)
def filled(request: pytest.FixtureRequest) -> Iterator[StoreReader]:
    """For queries only. A test that inserts rows uses ``store``."""
    with either_store(request, "filled") as store:
        fill(store)
        yield StoreReader(store)


def column(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table[name].to_pylist()
    return values


def test_runs_are_listed_newest_first(filled: StoreReader) -> None:
    newest, other = filled.read(Runs()).to_pylist()
    assert filled.read(Runs(run_ids=(other["run_id"],))).to_pylist() == [other]
    assert filled.read(Runs(run_ids=("nobody",))).num_rows == 0
    steps = {"first_step": 0, "last_step": 3}
    assert newest == {**RUN, "started_ns": 5, "last_ns": 4902, "num_ranks": 2, **steps, "meta": "{}"}
    assert other["run_id"] == "other"
    assert other["first_step"] == other["last_step"] == 9


def test_stored_runs_lists_only_runs_with_known_ranks(filled: StoreReader) -> None:
    listed = filled.read(Runs()).to_pylist()
    stored = filled.read(StoredRuns()).to_pylist()
    known = [row for row in listed if row["num_ranks"]]
    assert [(row["run_id"], row["started_ns"], row["num_ranks"]) for row in stored] == [
        (row["run_id"], row["started_ns"], row["num_ranks"]) for row in known
    ]


def test_newest_row_of_a_rank_is_returned(filled: StoreReader) -> None:
    ranks = filled.read(Ranks(**RUN))
    assert column(ranks, "rank") == [0, 1]
    assert column(ranks, "pid") == [10, 12]
    assert column(ranks, "started_ns") == [5, 8]


def test_step_duration_is_the_mean_over_its_ranks(filled: StoreReader) -> None:
    steps = filled.read(Steps(**RUN))
    assert column(steps, "step") == [0, 1, 2, 3]
    assert column(steps, "start_ns") == [1000, 2000, 3000, 4000]
    assert column(steps, "duration_ns") == [900.5] * 4
    assert column(steps, "num_ranks") == column(steps, "num_spans") == [2, 2, 2, 2]
    assert column(filled.read(Steps(**WINDOW)), "step") == [1, 2]


def test_spans_are_sorted_by_rank_and_time_and_have_the_columns_that_were_sent(filled: StoreReader) -> None:
    spans = filled.read(Spans(**WINDOW))
    assert spans.schema.equals(SPANS)
    assert spans.num_rows == 16
    order = list(zip(column(spans, "rank"), column(spans, "start_ns"), strict=True))
    assert order == sorted(order)


def test_spans_are_filtered_by_rank_stage_and_limit(filled: StoreReader) -> None:
    chosen = filled.read(Spans(**WINDOW, ranks=(1,), stages=(FORWARD, BACKWARD)))
    assert set(column(chosen, "rank")) == {1}
    assert set(column(chosen, "stage")) == {FORWARD, BACKWARD}
    assert filled.read(Spans(**WINDOW, limit=3)).num_rows == 3


def test_stage_totals_sum_a_step_and_return_minus_1_if_cpu_time_is_missing(filled: StoreReader) -> None:
    totals = filled.read(StageTotals(**WINDOW, stages=(FORWARD, BACKWARD))).to_pylist()
    assert len(totals) == 8
    assert totals[2] == {
        "step": 1,
        "rank": 1,
        "stage": FORWARD,
        "chunk": 0,
        "spans": 2,
        "duration_ns": 40,
        "cpu_ns": 38,
    }
    assert {row["cpu_ns"] for row in totals if row["stage"] == BACKWARD} == {-1}


def test_rank_stage_stats_use_the_steps_of_the_window(filled: StoreReader) -> None:
    stats = filled.read(RankStageStats(**{**RUN, "first_step": 0, "last_step": 2}, stages=(FORWARD,))).to_pylist()
    assert stats[1] == {
        "rank": 1, "stage": FORWARD, "steps": 3, "spans": 6, "median_ns": 40, "mean_ns": 40.0, "median_cpu_ns": 38,
    }  # fmt: skip
    backward = filled.read(RankStageStats(**WINDOW, stages=(BACKWARD,)))
    assert column(backward, "median_cpu_ns") == [-1, -1]


def test_stage_counts_list_the_stages_that_occur(filled: StoreReader) -> None:
    counts = filled.read(StageCounts(**RUN))
    assert column(counts, "stage") == [STEP, FORWARD, BACKWARD]
    assert column(counts, "spans") == [8, 16, 8]
    assert column(counts, "ranks") == [2, 2, 2]


def test_metric_of_the_highest_rank_is_returned_if_several_ranks_report_it(filled: StoreReader) -> None:
    samples = filled.read(Samples(**RUN, metrics=("loss", "it's")))
    assert column(samples, "metric") == ["it's", "loss", "loss"]
    assert column(samples, "value") == [-0.25, 4.0, 3.5]
    assert column(samples, "rank") == [0, 1, 1]
    assert filled.read(Samples(**RUN)).num_rows == 4


def test_largest_sample_is_the_maximum_over_all_ranks_and_steps(filled: StoreReader) -> None:
    assert filled.read(LargestSamples(**RUN, metrics=("loss", "it's"))).to_pylist() == [
        {"metric": "it's", "value": -0.25},
        {"metric": "loss", "value": 5.0},
    ]


def test_samples_and_marks_are_filtered_by_step(filled: StoreReader) -> None:
    samples, marks = (column(filled.read(asked(**RUN)), "step") for asked in (Samples, Marks))
    assert len({*samples}) > 1 < len({*marks})
    for step in {*samples, *marks}:
        one = {"first_step": step, "last_step": step}
        assert column(filled.read(Samples(**RUN, **one)), "step") == [step] * samples.count(step)
        assert column(filled.read(Marks(**RUN, **one)), "step") == [step] * marks.count(step)


def test_marks_are_sorted_by_time_and_keep_their_text(filled: StoreReader) -> None:
    marks = filled.read(Marks(**RUN))
    assert column(marks, "name") == ["gc", "restart"]
    assert column(marks, "text") == ["", "naïve; \n'quoted' 100%"]
    assert column(filled.read(Marks(**RUN, limit=1)), "name") == ["restart"]


def test_newest_heartbeat_of_a_rank_is_returned(filled: StoreReader) -> None:
    beats = filled.read(Heartbeats(**RUN))
    assert beats.schema.equals(HEARTBEATS)
    assert column(beats, "at_ns") == [300, 301]
    assert column(beats, "recorded") == [300, 300]


def test_newest_evidence_of_a_kind_is_returned_unless_it_was_withdrawn(filled: StoreReader) -> None:
    rows = filled.read(Evidence(**RUN)).to_pylist()
    assert rows == [
        {"rank": 1, "at_ns": 5, "kind": "log", "body": "x"},
        {"rank": 1, "at_ns": 300, "kind": "state", "body": "new 100%"},
    ]
    assert column(filled.read(Evidence(**RUN, kinds=("state",))), "kind") == ["state"]


def test_operations_are_sorted_by_stage_then_step_then_rank_then_time(filled: StoreReader) -> None:
    rows = filled.read(OperationColumns(**WINDOW, stages=(FORWARD, BACKWARD))).to_pylist()
    order = [(row["stage"], row["step"], row["rank"], row["start_ns"]) for row in rows]
    assert order == sorted(order)
    spans = filled.read(Spans(**WINDOW, stages=(FORWARD, BACKWARD))).to_pylist()
    assert sorted(row["duration_ns"] for row in rows) == sorted(row["duration_ns"] for row in spans)
    assert {row["stage"] for row in rows} == {FORWARD, BACKWARD}


def test_evidence_count_returns_rows_newest_time_and_sum_of_stamps(filled: StoreReader) -> None:
    assert filled.read(EvidenceCount(**RUN)).to_pylist() == [{"num_rows": 3, "newest_ns": 400, "stamps": 705}]
    assert not filled.read(EvidenceCount(run_id="nobody's", attempt=0)).num_rows


def test_news_counts_evidence_and_host_events_in_one_query(filled: StoreReader) -> None:
    every = filled.read(News(**RUN)).to_pylist()
    assert [(row["source"], row["num_rows"], row["newest_ns"]) for row in every] == [
        ("evidence", 3, 400),
        ("host_events", 3, 25),
    ]
    of_links = filled.read(News(**RUN, names=("link-down",))).to_pylist()[1]
    assert of_links["num_rows"] == 1
    assert not filled.read(News(run_id="nobody's", attempt=0)).num_rows


def test_the_high_water_mark_is_one_past_the_largest_number(filled: StoreReader) -> None:
    assert filled.read(HighWater(**RUN, table="spans")).to_pylist() == [
        {"rank": 0, "opened_ns": -1, "next_seq": 16},
        {"rank": 1, "opened_ns": -1, "next_seq": 32},
    ]


def test_last_steps_returns_the_last_step_of_each_rank(filled: StoreReader) -> None:
    assert filled.read(LastSteps(**RUN)).to_pylist() == [
        {"rank": 0, "step": 3, "end_ns": 4900},
        {"rank": 1, "step": 3, "end_ns": 4902},
    ]


def test_interrupted_step_of_a_dead_rank_is_not_listed_as_a_step(filled: StoreReader) -> None:
    died = {"run_id": "other", "attempt": 0}
    assert filled.read(InterruptedSteps(**died)).to_pylist() == [{"step": 9, "mean_ns": 4.0}]
    assert filled.read(Steps(**died)).num_rows == 0
    assert filled.read(InterruptedSteps(**RUN)).num_rows == 0


@each_case("stage", [STEP, FORWARD])
@each_case("run", [RUN, {"run_id": "other", "attempt": 0}])
def test_step_times_of_earlier_attempts_equal_the_steps_of_each_attempt(
    filled: StoreReader, run: dict[str, Any], stage: int
) -> None:
    of_attempt = filled.read(Steps(**run, stage=stage)).select(["step", "start_ns", "duration_ns"])
    attempt = run["attempt"]
    found = filled.read(RunStepTimes(run_id=run["run_id"], before_attempt=attempt + 1, stages=(stage,)))
    assert filled.read(RunStepTimes(run_id=run["run_id"], before_attempt=attempt, stages=(stage,))).num_rows == 0
    assert set(found["attempt"].to_pylist()) <= {attempt}
    assert found.select(["step", "start_ns", "duration_ns"]).to_pylist() == of_attempt.to_pylist()


def test_marks_of_earlier_attempts_equal_the_marks_of_each_attempt(filled: StoreReader) -> None:
    rows = filled.read(Marks(**RUN)).to_pylist()
    names = tuple({row["name"] for row in rows})
    assert names
    earlier = {"run_id": RUN["run_id"], "before_attempt": RUN["attempt"] + 1}
    found = filled.read(RunMarks(**earlier, names=names)).to_pylist()
    assert sorted((row["name"], row["at_ns"]) for row in found) == sorted((row["name"], row["at_ns"]) for row in rows)
    newest = filled.read(RunMarks(**earlier, names=names[:1], limit=1)).to_pylist()
    assert [row["at_ns"] for row in newest] == [max(row["at_ns"] for row in rows if row["name"] == names[0])]


def test_queries_over_many_runs_return_one_row_per_attempt(filled: StoreReader) -> None:
    (beats,) = filled.read(RunBeats(**RUNS)).to_pylist()
    assert beats == {**RUN, "heard_ns": 301, "num_ranks": 2, "num_ended": 0, "num_gone": 0}
    (steps,) = filled.read(RunSteps(**RUNS)).to_pylist()
    assert steps == {
        **RUN, "first_step": 0, "last_step": 3, "num_steps": 4, "steps_ns": 3602.0, "recent_ns": 900.5,
        "recent_first": 0, "last_end_ns": 4902,
    }  # fmt: skip
    of_first = filled.read(Steps(**RUN, stage=STEP)).to_pylist()[0]["duration_ns"]
    assert filled.read(RunFirstSteps(**RUNS)).to_pylist() == [{**RUN, "mean_ns": of_first}]
    assert filled.read(RunGrids(**RUNS)).to_pylist() == [{**RUN, "dp_size": 2, "pp_size": 1, "tp_size": 1, "mesh": ""}]
    assert filled.read(RunStalls(**RUNS)).to_pylist() == [{**RUN, "newest_ns": 300}]
    assert filled.read(RunRates(**RUNS, metric="loss")).to_pylist() == [
        {**RUN, "mean": 3 / (1 / 5 + 1 / 4 + 1 / 3.5), "first_step": 0, "last_step": 1}
    ]


MAX_QUERY_BYTES = 256 * 1024
"""The limit of servers for the text of a query."""


def test_names_of_runs_are_divided_into_few_queries_by_their_length() -> None:
    short, long = [f"run-{number:05d}" for number in range(5000)], ["ü" * 100 + str(number) for number in range(600)]
    assert len([*in_portions(short)]) == 2
    for names in (short, long, ["one"], []):
        portions = [*in_portions(names)]
        assert [name for some in portions for name in some] == names
        queries = (RunWallTimes(run_ids=some) for some in portions)
        assert all(len(render(query.sql(), query.parameters()).encode()) < MAX_QUERY_BYTES for query in queries)


def test_stage_time_is_the_mean_over_its_ranks(filled: StoreReader) -> None:
    """Rank 0 has 1 + 2 + 3 + 4 in two microbatches each, rank 1 ten times that."""
    assert filled.read(RunStageTimes(**RUNS, stage=FORWARD)).to_pylist() == [{**RUN, "mean_ns": (20 + 200) / 2}]
    (first, *_) = filled.read(Steps(**RUN, stage=FORWARD)).to_pylist()
    assert first == {"step": 0, "start_ns": 1010, "duration_ns": 5.5, "num_ranks": 2, "num_spans": 4}


def test_decisions_of_all_attempts_are_sorted_by_time_without_duplicates(store: Store) -> None:
    decided = {"device": "driver", "name": "driver"}
    events = [
        (1, {"at_ns": 9, "host": "driver", "text": "start: attempt 1", **decided}),
        (0, {"at_ns": 4, "host": "it's", "text": "rank-failed: rank 3 was killed", **decided}),
        (0, {"at_ns": 5, "host": "a", "device": "eth0", "name": "link-down"}),
    ]
    for attempt, event in [*events, events[0]]:
        insert(store, "host_events", made("host_events", [event]), run_id="restarted", attempt=attempt)
    insert(store, "host_events", made("host_events", [{**events[0][1], "text": "of another run"}]), run_id="other")
    rows = StoreReader(store).read(RunDecisions(run_ids=("restarted",))).to_pylist()
    assert [(row["at_ns"], row["attempt"], row["host"], row["text"]) for row in rows] == [
        (4, 0, "it's", "rank-failed: rank 3 was killed"),
        (9, 1, "driver", "start: attempt 1"),
    ]


def test_wall_time_of_a_run_is_measured_with_the_clock_of_one_host(store: Store) -> None:
    """Two attempts. The clock of host b is 1000 ns ahead. Host c replaces d. The host of rank 2 is unknown."""
    for attempt, hosts, begin_ns in ((0, "ab d", 10), (1, "ab c", 300)):
        ranks, steps = [], []
        for rank, host in enumerate(hosts):
            started_ns = begin_ns + 1000 * (host == "b")
            ranks.append({"rank": rank, "host": host.strip(), "started_ns": started_ns})
            steps.append({"rank": rank, "stage": STEP, "start_ns": started_ns + 20, "duration_ns": 50})
        beats = [{"rank": 0, "at_ns": begin_ns + 90}]
        for table, rows in (("ranks", ranks), ("spans", steps), ("heartbeats", beats)):
            insert(store, table, made(table, rows), run_id="run", attempt=attempt)
    rows = StoreReader(store).read(RunWallTimes(run_ids=("run",))).to_pylist()
    assert [(row["first_attempt"], row["last_attempt"], row["wall_ns"]) for row in rows] == [
        (0, 0, 70), (0, 1, 380), (1, 1, 70),
    ]  # fmt: skip


def test_ranks_that_are_gone_are_distinguished_from_those_that_ended(store: Store) -> None:
    lives = [{"alive": 0, "ended": 1}, {"alive": 0, "ended": 2}, {"alive": 0, "ended": 0}, {"alive": 1, "ended": 0}]
    insert(store, "heartbeats", made("heartbeats", [{**life, "rank": rank} for rank, life in enumerate(lives)]), **RUN)
    (beats,) = StoreReader(store).read(RunBeats(**RUNS)).to_pylist()
    assert (beats["num_ranks"], beats["num_ended"], beats["num_gone"]) == (4, 1, 2)


def test_newest_row_of_an_alert_is_returned_and_a_dropped_alert_is_not(filled: StoreReader) -> None:
    rows = filled.read(Alerts()).to_pylist()
    assert [(row["fingerprint"], row["began_ns"], row["phase"], row["body"]) for row in rows] == [
        ("ab", 5, "firing", "naïve; 'quoted' 100%"),
        ("ab", 1, "resolved", "earlier"),
    ]
    assert filled.read(Alerts(limit=1)).num_rows == 1
    assert filled.read(AlertLooks()).to_pylist() == [{**RUN, "at_ns": 9}]


def test_newest_state_of_a_finding_is_returned_and_filters_apply_to_it(filled: StoreReader) -> None:
    def found(**conditions: Any) -> list[tuple[str, int, str, str]]:
        rows = filled.read(Findings(**conditions)).to_pylist()
        assert sum(filled.read(FindingCount(**conditions))["findings"].to_pylist()) == len(rows)
        return [(row["fingerprint"], row["raised_ns"], row["state"], row["severity"]) for row in rows]

    newest = [("ab", 9, "raised", "warning"), ("cd", 7, "resolved", "critical"), ("ab", 5, "worse", "critical")]
    assert found() == newest
    assert found(severity="critical") == newest[1:]
    assert found(state="firing") == [newest[0], newest[2]]
    assert found(state="resolved") == [newest[1]]
    assert found(host="it's") == [newest[2]]
    assert found(since_ns=7) == [newest[0], newest[2]]
    assert found(until_ns=5) == [newest[2]]
    assert found(find='"A" RUN', kind="nic-flap", run_id=RUN["run_id"]) == newest
    assert found(fingerprints=("ab",), raised_at_ns=(9,)) == [newest[0]]
    assert found(run_id="it's") == found(find="it's'") == found(kind="x") == found(host="h") == []
    pages = [filled.read(Findings(offset=offset, limit=2))["raised_ns"].to_pylist() for offset in (0, 2, 4)]
    assert pages == [[9, 7], [5], []]


def test_duplicate_finding_is_left_out_and_the_earliest_unresolved_time_is_returned(
    store: Store,
) -> None:
    rows = [
        ("ab", 5, "raised"),
        ("ab", 7, "raised"),
        ("ab", 7, "duplicate"),
        ("ab", 2, "raised"),
        ("ab", 2, "resolved"),
    ]
    table = made("findings", [{"fingerprint": name, "raised_ns": ns, "state": state} for name, ns, state in rows])
    insert(store, "findings", table, **RUN)
    reader = StoreReader(store)
    assert reader.read(Findings())["raised_ns"].to_pylist() == [5, 2]
    assert reader.read(FindingCount())["findings"].to_pylist() == [2]
    assert reader.read(UnresolvedFindings(**RUNS)).to_pylist() == [{"fingerprint": "ab", "raised_ns": 5}]
    assert reader.read(UnresolvedFindings(run_ids=("other",))).num_rows == 0


def test_actions_are_listed_newest_first_without_duplicates(filled: StoreReader) -> None:
    everything = ["reopen", "acknowledge", "end-silence", "silence", "note", "silence"]
    assert filled.read(FindingActions())["action"].to_pylist() == everything
    assert filled.read(FindingActions(limit=1))["action"].to_pylist() == everything[:1]
    assert filled.read(FindingActions(fingerprints=("cd",)))["action_id"].to_pylist() == ["2"]


def test_newest_decision_about_a_finding_replaces_an_older_silence(filled: StoreReader) -> None:
    def found(**conditions: Any) -> list[str]:
        return filled.read(FindingDecisions(**conditions))["action_id"].to_pylist()

    assert found() == ["6", "5", "4", "1"]
    assert found(limit=1) == ["6"]
    assert found(since_ns=40, lasting_ns=49) == ["1"]  # the silence until 99 was ended
    assert found(since_ns=40, lasting_ns=50) == []
    assert found(fingerprints=("cd", "ef")) == ["6", "5", "4"]
    (row,) = filled.read(FindingDecisions(fingerprints=("ab",))).to_pylist()
    assert row == {
        **RUN,
        "fingerprint": "ab",
        "raised_ns": 5,
        "at_ns": 20,
        "action_id": "1",
        "action": "silence",
        "who": "it's",
        "text": "\\",
        "until_ns": 50,
    }


def test_every_query_has_an_example_in_this_file() -> None:
    assert {type(query).__name__ for query in EVERY_QUERY} == set(QUERIES)


@pytest.mark.clickhouse
def test_both_engines_give_the_same_answers_before_and_after_replaced_rows_are_merged(
    embedded: Store, on_server: Store
) -> None:
    ours, theirs = (answers_before_and_after_merges(store) for store in (embedded, on_server))
    for query, our_answer, their_answer in zip(EVERY_QUERY, ours, theirs, strict=True):
        assert our_answer.schema.equals(their_answer.schema), type(query)
        assert our_answer.to_pylist() == their_answer.to_pylist(), type(query)
        assert our_answer.num_rows, type(query)


def answers_before_and_after_merges(store: Store) -> list[pa.Table]:
    """The answers to ``EVERY_QUERY``, which must be the same before and after replaced rows are merged."""
    execute = store._execute  # type: ignore[attr-defined]
    for table in REPLACING:
        execute(f"SYSTEM STOP MERGES {table}")
    _fill_replaced(store)
    fill(store)
    reader = StoreReader(store)
    before = [reader.read(query) for query in EVERY_QUERY]
    num_rows = {table: _count(store, table) for table in REPLACING}
    for table in REPLACING:
        execute(f"SYSTEM START MERGES {table}")
        execute(f"OPTIMIZE TABLE {table} FINAL")
    assert [table for table in REPLACING if _count(store, table) == num_rows[table]] == []
    after = [reader.read(query) for query in EVERY_QUERY]
    names = [type(query).__name__ for query in EVERY_QUERY]
    changed = [
        name
        for name, earlier, later in zip(names, before, after, strict=True)
        if earlier.to_pylist() != later.to_pylist()
    ]
    assert changed == []
    return after


def _fill_replaced(store: Store) -> None:
    old = {"started_ns": 2, "opened_ns": 2, "dp_size": 9, "pp_size": 9, "tp_size": 9, "meta": "old"}
    insert(store, "ranks", made("ranks", [{**old, "rank": rank, "host": "h9"} for rank in (0, 1)]), **RUN)
    beats = [{"rank": rank, "at_ns": 1, "beat_ns": 1, "ended": 2} for rank in (0, 1)]
    insert(store, "heartbeats", made("heartbeats", beats), **RUN)
    insert(store, "evidence", made("evidence", [{"rank": 1, "at_ns": 1, "kind": "log", "body": "old"}]), **RUN)


def _count(store: Store, table: str) -> int:
    return int(store.query(f"SELECT count() AS n FROM {table}")["n"][0].as_py())  # type: ignore[attr-defined]


def test_evidence_count_and_news_change_when_evidence_is_replaced(store: Store) -> None:
    """The clock of the second rank's host is behind. Its new evidence does not have the newest time."""
    reader, seen = StoreReader(store), []
    for rank, at_ns in ((0, 100), (1, 10), (1, 20), (1, 20)):
        row = {"rank": rank, "at_ns": at_ns, "kind": "state", "body": "x"}
        insert(store, "evidence", made("evidence", [row]), **RUN)
        seen.append((reader.read(EvidenceCount(**RUN)).to_pylist(), reader.read(News(**RUN)).to_pylist()))
    assert seen[0] != seen[1] != seen[2] == seen[3]


def test_host_samples_return_one_row_per_period_without_duplicates(filled: StoreReader) -> None:
    rows = filled.read(HostSamples(**RUN, period_ns=10)).to_pylist()
    place = {"metric": "nic-up", "host": "h0", "device": "eth0"}
    assert rows == [
        {**place, "at_ns": 18, "value": 0.0, "mean": 0.5, "highest": 1.0},
        {**place, "at_ns": 25, "value": 1.0, "mean": 1.0, "highest": 1.0},
    ]
    assert filled.read(HostSamples(**RUN, first_ns=19, period_ns=10)).num_rows == 1


def test_host_events_are_sorted_by_time_without_duplicates(filled: StoreReader) -> None:
    rows = filled.read(HostEvents(**RUN)).to_pylist()
    assert [(row["at_ns"], row["name"]) for row in rows] == [(3, "it's"), (18, "link-down"), (25, "link-up")]
    assert filled.read(HostEvents(**RUN, limit=1)).to_pylist() == rows[-1:]
    assert filled.read(HostEvents(**RUN, names=("link-up",), last_ns=24)).num_rows == 0


def test_host_event_counts_skip_duplicates_and_ports_that_were_already_down(store: Store) -> None:
    told = [
        (1, "link-down", "already down"), (2, "link-down", "no carrier"), (3, "link-down", "no carrier"),
        (3, "link-flaps", "12 times"), (4, "link-flaps", "many"), (5, "link-up", ""),
    ]  # fmt: skip
    rows = [{"host": "h0", "device": "eth0", "at_ns": at, "name": name, "text": text} for at, name, text in told]
    for _ in range(2):
        insert(store, "host_events", made("host_events", rows), **RUN)
    counts = StoreReader(store).read(HostEventCounts(**RUN, names=("link-down", "link-flaps"))).to_pylist()
    assert [(row["name"], row["events"], row["times"]) for row in counts] == [
        ("link-down", 2, 2),
        ("link-flaps", 2, 13),
    ]


@pytest.mark.parametrize("period_ns", [1, 20, 1_000_000_000])
def test_counter_reset_is_not_reported_as_a_decrease(store: Store, period_ns: int) -> None:
    looks = {"gpu0": ((10, 100.0), (20, 130.0), (30, 5.0), (40, 25.0)), "gpu1": ((15, 7.0), (20, 9.0))}
    rows = [
        {"host": "h0", "device": device, "metric": "gpu-throttle-power-ns", "at_ns": at_ns, "value": value}
        for device, told in looks.items()
        for at_ns, value in told
    ]
    for _ in range(2):
        insert(store, "host_samples", made("host_samples", rows), **RUN)
    asked = HostGrowth(**RUN, metrics=("gpu-throttle-power-ns",), period_ns=period_ns)
    place = {"host": "h0", "metric": "gpu-throttle-power-ns"}
    assert StoreReader(store).read(asked).to_pylist() == [{**place, "growth": 50.0, "lasted_ns": 30}]


def test_steps_of_a_rank_are_reduced_to_the_longest_step_of_each_column(filled: StoreReader) -> None:
    each = filled.read(RankSteps(**RUN, ranks=(1,))).to_pylist()
    assert [(row["step"], row["start_ns"], row["duration_ns"]) for row in each] == [
        (step, 1000 * (step + 1) + 1, 901) for step in range(4)
    ]
    pooled = filled.read(RankSteps(**RUN, ranks=(1,), column_steps=2)).to_pylist()
    assert [row["step"] for row in pooled] == [1, 3]


def test_clock_history_returns_the_widest_bound_of_each_column(store: Store) -> None:
    clock = dict.fromkeys(HOST_CLOCKS.names, 1) | {"host": "h1", "reference": "h0", "method": "ends", "reason": ""}
    rows = [
        {**clock, "first_step": first, "last_step": first + 9, "bound_ns": bound_ns}
        for first, bound_ns in ((0, 5), (10, -1), (20, -1), (30, -1), (40, 2))
    ]
    insert(store, "host_clocks", pa.Table.from_pylist(rows, schema=HOST_CLOCKS), **RUN)
    reader = StoreReader(store)
    assert column(reader.read(ClockHistory(**RUN, hosts=("h1",))), "bound_ns") == [5, -1, -1, -1, 2]
    assert column(reader.read(ClockHistory(**RUN, hosts=("h1",), column_steps=20)), "bound_ns") == [5, -1, 2]
    assert not reader.read(ClockHistory(**RUN, hosts=("h0",))).num_rows


def test_answers_have_their_documented_columns_when_nothing_is_stored(store: Store) -> None:
    for query in EVERY_QUERY:
        answer = StoreReader(store).read(query)
        assert answer.num_rows == 0
        documented = (type(query).__doc__ or "").replace("\n", " ")
        assert all(name in documented or "telemetry.tables" in documented for name in answer.column_names)


def test_every_query_parameter_is_a_field() -> None:
    for query in EVERY_QUERY:
        assert set(query.parameters()) == {field.name for field in fields(query)}  # type: ignore[arg-type]


def test_profile_request_that_an_agent_has_answered_is_not_open(filled: StoreReader) -> None:
    assert filled.read(OpenProfileRequests(since_ns=7)).to_pylist() == [
        {**RUN, "rank": 0, "profile_id": "it's", "steps": 5, "seconds": 60, "at_ns": 7}
    ]
    assert not filled.read(OpenProfileRequests(since_ns=8)).num_rows
