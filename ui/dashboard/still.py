"""Elements without callbacks, passed to Dash as one component.

Dash keeps state for each of its components, which takes a browser milliseconds each: a table of 64 ranks took two
seconds. Elements without an id never change: ``ui/dashboard/assets/still.js`` draws them with the same components.

    Div                         Div
      Div id=..                   Div id=..
      Table                       Still(Table Tr Td Td Tr Td Td ..)
        Tr Td Td Tr Td Td ..
"""

import json
from typing import Any, ClassVar

from dash.development.base_component import Component
from plotly.utils import PlotlyJSONEncoder

PLAIN = {
    "dash_html_components": None,
    "dash_core_components": {"Link"},
    "dash_mantine_components": {
        "Alert",
        "Badge",
        "Code",
        "Group",
        "Paper",
        "SimpleGrid",
        "Stack",
        "Table",
        "TableScrollContainer",
        "TableTbody",
        "TableTd",
        "TableTh",
        "TableThead",
        "TableTr",
        "Text",
        "Title",
        "VisuallyHidden",
    },
}
"""By namespace: components that need nothing of Dash; None: all."""


class Still(Component):  # type: ignore[misc]
    """``tree``: a component as Dash writes it, with all that is inside."""

    _namespace = "rankscope"
    _type = "Still"
    _children_props: ClassVar[list[str]] = []
    _base_nodes: ClassVar[list[str]] = []
    _valid_wildcard_attributes: ClassVar[list[str]] = []
    available_wildcard_properties: ClassVar[list[str]] = []
    _prop_names: ClassVar[list[str]] = ["tree"]
    available_properties: ClassVar[list[str]] = _prop_names


def written(component: Component | None) -> Any:
    """A component as Dash writes it."""
    return json.loads(json.dumps(component, cls=PlotlyJSONEncoder))


def stilled(node: Any) -> Any:
    """The same to look at: whatever has no id, nor anything with one inside, as one component. ``node``: as Dash writes
    it."""
    if isinstance(node, list):
        return [stilled(one) for one in node]
    if not _is_component(node) or _size(node) == 1:
        return node
    if _is_still(node):
        return Still(tree=node).to_plotly_json()
    children = node["props"].get("children")
    return {**node, "props": {**node["props"], "children": stilled(children)}}


def _is_component(node: Any) -> bool:
    return isinstance(node, dict) and "namespace" in node and "props" in node


def _is_still(node: Any) -> bool:
    if isinstance(node, list):
        return all(_is_still(one) for one in node)
    if not _is_component(node):
        return True
    types = PLAIN.get(node["namespace"], set())
    is_plain = (types is None or node["type"] in types) and "id" not in node["props"]
    return is_plain and all(_is_still(one) for one in node["props"].values())


def _size(node: Any) -> int:
    """Components in a tree, itself one of them."""
    if isinstance(node, list):
        return sum(_size(one) for one in node)
    return 1 + sum(_size(one) for one in node["props"].values()) if _is_component(node) else 0
