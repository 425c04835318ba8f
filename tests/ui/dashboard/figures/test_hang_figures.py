"""The contents of the grid, the waiting chain and the signs, without a browser."""

from dataclasses import replace

import numpy as np

from diagnose.hang.verdict import HangVerdict, State
from diagnose.hang.waits import Wait, Why
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.ui.made_hang import STUCK, made_verdict
from ui.dashboard.figures.grid import rank_grid
from ui.dashboard.figures.grid_colours import by_standing
from ui.dashboard.figures.grid_layout import lay_out
from ui.dashboard.figures.hang import SIGNS, Standing, chain_starts, delayed_by, hops, path, standing_of

LARGE = Topology(dp=192, pp=8, tp=8)
SHAPES = [
    Topology(),
    Topology(dp=2, pp=2, tp=2),
    Topology(dp=1024),
    Topology(pp=64, tp=8),
    Topology(dp=7, pp=5, tp=3),
    LARGE,
]


@each_case("topology", SHAPES)
def test_every_rank_has_its_own_cell(topology: Topology) -> None:
    layout = lay_out(topology)
    places = {layout.at(topology.place(rank)) for rank in range(topology.world_size)}
    assert len(places) == topology.world_size
    assert all(0 <= row < layout.rows and 0 <= column < layout.columns for row, column in places)


@each_case("topology", SHAPES)
def test_grid_cells_are_large_enough_to_click_for_every_topology(topology: Topology) -> None:
    assert lay_out(topology).cell_px > 5


def test_grid_of_12288_ranks_marks_the_rank_that_is_behind() -> None:
    figure = rank_grid(
        LARGE,
        by_standing([Standing.BEHIND if rank == 7001 else Standing.WAITING for rank in range(LARGE.world_size)]),
        ["gpu"] * LARGE.world_size,
        chosen=7001,
        path=(),
        keep="k",
    )
    cells, markers = figure.data
    assert np.isfinite(cells.z).sum() == LARGE.world_size
    row, column = lay_out(LARGE).at(LARGE.place(7001))
    assert (markers.x[0], markers.y[0], len(markers.x)) == (column, row, 1)
    assert cells.customdata[row, column, 0] == 7001
    assert len(figure.layout.annotations) < 100


def test_cell_text_contains_host_coordinates_and_standing_without_markup() -> None:
    figure = rank_grid(
        Topology(dp=2),
        by_standing([Standing.BEHIND, Standing.MISSING]),
        ["<i>a</i>", ""],
        chosen=None,
        path=(),
        keep="k",
    )
    assert [row[0] for row in figure.data[0].text] == [
        "&lt;i&gt;a&lt;/i&gt;, dp0 pp0 tp0; behind",
        "host unknown, dp1 pp0 tp0; missing",
    ]


def test_each_standing_has_its_own_word_symbol_and_colour() -> None:
    assert (
        len({sign.symbol for sign in SIGNS.values()}) == len({sign.colour for sign in SIGNS.values()}) == len(Standing)
    )
    grid = Topology(dp=len(Standing))
    figure = rank_grid(grid, by_standing(list(Standing)), [""] * len(Standing), chosen=None, path=(), keep="k")
    texts = " ".join(note.text for note in figure.layout.annotations)
    for standing, sign in SIGNS.items():
        assert f"{sign.symbol} {standing}" in texts


def test_selected_rank_is_outlined_and_its_waiting_chain_is_drawn() -> None:
    figure = rank_grid(
        Topology(dp=2, pp=2, tp=2), by_standing([Standing.WAITING] * 8), [""] * 8, chosen=2, path=(2, 6, 4, 5), keep="k"
    )
    (around,) = figure.layout.shapes
    assert (around.x0, around.y0) == (2.5, -0.5)
    assert sum(note.showarrow for note in figure.layout.annotations) == 3


def test_hop_to_a_rank_outside_the_grid_is_not_drawn() -> None:
    figure = rank_grid(
        Topology(dp=2, pp=2, tp=2),
        by_standing([Standing.WAITING] * 8),
        [""] * 8,
        chosen=2,
        path=(2, 6, 8, -1, 5, 4, 0),
        keep="k",
    )
    assert sum(note.showarrow for note in figure.layout.annotations) == 3


def test_waiting_chain_leads_from_a_victim_to_the_root() -> None:
    chain = hops(made_verdict(), 2)
    assert path(chain) == (2, 6, 4, STUCK)
    assert [hop.operation for hop in chain] == ["reduce_scatter #9", "recv #12", "all_gather #41"]
    assert [hop.group for hop in chain] == ["dp [2, 6]", "pp [4, 6]", "tp [4-5]"]
    assert chain[-1].why is Why.NEVER_ENTERED


def test_a_root_waits_for_no_rank_and_delays_all_others() -> None:
    verdict = made_verdict()
    assert path(hops(verdict, STUCK)) == ()
    held = delayed_by(verdict, STUCK)
    assert (held.directly, held.over_others, held.total) == ((1, 4, 7), (0, 2, 3, 6), 7)
    assert delayed_by(verdict, 2).total == 0


def test_chains_begin_at_the_ranks_that_no_rank_waits_for() -> None:
    verdict = made_verdict()
    assert chain_starts(verdict, STUCK) == (0, 1, 2, 3)  # 1 waits for the root itself, 6 is inside the chain of 2
    assert chain_starts(verdict, 2) == ()


def test_waiting_chain_of_a_cycle_ends_at_its_first_rank() -> None:
    waits = {
        rank: Wait(rank=rank, on=((rank + 1) % 3,), group=0, op="send", seq=1, why=Why.NO_PARTNER) for rank in range(3)
    }
    verdict = replace(made_verdict(), waits=waits, initiating=())
    assert path(hops(verdict, 0)) == (0, 1, 2, 0)
    assert delayed_by(verdict, 0).total == 2
    assert chain_starts(verdict, 0) == (2,)


def test_ranks_are_shown_as_running_when_there_is_no_stall() -> None:
    calm: HangVerdict = replace(made_verdict(), kind=None, states=dict.fromkeys(range(8), State.UNKNOWN))
    assert standing_of(calm, 0) is Standing.RUNNING
    assert standing_of(made_verdict(), STUCK) is Standing.BEHIND
    assert standing_of(calm, 4711) is Standing.UNKNOWN
