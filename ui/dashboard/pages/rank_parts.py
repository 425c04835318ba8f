"""What the pages about one rank are made of: a heading with text, facts in pairs, the way of its data."""

from collections.abc import Callable, Iterator

from dash import html
from dash.development.base_component import Component

from telemetry.topology import Topology


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
