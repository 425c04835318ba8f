"""Every part of every page, on runs of several shapes, without a browser."""

import json
from dataclasses import replace

import pytest

from diagnose.model.exposed import AXIS_OF_STAGE, stages_of_axis
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.each_case import each_case
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


@pytest.fixture(
    scope="module", params=["one-rank", *(pytest.param(name, marks=pytest.mark.long) for name in ("pipeline", "grid"))]
)
def shape(request: pytest.FixtureRequest, store: EmbeddedStore) -> tuple[str, Reads]:
    run = SyntheticRun(run_id=request.param, topology=SHAPES[request.param], slow={})
    run.introduce(store)
    run.advance(store, 12)
    return run.run_id, Reads(StoreReader(store))


@pytest.mark.parametrize("view", list(View))
def test_every_part_of_a_page_is_drawn_for_every_shape_of_mesh(shape: tuple[str, Reads], view: View) -> None:
    run_id, reads = shape
    state = ViewState(view=view, run=run_id)
    assert draw_page(state, reads).key.endswith("/page")
    for name in PAGES[view].regions:
        assert "could not be drawn" not in text_of(state, reads, name)
    for name in PAGES[view].charts:
        plotted = draw_chart(name, state, reads, None)
        assert plotted is not None
        if view not in (View.WHATIF, View.COMPARE):  # a healthy run has no breakdown; A may be another run or none
            is_empty = view in (View.HANG, View.ABLATION) or name.startswith("own-")  # the run has no such metrics
            assert plotted.panel == ("panel hidden" if is_empty else "panel")
    for name in PAGES[view].canvases:
        painted = draw_canvas(name, state, reads, None)
        assert painted is not None
        assert painted.panel == "panel"
        assert painted.data is not None


@each_case("view", list(View))
def test_freshness_consists_of_texts_that_the_browser_returns_unchanged(reads: Reads, view: View) -> None:
    """JavaScript rounds integers above 2**53. With integers, a page would be drawn again every two seconds."""
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
        of_axis = stages_of_axis(AXIS_OF_STAGE.get(chosen, "")) if metric is Metric.EXPOSED else (chosen,)
        assert (plotted.panel == "panel") is any(one in facts.stages for one in of_axis), stage


def test_wait_metric_is_shown_only_for_collectives_and_its_summary_refers_to_the_grid(
    reads: Reads,
) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made", metric=Metric.WAIT)
    said = text_of(state, reads, "heat-says")
    assert "tp-all-gather: the other ranks of " in said
    assert "for rank 5 (host gpu-03, dp1 pp0 tp1)" in said
    assert "see the grid" in said
    assert control_values(state, reads)["stage"] == "tp-all-gather"
    replicas = text_of(replace(state, stage=Stage.GRADS_REDUCE_SCATTER), reads, "heat-says")
    assert "grads-reduce-scatter: the other ranks of " in replicas
    assert after_controls(state, {"stage": "optimizer"}).metric is Metric.RATIO
    assert after_controls(state, {"stage": "tp-all-gather"}).metric is Metric.WAIT


def test_wait_metric_of_a_run_without_collectives_reports_no_waiting_time(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="alone", topology=Topology(pp=2), slow={})
    run.introduce(store)
    run.advance(store, 3)
    state, reads = ViewState(view=View.HEAT_MAP, run="alone", metric=Metric.WAIT), Reads(StoreReader(store))
    assert "No waiting time for this stage" in text_of(state, reads, "heat-says")
    for name, shown in (("cells", state), ("grid", replace(state, view=View.GRID, colour=Colour.METRIC))):
        plotted = draw_chart(name, shown, reads, None)
        assert plotted is not None
        assert plotted.panel != "panel"


def test_overview_shows_the_worst_finding_first(reads: Reads) -> None:
    said = text_of(ViewState(view=View.OVERVIEW, run="made"), reads, "verdict")
    assert "rank 5 (host gpu-03, dp1 pp0 tp1)" in said
    assert "view=heatmap" in said
    assert "view=timeline" in said


def test_overview_of_a_healthy_run_shows_no_finding(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="healthy", slow={})
    run.introduce(store)
    run.advance(store, 30)
    said = text_of(ViewState(view=View.OVERVIEW, run="healthy"), Reads(StoreReader(store)), "verdict")
    assert "No finding" in said


def test_the_timeline_opens_on_the_suspects_pipeline(reads: Reads) -> None:
    said = text_of(ViewState(view=View.TIMELINE, run="made"), reads, "spans-title")
    assert "pipeline group of rank 5" in said
    assert "group=pp&rank=5" in said


def test_timeline_of_a_too_large_group_shows_64_ranks_and_counts_the_hidden_ones(store: EmbeddedStore) -> None:
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


def test_pinned_rank_of_another_group_has_a_timeline_row(reads: Reads) -> None:
    state = ViewState(view=View.TIMELINE, run="made", group=Group.PP, rank=5, pins=(0, 7, 99), step=12)
    painted = draw_canvas("timeline", state, reads, None)
    assert painted is not None
    assert painted.data is not None
    assert [row["rank"] for row in painted.data["rows"]] == [5, 7, 0]
    title = text_of(state, reads, "spans-title")
    assert "pipeline group of rank 5 and pinned rank 0" in title
    assert "trace?" in (trace := text_of(state, reads, "trace"))
    assert "pins=0&" in trace


def test_timeline_replaces_a_group_that_the_mesh_lacks(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="deep", topology=Topology(pp=2), slow={})
    run.introduce(store)
    run.advance(store, 2)
    state, reads = ViewState(view=View.TIMELINE, run="deep", group=Group.EP), Reads(StoreReader(store))
    assert "pipeline group of rank 0" in text_of(state, reads, "spans-title")
    assert PAGES[View.TIMELINE].control_values(state, reads)["group"] == "pp"


def test_canvas_receives_its_spans_again_only_when_they_changed(reads: Reads) -> None:
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


def test_ended_step_of_a_live_run_is_not_sent_again(store: EmbeddedStore) -> None:
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


def test_canvas_of_an_unknown_step_is_hidden(reads: Reads) -> None:
    painted = draw_canvas("timeline", ViewState(view=View.TIMELINE, run="made", step=999), reads, "before")
    assert painted is not None
    assert (painted.data, painted.panel) == (None, "panel hidden")
    assert draw_canvas("timeline", ViewState(view=View.OVERVIEW, run="made"), reads, None) is None


def test_timeline_of_a_selected_rank_does_not_wait_for_the_detectors(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader = Counting(StoreReader(store))
    reads, state = Reads(reader), ViewState(view=View.TIMELINE, run="made", step=20, rank=5)
    assert draw_canvas("timeline", state, reads, None)
    assert "OperationColumns" not in reader.asked
    assert mark_canvas("timeline", state, reads) == [5]
    assert reader.asked["OperationColumns"] > 0


def test_marked_area_is_shown_as_a_table(reads: Reads) -> None:
    state = ViewState(view=View.TIMELINE, run="made", step=20, rank=5, group=Group.ALL, area=Area(0, 10**9, 4, 5))
    said = text_of(state, reads, "area")
    assert "2 ranks (4-5)" in said
    assert "forward-compute" in said
    assert text_of(replace(state, area=None), reads, "area") == "null"


def test_region_with_unchanged_content_has_the_same_key(reads: Reads) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made")
    other = replace(state, metric=Metric.MILLISECONDS)
    keys = [draw_region("heat-controls", one, reads, by_clock=False) for one in (state, state, other)]
    assert len({drawn.key for drawn in keys if drawn}) == 1


def test_unchanged_chart_is_not_drawn_again(reads: Reads) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made")
    first = draw_chart("cells", state, reads, None)
    assert first is not None
    assert draw_chart("cells", state, reads, str(first.kind)) is None
    assert draw_chart("cells", replace(state, metric=Metric.MILLISECONDS), reads, str(first.kind)) is not None


def test_update_of_a_chart_changes_everything_except_the_zoom(reads: Reads) -> None:
    figure = draw_chart("cells", ViewState(view=View.HEAT_MAP, run="made"), reads, None)
    assert figure is not None
    places = {tuple(step["location"]) for step in in_place(figure.figure).to_plotly_json()["operations"]}
    assert ("data",) in places
    assert ("layout", "yaxis", "autorange") not in places
    assert ("layout", "yaxis", "ticktext") in places


def test_page_of_an_empty_store_shows_instructions_and_no_store_error() -> None:
    with memory_store() as store:
        reads = Reads(StoreReader(store))
        assert draw_page(ViewState(view=View.OVERVIEW), reads).key.endswith("/empty")
        assert "rankscope demo" in text_of(ViewState(), reads, "runs")
        assert freshness(ViewState(view=View.OVERVIEW, run="x"), reads)[1] is None


def test_page_waits_for_the_first_step_when_ranks_recorded_none(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="starting")
    run.introduce(store)
    reads = Reads(StoreReader(store), wall_s=lambda: run.started_ns / 1e9 + 5)
    assert draw_page(ViewState(view=View.TIMELINE, run="starting"), reads).key.endswith("/no-step")


def test_controls_set_the_view_and_invalid_values_change_nothing() -> None:
    state = ViewState(view=View.HEAT_MAP, run="a")
    changed = after_controls(state, {"stage": "optimizer", "metric": "ms", "first": 10, "last": 20})
    assert (changed.stage, changed.metric, changed.steps) == (Stage.OPTIMIZER, Metric.MILLISECONDS, StepRange(10, 20))
    assert after_controls(changed, {"first": "", "last": ""}).steps is None
    assert after_controls(state, {"stage": "x", "metric": [], "first": "z", "group": None, "what": 1}) == state


def test_a_click_on_a_cell_leads_to_its_step() -> None:
    state = ViewState(view=View.HEAT_MAP, run="a")
    cell = after_click(state, "cells", {"x": 12, "customdata": {"0": 40.1, "1": 5}})
    assert (cell.view, cell.rank, cell.step) == (View.TIMELINE, 5, 12)
    shown = replace(state, group=Group.DP, pins=(4,), steps=StepRange(10, 20), stage=Stage.OPTIMIZER)
    kept = after_click(shown, "cells", {"x": 12, "customdata": [40.1, 5]})
    assert kept == replace(shown, view=View.TIMELINE, rank=5, step=12)
    assert after_click(kept, "hosts", {"customdata": [6, 0]}) == replace(kept, rank=6)
    assert after_click(cell, "cells", {"x": 3}) == cell


def test_another_rank_or_group_resets_span_zoom_and_area_and_another_step_keeps_the_zoom() -> None:
    zoom, pins, area = TimeRange(3, 9), (5,), Area(3, 9, 5, 5)
    state = ViewState(view=View.TIMELINE, run="a", rank=5, span=SpanKey(5, 1), zoom=zoom, pins=pins, area=area)
    stepped = after_controls(state, {"step": 8})
    assert (stepped.step, stepped.zoom, stepped.pins, stepped.span, stepped.area) == (8, zoom, pins, None, None)
    for other in (after_controls(state, {"rank": 6}), after_controls(state, {"group": "dp"})):
        assert (other.span, other.zoom, other.pins, other.area) == (None, None, pins, None)


def test_click_on_the_grid_selects_a_rank_and_a_click_on_a_gap_selects_none() -> None:
    state = ViewState(view=View.HANG, run="a")
    chosen = after_click(state, "grid", {"customdata": {"0": 7, "1": 0}})
    assert (chosen.view, chosen.rank) == (View.HANG, 7)
    assert after_click(state, "grid", {"customdata": [-1, 0]}) == state
    assert after_controls(chosen, {"rank": ""}).rank is None
