"""A tree of components without ids becomes one component of Dash, and looks the same."""

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.components import stilled, written


def types(node: Any) -> Any:
    """A tree as nested lists of types. The contents of a ``Still`` are in a tuple."""
    if isinstance(node, list):
        return [types(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node["type"] == "Still":
        return ("Still", types(node["props"]["tree"]))
    return [node["type"], types(node["props"].get("children"))]


def types_of(component: Component) -> Any:
    return types(stilled(written(component)))


def test_table_becomes_one_still_component() -> None:
    table = html.Table(html.Tbody([html.Tr([html.Td("1"), html.Td("2")])]))
    assert types_of(table) == ("Still", ["Table", ["Tbody", [["Tr", [["Td", "1"], ["Td", "2"]]]]]])


def test_component_with_an_id_and_its_parents_stay_dash_components() -> None:
    found = html.Div(html.Span("old"), id={"region": "verdict"})
    around = html.Div([html.P(html.B("words")), html.Section(found), "text"])
    assert types_of(around) == [
        "Div",
        [("Still", ["P", ["B", "words"]]), ["Section", ["Div", ["Span", "old"]]], "text"],
    ]


def test_id_in_any_property_keeps_a_dash_component() -> None:
    badge = dmc.Badge("3", leftSection=html.Span("x", id="found"))
    assert types_of(html.Div(badge)) == ["Div", ["Badge", "3"]]
    assert types_of(html.Div(dmc.Badge("3", leftSection=html.Span("x")))) == ("Still", ["Div", ["Badge", "3"]])


def test_interactive_components_stay_dash_components() -> None:
    panel = html.Div([dcc.Graph(figure={}), dmc.Select(data=["a"]), dcc.Link("there", href="?view=runs")])
    assert types_of(panel) == ["Div", [["Graph", None], ["Select", None], ["Link", "there"]]]


def test_none_and_a_single_component_stay_unchanged() -> None:
    assert stilled(written(None)) is None
    assert types_of(html.P("words")) == ["P", "words"]
