"""Open spans: the stages that ranks have entered and not ended, on the canvas and as text."""

import time
from dataclasses import replace

import pytest

from diagnose.model.host_clocks import Alignment
from diagnose.trace.export import Format
from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.dashboard.pages.timeline.test_spans_buffer import columns_of
from tests.ui.few_spans import made_spans
from tests.ui.made_hang import STEP, S, evidence_rows
from tests.ui.synthetic_run import MS, SyntheticRun
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.open_rows import with_open_rows
from ui.dashboard.pages.timeline.open_spans import OpenSpan
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.selection import OneClock, selection
from ui.dashboard.pages.timeline.trace_file import _written
from ui.dashboard.serving.drawing import draw_canvas
from ui.dashboard.timeline_view import TimelineView
from ui.dashboard.view_state import Group, SpanKey, StepRange, View, ViewState

STALLED = ViewState(view=View.TIMELINE, run="stalled", group=Group.ALL)
LIVE = ViewState(view=View.TIMELINE, run="live", group=Group.ALL)


@pytest.fixture(scope="module")
def stalled(store: EmbeddedStore) -> Reads:
    """A run that stalls in step 40: rank 5 does not leave its data loader."""
    run = SyntheticRun(run_id="stalled", slow={})
    run.introduce(store)
    run.advance(store, STEP)
    stopped_ns = run.advance_into_a_step(store, 400 * MS)
    run.leave_evidence(store, evidence_rows(stopped_ns + 34 * S, in_step_ns=400 * MS))
    now_s = time.time()
    return Reads(StoreReader(store), wall_s=lambda: now_s)


def picture(state: ViewState, reads: Reads) -> dict[str, object]:
    painted = draw_canvas("timeline", state, reads, None)
    assert painted is not None
    assert painted.data is not None
    return painted.data


def said(name: str, state: ViewState, reads: Reads) -> str:
    return " ".join(texts(written(PAGE.regions[name].draw(state, reads))))


def test_a_stalled_run_opens_on_its_unfinished_step_with_an_open_span_of_each_rank(stalled: Reads) -> None:
    data = picture(STALLED, stalled)
    columns, opened = columns_of(data), data["open"]
    assert isinstance(opened, list)
    assert data["step"] == STEP
    stages = {columns["row"][span["index"]]: STAGE_BY_CODE[columns["stage"][span["index"]]] for span in opened}
    assert stages == dict.fromkeys(range(8), Stage.FORWARD_RECV) | {5: Stage.DATA_LOAD}
    assert {span["lasts"] for span in opened} == {"for 34 s"}
    assert "waits for rank 5" in opened[4]["lines"]
    assert "Step 40, all ranks: not complete" in said("spans-title", STALLED, stalled)


def test_time_axis_fits_the_completed_spans_and_open_spans_reach_its_end(stalled: Reads) -> None:
    data = picture(STALLED, stalled)
    columns, opened, tick_ns = columns_of(data), data["open"], data["tick_ns"]
    assert isinstance(opened, list)
    assert isinstance(tick_ns, int)
    ends = [columns["start"][at] + columns["duration"][at] for at in range(len(columns["start"]))]
    is_open = {span["index"] for span in opened}
    assert {ends[at] for at in is_open} == {data["end"]}
    work_ns = max(end for at, end in enumerate(ends) if at not in is_open) * tick_ns
    assert 300 * MS < work_ns < 600 * MS
    assert work_ns < max(ends) * tick_ns < 1.5 * work_ns


def test_open_spans_are_also_listed_as_text_and_have_details(stalled: Reads) -> None:
    table = said("details", STALLED, stalled)
    assert "Step 40 is not complete" in table
    assert "▶ 5 data-load 34 s" in table
    assert "4 forward-recv 34 s 5" in table
    data = picture(STALLED, stalled)
    columns, opened, rows = columns_of(data), data["open"], data["rows"]
    assert isinstance(opened, list)
    assert isinstance(rows, list)
    seq = int(rows[4]["first_seq"]) + columns["seq"][opened[4]["index"]]
    details = said("details", replace(STALLED, span=SpanKey(4, seq)), stalled)
    assert "forward-recv , open" in details
    assert "tp-all-gather #41 of tp [4-5]" in details
    assert "waits for rank 5" in details


def test_a_completed_step_of_a_stalled_run_has_no_open_span(stalled: Reads) -> None:
    before = picture(replace(STALLED, step=STEP - 1), stalled)
    assert (before["step"], before["open"]) == (STEP - 1, [])
    assert "Shares of the step" in said("details", replace(STALLED, step=STEP - 1), stalled)


def test_unfinished_step_can_be_exported_and_shown_as_the_last_of_several_steps(
    stalled: Reads, store: EmbeddedStore
) -> None:
    state = replace(STALLED, step=STEP, steps=StepRange(STEP, STEP))
    assert _written(state, Format.JSON, StoreReader(store), stalled, with_profiles=False).status_code == 200
    three = replace(STALLED, timeline=TimelineView(num_steps=3))
    assert selection(three, stalled).steps == (STEP - 2, STEP)
    assert len(picture(three, stalled)["open"]) == 8  # type: ignore[arg-type]
    assert "Steps 38 to 40, all ranks: the last step is not complete" in said("spans-title", three, stalled)


def test_a_live_run_shows_the_stage_of_its_heartbeats_in_the_step_after_the_newest(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="live", slow={}, started_ns=time.time_ns() - 60 * S)
    run.introduce(store)
    run.advance(store, 12)
    run.advance_into_a_step(store, 300 * MS)
    run.advance_from(13)
    run.beat(store, at_ns=time.time_ns(), stage=Stage.BACKWARD_COMPUTE)
    reads = Reads(StoreReader(store))
    assert selection(LIVE, reads).step == 11
    opened = selection(replace(LIVE, step=12), reads).open_spans
    assert [(span.rank, span.stage) for span in opened] == [(rank, Stage.BACKWARD_COMPUTE) for rank in range(8)]
    assert picture(replace(LIVE, step=12), reads)["step"] == 12


def test_span_that_an_error_ended_hours_later_does_not_stretch_the_time_axis() -> None:
    hour_ns = 3600 * S
    spans = made_spans(
        (0, Stage.FORWARD_COMPUTE, 0, 1000 * MS),
        (0, Stage.TP_ALL_GATHER, 400 * MS, hour_ns),
        (0, Stage.OPTIMIZER, hour_ns + S, MS),
        (1, Stage.FORWARD_COMPUTE, 0, 500 * MS),
    )
    one_clock = OneClock(spans=spans, alignment=Alignment(num_hosts=1, bound_ns=0, unaligned=()))
    opened = OpenSpan(rank=0, step=0, stage=Stage.TP_ALL_GATHER, since_ns=400 * MS, seen_ns=60 * S)
    cut, rows = with_open_rows(one_clock, [opened], ("a", "a"))
    assert rows is not None
    assert rows.end_ns == 1200 * MS
    assert cut.spans.stage.tolist() == [Stage.FORWARD_COMPUTE, Stage.FORWARD_COMPUTE]
    assert (rows.rows.start_ns.tolist(), rows.rows.duration_ns.tolist()) == ([400 * MS], [800 * MS])


def test_open_span_that_began_hours_later_does_not_stretch_the_time_axis() -> None:
    spans = made_spans((0, Stage.FORWARD_COMPUTE, 0, 100 * MS), (1, Stage.FORWARD_COMPUTE, 0, 90 * MS))
    one_clock = OneClock(spans=spans, alignment=Alignment(num_hosts=1, bound_ns=0, unaligned=()))
    began_ns = (100 * MS, 3600 * S)
    opened = [
        OpenSpan(rank=rank, step=0, stage=Stage.OPTIMIZER, since_ns=since_ns, seen_ns=7200 * S)
        for rank, since_ns in enumerate(began_ns)
    ]
    _, rows = with_open_rows(one_clock, opened, ("a", "a"))
    assert rows is not None
    assert rows.end_ns == 120 * MS
    assert rows.rows.start_ns.tolist() == [100 * MS, 110 * MS]


def test_axis_of_a_step_without_records_begins_with_the_step() -> None:
    one_clock = OneClock(spans=made_spans(), alignment=Alignment(num_hosts=1, bound_ns=0, unaligned=()))
    opened = OpenSpan(rank=0, step=0, stage=Stage.OPTIMIZER, since_ns=900 * MS, step_since_ns=400 * MS, seen_ns=60 * S)
    _, rows = with_open_rows(one_clock, [opened], ("a",))
    assert rows is not None
    assert rows.rows.start_ns.tolist() == [900 * MS, 400 * MS]
    assert rows.end_ns == 1000 * MS


def test_open_span_of_a_lost_process_ends_with_the_process() -> None:
    spans = made_spans((0, Stage.FORWARD_COMPUTE, 0, 100 * MS))
    one_clock = OneClock(spans=spans, alignment=Alignment(num_hosts=1, bound_ns=0, unaligned=()))
    opened = OpenSpan(rank=0, step=0, stage=Stage.OPTIMIZER, since_ns=100 * MS, seen_ns=60 * S, ended_ns=105 * MS)
    _, rows = with_open_rows(one_clock, [opened], ("a",))
    assert rows is not None
    assert rows.rows.duration_ns.tolist() == [5 * MS]
    assert opened.lasts == "for 5 ms, then the process was lost"
