"""Every query, on both engines: the rows its docstring promises, with the same column types."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

from telemetry.stages import Stage
from telemetry.stores.interface import Query, Store, StoreReader
from telemetry.stores.queries import (
    QUERIES,
    AlertLooks,
    Alerts,
    ClockHistory,
    Evidence,
    EvidenceCount,
    Heartbeats,
    HeatCells,
    HighWater,
    HostClocks,
    InterruptedSteps,
    Lanes,
    LargestSamples,
    LastSteps,
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
)
from telemetry.stores.queries.hosts import HostEventCounts, HostEvents, HostGrowth, HostSamples
from telemetry.tables import HEARTBEATS, HOST_CLOCKS, PROFILE_REQUESTS, SPANS
from tests.telemetry.either_store import ENGINES, either_store
from tests.telemetry.made_rows import insert, made

STEP, FORWARD, BACKWARD = int(Stage.STEP), int(Stage.FORWARD_COMPUTE), int(Stage.BACKWARD_COMPUTE)
RUN: dict[str, Any] = {"run_id": 'it\'s "a" run; -- 100% \\', "attempt": 2}
RUNS: dict[str, Any] = {"run_ids": (RUN["run_id"], "nobody's")}
WINDOW: dict[str, Any] = {**RUN, "first_step": 1, "last_step": 2}
REPLACING = (
    *("ranks", "heartbeats", "evidence", "host_samples", "host_events", "host_clocks", "alerts"),
    *("profile_requests", "profile_states", "profile_parts"),
)
"""Tables in which merges drop rows that another replaced."""
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
    OperationColumns(**WINDOW, stages=(FORWARD, BACKWARD)),
    StageTotals(**WINDOW, stages=(FORWARD, BACKWARD)),
    RankStageStats(**WINDOW),
    RankStageMeans(**WINDOW),
    HeatCells(**WINDOW, stage=FORWARD, num_ranks=2, max_rows=1, max_columns=2),
    StageGroups(run_id="other", attempt=0, stage=STEP, first_step=9, last_step=9),
    StragglerScan(**WINDOW, stages=(FORWARD,)),
    StageCounts(**RUN),
    StageSteps(**WINDOW),
    Samples(**RUN, metrics=("loss", "it's")),
    SampleCurves(**RUN, metrics=("loss", "it's"), column_steps=2),
    Marks(**RUN),
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
)


def fill(store: Store) -> None:
    """Two ranks, steps 0 to 3; rank 1 works 10 times as long; another attempt that no answer may mix in."""
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
    texts = [
        (100, "state", "old"),
        (300, "state", "new 100%"),
        (300, "stack", "here"),
        (400, "stack", ""),
        (5, "log", "x"),
    ]
    for at_ns, kind, body in texts:
        row = {"rank": 1, "at_ns": at_ns, "kind": kind, "body": body}
        insert(store, "evidence", made("evidence", [row]), **RUN)
    for at_ns in (100, 200, 300):
        beat = {"beat_ns": at_ns, "step": at_ns, "alive": 1, "recorded": at_ns}
        beats = [{**beat, "rank": rank, "at_ns": at_ns + rank} for rank in (0, 1)]
        insert(store, "heartbeats", made("heartbeats", beats), **RUN)
    _fill_hosts(store)
    _fill_alerts(store)
    _fill_profiles(store)
    clock = dict.fromkeys(HOST_CLOCKS.names, 1) | {"host": "h1", "reference": "h0", "method": "it's", "reason": ""}
    for at_ns in (5, 9):
        clocks = [{**clock, "estimated_ns": at_ns, "offset_ns": -at_ns}]
        insert(store, "host_clocks", pa.Table.from_pylist(clocks, schema=HOST_CLOCKS), **RUN)


def _fill_alerts(store: Store) -> None:
    told = [
        ("ab", 5, 10, "pending", "first"),
        ("ab", 5, 20, "firing", "naïve; 'quoted' 100%"),
        ("ab", 1, 4, "resolved", "earlier"),
        ("cd", 6, 10, "pending", "was"),
        ("cd", 6, 30, "dropped", "was"),
        ("", 0, 7, "looked", ""),
        ("", 0, 9, "looked", ""),
    ]
    for fingerprint, began_ns, at_ns, phase, body in told:
        row = {"fingerprint": fingerprint, "began_ns": began_ns, "at_ns": at_ns, "phase": phase, "body": body}
        insert(store, "alerts", made("alerts", [row]), **RUN)


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
    """Each row twice, as an agent sends them whose first answer was lost."""
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
    """To ask only: who adds rows takes ``store``."""
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


def test_stored_runs_are_those_whose_ranks_are_known(filled: StoreReader) -> None:
    listed = filled.read(Runs()).to_pylist()
    stored = filled.read(StoredRuns()).to_pylist()
    known = [row for row in listed if row["num_ranks"]]
    assert [(row["run_id"], row["started_ns"], row["num_ranks"]) for row in stored] == [
        (row["run_id"], row["started_ns"], row["num_ranks"]) for row in known
    ]


def test_of_two_rows_about_a_rank_the_newest_counts(filled: StoreReader) -> None:
    ranks = filled.read(Ranks(**RUN))
    assert column(ranks, "rank") == [0, 1]
    assert column(ranks, "pid") == [10, 12]
    assert column(ranks, "started_ns") == [5, 8]


def test_a_step_lasts_for_the_mean_of_its_ranks_spans(filled: StoreReader) -> None:
    steps = filled.read(Steps(**RUN))
    assert column(steps, "step") == [0, 1, 2, 3]
    assert column(steps, "start_ns") == [1000, 2000, 3000, 4000]
    assert column(steps, "duration_ns") == [900.5] * 4
    assert column(steps, "num_ranks") == column(steps, "num_spans") == [2, 2, 2, 2]
    assert column(filled.read(Steps(**WINDOW)), "step") == [1, 2]


def test_spans_come_by_rank_and_time_with_the_columns_that_were_sent(filled: StoreReader) -> None:
    spans = filled.read(Spans(**WINDOW))
    assert spans.schema.equals(SPANS)
    assert spans.num_rows == 16
    order = list(zip(column(spans, "rank"), column(spans, "start_ns"), strict=True))
    assert order == sorted(order)


def test_spans_are_chosen_by_rank_stage_and_limit(filled: StoreReader) -> None:
    chosen = filled.read(Spans(**WINDOW, ranks=(1,), stages=(FORWARD, BACKWARD)))
    assert set(column(chosen, "rank")) == {1}
    assert set(column(chosen, "stage")) == {FORWARD, BACKWARD}
    assert filled.read(Spans(**WINDOW, limit=3)).num_rows == 3


def test_stage_totals_sum_a_step_and_say_where_processor_time_is_missing(filled: StoreReader) -> None:
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


def test_rank_stage_stats_are_over_the_steps_of_the_window(filled: StoreReader) -> None:
    stats = filled.read(RankStageStats(**{**RUN, "first_step": 0, "last_step": 2}, stages=(FORWARD,))).to_pylist()
    assert stats[1] == {
        "rank": 1, "stage": FORWARD, "steps": 3, "spans": 6, "median_ns": 40, "mean_ns": 40.0, "median_cpu_ns": 38,
    }  # fmt: skip
    backward = filled.read(RankStageStats(**WINDOW, stages=(BACKWARD,)))
    assert column(backward, "median_cpu_ns") == [-1, -1]


def test_stage_counts_name_the_stages_that_occur(filled: StoreReader) -> None:
    counts = filled.read(StageCounts(**RUN))
    assert column(counts, "stage") == [STEP, FORWARD, BACKWARD]
    assert column(counts, "spans") == [8, 16, 8]
    assert column(counts, "ranks") == [2, 2, 2]


def test_of_several_ranks_that_report_a_metric_the_highest_counts(filled: StoreReader) -> None:
    samples = filled.read(Samples(**RUN, metrics=("loss", "it's")))
    assert column(samples, "metric") == ["it's", "loss", "loss"]
    assert column(samples, "value") == [-0.25, 4.0, 3.5]
    assert column(samples, "rank") == [0, 1, 1]
    assert filled.read(Samples(**RUN)).num_rows == 4


def test_the_largest_value_of_a_metric_is_that_of_any_rank_and_step(filled: StoreReader) -> None:
    assert filled.read(LargestSamples(**RUN, metrics=("loss", "it's"))).to_pylist() == [
        {"metric": "it's", "value": -0.25},
        {"metric": "loss", "value": 5.0},
    ]


def test_samples_and_marks_are_of_the_steps_that_are_asked_for(filled: StoreReader) -> None:
    samples, marks = (column(filled.read(asked(**RUN)), "step") for asked in (Samples, Marks))
    assert len({*samples}) > 1 < len({*marks})
    for step in {*samples, *marks}:
        one = {"first_step": step, "last_step": step}
        assert column(filled.read(Samples(**RUN, **one)), "step") == [step] * samples.count(step)
        assert column(filled.read(Marks(**RUN, **one)), "step") == [step] * marks.count(step)


def test_marks_come_in_time_order_with_their_text_unharmed(filled: StoreReader) -> None:
    marks = filled.read(Marks(**RUN))
    assert column(marks, "name") == ["gc", "restart"]
    assert column(marks, "text") == ["", "naïve; \n'quoted' 100%"]
    assert column(filled.read(Marks(**RUN, limit=1)), "name") == ["restart"]


def test_the_newest_heartbeat_counts(filled: StoreReader) -> None:
    beats = filled.read(Heartbeats(**RUN))
    assert beats.schema.equals(HEARTBEATS)
    assert column(beats, "at_ns") == [300, 301]
    assert column(beats, "recorded") == [300, 300]


def test_the_newest_evidence_of_a_kind_counts_until_it_is_taken_back(filled: StoreReader) -> None:
    rows = filled.read(Evidence(**RUN)).to_pylist()
    assert rows == [
        {"rank": 1, "at_ns": 5, "kind": "log", "body": "x"},
        {"rank": 1, "at_ns": 300, "kind": "state", "body": "new 100%"},
    ]
    assert column(filled.read(Evidence(**RUN, kinds=("state",))), "kind") == ["state"]


def test_operations_come_by_stage_then_step_then_rank_in_order_of_time(filled: StoreReader) -> None:
    rows = filled.read(OperationColumns(**WINDOW, stages=(FORWARD, BACKWARD))).to_pylist()
    order = [(row["stage"], row["step"], row["rank"], row["start_ns"]) for row in rows]
    assert order == sorted(order)
    spans = filled.read(Spans(**WINDOW, stages=(FORWARD, BACKWARD))).to_pylist()
    assert sorted(row["duration_ns"] for row in rows) == sorted(row["duration_ns"] for row in spans)
    assert {row["stage"] for row in rows} == {FORWARD, BACKWARD}


def test_new_evidence_is_seen_without_reading_it(filled: StoreReader) -> None:
    assert filled.read(EvidenceCount(**RUN)).to_pylist() == [{"num_rows": 3, "newest_ns": 400, "stamps": 705}]
    assert not filled.read(EvidenceCount(run_id="nobody's", attempt=0)).num_rows


def test_one_question_tells_whether_anything_was_told_of_stalls_or_by_hosts(filled: StoreReader) -> None:
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


def test_the_last_steps_tell_how_far_each_rank_has_come(filled: StoreReader) -> None:
    assert filled.read(LastSteps(**RUN)).to_pylist() == [
        {"rank": 0, "step": 3, "end_ns": 4900},
        {"rank": 1, "step": 3, "end_ns": 4902},
    ]


def test_a_step_in_which_ranks_died_of_a_stall_is_no_step(filled: StoreReader) -> None:
    died = {"run_id": "other", "attempt": 0}
    assert filled.read(InterruptedSteps(**died)).to_pylist() == [{"step": 9, "mean_ns": 4.0}]
    assert filled.read(Steps(**died)).num_rows == 0
    assert filled.read(InterruptedSteps(**RUN)).num_rows == 0


@pytest.mark.parametrize("stage", [STEP, FORWARD])
@pytest.mark.parametrize("run", [RUN, {"run_id": "other", "attempt": 0}], ids=["trained", "died"])
def test_the_steps_of_earlier_attempts_are_those_of_each(filled: StoreReader, run: dict[str, Any], stage: int) -> None:
    of_attempt = filled.read(Steps(**run, stage=stage)).select(["step", "start_ns", "duration_ns"])
    attempt = run["attempt"]
    found = filled.read(RunStepTimes(run_id=run["run_id"], before_attempt=attempt + 1, stages=(stage,)))
    assert filled.read(RunStepTimes(run_id=run["run_id"], before_attempt=attempt, stages=(stage,))).num_rows == 0
    assert set(found["attempt"].to_pylist()) <= {attempt}
    assert found.select(["step", "start_ns", "duration_ns"]).to_pylist() == of_attempt.to_pylist()


def test_the_marks_of_earlier_attempts_are_those_of_each(filled: StoreReader) -> None:
    rows = filled.read(Marks(**RUN)).to_pylist()
    names = tuple({row["name"] for row in rows})
    assert names
    earlier = {"run_id": RUN["run_id"], "before_attempt": RUN["attempt"] + 1}
    found = filled.read(RunMarks(**earlier, names=names)).to_pylist()
    assert sorted((row["name"], row["at_ns"]) for row in found) == sorted((row["name"], row["at_ns"]) for row in rows)
    newest = filled.read(RunMarks(**earlier, names=names[:1], limit=1)).to_pylist()
    assert [row["at_ns"] for row in newest] == [max(row["at_ns"] for row in rows if row["name"] == names[0])]


def test_many_runs_are_told_of_in_a_row_an_attempt(filled: StoreReader) -> None:
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


def test_the_time_in_a_stage_is_a_mean_over_its_ranks(filled: StoreReader) -> None:
    """Rank 0 has 1 + 2 + 3 + 4 in two microbatches each, rank 1 ten times that."""
    assert filled.read(RunStageTimes(**RUNS, stage=FORWARD)).to_pylist() == [{**RUN, "mean_ns": (20 + 200) / 2}]
    (first, *_) = filled.read(Steps(**RUN, stage=FORWARD)).to_pylist()
    assert first == {"step": 0, "start_ns": 1010, "duration_ns": 5.5, "num_ranks": 2, "num_spans": 4}


def test_decisions_of_all_attempts_come_in_order_of_time_once_each(store: Store) -> None:
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


def test_a_run_goes_on_for_as_long_as_one_clock_says(store: Store) -> None:
    """Two attempts; the clock of b is 1000 ahead; c comes for d, and nobody says where rank 2 is."""
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


def test_ranks_that_are_gone_are_told_from_those_that_ended(store: Store) -> None:
    lives = [{"alive": 0, "ended": 1}, {"alive": 0, "ended": 2}, {"alive": 0, "ended": 0}, {"alive": 1, "ended": 0}]
    insert(store, "heartbeats", made("heartbeats", [{**life, "rank": rank} for rank, life in enumerate(lives)]), **RUN)
    (beats,) = StoreReader(store).read(RunBeats(**RUNS)).to_pylist()
    assert (beats["num_ranks"], beats["num_ended"], beats["num_gone"]) == (4, 1, 2)


def test_the_newest_row_of_an_alert_counts_and_one_that_was_dropped_does_not(filled: StoreReader) -> None:
    rows = filled.read(Alerts()).to_pylist()
    assert [(row["fingerprint"], row["began_ns"], row["phase"], row["body"]) for row in rows] == [
        ("ab", 5, "firing", "naïve; 'quoted' 100%"),
        ("ab", 1, "resolved", "earlier"),
    ]
    assert filled.read(Alerts(limit=1)).num_rows == 1
    assert filled.read(AlertLooks()).to_pylist() == [{**RUN, "at_ns": 9}]


def test_every_query_is_tried_here() -> None:
    assert {type(query).__name__ for query in EVERY_QUERY} == set(QUERIES)


@pytest.mark.clickhouse
def test_both_engines_give_the_same_answers(embedded: Store, on_server: Store) -> None:
    for store in (embedded, on_server):
        fill(store)
    for query in EVERY_QUERY:
        ours, theirs = StoreReader(embedded).read(query), StoreReader(on_server).read(query)
        assert ours.schema.equals(theirs.schema), type(query)
        assert ours.to_pylist() == theirs.to_pylist(), type(query)
        assert ours.num_rows, type(query)


def test_no_answer_depends_on_whether_replaced_rows_are_merged(store: Store) -> None:
    execute = store._execute  # type: ignore[attr-defined]
    for table in REPLACING:
        execute(f"SYSTEM STOP MERGES {table}")
    _fill_replaced(store)
    fill(store)
    reader = StoreReader(store)
    before = [reader.read(query).to_pylist() for query in EVERY_QUERY]
    num_rows = {table: _count(store, table) for table in REPLACING}
    for table in REPLACING:
        execute(f"SYSTEM START MERGES {table}")
        execute(f"OPTIMIZE TABLE {table} FINAL")
    assert [table for table in REPLACING if _count(store, table) == num_rows[table]] == []
    after = [reader.read(query).to_pylist() for query in EVERY_QUERY]
    names = [type(query).__name__ for query in EVERY_QUERY]
    assert [name for name, one, other in zip(names, before, after, strict=True) if one != other] == []


def _fill_replaced(store: Store) -> None:
    old = {"started_ns": 2, "opened_ns": 2, "dp_size": 9, "pp_size": 9, "tp_size": 9, "meta": "old"}
    insert(store, "ranks", made("ranks", [{**old, "rank": rank, "host": "h9"} for rank in (0, 1)]), **RUN)
    beats = [{"rank": rank, "at_ns": 1, "beat_ns": 1, "ended": 2} for rank in (0, 1)]
    insert(store, "heartbeats", made("heartbeats", beats), **RUN)
    insert(store, "evidence", made("evidence", [{"rank": 1, "at_ns": 1, "kind": "log", "body": "old"}]), **RUN)


def _count(store: Store, table: str) -> int:
    return int(store.query(f"SELECT count() AS n FROM {table}")["n"][0].as_py())  # type: ignore[attr-defined]


def test_evidence_that_replaces_older_evidence_is_seen(store: Store) -> None:
    """The clock of the second rank's host is behind: its new evidence is not the newest."""
    reader, seen = StoreReader(store), []
    for rank, at_ns in ((0, 100), (1, 10), (1, 20), (1, 20)):
        row = {"rank": rank, "at_ns": at_ns, "kind": "state", "body": "x"}
        insert(store, "evidence", made("evidence", [row]), **RUN)
        seen.append((reader.read(EvidenceCount(**RUN)).to_pylist(), reader.read(News(**RUN)).to_pylist()))
    assert seen[0] != seen[1] != seen[2] == seen[3]


def test_samples_of_a_host_come_one_a_period_however_often_they_were_sent(filled: StoreReader) -> None:
    rows = filled.read(HostSamples(**RUN, period_ns=10)).to_pylist()
    place = {"metric": "nic-up", "host": "h0", "device": "eth0"}
    assert rows == [
        {**place, "at_ns": 18, "value": 0.0, "mean": 0.5, "highest": 1.0},
        {**place, "at_ns": 25, "value": 1.0, "mean": 1.0, "highest": 1.0},
    ]
    assert filled.read(HostSamples(**RUN, first_ns=19, period_ns=10)).num_rows == 1


def test_events_of_hosts_come_in_order_of_time_once_each(filled: StoreReader) -> None:
    rows = filled.read(HostEvents(**RUN)).to_pylist()
    assert [(row["at_ns"], row["name"]) for row in rows] == [(3, "it's"), (18, "link-down"), (25, "link-up")]
    assert filled.read(HostEvents(**RUN, limit=1)).to_pylist() == rows[-1:]
    assert filled.read(HostEvents(**RUN, names=("link-up",), last_ns=24)).num_rows == 0


def test_events_are_counted_by_host_once_each_but_for_ports_that_nobody_saw_go(store: Store) -> None:
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
def test_a_counter_that_begins_anew_has_not_shrunk(store: Store, period_ns: int) -> None:
    looks = {"gpu0": ((10, 100.0), (20, 130.0), (30, 5.0), (40, 25.0)), "gpu1": ((15, 7.0),)}
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


def test_steps_of_a_rank_are_pooled_by_the_longest_of_each_column(filled: StoreReader) -> None:
    each = filled.read(RankSteps(**RUN, ranks=(1,))).to_pylist()
    assert [(row["step"], row["start_ns"], row["duration_ns"]) for row in each] == [
        (step, 1000 * (step + 1) + 1, 901) for step in range(4)
    ]
    pooled = filled.read(RankSteps(**RUN, ranks=(1,), column_steps=2)).to_pylist()
    assert [row["step"] for row in pooled] == [1, 3]


def test_the_widest_bound_of_a_column_stands_for_it(store: Store) -> None:
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


def test_answers_keep_their_columns_when_nothing_is_stored(store: Store) -> None:
    for query in EVERY_QUERY:
        answer = StoreReader(store).read(query)
        assert answer.num_rows == 0
        documented = (type(query).__doc__ or "").replace("\n", " ")
        assert all(name in documented or "telemetry.tables" in documented for name in answer.column_names)


def test_every_query_parameter_is_a_field() -> None:
    for query in EVERY_QUERY:
        assert set(query.parameters()) == {field.name for field in fields(query)}  # type: ignore[arg-type]


def test_a_request_that_an_agent_has_answered_is_not_open(filled: StoreReader) -> None:
    assert filled.read(OpenProfileRequests(since_ns=7)).to_pylist() == [
        {**RUN, "rank": 0, "profile_id": "it's", "steps": 5, "seconds": 60, "at_ns": 7}
    ]
    assert not filled.read(OpenProfileRequests(since_ns=8)).num_rows
