"""The list of runs: its contents, and that many runs need no more queries than a few."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from plotly.utils import PlotlyJSONEncoder

from diagnose.alerts.alert import Phase
from diagnose.model.run_state import RunState
from diagnose.run_list import runs_object
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, Reader, StoreReader
from telemetry.stores.queries import RunRates, Runs, RunStageTimes, RunSteps, RunWallTimes
from telemetry.tables import ENDED_FAILED
from telemetry.topology import Topology
from tests.benchmarks.many_runs import MadeRuns
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.counting import Counting
from tests.ui.remembering import Remembering
from tests.ui.reported_alerts import made_alert, tell, tell_look
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.data.run_rows import RunRow
from ui.dashboard.pages.runs.listing import MOST_COMPARED, MOST_ROWS, run_list
from ui.dashboard.pages.runs.page import draw_runs
from ui.dashboard.view_state import RunOrder, ViewState

S = 1_000_000_000
MANY = MOST_COMPARED + MOST_ROWS + 50
"""More runs than the list compares."""


def small(run_id: str, *, attempt: int = 0, started_s: int = 0) -> SyntheticRun:
    started_ns = 1_790_000_000 * S + started_s * S
    return SyntheticRun(run_id=run_id, attempt=attempt, topology=Topology(dp=2), slow={}, started_ns=started_ns)


def reads_at(store: EmbeddedStore, run: SyntheticRun, later_s: float = 5) -> Reads:
    return Reads(StoreReader(store), wall_s=lambda: run.now_ns / 1e9 + later_s)


def listed(reads: Reads) -> dict[str, RunRow]:
    return {row.run_id: row for row in run_list(reads).rows}


def text_of(state: ViewState, reads: Reads) -> str:
    return json.dumps(draw_runs(state, reads), cls=PlotlyJSONEncoder, ensure_ascii=False)


def test_row_of_a_run_contains_grid_step_time_mfu_and_goodput(embedded: EmbeddedStore) -> None:
    run = small("one")
    run.introduce(embedded)
    run.advance(embedded, 60)
    row = listed(reads_at(embedded, run))["one"]
    assert row.topology == Topology(dp=2)
    assert (row.num_ranks, row.last_step, row.state) == (2, 59, RunState.LIVE)
    assert row.step_time is not None
    assert row.mfu is not None
    assert (row.step_time.first_step, row.step_time.last_step) == (row.mfu.first_step, row.mfu.last_step) == (50, 59)
    assert row.mfu.mean == pytest.approx(0.21 / (row.step_time.mean / 1e9), rel=0.05)
    assert row.goodput == pytest.approx(60 * row.step_time.mean / (row.heard_ns - row.started_ns), rel=0.02)


def test_attempts_share_one_row_and_lost_work_does_not_count_as_goodput(embedded: EmbeddedStore) -> None:
    first, second = small("twice"), small("twice", attempt=1, started_s=100)
    for run in (first, second):
        run.introduce(embedded)
        run.advance(embedded, 10)
    row = listed(reads_at(embedded, second))["twice"]
    assert (row.attempt, row.num_attempts) == (1, 2)
    assert row.step_time is not None
    assert row.goodput == pytest.approx(10 * row.step_time.mean / (row.heard_ns - first.started_ns), rel=0.02)
    said = text_of(ViewState(), reads_at(embedded, second))
    assert "2 attempts" in said
    assert "view=overview&run=twice&attempt=1" in said


def test_clock_offsets_between_hosts_do_not_change_goodput(embedded: EmbeddedStore) -> None:
    store_simulated(embedded, "one clock")
    store_simulated(embedded, "clocks apart", clock_offset_ms=5000)
    rows = listed(Reads(StoreReader(embedded)))
    assert rows["one clock"].goodput == pytest.approx(1, abs=0.01)
    assert rows["clocks apart"].goodput == pytest.approx(rows["one clock"].goodput)


def test_goodput_counts_the_time_between_attempts_on_different_hosts_as_lost(embedded: EmbeddedStore) -> None:
    first, second = small("moved"), small("moved", attempt=1, started_s=100)
    second.host = lambda rank: f"other-{rank}"  # type: ignore[method-assign]
    for run in (first, second):
        run.introduce(embedded)
        run.advance(embedded, 10)
    row = listed(reads_at(embedded, second))["moved"]
    assert row.step_time is not None
    assert row.goodput == pytest.approx(10 * row.step_time.mean / (row.heard_ns - first.started_ns), rel=0.02)


def test_run_state_is_died_when_a_rank_ended_with_an_error(embedded: EmbeddedStore) -> None:
    run = small("broken")
    run.introduce(embedded)
    run.advance(embedded, 3)
    beats = [{"rank": rank, "at_ns": run.now_ns, "ended": ended} for rank, ended in ((0, 1), (1, ENDED_FAILED))]
    insert(embedded, "heartbeats", made("heartbeats", beats), run_id="broken")
    reads = reads_at(embedded, run)
    assert listed(reads)["broken"].state is RunState.DIED
    assert reads.newest(ViewState(run="broken")).state is RunState.DIED


def test_run_state_is_stalled_until_the_evidence_after_the_newest_step_is_withdrawn(embedded: EmbeddedStore) -> None:
    run = small("stuck")
    run.introduce(embedded)
    run.advance(embedded, 3)
    for body, state in (("{}", RunState.STALLED), ("", RunState.LIVE)):
        at_ns = run.now_ns + S + (body == "")
        run.leave_evidence(embedded, [{"rank": 0, "at_ns": at_ns, "kind": "state", "body": body}])
        reads = reads_at(embedded, run)
        assert listed(reads)["stuck"].state is state
        assert reads.newest(ViewState(run="stuck")).state is state


def test_findings_come_from_the_watcher_or_from_a_report_and_otherwise_are_not_analysed(
    embedded: EmbeddedStore,
) -> None:
    runs = {name: small(name) for name in ("alert", "watched", "unseen")}
    slow = SyntheticRun(run_id="seen")
    for run in (*runs.values(), slow):
        run.introduce(embedded)
        run.advance(embedded, 20)
    now_ns = slow.now_ns
    tell(embedded, made_alert("alert", began_ns=now_ns), at_ns=now_ns)
    tell_look(embedded, "alert", at_ns=now_ns)
    tell_look(embedded, "watched", at_ns=now_ns)
    reads = reads_at(embedded, slow)
    reads.reports.of(reads.newest(ViewState(run="seen")))
    rows = listed(reads)
    found = {name: row.findings for name, row in rows.items()}
    assert found["unseen"] is None
    assert found["watched"] is not None
    assert found["watched"].count == 0
    assert found["alert"] is not None
    assert found["alert"].worst == "slow rank: rank 5, gpu-03"
    assert found["seen"] is not None
    assert found["seen"].worst == "slow rank: rank 5, gpu-03"
    assert "not analysed" in text_of(ViewState(), reads)


def test_a_run_that_is_over_shows_the_findings_of_its_end_although_no_alert_is_open(embedded: EmbeddedStore) -> None:
    seen, told, old = (SyntheticRun(run_id=name) for name in ("seen", "told", "old"))
    for run in (seen, told, old):
        run.introduce(embedded)
        run.advance(embedded, 20)
        run.beat(embedded, at_ns=run.now_ns, ended=True)
        tell_look(embedded, run.run_id, at_ns=run.now_ns)
    for run, later_s in ((told, 3), (old, -3)):
        closed = made_alert(run.run_id, began_ns=run.now_ns - 9 * S, phase=Phase.RESOLVED)
        tell(embedded, replace(closed, changed_ns=run.now_ns + later_s * S), at_ns=run.now_ns + 5 * S)
    reads = reads_at(embedded, seen)
    reads.reports.of(reads.newest(ViewState(run="seen")))
    found = {name: row.findings for name, row in listed(reads).items()}
    for name in ("seen", "told"):
        assert found[name] is not None
        assert (found[name].count, found[name].worst, found[name].at_end) == (1, "slow rank: rank 5, gpu-03", True)
    assert found["old"] is not None
    assert found["old"].count == 0
    assert text_of(ViewState(), reads).count("at the end") == 2


def store_runs(store: EmbeddedStore, number: int) -> None:
    MadeRuns(names=tuple(f"Run-{one:04d}" for one in range(number)), topology=Topology(), num_steps=1).store(store)


@pytest.fixture(scope="module")
def hundreds() -> Iterator[Reader]:
    with memory_store() as store:
        store_runs(store, MANY)
        yield Remembering(StoreReader(store))


def asked_of(stored: Reader, number: int, order: RunOrder = RunOrder.TROUBLE) -> list[Query]:
    """The queries of the list of ``number`` stored runs."""
    reader = Counting(stored)
    listed = run_list(Reads(reader), "", order)
    assert (listed.num_stored, len(listed.rows)) == (number, min(number, MOST_ROWS))
    return reader.queries


def test_list_of_hundreds_of_runs_needs_no_more_queries_than_a_list_of_five(
    embedded: EmbeddedStore, hundreds: Reader
) -> None:
    store_runs(embedded, 5)
    assert len(asked_of(hundreds, MANY)) <= len(asked_of(StoreReader(embedded), 5)) <= 15


def test_command_that_lists_all_runs_sends_one_query_of_each_kind(hundreds: Reader) -> None:
    reader = Counting(hundreds)
    assert runs_object(reader)["num_runs"] == MANY
    kinds = [type(query) for query in reader.queries]
    assert len(kinds) == len(set(kinds))


def test_all_runs_are_listed_like_some_runs_and_only_if_a_rank_is_known(embedded: EmbeddedStore) -> None:
    store_runs(embedded, 3)
    insert(embedded, "spans", made("spans", [{"stage": int(Stage.STEP)}]), run_id="no-rank")
    reader = StoreReader(embedded)
    assert runs_object(reader) == runs_object(reader, 4)
    assert runs_object(reader)["num_runs"] == 3


def test_steps_are_read_only_for_runs_that_may_be_shown(hundreds: Reader) -> None:
    for order in RunOrder:
        by_step = (Runs, RunSteps, RunRates, RunStageTimes, RunWallTimes)
        named = [query.run_ids for query in asked_of(hundreds, MANY, order) if isinstance(query, by_step)]
        assert all(named)
        assert len({name for names in named for name in names}) <= MOST_COMPARED + MOST_ROWS


def test_list_of_many_runs_is_cut_and_can_be_searched_by_name(hundreds: Reader) -> None:
    reads = Reads(hundreds)
    everything, one = text_of(ViewState(), reads), text_of(ViewState(find="run-0119"), reads)
    assert everything.count("run-link") == MOST_ROWS
    assert f"the first {MOST_ROWS} are shown" in everything
    assert f"Only the {MOST_COMPARED} runs with the newest data are compared" in everything
    assert "with the newest data" not in text_of(ViewState(order=RunOrder.NAME), reads)
    assert one.count("run-link") == 1
    assert "No run has" in text_of(ViewState(find="nobody"), reads)


def test_link_in_a_column_head_changes_the_order_and_keeps_the_search(embedded: EmbeddedStore) -> None:
    small("one").introduce(embedded)
    said = text_of(ViewState(find="on", order=RunOrder.MFU), Reads(StoreReader(embedded)))
    assert "?view=runs&find=on&order=goodput" in said
    assert said.count('"aria-sort"') == 1
