"""Every part of every page, on runs of several shapes, without a browser."""

import json
from dataclasses import replace

import pytest

from diagnose.model.exposed import AXIS_OF_STREAM, stages_of_axis
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.counting import Counting
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.defaults import chosen_stage
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.controls import after_click, after_controls
from ui.dashboard.pages.heat_map.page import control_values
from ui.dashboard.serving.drawing import draw_canvas, draw_chart, draw_page, draw_region, in_place, mark_canvas
from ui.dashboard.serving.live import freshness
from ui.dashboard.view_state import Area, Colour, Group, Metric, SpanKey, StepRange, TimeRange, View, ViewState

SHAPES = {
    "one-rank": Topology(),
    "pipeline": Topology(pp=4),
    "grid": Topology(dp=2, pp=2, tp=2),
}


def text_of(state: ViewState, reads: Reads, region: str) -> str:
    drawn = draw_region(region, state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


@pytest.fixture(scope="module", params=list(SHAPES))
def shape(request: pytest.FixtureRequest, store: EmbeddedStore) -> str:
    run = SyntheticRun(run_id=request.param, topology=SHAPES[request.param], slow={})
    run.introduce(store)
    run.advance(store, 12)
    return str(request.param)


@pytest.mark.parametrize("view", list(View))
def test_every_part_of_a_page_is_drawn(store: EmbeddedStore, shape: str, view: View) -> None:
    reads, state = Reads(StoreReader(store)), ViewState(view=view, run=shape)
    assert draw_page(state, reads).key.endswith("/page")
    for name in PAGES[view].regions:
        assert "could not be drawn" not in text_of(state, reads, name)
    for name in PAGES[view].charts:
        plotted = draw_chart(name, state, reads, None)
        assert plotted is not None
        if view not in (View.WHATIF, View.COMPARE):  # what is not slow is not taken apart; A may be another run or none
            assert plotted.panel == ("panel hidden" if view in (View.HANG, View.ABLATION) else "panel")
    for name in PAGES[view].canvases:
        painted = draw_canvas(name, state, reads, None)
        assert painted is not None
        assert painted.panel == "panel"
        assert painted.data is not None


@pytest.mark.parametrize("view", list(View))
def test_what_is_stored_comes_back_from_a_browser_as_it_went(reads: Reads, view: View) -> None:
    """Else a page is drawn anew every two seconds: JavaScript rounds integers beyond 2**53, so all are texts."""
    seen = freshness(ViewState(view=view, run="made"), reads)[0]
    assert seen
    assert all(isinstance(one, str) for one in seen)


@pytest.mark.parametrize("metric", list(Metric))
def test_the_heat_map_draws_or_explains_any_stage(reads: Reads, metric: Metric) -> None:
    facts = reads.facts(ViewState(run="made"))
    absent = {(stage.stage_class, stage.stream): stage for stage in Stage if stage not in facts.stages}
    for stage in (*facts.stages, *absent.values()):
        state = ViewState(view=View.HEAT_MAP, run="made", stage=stage, metric=metric)
        assert "could not be drawn" not in text_of(state, reads, "heat-says"), stage
        plotted = draw_chart("cells", state, reads, None)
        assert plotted is not None
        chosen = chosen_stage(state, facts)
        of_axis = stages_of_axis(AXIS_OF_STREAM.get(chosen.stream, "")) if metric is Metric.EXPOSED else (chosen,)
        assert (plotted.panel == "panel") is any(one in facts.stages for one in of_axis), stage


def test_waiting_is_shown_of_a_stage_in_which_ranks_meet_and_what_held_them_up_is_not_said_to_be_theirs(
    reads: Reads,
) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made", metric=Metric.WAIT)
    said = text_of(state, reads, "heat-says")
    assert "grads-reduce-scatter: the other ranks wait " in said
    assert "see the grid" in said
    assert control_values(state, reads)["stage"] == "grads-reduce-scatter"
    tensor = text_of(replace(state, stage=Stage.TP_ALL_GATHER), reads, "heat-says")
    assert "for rank 5 (host gpu-03, dp1 pp0 tp1)" in tensor
    assert after_controls(state, {"stage": "optimizer"}).metric is Metric.RATIO
    assert after_controls(state, {"stage": "tp-all-gather"}).metric is Metric.WAIT


def test_where_nobody_meets_nobody_is_said_to_be_waited_for(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="alone", topology=Topology(pp=2), slow={})
    run.introduce(store)
    run.advance(store, 3)
    state, reads = ViewState(view=View.HEAT_MAP, run="alone", metric=Metric.WAIT), Reads(StoreReader(store))
    assert "No waiting time for this stage" in text_of(state, reads, "heat-says")
    for name, shown in (("cells", state), ("grid", replace(state, view=View.GRID, colour=Colour.METRIC))):
        plotted = draw_chart(name, shown, reads, None)
        assert plotted is not None
        assert plotted.panel != "panel"


def test_the_overview_leads_with_the_worst_finding(reads: Reads) -> None:
    said = text_of(ViewState(view=View.OVERVIEW, run="made"), reads, "verdict")
    assert "rank 5 (host gpu-03, dp1 pp0 tp1)" in said
    assert "view=heatmap" in said
    assert "view=timeline" in said


def test_a_healthy_run_says_that_nothing_was_found(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="healthy", slow={})
    run.introduce(store)
    run.advance(store, 30)
    said = text_of(ViewState(view=View.OVERVIEW, run="healthy"), Reads(StoreReader(store)), "verdict")
    assert "No finding" in said


def test_the_timeline_opens_on_the_suspects_pipeline(reads: Reads) -> None:
    said = text_of(ViewState(view=View.TIMELINE, run="made"), reads, "spans-title")
    assert "pipeline group of rank 5" in said
    assert "group=pp&rank=5" in said


def test_a_group_too_large_shows_its_neighbourhood_and_says_so(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="wide", topology=Topology(dp=100), slow={})
    run.introduce(store)
    run.advance(store, 1)
    state = ViewState(view=View.TIMELINE, run="wide", group=Group.ALL, rank=70)
    reads = Reads(StoreReader(store))
    said = text_of(state, reads, "spans-title")
    assert "Step 0, ranks 36-99" in said
    assert "36 ranks of the run not shown" in said
    painted = draw_canvas("timeline", state, reads, None)
    assert painted is not None
    assert painted.data is not None
    rows = painted.data["rows"]
    assert isinstance(rows, list)
    assert len(rows) == 64


def test_a_canvas_takes_its_spans_again_only_when_they_are_others(reads: Reads) -> None:
    state = ViewState(view=View.TIMELINE, run="made", step=20, rank=5)
    first = draw_canvas("timeline", state, reads, None)
    assert first is not None
    chosen = replace(state, span=SpanKey(5, 2**60), zoom=TimeRange(3, 9), pins=(5, 7), area=Area(1, 2, 5, 7))
    again = draw_canvas("timeline", chosen, reads, first.kind)
    assert again is not None
    assert (again.data, again.kind, again.panel) == (None, first.kind, "panel")
    assert again.selected == {"rank": 5, "seq": str(2**60)}
    assert (again.zoom, again.pinned, again.area) == ([3, 9], [5, 7], [1, 2, 5, 7])
    other = draw_canvas("timeline", replace(state, step=21), reads, first.kind)
    assert other is not None
    assert other.data is not None


def test_a_step_that_has_ended_is_not_sent_again_while_its_run_goes_on(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="goes-on")
    run.introduce(store)
    keys = []
    for _ in range(2):
        run.advance(store, 3)
        state = ViewState(view=View.TIMELINE, run="goes-on", step=1, rank=0)
        painted = draw_canvas("timeline", state, Reads(StoreReader(store)), None)
        assert painted is not None
        keys.append(painted.kind)
    assert keys[0] == keys[1] != ""


def test_a_canvas_of_what_is_not_there_is_hidden(reads: Reads) -> None:
    painted = draw_canvas("timeline", ViewState(view=View.TIMELINE, run="made", step=999), reads, "before")
    assert painted is not None
    assert (painted.data, painted.panel) == (None, "panel hidden")
    assert draw_canvas("timeline", ViewState(view=View.OVERVIEW, run="made"), reads, None) is None


def test_a_picture_of_a_named_rank_does_not_wait_for_the_detectors(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader = Counting(StoreReader(store))
    reads, state = Reads(reader), ViewState(view=View.TIMELINE, run="made", step=20, rank=5)
    assert draw_canvas("timeline", state, reads, None)
    assert "OperationColumns" not in reader.asked
    assert mark_canvas("timeline", state, reads) == [5]
    assert reader.asked["OperationColumns"] > 0


def test_a_marked_area_is_told_as_a_table(reads: Reads) -> None:
    state = ViewState(view=View.TIMELINE, run="made", step=20, rank=5, group=Group.ALL, area=Area(0, 10**9, 4, 5))
    said = text_of(state, reads, "area")
    assert "2 ranks (4-5)" in said
    assert "forward-compute" in said
    assert text_of(replace(state, area=None), reads, "area") == "null"


def test_a_region_whose_content_is_as_before_has_the_same_key(reads: Reads) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made")
    other = replace(state, metric=Metric.MILLISECONDS)
    keys = [draw_region("heat-controls", one, reads, by_clock=False) for one in (state, state, other)]
    assert len({drawn.key for drawn in keys if drawn}) == 1


def test_a_chart_that_is_as_before_is_left_alone(reads: Reads) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made")
    first = draw_chart("cells", state, reads, None)
    assert first is not None
    assert draw_chart("cells", state, reads, str(first.kind)) is None
    assert draw_chart("cells", replace(state, metric=Metric.MILLISECONDS), reads, str(first.kind)) is not None


def test_a_chart_of_the_same_kind_changes_all_but_the_zoom(reads: Reads) -> None:
    figure = draw_chart("cells", ViewState(view=View.HEAT_MAP, run="made"), reads, None)
    assert figure is not None
    places = {tuple(step["location"]) for step in in_place(figure.figure).to_plotly_json()["operations"]}
    assert ("data",) in places
    assert ("layout", "yaxis", "autorange") not in places
    assert ("layout", "yaxis", "ticktext") in places


def test_an_empty_store_and_an_unknown_run_stand_in_for_the_page() -> None:
    with memory_store() as store:
        reads = Reads(StoreReader(store))
        assert draw_page(ViewState(view=View.OVERVIEW), reads).key.endswith("/empty")
        assert "rankscope demo" in text_of(ViewState(), reads, "runs")
        assert freshness(ViewState(view=View.OVERVIEW, run="x"), reads)[1] is None


def test_ranks_without_a_step_are_waited_for(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="starting")
    run.introduce(store)
    reads = Reads(StoreReader(store), wall_s=lambda: run.started_ns / 1e9 + 5)
    assert draw_page(ViewState(view=View.TIMELINE, run="starting"), reads).key.endswith("/no-step")


def test_controls_set_the_view_and_nonsense_changes_nothing() -> None:
    state = ViewState(view=View.HEAT_MAP, run="a")
    changed = after_controls(state, {"stage": "optimizer", "metric": "ms", "first": 10, "last": 20})
    assert (changed.stage, changed.metric, changed.steps) == (Stage.OPTIMIZER, Metric.MILLISECONDS, StepRange(10, 20))
    assert after_controls(changed, {"first": "", "last": ""}).steps is None
    assert after_controls(state, {"stage": "x", "metric": [], "first": "z", "group": None, "what": 1}) == state


def test_a_click_on_a_cell_leads_to_its_step() -> None:
    state = ViewState(view=View.HEAT_MAP, run="a")
    cell = after_click(state, "cells", {"x": 12, "customdata": {"0": 40.1, "1": 5}})
    assert (cell.view, cell.rank, cell.step) == (View.TIMELINE, 5, 12)
    assert after_click(cell, "cells", {"x": 3}) == cell


def test_other_ranks_have_no_span_zoom_or_area_of_these_but_another_step_keeps_the_zoom() -> None:
    zoom, pins, area = TimeRange(3, 9), (5,), Area(3, 9, 5, 5)
    state = ViewState(view=View.TIMELINE, run="a", rank=5, span=SpanKey(5, 1), zoom=zoom, pins=pins, area=area)
    stepped = after_controls(state, {"step": 8})
    assert (stepped.step, stepped.zoom, stepped.pins, stepped.span, stepped.area) == (8, zoom, pins, None, None)
    for other in (after_controls(state, {"rank": 6}), after_controls(state, {"group": "dp"})):
        assert (other.span, other.zoom, other.pins, other.area) == (None, None, (), None)


def test_a_click_on_the_grid_chooses_a_rank_and_a_gap_none() -> None:
    state = ViewState(view=View.HANG, run="a")
    chosen = after_click(state, "grid", {"customdata": {"0": 7, "1": 0}})
    assert (chosen.view, chosen.rank) == (View.HANG, 7)
    assert after_click(state, "grid", {"customdata": [-1, 0]}) == state
    assert after_controls(chosen, {"rank": ""}).rank is None
