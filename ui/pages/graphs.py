"""A figure on a page: named for those who cannot see it, with plotly's upload switched off."""

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from ui.figures.style import GRAPH_CONFIG
from ui.pages.interface import graph_id


def graph(name: str, figure: go.Figure, *, label: str) -> Component:
    """``label``: what the picture says, in a sentence."""
    height = f"{figure.layout.height}px"
    drawing = dcc.Graph(id=graph_id(name), figure=figure, config=GRAPH_CONFIG, style={"height": height})
    return html.Div(drawing, role="figure", className="figure", **{"aria-label": label})
