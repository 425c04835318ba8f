"""Figures as values: what is in them, without a browser."""

from dataclasses import replace

import numpy as np
import pytest

from telemetry.stages import Stage
from ui.dashboard.figures.heat_map import LEAST_WAIT_TOP, colour_bar, colours_for, pooling_note, rank_by_step
from ui.dashboard.figures.host_boxes import host_boxes, lay_out
from ui.dashboard.figures.metrics import MAX_CELLS, MAX_COLUMNS, MAX_ROWS, hottest_ranks, pool, pooled
from ui.dashboard.figures.series import MAX_POINTS, Curve, curve_over_steps, thinned
from ui.dashboard.figures.style import GRAPH_CONFIG, MOST_LABELS_PX, RATIO_SCALE, room_for
from ui.dashboard.records import MarkRow, PooledTimes, StageTimes
from ui.dashboard.view_state import Metric


def made_times(num_steps: int, num_ranks: int, slow: int | None = None) -> StageTimes:
    ratio = np.ones((num_steps, num_ranks))
    if slow is not None:
        ratio[:, slow] = 1.4
    return StageTimes(
        stage=Stage.FORWARD_COMPUTE,
        steps=np.arange(num_steps),
        ns=ratio * 40e6,
        ratio=ratio,
        step_ns=np.full(num_steps, 200e6),
        basis="processor time",
    )


def made_cells(num_steps: int, num_ranks: int, slow: int | None = None) -> PooledTimes:
    return pooled(made_times(num_steps, num_ranks, slow), Metric.RATIO)


def test_a_suspect_is_outlined_and_named() -> None:
    hosts = [f"gpu-{rank // 4}" for rank in range(8)]
    figure = rank_by_step(made_cells(20, 8, slow=5), Metric.RATIO, hosts, [5], keep="k")
    (shape,) = figure.layout.shapes
    assert (shape.y0, shape.y1) == (4.5, 5.5)
    assert [text for text in figure.layout.yaxis.ticktext if "suspect" in text] == ["<b>▶ suspect  rank 5 · gpu-1</b>"]


def test_suspects_whose_rows_lie_too_close_share_an_outline_and_a_name() -> None:
    hosts = [f"gpu-{rank // 8:03}" for rank in range(4096)]
    figure = rank_by_step(made_cells(20, 4096), Metric.RATIO, hosts, [*range(64, 72), 79, 3001], keep="k")
    assert [text for text in figure.layout.yaxis.ticktext if "suspect" in text] == [
        "<b>▶ suspects  ranks 64-71, 79 · gpu-008 and others</b>",
        "<b>▶ suspect  rank 3001 · gpu-375</b>",
    ]
    first, second = figure.layout.shapes
    assert first.y0 < 64 // 11 < 79 // 11 < first.y1 < second.y0 < 3001 // 11 < second.y1


def test_a_ratio_has_the_same_colour_whatever_else_is_there() -> None:
    calm = rank_by_step(made_cells(5, 4), Metric.RATIO, [""] * 4, [], keep="k")
    slow = rank_by_step(made_cells(5, 4, slow=1), Metric.RATIO, [""] * 4, [], keep="k")
    assert (calm.data[0].zmin, calm.data[0].zmax) == (slow.data[0].zmin, slow.data[0].zmax) == (0.5, 1.5)
    assert len(RATIO_SCALE) == len(calm.data[0].colorscale)


def test_a_large_run_is_pooled_to_what_a_screen_can_show_and_its_slow_rank_stays() -> None:
    figure = rank_by_step(made_cells(2000, 4096, slow=3001), Metric.RATIO, ["h"] * 4096, [3001], keep="k")
    cells = np.asarray(figure.data[0].z)
    assert cells.shape[0] <= MAX_ROWS
    assert cells.shape[1] <= MAX_COLUMNS
    assert cells.size <= MAX_CELLS
    row = 3001 // -(-4096 // MAX_ROWS)
    assert cells[row] == pytest.approx(1.4)
    assert np.sum(cells > 1.2) == cells.shape[1]
    assert set(np.asarray(figure.data[0].customdata)[row, :, 1].tolist()) == {3001}
    assert sum("suspect" in text for text in figure.layout.yaxis.ticktext) == 1


def test_a_pooled_picture_says_what_a_cell_stands_for() -> None:
    assert (
        pooling_note(made_cells(2000, 4096))
        == "Pooled to fit: each cell is the median of 10 steps, of the worst of 11 ranks."
    )
    assert pooling_note(made_cells(100, 8)) == ""


def test_a_cell_tells_both_values_of_its_worst_rank() -> None:
    times = StageTimes(
        stage=Stage.FORWARD_COMPUTE,
        steps=np.arange(1),
        ns=np.tile([50.0, 80.0, 90.0], (1, 201)),
        ratio=np.tile([1.5, 1.0, 1.1], (1, 201)),
        step_ns=np.full(1, 200.0),
        basis="wall time",
    )
    by_ratio, by_time = pooled(times, Metric.RATIO), pooled(times, Metric.MILLISECONDS)
    assert by_ratio.ranks_a_row == 2
    assert (by_ratio.worst[0, 0], by_ratio.ns[0, 0], by_ratio.ratio[0, 0]) == (0, 50.0, 1.5)
    assert (by_time.worst[0, 0], by_time.ns[0, 0], by_time.ratio[0, 0]) == (1, 80.0, 1.0)


def test_a_share_of_the_step_is_coloured_and_its_milliseconds_are_read_beside_it() -> None:
    figure = rank_by_step(made_cells(4, 8, slow=5), Metric.SHARE, [""] * 8, (), keep="k")
    cells = figure.data[0]
    assert cells.z[5].tolist() == pytest.approx([28.0] * 4)
    assert cells.z[0].tolist() == pytest.approx([20.0] * 4)
    assert cells.customdata[5, :, 0].tolist() == pytest.approx([56.0] * 4)
    assert "%{z:.1f}% of the step<br>%{customdata[0]:.1f} ms" in cells.hovertemplate
    assert cells.colorbar.title.text == "% of step"
    assert (cells.zmin, cells.zmax) == (0.0, pytest.approx(28.0))


def test_a_wait_that_hardly_costs_stays_faint_and_a_long_one_ends_the_scale() -> None:
    faint, strong = (colours_for(Metric.WAIT, np.array([0.0, most])) for most in (0.3, 12.0))
    assert (faint.lowest, faint.highest) == (0.0, LEAST_WAIT_TOP)
    assert (strong.lowest, strong.highest) == (0.0, 12.0)


def test_the_ends_of_a_bar_say_when_they_stand_for_more() -> None:
    spread = np.append(np.linspace(40.0, 60.0, 199), 900.0)
    clipped, whole = colours_for(Metric.MILLISECONDS, spread), colours_for(Metric.SHARE, spread)
    bar = colour_bar(clipped)
    assert (bar["ticktext"][0][0], bar["ticktext"][-1][0]) == ("≤", "≥")
    assert "ticktext" not in colour_bar(whole)
    slow = colour_bar(colours_for(Metric.MILLISECONDS, 30 * spread))["ticktext"]
    assert (slow[0], slow[-1]) == ("≤1,206", "≥1,797")


def test_a_loss_that_is_no_number_is_marked_where_it_began() -> None:
    value = np.array([2.0, 1.5, np.nan, np.nan, 1.2, np.inf])
    curve = Curve(name="loss", unit="", step=np.arange(10, 16), value=value)
    crosses = curve_over_steps(curve, [], keep="k").data[1]
    assert (crosses.x.tolist(), crosses.y.tolist()) == ([12, 15], [1.5, 1.2])
    assert list(crosses.customdata) == ["nan", "inf"]
    assert len(curve_over_steps(replace(curve, value=np.ones(6)), [], keep="k").data) == 1
    assert curve_over_steps(replace(curve, value=np.full(6, np.nan)), [], keep="k").data[1].x.tolist() == [10]


def test_marks_before_the_curve_do_not_widen_it_and_names_do_not_overlap() -> None:
    curve = Curve(name="loss", unit="", step=np.arange(100, 201), value=np.ones(101))
    places = [(0, 0, "resumed"), (1, 0, "resumed"), *((0, step, "checkpoint") for step in (101, 105, 113, 114, 150))]
    marks = [MarkRow(rank=rank, step=step, at_ns=0, name=name, text="") for rank, step, name in places]
    layout = curve_over_steps(curve, marks, keep="k").layout
    assert [shape.x0 for shape in layout.shapes] == [100, 101, 105, 113, 114, 150]
    named = [(note.x, note.text) for note in layout.annotations]
    assert named == [(100, "resumed"), (113, "checkpoint"), (150, "checkpoint")]


def test_pooling_keeps_unknown_cells_unknown() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 2.0]])
    assert pool(values, 2, 1)[0, 0] == 2.0
    assert np.isnan(pool(values, 2, 1)[0, 1])
    assert pool(values, 2, 2)[0, 0] == 2.0
    assert hottest_ranks(values, 1, 2)[:, 0].tolist() == [0, 0, 0]


def test_names_of_hosts_are_text_and_never_markup() -> None:
    hosts = ["<a href='x'>evil</a>"] * 2
    for figure in (
        rank_by_step(made_cells(3, 2), Metric.RATIO, hosts, [0], keep="k"),
        host_boxes(made_times(3, 2), Metric.RATIO, hosts, [0, 1], [0], keep="k"),
    ):
        assert "<a" not in figure.to_json().replace("\\u003c", "<")


def test_hosts_become_boxes_with_ranks_by_their_place() -> None:
    boxes = lay_out(["b", "a", "b", "a"], [1, 0, 0, 1])
    assert [(box.host, [cell.rank for cell in box.cells]) for box in boxes] == [("b", [2, 0]), ("a", [1, 3])]
    taken = {(cell.row, cell.column) for box in boxes for cell in box.cells}
    assert len(taken) == 4


def test_boxes_of_a_large_job_do_not_overlap() -> None:
    hosts = [f"host-{rank // 8}" for rank in range(12_288)]
    boxes = lay_out(hosts, [rank % 8 for rank in range(12_288)])
    assert len({(cell.row, cell.column) for box in boxes for cell in box.cells}) == 12_288


def test_cells_of_a_large_job_are_not_lost_in_the_gaps_between_them() -> None:
    hosts = [f"host-{rank // 8}" for rank in range(12_288)]
    places = [rank % 8 for rank in range(12_288)]
    large = host_boxes(made_times(1, 12_288), Metric.RATIO, hosts, places, [], keep="k")
    small = host_boxes(made_times(1, 8), Metric.RATIO, hosts[:8], places[:8], [], keep="k")
    assert (large.data[0].xgap, large.data[0].ygap) == (0, 0)
    assert not large.layout.shapes
    assert small.data[0].xgap > 0


def test_a_host_box_shows_the_median_and_the_rank() -> None:
    figure = host_boxes(made_times(9, 4, slow=2), Metric.RATIO, ["x"] * 4, [0, 1, 2, 3], [2], keep="k")
    assert "<b>2</b><br>1.40x" in [note.text for note in figure.layout.annotations]


def test_a_long_curve_keeps_its_peaks() -> None:
    value = np.zeros(100_000)
    value[54_321] = 9.0
    step, kept = thinned(np.arange(100_000), value)
    assert len(step) <= MAX_POINTS
    assert step[kept.argmax()] == 54_321


def test_no_graph_can_upload_its_data() -> None:
    assert GRAPH_CONFIG["showSendToCloud"] is False
    assert GRAPH_CONFIG["plotlyServerURL"] == ""


def test_long_names_leave_room_for_the_picture() -> None:
    short, long = room_for(["ranks 3, 5"]), room_for(["gpu-" + "0" * 400])
    assert short < long == MOST_LABELS_PX
