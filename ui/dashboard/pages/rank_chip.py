"""Building blocks of the panels about one rank: a chip that links to a rank, facts in pairs, the data flow."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dash import dcc, html
from dash.development.base_component import Component

from diagnose.hang.verdict import HangVerdict
from telemetry.topology import Topology
from ui.dashboard.figures.standing import SIGNS, Standing, standing_of
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import count


def part(title: str, body: Component) -> Component:
    """Something about a rank, under its heading."""
    return html.Section([html.H3(title, className="part-title"), body], className="part")


def facts_list(facts: Iterator[tuple[str, str | Component]]) -> Component:
    """Names and values."""
    return html.Dl([html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts], className="facts pairs")


def data_flow(rank: int, grid: Topology, chip: Callable[[int], Component]) -> Component:
    """Where activations come from and gradients go: the stages before and after that of ``rank``. ``chip``: a
    neighbour as a link."""
    here = grid.place(rank)
    shown = [here._replace(pp=pp) for pp in (here.pp - 1, here.pp, here.pp + 1) if 0 <= pp < grid.pp]
    stages = [
        html.Span(
            [
                html.Span(f"pp{place.pp} ", className="dim"),
                html.Strong(f"{rank}") if place == here else chip(grid.rank(place)),
            ],
            className="flow-stage",
        )
        for place in shown
    ]
    return html.Div([_flow("forward", "→", stages), _flow("backward", "←", stages)])


def _flow(name: str, arrow: str, stages: list[Component]) -> Component:
    parts: list[Component] = [html.Span(name, className="flow-name dim")]
    for at, stage in enumerate(stages):
        parts += [html.Span(arrow, className="flow-arrow"), stage] if at else [stage]
    return html.Div(parts, className=f"flow flow-{name}")


def rank_chip(rank: int, verdict: HangVerdict, state: ViewState, *, label: str = "") -> Component:
    """A rank of a hang; ``label``: in place of ``rank 5``."""
    return standing_chip(rank, standing_of(verdict, rank), state, label=label)


def standing_chip(rank: int, standing: Standing, state: ViewState, *, label: str = "") -> Component:
    """A link that chooses the rank in the hang view, or in the grid where that is shown."""
    view = View.GRID if state.view is View.GRID else View.HANG
    words = [swatch(standing), label or f"rank {rank}"]
    address = replace(state, view=view, rank=rank).search()
    return dcc.Link(words, href=address, className="rank-chip", title=f"rank {rank}: {standing}")


def rank_chips(ranks: Iterable[int], verdict: HangVerdict, state: ViewState, limit: int = 8) -> Component:
    """Several, and how many more there are."""
    listed = list(ranks)
    chips: list[Component | str] = [rank_chip(rank, verdict, state) for rank in listed[:limit]]
    more = [html.Span(f"and {count(len(listed) - limit, 'more rank')}", className="dim")] if len(listed) > limit else []
    return html.Span([*chips, *more], className="chips")


def swatch(standing: Standing) -> Component:
    """The symbol of a standing on its colour."""
    sign = SIGNS[standing]
    return html.Span(sign.symbol, className="sign", style={"background": sign.colour, "color": sign.ink})


def standing_badge(standing: Standing) -> Component:
    """Symbol and word."""
    return html.Span([swatch(standing), standing.value], className="standing", title=SIGNS[standing].means)
