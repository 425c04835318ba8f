"""The colour scale of the heat map. It stays at the top of the window while the page scrolls."""

from dash import html
from dash.development.base_component import Component
from plotly.colors import get_colorscale

from diagnose.ranges import name_some
from ui.dashboard.figures.heat_map import Colours, scale_ticks
from ui.dashboard.figures.style import SUSPECT


def colour_scale(title: str, colours: Colours, suspects: tuple[int, ...]) -> Component:
    """The scale. ``title``: what the colours show. If there are suspects, their outline is explained beside the
    scale."""
    ticks, span = [(at, label + colours.unit) for at, label in scale_ticks(colours)], colours.highest - colours.lowest
    labels = [html.Span(label, style={"left": f"{100 * (at - colours.lowest) / span:.4g}%"}) for at, label in ticks]
    scale = html.Div(
        [
            html.Div(className="scale-bar", style={"background": _gradient(colours)}),
            html.Div(labels, className="scale-ticks"),
        ],
        className="scale",
        role="img",
        **{"aria-label": f"colour scale in {colours.title}: " + ", ".join(label for _, label in ticks)},
    )
    name = html.Span(title, className="scale-title")
    return html.Div([name, scale, *_legend(colours, suspects)], className="scale-row")


def _gradient(colours: Colours) -> str:
    stops = get_colorscale(colours.scale) if isinstance(colours.scale, str) else colours.scale
    return "linear-gradient(to right, " + ", ".join(f"{colour} {100 * at:.4g}%" for at, colour in stops) + ")"


def _legend(colours: Colours, suspects: tuple[int, ...]) -> list[Component]:
    if not suspects:
        return []
    line = "var(--mantine-color-text)" if colours.outline == SUSPECT else colours.outline
    sample = html.Span(className="suspect-sample", style={"borderColor": line})
    several = "s" * (len(suspects) > 1)
    return [html.Span([sample, f"suspect: rank{several} {name_some(suspects)}"], className="scale-legend")]
