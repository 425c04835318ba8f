"""The queries that the dashboard sends, and their number."""

import io
from dataclasses import replace
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from diagnose.model.run_state import RunState, heard_of, states_of
from diagnose.pipeline import diagnose_run
from diagnose.report import report_object, report_text
from telemetry.errors import UnknownRunError
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, StoreReader
from telemetry.stores.queries import Runs, Steps
from telemetry.topology import Topology
from tests.benchmarks.many_runs import MadeRuns
from tests.ui.counting import Counting
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.data.chart_parts import MAX_SAMPLES
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.data.stage_times import PROCESSOR, WALL, pooled_times, stage_times
from ui.dashboard.figures.metrics import waited_for_ns
from ui.dashboard.pages.runs.listing import run_list
from ui.dashboard.pages.timeline.selection import num_left_out
from ui.dashboard.view_state import Clock, Metric, StepRange, ViewState

ALL = StepRange(0, 1000)
MADE = ViewState(run="made")


def test_facts_contain_grid_hosts_steps_and_stages(reads: Reads) -> None:
    facts = reads.facts(MADE)
    assert (facts.topology.dp, facts.topology.pp, facts.topology.tp) == (2, 2, 2)
    assert facts.hosts[5] == "gpu-03"
    assert facts.steps.step.tolist() == list(range(40))
    assert Stage.FORWARD_COMPUTE in facts.stages
    assert Stage.GC not in facts.stages
    assert facts.summary.state is RunState.ENDED


def test_compute_time_distinguishes_the_slow_rank_from_its_victim(reads: Reads) -> None:
    times = stage_times(reads, reads.facts(MADE), Stage.FORWARD_COMPUTE, Clock.OWN, ALL)
    median = np.nanmedian(times.ratio, axis=0)
    assert times.basis == PROCESSOR
    assert median[5] == pytest.approx(1.4, abs=0.05)
    assert np.delete(median, 5) == pytest.approx(1.0, abs=0.05)


def test_wall_time_is_also_high_for_the_victim_and_is_labelled_wall_time(reads: Reads) -> None:
    times = stage_times(reads, reads.facts(MADE), Stage.FORWARD_COMPUTE, Clock.WALL, ALL)
    median = np.nanmedian(times.ratio, axis=0)
    assert times.basis == WALL
    assert median[4] > 1.1


def test_last_rank_to_enter_a_collective_causes_the_longest_wait(reads: Reads) -> None:
    times = stage_times(reads, reads.facts(MADE), Stage.TP_ALL_GATHER, Clock.WALL, ALL, Metric.WAIT)
    waited_ns = np.median(waited_for_ns(times), axis=0)
    assert waited_ns.argmax() == 5
    assert waited_ns[5] == pytest.approx(np.median(times.ns[:, 4] - times.ns[:, 5]))
    assert np.delete(waited_ns, 5).max() < 0.1 * waited_ns[5]


def test_a_collective_has_no_compute_time(reads: Reads) -> None:
    times = stage_times(reads, reads.facts(MADE), Stage.TP_ALL_GATHER, Clock.OWN, ALL)
    assert times.basis == WALL


def test_compute_time_without_processor_time_leaves_collectives_out(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="no-cpu", with_cpu=False)
    run.introduce(store)
    run.advance(store, 10)
    reads = Reads(StoreReader(store))
    times = stage_times(reads, reads.facts(ViewState(run="no-cpu")), Stage.BACKWARD_COMPUTE, Clock.OWN, ALL)
    assert times.basis == "time without collectives"
    assert np.nanmedian(times.ratio, axis=0)[5] == pytest.approx(1.4, abs=0.05)


def test_repeated_view_sends_no_new_queries(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader = Counting(StoreReader(store))
    reads = Reads(reader, wall_s=lambda: 2e9)
    asked = []
    for _ in range(5):
        facts = reads.facts(MADE)
        reads.reports.of(facts.summary)
        reads.series(facts.summary)
        reads.spans(facts.summary, 7, (4, 6))
        stage_times(reads, facts, Stage.OPTIMIZER, Clock.WALL, ALL)
        asked.append(dict(reader.asked))
    assert asked[0]["Runs"] == 1
    assert asked[0]["Spans"] == 2  # the spans of a step, and one for the clock of its compute stages
    assert asked[-1] == asked[0]


def test_new_steps_are_read_after_one_second(store: EmbeddedStore) -> None:
    now_s = [2e9]
    reads = Reads(StoreReader(store), wall_s=lambda: now_s[0])
    run = SyntheticRun(run_id="growing")
    run.introduce(store)
    run.advance(store, 3)
    assert len(reads.facts(ViewState(run="growing")).steps.step) == 3
    run.advance(store, 2)
    now_s[0] += 1.0
    assert len(reads.facts(ViewState(run="growing")).steps.step) == 5


@pytest.mark.parametrize(
    ("ended", "stalled", "age_s", "state"),
    [
        (False, False, 5, "live"),
        (False, False, 60, "not-shipping"),
        (False, True, 5, "stalled"),
        (False, True, 60, "stalled"),
        (True, True, 5, "ended"),
    ],
)
def test_page_list_command_and_report_agree_on_the_state_of_a_run(
    store: EmbeddedStore, ended: bool, stalled: bool, age_s: int, state: str
) -> None:
    """A rank that stalls between steps may open spans. Then its heartbeats continue."""
    run = SyntheticRun(run_id=f"state-{state}-{age_s}")
    run.introduce(store)
    run.advance(store, 1)
    if stalled:
        run.leave_evidence(store, [{"rank": 0, "at_ns": run.now_ns + 10**9, "kind": "state", "body": "{}"}])
    beat_ns = run.now_ns + 2 * 10**9
    run.beat(store, at_ns=beat_ns, ended=ended)
    reads = Reads(StoreReader(store), wall_s=lambda: beat_ns / 1e9 + age_s)
    reader, now_ns = StoreReader(store), beat_ns + age_s * 10**9
    rows = reader.read(Runs(run_ids=(run.run_id,))).to_pylist()
    report = replace(diagnose_run(reader, run.run_id, 0), heard=heard_of(reader, run.run_id, 0, now_ns))
    assert {
        "page": reads.newest(ViewState(run=run.run_id)).state,
        "list": next(str(row.state) for row in run_list(reads, run.run_id).rows),
        "command": states_of(reader, rows, now_ns)[run.run_id, 0].state,
        "report": report_object(report)["state"],
    } == dict.fromkeys(("page", "list", "command", "report"), state)
    printed = io.StringIO()
    Console(file=printed, width=200).print(report_text(report))
    is_silent = age_s > 20 and not ended
    assert ("not shipping: no heartbeat since" in printed.getvalue()) == is_silent


def test_unknown_run_or_attempt_raises_an_error_with_a_short_printable_message(reads: Reads) -> None:
    with pytest.raises(UnknownRunError, match="No run is called nope"):
        reads.facts(ViewState(run="nope"))
    for name in ("n" * 3000, "a\x1b[2J\u202eb", "/etc/passwd"):
        with pytest.raises(UnknownRunError, match="No run is called") as unknown:
            reads.facts(parse_search(f"?view=overview&{urlencode({'run': name})}").state)
        assert unknown.value.message.isprintable()
        assert len(unknown.value.message) < 120
    with pytest.raises(UnknownRunError, match="no attempt 3"):
        reads.facts(ViewState(run="made", attempt=3))
    with pytest.raises(UnknownRunError, match="No run has attempt 3"):
        reads.facts(ViewState(attempt=3))


def test_store_pools_a_large_run_in_the_same_way_as_the_heat_map_pools_a_small_run(
    store: EmbeddedStore, run: SyntheticRun
) -> None:
    reader = Counting(StoreReader(store))
    small, large = Reads(reader), Reads(reader, settings=ReadSettings(max_cells=80))
    facts = small.facts(MADE)
    for clock, stage in ((Clock.WALL, Stage.TP_ALL_GATHER), (Clock.OWN, Stage.OPTIMIZER)):
        times = stage_times(large, facts, stage, clock, ALL)
        by_step = stage_times(small, facts, stage, clock, ALL)
        assert times.num_steps == 40
        assert times.ns == pytest.approx(by_step.ns.mean(axis=0, keepdims=True))
        assert times.basis == by_step.basis
        for metric in Metric:
            asked = [(one, stage_times(one, facts, stage, clock, ALL, metric)) for one in (small, large)]
            whole, pooled = (pooled_times(one, facts, found, metric, ALL) for one, found in asked)
            assert pooled.ns == pytest.approx(whole.ns, nan_ok=True)
            assert pooled.ratio == pytest.approx(whole.ratio, nan_ok=True)
            assert pooled.worst.tolist() == whole.worst.tolist()
            assert pooled.steps.tolist() == whole.steps.tolist() == list(range(40))
            assert pooled.step_ns == pytest.approx(whole.step_ns)
            order = np.array([5, 2, 7])
            rows, of_store = (pooled_times(one, facts, found, metric, ALL, order) for one, found in asked)
            assert of_store.ranks.tolist() == rows.ranks.tolist() == [5, 2, 7]
            assert of_store.worst.tolist() == rows.worst.tolist()
            assert of_store.ns == pytest.approx(rows.ns, nan_ok=True)
            assert of_store.ratio == pytest.approx(rows.ratio, nan_ok=True)
        assert times.step_ns == pytest.approx(by_step.step_ns.mean())
    assert reader.asked["HeatCells"] == 12
    assert stage_times(large, facts, Stage.OPTIMIZER, Clock.WALL, StepRange(3, 9)).num_steps == 1


def test_large_heat_map_loads_no_operations(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader = Counting(StoreReader(store))
    of_large_run = ReadSettings(max_own_operations=100, rank_steps_at_once=0)
    small, large = Reads(reader), Reads(reader, settings=of_large_run)
    facts = small.facts(MADE)
    loaded = reader.asked["OperationColumns"]
    stage_times(large, facts, Stage.FORWARD_COMPUTE, Clock.OWN, ALL)
    assert reader.asked["OperationColumns"] == loaded
    stage_times(small, facts, Stage.FORWARD_COMPUTE, Clock.OWN, ALL)
    assert reader.asked["OperationColumns"] > loaded


def test_full_lane_reads_only_its_longest_spans_and_counts_the_others(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader = Counting(StoreReader(store))
    whole, cut = Reads(reader), Reads(reader, settings=ReadSettings(max_lane=2))
    summary = whole.newest(MADE)
    everything, longest = (reads.spans(summary, 7, (4, 6)) for reads in (whole, cut))
    assert num_left_out(whole, summary, 7, (4, 6)) == 0
    assert "Lanes" not in reader.asked
    assert num_left_out(cut, summary, 7, (4, 6)) == len(everything) - len(longest) > 0


def test_queries_shared_by_pages_and_detectors_are_sent_once(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader = Counting(StoreReader(store))
    reads = Reads(reader, wall_s=lambda: 2e9)
    report = reads.reports.of(reads.facts(MADE).summary)
    assert report is not None
    assert report.findings
    assert (reader.asked["Steps"], reader.asked["Ranks"], reader.asked["Heartbeats"]) == (1, 1, 1)


def test_only_new_steps_of_a_live_run_are_read(store: EmbeddedStore) -> None:
    now_s, asked = [2e9], []

    class Listening(Counting):
        def read(self, query: Query) -> pa.Table:
            if isinstance(query, Steps):
                asked.append(query.first_step)
            return super().read(query)

    reads = Reads(Listening(StoreReader(store)), wall_s=lambda: now_s[0])
    run = SyntheticRun(run_id="grows")
    run.introduce(store)
    for steps in (3, 2, 4):
        run.advance(store, steps)
        found = reads.facts(ViewState(run="grows")).steps
        now_s[0] += 1.0
    assert asked == [0, 3, 5]
    assert found.step.tolist() == list(range(9))
    truth = Reads(StoreReader(store)).facts(ViewState(run="grows")).steps
    assert found.duration_ns.tolist() == truth.duration_ns.tolist()


def test_step_that_a_rank_has_not_ended_is_read_again(store: EmbeddedStore) -> None:
    now_s, run, state = [2e9], SyntheticRun(run_id="late"), ViewState(run="late")
    reads = Reads(StoreReader(store), wall_s=lambda: now_s[0])
    run.introduce(store)
    run.advance(store, 3, late=[5])
    before = reads.facts(state).steps
    run.advance(store, 1)
    now_s[0] += 1.0
    after, truth = reads.facts(state).steps, Reads(StoreReader(store)).facts(state).steps
    assert before.duration_ns.tolist() != truth.duration_ns[:3].tolist()
    assert after.duration_ns.tolist() == truth.duration_ns.tolist()


def test_memory_stays_bounded_while_a_live_run_is_viewed_step_by_step(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="live")
    run.introduce(store)
    run.advance(store, 30)
    reads, state = Reads(StoreReader(store), wall_s=lambda: run.now_ns / 1e9), ViewState(run="live")
    held = []
    for _ in range(8):
        run.advance(store, 1)
        facts = reads.facts(state)
        reads.series(facts.summary)
        reads.spans(facts.summary, 20, tuple(range(8)))
        held.append(reads.held_bytes)
    assert held[-1] < 1.5 * held[0]


def test_store_thins_the_curves_of_a_long_run(store: EmbeddedStore) -> None:
    MadeRuns(names=("long",), topology=Topology(), num_steps=20_000).store(store)
    reads = Reads(StoreReader(store))
    run = reads.facts(ViewState(run="long")).summary
    loss = reads.series(run)["loss"]
    assert 500 < len(loss.step) <= MAX_SAMPLES
    assert (loss.step[0], loss.step[-1]) == (0, 19_999)
    assert loss.value.max() == pytest.approx(2.525, abs=1e-4)
