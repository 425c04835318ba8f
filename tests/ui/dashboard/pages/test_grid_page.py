"""The grid of ranks: its colours, lines and arrows, and the panel of the selected rank."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.utils import PlotlyJSONEncoder

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import AXES, Topology
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.made_fleet import SICK, tell_of_hosts
from tests.ui.made_hang import FAULT, STEP, STUCK, S, evidence_rows
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import BackgroundAnswers
from ui.dashboard.figures.grid import rank_grid
from ui.dashboard.figures.grid_colours import GridColours, by_metric, by_standing
from ui.dashboard.figures.hang import SIGNS, Standing
from ui.dashboard.pages.controls import after_click
from ui.dashboard.pages.grid.body import rank_body
from ui.dashboard.pages.grid.page import draw_grid
from ui.dashboard.records import StageTimes
from ui.dashboard.serving.drawing import draw_chart, draw_region
from ui.dashboard.view_state import Colour, Form, Metric, StepRange, View, ViewState

LARGE = Topology(dp=192, pp=8, tp=8)
MOST_BYTES = 1_500_000
LONG_S = 60.0
SHOWN = ViewState(view=View.GRID, run="moves")
STUCK_VIEW = ViewState(view=View.GRID, run="stuck")
GROUP_LINES = ["replicas of rank 2", "pipeline of rank 2", "tensor group of rank 2"]


@pytest.fixture(scope="module")
def made() -> Iterator[EmbeddedStore]:
    """A run with a slow rank and a host with faults, a stalled run, and a run to replay."""
    with memory_store() as store:
        moves = SyntheticRun(run_id="moves")
        moves.introduce(store)
        moves.advance(store, 40)
        moves.mark(store, STUCK, "restart", "after a <i>loss</i>")
        moves.beat(store, at_ns=moves.now_ns, ended=True)
        tell_of_hosts(store, moves)
        stuck = SyntheticRun(run_id="stuck", slow={})
        stuck.introduce(store)
        stuck.advance(store, STEP + 1)
        stuck.leave_evidence(store, evidence_rows(stuck.now_ns + 35 * S))
        store_simulated(store, "replayed", "slow:rank=5,factor=1.4")
        yield store


@pytest.fixture(scope="module")
def reads(made: EmbeddedStore) -> Reads:
    return Reads(StoreReader(made))


def drawn(region: str, state: ViewState, reads: Reads) -> str:
    found = draw_region(region, state, reads, by_clock=False)
    assert found is not None
    return json.dumps(found.make(), ensure_ascii=False)


def figure_of(state: ViewState, reads: Reads) -> go.Figure:
    figure = draw_grid(state, reads)
    assert figure is not None
    return figure


def notes_of(figure: go.Figure) -> str:
    return " ".join(note.text for note in figure.layout.annotations if note.text)


def links_of(text: str) -> list[str]:
    return re.findall(r'"href": "([^"]+)"', text)


def large(colours: GridColours, form: Form) -> go.Figure:
    hosts = [f"gpu-node-{rank // 8:04d}" for rank in range(LARGE.world_size)]
    draw = rank_grid if form is Form.SLICES else rank_body
    return draw(LARGE, colours, hosts, chosen=7001, path=(7001, 7002, 64), keep="k")


def test_suspect_of_a_finding_is_marked_and_selected(reads: Reads) -> None:
    figure = figure_of(SHOWN, reads)
    assert f"<b>{STUCK}</b><br>{SIGNS[Standing.SUSPECT].symbol} suspect" in notes_of(figure)
    assert notes_of(figure).count("ended") == 7
    assert f'"Rank {STUCK}"' in drawn("grid-rank", SHOWN, reads)
    assert f"rank {STUCK} (host gpu-03, dp1 pp0 tp1)" in drawn("grid-says", SHOWN, reads)


def test_hang_verdict_colours_the_ranks_and_arrows_lead_to_the_culprit(reads: Reads) -> None:
    state = replace(STUCK_VIEW, rank=2)
    figure = figure_of(state, reads)
    assert notes_of(figure).count("waiting") == 7
    assert notes_of(figure).count("behind") == 1
    assert sum(bool(note.showarrow) for note in figure.layout.annotations) == 3
    assert "rank 5 is behind" in drawn("grid-says", state, reads)
    said = drawn("grid-rank", replace(STUCK_VIEW, rank=STUCK), reads)
    for words in (FAULT, "next_batch (loader.py:88)", "Holds up", "Data flow"):
        assert json.dumps(words)[1:-1] in said


def test_each_group_of_the_selected_rank_is_outlined_in_its_own_line_style(reads: Reads) -> None:
    figure = figure_of(replace(SHOWN, rank=5), reads)
    lines = [(shape.line.dash, shape.x0, shape.x1, shape.y0, shape.y1) for shape in figure.layout.shapes]
    assert lines == [
        ("dot", 0.5, 1.5, 0.5, 1.5),
        ("dot", 3.5, 4.5, 0.5, 1.5),
        ("dash", 0.5, 1.5, -0.5, 1.5),
        ("solid", -0.5, 1.5, 0.5, 1.5),
        (None, 0.5, 1.5, 0.5, 1.5),
    ]
    assert sum(bool(note.showarrow) for note in figure.layout.annotations) == 1, "activations go to the next stage"


def test_links_to_neighbours_keep_the_form_and_the_colouring_of_the_grid(reads: Reads) -> None:
    state = replace(SHOWN, rank=5, form=Form.BODY, colour=Colour.METRIC)
    links = links_of(drawn("grid-rank", state, reads))
    to_ranks = {int(link.rpartition("rank=")[2].split("&")[0]) for link in links if "view=grid" in link}
    assert to_ranks == {4, 7, 1}
    assert all("form=3d" in link and "colour=metric" in link for link in links if "view=grid" in link)


def test_selected_rank_links_to_its_groups_its_host_and_its_heat_map(reads: Reads) -> None:
    links = links_of(drawn("grid-rank", replace(SHOWN, rank=5), reads))
    for group in ("pp", "tp", "dp", "all"):
        assert any("view=timeline" in link and f"group={group}&rank=5" in link for link in links), group
    assert any("view=fleet" in link and f"host={SICK}" in link for link in links)
    assert any("view=heatmap" in link for link in links)
    assert not any("view=hang" in link for link in links)
    of_stuck = links_of(drawn("grid-rank", replace(STUCK_VIEW, rank=5), reads))
    assert any("view=hang" in link and "rank=5" in link for link in of_stuck)


def test_selected_rank_lists_the_events_of_its_host_and_its_own(reads: Reads) -> None:
    said = drawn("grid-rank", replace(SHOWN, rank=5), reads)
    for words in ("eth0 link-down no carrier", "gpu1 gpu-xid 48 <b>double bit</b>", "restart after a <i>loss</i>"):
        assert words in said
    assert "gpu-seen" not in said
    assert "No event" in drawn("grid-rank", replace(SHOWN, rank=0), reads)


def place_of(words: str) -> str:
    """The coordinates in the text of a cell, such as ``dp1 pp0 tp1``."""
    return words.partition("; ")[0].split(", ")[1]


@pytest.mark.parametrize("form", list(Form))
def test_grid_colours_show_the_time_of_a_stage(reads: Reads, form: Form) -> None:
    state = replace(SHOWN, colour=Colour.METRIC, stage=Stage.BACKWARD_COMPUTE, form=form)
    cells = figure_of(state, reads).data[0]
    text = [words for row in cells.text for words in row] if form is Form.SLICES else cells.text
    ratio = {place_of(words): float(words.split(", ")[-1].split("x")[0]) for words in text if words}
    assert max(ratio, key=lambda place: ratio[place]) == "dp1 pp0 tp1"
    assert "view=" not in drawn("grid-says", state, reads)
    assert "backward-compute: the slowest is rank 5" in drawn("grid-says", state, reads)


def test_grid_colours_show_the_slowdown_that_each_rank_causes(reads: Reads) -> None:
    state = ViewState(view=View.GRID, run="replayed", colour=Colour.BLAME)
    reads.background = BackgroundAnswers(4, wait_s=LONG_S)
    assert "slowdown (S)" in drawn("grid-says", state, reads)
    words = [text for row in figure_of(state, reads).data[0].text for text in row if text]
    alone = {place_of(text): float(text.split("alone: ")[1].split("x")[0]) for text in words}
    assert alone["dp1 pp0 tp0"] == alone["dp1 pp0 tp1"] == max(alone.values()) > 1.05


def test_ranks_without_recorded_values_are_drawn_and_selectable() -> None:
    ns = np.array([[1e6, np.nan, 2e6, np.nan]])
    times = StageTimes(
        stage=Stage.GC, steps=np.array([1]), ns=ns, ratio=ns / 1e6, step_ns=np.array([1e9]), basis="wall"
    )
    colours = by_metric(times, Metric.RATIO, ())
    for figure in (
        rank_grid(Topology(dp=4), colours, [""] * 4, chosen=1, path=(), keep="k"),
        rank_body(Topology(dp=4), colours, [""] * 4, chosen=1, path=(), keep="k"),
    ):
        known, unknown = figure.data[:2]
        assert np.isfinite(np.asarray(known.z, dtype=float)).sum() == 2
        assert np.isfinite(np.asarray(unknown.z, dtype=float)).sum() == 2
        assert "nothing recorded" in str(unknown.text)


def test_3d_grid_has_a_mark_for_every_rank_and_a_line_for_every_group(reads: Reads) -> None:
    figure = figure_of(replace(STUCK_VIEW, rank=2, form=Form.BODY), reads)
    marks = figure.data[0]
    places = zip(marks.x.tolist(), marks.y.tolist(), marks.z.tolist(), strict=True)
    place = {rank: at for (rank, _), at in zip(marks.customdata, places, strict=True)}
    assert place[2] == (1, 0, 0)
    assert place[5] == (0, 1, 1)
    named = [trace for trace in figure.select_traces("scatter3d") if trace.name]
    lines = {trace.name: len(trace.x) for trace in named}
    assert lines == dict.fromkeys(GROUP_LINES, 2) | {"waiting chain from rank 2 to the root cause": 4}
    assert len({trace.line.color for trace in named}) == 4, "dashes cannot be distinguished in 3D"


def test_only_slices_show_the_outlines_of_groups_in_their_legend(reads: Reads) -> None:
    samples = {
        form: drawn("grid-title", replace(SHOWN, rank=5, form=form), reads).count("line-sample") for form in Form
    }
    assert samples == {Form.SLICES: 3, Form.BODY: 0}


def test_the_legend_names_the_rank_of_each_line_and_the_mark_of_suspects(reads: Reads) -> None:
    by_time = replace(SHOWN, rank=5, colour=Colour.METRIC)
    said = drawn("grid-title", by_time, reads)
    for words in (
        "tensor group of rank 5",
        "pipeline of rank 5",
        "replicas of rank 5",
        "▲ suspect: named by a finding",
    ):
        assert f'"{words}"' in said
    assert "◆ suspect: named by a finding" in drawn("grid-title", replace(by_time, form=Form.BODY), reads)
    assert 'named by a finding"' not in drawn("grid-title", replace(SHOWN, rank=5), reads).replace('"title": "', "")


@pytest.mark.parametrize("form", list(Form))
def test_grid_of_12288_ranks_stays_below_the_size_limit(form: Form) -> None:
    random = np.random.default_rng(0)
    ns = random.normal(40e6, 1e6, (3, LARGE.world_size))
    times = StageTimes(
        stage=Stage.FORWARD_COMPUTE, steps=np.arange(3), ns=ns, ratio=ns / 40e6, step_ns=np.full(3, 1e9), basis="wall"
    )
    by_time = (by_metric(times, metric, (7001,)) for metric in Metric)
    for colours in (*by_time, by_standing([Standing.WAITING] * LARGE.world_size)):
        figure = large(colours, form)
        assert len(json.dumps(figure, cls=PlotlyJSONEncoder)) < MOST_BYTES


def test_large_3d_grid_shows_the_slices_of_the_selected_rank_and_the_rank_that_is_behind() -> None:
    how = [Standing.BEHIND if rank == 100 else Standing.WAITING for rank in range(LARGE.world_size)]
    far, near, standing_out = large(by_standing(how), Form.BODY).data[:3]
    here = LARGE.place(7001)
    groups = {rank for axis in AXES for rank in LARGE.group(7001, along=axis)} | {7002, 64}
    assert {rank for rank, _ in near.customdata} == groups
    faint = [LARGE.place(rank) for rank, _ in far.customdata]
    assert all(here.dp == one.dp or here.pp == one.pp or here.tp == one.tp for one in faint)
    assert len(faint) + len(groups) < LARGE.world_size / 3
    assert [rank for rank, _ in standing_out.customdata] == [100]


@each_case("topology", [Topology(), Topology(dp=3), Topology(pp=4), Topology(tp=8)])
def test_3d_grid_of_fewer_than_three_dimensions_is_drawn(topology: Topology) -> None:
    colours = by_standing([Standing.RUNNING] * topology.world_size)
    figure = rank_body(topology, colours, [""] * topology.world_size, chosen=0, path=(), keep="k")
    assert len(figure.data[0].x) == topology.world_size


def test_click_selects_a_rank_in_both_forms_of_the_grid() -> None:
    for form in Form:
        state = replace(SHOWN, form=form)
        assert after_click(state, "grid", {"customdata": [7, 7]}) == replace(state, rank=7)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (replace(SHOWN, rank=64), "There is no rank 64"),
        (replace(SHOWN, steps=StepRange(400, 500)), "Steps 400 to 500 are not stored"),
    ],
)
def test_unknown_rank_or_steps_are_reported_once_and_the_grid_is_hidden(
    reads: Reads, state: ViewState, words: str
) -> None:
    assert words in drawn("grid-says", state, reads)
    assert "could not be drawn" not in drawn("grid-controls", state, reads)
    for quiet in ("grid-title", "grid-rank"):
        assert drawn(quiet, state, reads) == "null"
    plotted = draw_chart("grid", state, reads, None)
    assert plotted is not None
    assert plotted.panel == "panel hidden"
