"""The contents of figures, without a browser."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import pytest

from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.each_case import each_case
from ui.dashboard.figures.heat_map import (
    LEAST_WAIT_TOP,
    colour_bar,
    colours_for,
    pooling_note,
    rank_by_step,
    scale_ticks,
)
from ui.dashboard.figures.host_boxes import MAX_PX, WIDTH_PX, host_boxes, lay_out
from ui.dashboard.figures.metrics import MAX_CELLS, MAX_COLUMNS, MAX_ROWS, hottest_ranks, pool, pooled, values
from ui.dashboard.figures.series import MAX_POINTS, thinned
from ui.dashboard.figures.style import GRAPH_CONFIG, MOST_LABELS_PX, RATIO_SCALE, room_for
from ui.dashboard.records import PooledTimes, StageTimes
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


def drawn_cells(
    cells: PooledTimes, hosts: Sequence[str], suspects: Sequence[int] = (), metric: Metric = Metric.RATIO
) -> go.Figure:
    colours, grid = colours_for(metric, values(cells, metric)), Topology(dp=len(hosts) // 2, pp=2)
    return rank_by_step(cells, metric, colours, hosts, grid.describe, suspects, keep="k")


def drawn_hosts(times: StageTimes, hosts: Sequence[str], suspects: Sequence[int] = ()) -> go.Figure:
    local_ranks = [rank % 8 for rank in range(len(hosts))]
    layout = lay_out(hosts, local_ranks, np.arange(len(hosts)))
    value, beside = (np.median(values(times, metric), axis=0) for metric in (Metric.RATIO, Metric.MILLISECONDS))
    colours = colours_for(Metric.RATIO, value)
    return host_boxes(times, value, beside, Metric.RATIO, colours, layout, suspects, keep="k")


def test_a_suspect_is_outlined_and_named_with_host_and_position() -> None:
    hosts = [f"gpu-{rank // 4}" for rank in range(8)]
    figure = drawn_cells(made_cells(20, 8, slow=5), hosts, [5])
    (shape,) = figure.layout.shapes
    assert (shape.y0, shape.y1) == (4.5, 5.5)
    labels = list(figure.layout.yaxis.ticktext)
    assert labels[5] == "<b>▶ suspect rank 5 · gpu-1 · dp2 pp1 tp0</b>"
    assert labels[0] == "rank 0 · gpu-0 · dp0 pp0 tp0"


def test_rows_follow_the_order_of_the_shown_ranks_and_the_suspect_stays_marked() -> None:
    hosts = [f"gpu-{rank // 4}" for rank in range(8)]
    order = np.array([5, 2, 7])
    figure = drawn_cells(pooled(made_times(20, 8, slow=5), Metric.RATIO, order), hosts, [5, 0])
    cells = figure.data[0]
    assert np.asarray(cells.z)[:, 0].tolist() == pytest.approx([1.4, 1.0, 1.0])
    assert np.asarray(cells.customdata)[:, 0, 1].tolist() == [5, 2, 7]
    (shape,) = figure.layout.shapes
    assert (shape.y0, shape.y1) == (-0.5, 0.5)
    labels = [text.removeprefix("<b>▶ suspect ").partition(" ·")[0] for text in figure.layout.yaxis.ticktext]
    assert labels == ["rank 5", "rank 2", "rank 7"]


def test_suspects_in_close_rows_share_an_outline_and_a_label() -> None:
    hosts = [f"gpu-{rank // 8:03}" for rank in range(4096)]
    figure = drawn_cells(made_cells(20, 4096), hosts, [*range(64, 72), 79, 3001])
    assert [text for text in figure.layout.yaxis.ticktext if "suspect" in text] == [
        "<b>▶ suspect ranks 64-71, 79 · gpu-008 and others</b>",
        "<b>▶ suspect rank 3001 · gpu-375 · dp1500 pp1 tp0</b>",
    ]
    assert "ranks 208-220 · gpu-026" in figure.layout.yaxis.ticktext
    first, second = figure.layout.shapes
    assert first.y0 < 64 // 13 < 79 // 13 < first.y1 < second.y0 < 3001 // 13 < second.y1


def test_ratio_has_the_same_colour_in_every_heat_map() -> None:
    calm = drawn_cells(made_cells(5, 4), [""] * 4)
    slow = drawn_cells(made_cells(5, 4, slow=1), [""] * 4)
    assert (calm.data[0].zmin, calm.data[0].zmax) == (slow.data[0].zmin, slow.data[0].zmax) == (0.5, 1.5)
    assert len(RATIO_SCALE) == len(calm.data[0].colorscale)


def test_large_run_is_pooled_to_the_screen_size_and_its_slow_rank_stays_visible() -> None:
    figure = drawn_cells(made_cells(2000, 4096, slow=3001), ["h"] * 4096, [3001])
    cells = np.asarray(figure.data[0].z)
    assert cells.shape[0] <= MAX_ROWS
    assert cells.shape[1] <= MAX_COLUMNS
    assert cells.size <= MAX_CELLS
    row = 3001 // -(-4096 // MAX_ROWS)
    assert cells[row] == pytest.approx(1.4)
    assert np.sum(cells > 1.2) == cells.shape[1]
    assert set(np.asarray(figure.data[0].customdata)[row, :, 1].tolist()) == {3001}
    assert sum("suspect" in text for text in figure.layout.yaxis.ticktext) == 1


def test_pooling_note_states_what_a_cell_contains() -> None:
    assert (
        pooling_note(made_cells(2000, 4096))
        == "Pooled to fit: each cell is the median of 8 steps, of the worst of 13 ranks."
    )
    assert pooling_note(made_cells(100, 8)) == ""


def test_pooled_cell_contains_both_values_of_its_worst_rank() -> None:
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


def test_share_of_the_step_sets_the_colour_and_the_hover_text_adds_milliseconds() -> None:
    figure = drawn_cells(made_cells(4, 8, slow=5), [""] * 8, metric=Metric.SHARE)
    cells = figure.data[0]
    assert cells.z[5].tolist() == pytest.approx([28.0] * 4)
    assert cells.z[0].tolist() == pytest.approx([20.0] * 4)
    assert cells.customdata[5, :, 0].tolist() == pytest.approx([56.0] * 4)
    hover = figure.layout.meta["hover"]
    assert (hover["value"], hover["beside"]) == ("{:.1f}% of the step", "{:.1f} ms")
    assert (cells.zmin, cells.zmax) == (0.0, pytest.approx(28.0))


def test_colour_scale_of_waits_ends_at_the_longest_wait_but_not_below_a_minimum() -> None:
    faint, strong = (colours_for(Metric.WAIT, np.array([0.0, most])) for most in (0.3, 12.0))
    assert (faint.lowest, faint.highest) == (0.0, LEAST_WAIT_TOP)
    assert (strong.lowest, strong.highest) == (0.0, 12.0)


def test_colour_bar_marks_its_ends_when_values_are_clipped() -> None:
    spread = np.append(np.linspace(40.0, 60.0, 199), 900.0)
    clipped, whole = colours_for(Metric.MILLISECONDS, spread), colours_for(Metric.SHARE, spread)
    bar = colour_bar(clipped)
    assert (bar["ticktext"][0][0], bar["ticktext"][-1][0]) == ("≤", "≥")
    assert "ticktext" not in colour_bar(whole)
    assert [label for _, label in scale_ticks(whole)] == ["0", "225", "450", "675", "900"]
    slow = colour_bar(colours_for(Metric.MILLISECONDS, 30 * spread))["ticktext"]
    assert (slow[0], slow[-1]) == ("≤1,206", "≥1,797")


def test_pooling_keeps_unknown_cells_unknown() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 2.0]])
    assert pool(values, 2, 1)[0, 0] == 2.0
    assert np.isnan(pool(values, 2, 1)[0, 1])
    assert pool(values, 2, 2)[0, 0] == 2.0
    assert hottest_ranks(values, 1, 2)[:, 0].tolist() == [0, 0, 0]


def test_host_names_are_escaped_in_figures() -> None:
    hosts = ["<a href='x'>evil</a>"] * 2
    for figure in (
        drawn_cells(made_cells(3, 2), hosts, [0]),
        drawn_hosts(made_times(3, 2), hosts, [0]),
    ):
        assert "<a" not in figure.to_json().replace("\\u003c", "<")


def test_each_host_is_a_box_with_its_ranks_in_the_order_of_local_ranks() -> None:
    boxes = lay_out(["b", "a", "b", "a"], [1, 0, 0, 1], np.arange(4)).boxes
    assert [(box.host, [cell.rank for cell in box.cells]) for box in boxes] == [("b", [2, 0]), ("a", [1, 3])]
    taken = {(cell.row, cell.column) for box in boxes for cell in box.cells}
    assert len(taken) == 4


@each_case("num_ranks", [8, 64, 2048, 12_288])
def test_host_boxes_of_any_job_fit_the_panel_without_overlap_and_names_fit_their_boxes(num_ranks: int) -> None:
    hosts = [f"gpu-{rank // 8:03d}" for rank in range(num_ranks)]
    layout = lay_out(hosts, [rank % 8 for rank in range(num_ranks)], np.arange(num_ranks))
    assert len({(cell.row, cell.column) for box in layout.boxes for cell in box.cells}) == num_ranks
    assert layout.edges_px[-1] <= MAX_PX + 1e-6
    assert layout.is_named is (num_ranks <= 2048)
    if layout.is_named:
        assert layout.cell_width_px * 9 >= 6 * len("gpu-000")
    num_cells = (len(layout.edges_px) - 1) // 2 * layout.columns
    assert num_ranks > 0.8 * num_cells * layout.columns / (layout.columns + 1), "no line of hosts is half empty"
    assert layout.columns <= WIDTH_PX


def test_hosts_of_hundreds_of_ranks_fit_a_panel_in_one_line() -> None:
    ranks = np.arange(30 * 256)
    layout = lay_out([f"node-{rank // 256}" for rank in ranks], [rank % 256 for rank in ranks], ranks)
    assert {box.row for box in layout.boxes} == {1}
    assert layout.edges_px[-1] <= MAX_PX


def test_only_the_hosts_of_shown_ranks_have_boxes() -> None:
    hosts = [f"gpu-{rank // 8}" for rank in range(64)]
    layout = lay_out(hosts, [rank % 8 for rank in range(64)], np.array([9, 30, 31]))
    assert [(box.host, [cell.rank for cell in box.cells]) for box in layout.boxes] == [
        ("gpu-1", [9]),
        ("gpu-3", [30, 31]),
    ]


def test_cells_of_a_large_job_have_no_gaps_between_them() -> None:
    hosts = [f"host-{rank // 8}" for rank in range(12_288)]
    large, small = drawn_hosts(made_times(1, 12_288), hosts), drawn_hosts(made_times(1, 8), hosts[:8])
    assert (large.data[0].xgap, large.data[0].ygap) == (0, 0)
    assert small.data[0].xgap > 0


def test_a_host_box_shows_the_median_and_the_rank() -> None:
    figure = drawn_hosts(made_times(9, 4, slow=2), ["x"] * 4, [2])
    assert "<b>2</b><br>1.40x" in [note.text for note in figure.layout.annotations]


def test_thinned_curve_keeps_its_peaks() -> None:
    value = np.zeros(100_000)
    value[54_321] = 9.0
    step, kept = thinned(np.arange(100_000), value)
    assert len(step) <= MAX_POINTS
    assert step[kept.argmax()] == 54_321


def test_no_graph_can_upload_its_data() -> None:
    assert GRAPH_CONFIG["showSendToCloud"] is False
    assert GRAPH_CONFIG["plotlyServerURL"] == ""


def test_room_for_long_names_is_limited() -> None:
    short, long = room_for(["ranks 3, 5"]), room_for(["gpu-" + "0" * 400])
    assert short < long == MOST_LABELS_PX
