"""The selection: all pages share it, and the address contains it."""

from dataclasses import replace

import pytest

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from tests.ui.made_hang import STEP, STUCK, S, evidence_rows
from tests.ui.reported_alerts import made_alert, tell, tell_look
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import leads_to
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.controls import after_brush
from ui.dashboard.pages.frame import OF_A_RUN, draw_navigation
from ui.dashboard.serving.drawing import draw_canvas, draw_chart, draw_page, draw_region
from ui.dashboard.view_state import (
    LARGEST,
    Area,
    Form,
    Group,
    Metric,
    RunOrder,
    SpanKey,
    StepRange,
    View,
    ViewState,
)

CHOSEN = ViewState(
    run="made",
    attempt=0,
    stage=Stage.BACKWARD_COMPUTE,
    form=Form.BODY,
    steps=StepRange(5, 30),
    step=12,
    group=Group.DP,
    rank=2,
    pins=(4, 6),
    host="gpu-02",
    order=RunOrder.NAME,
)


@pytest.fixture(scope="module")
def reads(reads_of_store: Reads) -> Reads:
    return reads_of_store


@pytest.fixture(scope="module")
def stuck(store: EmbeddedStore) -> str:
    """A run that hangs, with a report of a watcher."""
    run = SyntheticRun(run_id="stuck", slow={})
    run.introduce(store)
    run.advance(store, STEP + 1)
    run.leave_evidence(store, evidence_rows(run.now_ns + 35 * S))
    tell(store, made_alert("stuck", began_ns=run.now_ns), at_ns=run.now_ns)
    tell_look(store, "stuck", at_ns=run.now_ns)
    return run.run_id


def links_of(state: ViewState, reads: Reads) -> list[ViewState]:
    """The views of all links of a page, except those of the frame."""
    drawn = [draw_region(name, state, reads, by_clock=False) for name in PAGES[state.view].regions]
    return [view for region in drawn if region is not None for view in leads_to(region.make())]


@pytest.mark.parametrize("view", list(View))
@pytest.mark.parametrize("run_id", ["made", "stuck"])
def test_links_of_every_page_keep_the_selection(
    reads: Reads, stuck: str, run_id: str, view: View, caplog: pytest.LogCaptureFixture
) -> None:
    state = replace(CHOSEN, view=view, run=run_id)
    for there in links_of(state, reads):
        assert there.form is Form.BODY
        if there.run == state.run:
            assert (there.attempt, there.pins) == (0, state.pins)
            assert there.rank is not None
        elif there.run and view is not View.COMPARE:  # this page leads to the same rank of both runs
            assert there.clear() == there
    assert [record.getMessage() for record in caplog.records] == []


NOT_THERE: tuple[dict[str, object], ...] = (
    {"steps": StepRange(9_999, LARGEST)},
    {"step": 9_999, "host": "nowhere", "a": "none/9/steps=1-2"},
    {"rank": LARGEST, "b": "/"},
    {"pins": (LARGEST,), "group": Group.EP},
    {"span": SpanKey(LARGEST, 1), "area": Area(1, 2, 0, LARGEST)},
)
"""Selections that the run lacks. Those of one row do not hide each other: other parts of a page read them."""


@pytest.mark.parametrize("view", list(View))
def test_page_with_an_unknown_selection_is_drawn_without_a_logged_error(
    reads: Reads, run: SyntheticRun, caplog: pytest.LogCaptureFixture, view: View
) -> None:
    for changed in (*NOT_THERE, {name: value for row in NOT_THERE for name, value in row.items()}):
        state = replace(CHOSEN, view=view, **changed)  # type: ignore[arg-type]
        assert draw_page(state, reads).key.endswith("/page")
        links_of(state, reads)
        for name in PAGES[view].charts:
            draw_chart(name, state, reads, None)
        for name in PAGES[view].canvases:
            draw_canvas(name, state, reads, None)
        PAGES[view].freshness(state, reads)
    assert [record.getMessage() for record in caplog.records] == []


def test_every_tab_keeps_the_whole_selection_and_shows_it(reads: Reads) -> None:
    for view in OF_A_RUN:
        state = replace(CHOSEN, view=view)
        clears = [state.at_steps(None), state.at_step(None), state.at_rank(None)]
        clears += [replace(state, host=""), replace(state, pins=()), state.clear()]
        shown = [there for there in (*OF_A_RUN, View.ALERTS, View.FINDINGS_LOG) if there is not View.SQL]
        tabs = [replace(state, view=there) for there in shown]
        way = leads_to(written(draw_navigation(state, reads)))
        assert way == [replace(state, view=View.RUNS), *clears, *tabs]
    assert len(leads_to(written(draw_navigation(state.clear(), reads)))) == len(tabs) + 1, "nothing to clear"


def test_list_of_runs_links_to_the_same_run_with_the_selection_and_to_others_without_it(
    reads: Reads, stuck: str
) -> None:
    found = {there.run: there for there in links_of(replace(CHOSEN, view=View.RUNS), reads) if there.view != View.RUNS}
    assert found["made"] == replace(CHOSEN, view=View.OVERVIEW)
    other = found["stuck"]
    assert (other.steps, other.step, other.rank, other.pins, other.host) == (None, None, None, (), "")
    assert (other.stage, other.group) == (CHOSEN.stage, CHOSEN.group)
    first = next(iter(leads_to(written(draw_navigation(replace(CHOSEN, view=View.RUNS), reads)))))
    assert first == replace(CHOSEN, view=View.RUNS)


def test_link_to_a_hang_selects_the_rank_that_is_behind_its_stage_and_nearby_steps(reads: Reads, stuck: str) -> None:
    state = replace(CHOSEN, view=View.OVERVIEW, run=stuck, metric=Metric.WAIT)
    there = next(view for view in links_of(state, reads) if view.view is View.HANG)
    around = StepRange.around(STEP)
    assert (there.rank, there.steps, there.stage) == (STUCK, around, Stage.DATA_LOAD)
    assert (there.metric, there.pins, there.group) == (Metric.RATIO, state.pins, state.group)


def test_link_of_an_alert_selects_its_run_steps_and_rank(reads: Reads, stuck: str) -> None:
    there = next(view for view in links_of(replace(CHOSEN, view=View.ALERTS, run=""), reads) if view.run == stuck)
    assert (there.attempt, there.steps, there.rank) == (0, StepRange(10, 39), 5)
    assert (there.stage, there.group, there.order) == (CHOSEN.stage, CHOSEN.group, CHOSEN.order)


def test_drag_selects_steps_and_curves_shade_them(reads: Reads) -> None:
    state = after_brush(CHOSEN, 10.7, 19.6)
    assert state == replace(CHOSEN, steps=StepRange(11, 20))
    assert after_brush(CHOSEN, 15, 19.2).step is None, "the step is not among them"
    assert after_brush(CHOSEN, -7, 1e300).steps == StepRange(0, LARGEST - 1)
    assert after_brush(CHOSEN, None, 3) == CHOSEN
    for steps, ends in ((StepRange(11, LARGEST), [(11, 39)]), (StepRange(400, 500), [])):
        drawn = PAGES[View.OVERVIEW].charts["loss"].draw(replace(CHOSEN, steps=steps), reads)
        assert drawn is not None
        assert [(shape.x0, shape.x1) for shape in drawn.layout.shapes if shape.type == "rect"] == ends
