"""What has no id is one component to Dash, and looks as it did."""

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from ui.dashboard.components import stilled, written


def types(node: Any) -> Any:
    """A tree as nested lists of types; what is inside a ``Still`` too, in a tuple."""
    if isinstance(node, list):
        return [types(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node["type"] == "Still":
        return ("Still", types(node["props"]["tree"]))
    return [node["type"], types(node["props"].get("children"))]


def types_of(component: Component) -> Any:
    return types(stilled(written(component)))


def test_a_table_is_one_component() -> None:
    table = html.Table(html.Tbody([html.Tr([html.Td("1"), html.Td("2")])]))
    assert types_of(table) == ("Still", ["Table", ["Tbody", [["Tr", [["Td", "1"], ["Td", "2"]]]]]])


def test_what_callbacks_find_stays_and_so_does_all_around_it() -> None:
    found = html.Div(html.Span("old"), id={"region": "verdict"})
    around = html.Div([html.P(html.B("words")), html.Section(found), "text"])
    assert types_of(around) == [
        "Div",
        [("Still", ["P", ["B", "words"]]), ["Section", ["Div", ["Span", "old"]]], "text"],
    ]


def test_an_id_in_any_property_counts() -> None:
    badge = dmc.Badge("3", leftSection=html.Span("x", id="found"))
    assert types_of(html.Div(badge)) == ["Div", ["Badge", "3"]]
    assert types_of(html.Div(dmc.Badge("3", leftSection=html.Span("x")))) == ("Still", ["Div", ["Badge", "3"]])


def test_components_that_need_dash_stay_with_it() -> None:
    panel = html.Div([dcc.Graph(figure={}), dmc.Select(data=["a"]), dcc.Link("there", href="?view=runs")])
    assert types_of(panel) == ["Div", [["Graph", None], ["Select", None], ["Link", "there"]]]


def test_nothing_and_a_lone_component_are_left_alone() -> None:
    assert stilled(written(None)) is None
    assert types_of(html.P("words")) == ["P", "words"]
