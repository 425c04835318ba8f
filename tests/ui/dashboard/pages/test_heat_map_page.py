"""The heat map page: its controls match the drawing, and rows, histogram and filter use the same values."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plotly.utils import PlotlyJSONEncoder

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.few_spans import made_facts
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import texts
from ui.dashboard.data import Reads
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.figures.distribution import distribution
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.pages.heat_map.histogram import BREAK, _at, histogram
from ui.dashboard.pages.heat_map.page import control_values
from ui.dashboard.pages.heat_map.picture import drawn_stage, picture_of
from ui.dashboard.serving.drawing import draw_chart, draw_region
from ui.dashboard.view_state import Clock, Metric, RowOrder, View, ViewState

STATE = ViewState(view=View.HEAT_MAP, run="made")


def json_of(state: ViewState, reads: Reads, region: str) -> str:
    drawn = draw_region(region, state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def words(state: ViewState, reads: Reads, region: str) -> str:
    return " ".join(texts(json.loads(json_of(state, reads, region))))


def cells_of(state: ViewState, reads: Reads) -> Any:
    plotted = draw_chart("cells", state, reads, None)
    assert plotted is not None
    assert plotted.panel == "panel"
    return plotted.figure


def test_compute_time_is_selected_only_if_it_is_drawn(store: EmbeddedStore, reads: Reads) -> None:
    run = SyntheticRun(run_id="no-processor-time", with_cpu=False)
    run.introduce(store)
    run.advance(store, 3)
    unknown = replace(STATE, run="no-processor-time", stage=Stage.OPTIMIZER)
    others = Reads(StoreReader(store))
    few = Reads(StoreReader(store), settings=ReadSettings(max_own_operations=600, rank_steps_at_once=0))
    for state, source, drawn in (
        (STATE, reads, Clock.OWN),
        (replace(STATE, clock=Clock.WALL), reads, Clock.WALL),
        (unknown, others, Clock.WALL),
        (replace(STATE, run="no-processor-time"), few, Clock.WALL),
    ):
        assert control_values(state, source)["clock"] == drawn
        controls = json_of(state, source, "heat-controls")
        is_disabled = '{"value": "own", "label": "Compute time", "disabled": true}' in controls
        assert is_disabled is (drawn is Clock.WALL and state.clock is Clock.OWN)
        assert ("Wall time" in words(state, source, "heat-says")) is (drawn is Clock.WALL)
    assert "wall time" in words(unknown, others, "heat-scale")
    assert "choose at most 1 step." in words(replace(STATE, run="no-processor-time"), few, "heat-says")


def test_events_above_the_cells_open_their_step_like_cells(reads: Reads) -> None:
    chart, events = PAGES[View.HEAT_MAP].charts["cells"], cells_of(STATE, reads).data[1]
    assert chart.after_click is not None
    assert list(events.x) == [0]
    assert "slow rank (critical)" in events.hovertext[0]
    assert "▼  finding ◆  link lost" in words(STATE, reads, "cells-title")
    there = chart.after_click(STATE, reads, {"customdata": events.customdata[0], "x": 0})
    assert (there.view, there.step, there.rank, there.host) == (View.TIMELINE, 0, 5, "gpu-03")
    cell = chart.after_click(STATE, reads, {"customdata": [1.0, 6], "x": 7})
    assert (cell.view, cell.step, cell.rank) == (View.TIMELINE, 7, 6)
    assert chart.after_click(STATE, reads, {"customdata": "finding/9"}) == STATE


def test_rows_are_sorted_and_limited_and_the_suspect_stays(reads: Reads) -> None:
    picture = picture_of(STATE, reads)
    assert picture is not None
    by_value = np.argsort(-picture.value, kind="stable").tolist()
    assert by_value[0] == 5
    figure = cells_of(replace(STATE, sort=RowOrder.VALUE), reads)
    assert np.asarray(figure.data[0].customdata)[:, 0, 1].tolist() == by_value
    few = replace(STATE, sort=RowOrder.VALUE, top=1, metric=Metric.MILLISECONDS, stage=Stage.TP_ALL_GATHER)
    first, second = np.asarray(cells_of(few, reads).data[0].customdata)[:, 0, 1].tolist()
    assert first != second == 5, "rank 5 waits least, but it is a suspect"
    assert "2 of 8 ranks, the highest value first" in words(few, reads, "cells-title")


def test_a_filter_applies_to_rows_hosts_and_histogram_and_reports_a_suspect_outside(reads: Reads) -> None:
    state = replace(STATE, only="dp0 pp1")
    assert np.asarray(cells_of(state, reads).data[0].customdata)[:, 0, 1].tolist() == [2, 3]
    hosts = draw_chart("hosts", state, reads, None)
    assert hosts is not None
    drawn = np.asarray(hosts.figure.data[0].customdata)[..., 0]
    assert sorted(drawn[np.isfinite(drawn)].tolist()) == [2, 3]
    assert "2 ranks: median of the steps" in words(state, reads, "heat-values")
    assert "leaves out suspect rank 5" in words(state, reads, "cells-title")
    unmatched = replace(STATE, only="dp7")
    assert "No rank matches dp7" in words(unmatched, reads, "heat-says")
    plotted = draw_chart("cells", unmatched, reads, None)
    assert plotted is not None
    assert plotted.panel == "panel hidden"


def test_the_histogram_names_percentiles_the_worst_rank_and_the_suspect_with_units(reads: Reads) -> None:
    picture = picture_of(STATE, reads)
    assert picture is not None
    p50, p95 = np.percentile(picture.value, (50, 95))
    most = f"{picture.value[5]:.3f}x"
    said = words(STATE, reads, "heat-values")
    unbroken = said.replace("\N{NO-BREAK SPACE}", " ")
    assert f"p50 {p50:.3f}x (solid), p95 {p95:.3f}x (dotted)" in unbroken
    assert f"max {most}: rank 5 (host gpu-03, dp1 pp0 tp1)" in unbroken
    assert f"▲ suspect: rank 5, {most}" in said
    assert re.search(r"p50\s[\d.]+\sms", words(replace(STATE, metric=Metric.MILLISECONDS), reads, "heat-values"))


def test_hover_texts_get_the_host_and_the_axes_of_every_rank(reads: Reads) -> None:
    drawn = draw_region("heat-places", STATE, reads, by_clock=False)
    assert drawn is not None
    places = json.loads(drawn.make()["props"]["data-places"])
    assert places["hosts"] == [[f"gpu-0{host}", 2] for host in (1, 2, 3, 4)]
    facts = reads.facts(STATE)
    for rank in range(8):
        described = " ".join(f"{name}{rank // stride % degree}" for name, stride, degree in places["axes"])
        assert described == facts.topology.describe(rank)


def test_cells_and_host_boxes_have_the_same_colour_scale(reads: Reads) -> None:
    state = replace(STATE, metric=Metric.MILLISECONDS)
    cells, hosts = (draw_chart(name, state, reads, None) for name in ("cells", "hosts"))
    assert cells is not None
    assert hosts is not None
    assert (cells.figure.data[0].zmin, cells.figure.data[0].zmax) == (
        hosts.figure.data[0].zmin,
        hosts.figure.data[0].zmax,
    )
    assert "forward-compute, milliseconds" in words(state, reads, "heat-scale")
    assert "suspect: rank 5" in words(state, reads, "heat-scale")


@each_case(
    ("changed", "expected"),
    [
        ({"sort": "value"}, {"sort": RowOrder.VALUE}),
        ({"top": 16}, {"top": 16}),
        ({"top": ""}, {"top": None}),
        ({"only": "  dp1\tgpu-03 "}, {"only": "dp1 gpu-03"}),
    ],
)
def test_row_controls_set_the_view(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    state = replace(STATE, top=8)
    assert after_controls(state, changed) == replace(state, **expected)


def test_the_axis_of_the_histogram_is_broken_before_distant_values_and_shows_both_values_there() -> None:
    value = np.array([0.9, 0.96, 0.98, 1.0, 1.02, 1.04, 1.5, 1.5])
    found = distribution(value, np.arange(8), [])
    assert found is not None
    drawn = json.dumps(histogram(found, Metric.RATIO, made_facts(8)).to_plotly_json(), cls=PlotlyJSONEncoder)
    said = " ".join(texts(json.loads(drawn)))
    assert "0.900x highest bar: 2 ranks 1.040x // 1.500x" in said
    assert "// break of the axis" in said
    assert "max\N{NO-BREAK SPACE}1.500x: ranks 6-7" in said
    places = [float(_at(found, each).rstrip("%")) for each in (0.9, 1.0, 1.04, 1.041, 1.5)]
    assert places == pytest.approx([0, 91 * 0.1 / 0.14, 91, 96, 100], abs=0.1)
    near = distribution(value[:6], np.arange(6), [])
    assert near is not None
    assert BREAK not in str(histogram(near, Metric.RATIO, made_facts(6)))


@each_case(
    ("value", "said"),
    [
        ([1.00001, 1.00002, 1.00004], "1.00001x highest bar: 1 rank 1.00004x p50"),
        ([1.0, 1.00001, 1.00002, 1.00001, 1.5], "1.00000x highest bar: 2 ranks 1.00002x // 1.50000x p50"),
        ([40.0, 40.0, 40.000001], "3 ranks, all 40.000x p50"),
        ([0.0, 0.0], "2 ranks, all 0.000x p50"),
    ],
)
def test_the_ends_of_the_histogram_have_different_labels_or_one_label_for_equal_values(
    value: list[float], said: str
) -> None:
    found = distribution(np.array(value), np.arange(len(value)), [])
    assert found is not None
    drawn = json.dumps(histogram(found, Metric.RATIO, made_facts(8)).to_plotly_json(), cls=PlotlyJSONEncoder)
    assert said in " ".join(texts(json.loads(drawn))).replace("\N{NO-BREAK SPACE}", " ")


@each_case(
    ("value", "said"),
    [
        ([1.0, 0.9, 8.87, 8.85], "max 8.870x: rank 2 (host h, dp2"),
        ([1.0, 1.0009, 1.0014, 0.9994], "max 1.001x: rank 2 (host h, dp2"),
        ([1.0, 0.9, 8.8701, 8.8702], "max 8.870x: ranks 2-3"),
        ([2.0] * 4, "max 2.000x: all ranks"),
    ],
)
def test_the_histogram_names_the_ranks_whose_displayed_value_is_the_highest(value: list[float], said: str) -> None:
    found = distribution(np.array(value), np.arange(4), [])
    assert found is not None
    shown = str(histogram(found, Metric.RATIO, made_facts(4))).replace("\N{NO-BREAK SPACE}", " ")
    assert said in shown.replace("\\xa0", " ")


def test_wait_caused_of_sharded_parameters_begins_with_a_collective_that_does_not_run_during_compute() -> None:
    state = ViewState(view=View.HEAT_MAP, run="sharded", metric=Metric.WAIT)
    with memory_store() as store:
        slow, topology = "slow:rank=1,factor=1.4", Topology(dp=2, tp=2)
        store_simulated(store, "sharded", slow, num_steps=5, topology=topology, fsdp=True)
        sharded = Reads(StoreReader(store))
        said = words(state, sharded, "heat-says")
        assert drawn_stage(replace(state, stage=Stage.GRADS_REDUCE_SCATTER), sharded) is Stage.GRADS_REDUCE_SCATTER
    assert re.match(r"tp-[a-z-]+: the other ranks of its tensor group wait [\d.]+ ms a step for rank 1 ", said)


def test_events_do_not_widen_the_steps_and_the_colour_scale_has_a_unit(reads: Reads) -> None:
    ends = cells_of(STATE, reads).layout.xaxis.autorangeoptions
    assert (ends.minallowed, ends.maxallowed) == (-0.5, 39.5)
    scale = words(replace(STATE, metric=Metric.WAIT, stage=Stage.TP_ALL_GATHER), reads, "heat-scale")
    assert re.search(r"tp-all-gather, wait caused in % of the step 0% [\d.]+% ", scale)
