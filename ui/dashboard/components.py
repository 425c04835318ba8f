"""Our Dash components: static trees without callbacks, and the timeline.

Dash keeps state for each of its components, which takes a browser milliseconds each: a table of 64 ranks took two
seconds. Elements without an id never change. ``ui/dashboard/assets/still.js`` draws them as one component.

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
"""Components without callbacks, by namespace. None stands for all components of a namespace."""


class Still(Component):  # type: ignore[misc]
    """A static tree that the browser draws as one component. ``tree``: the tree as JSON of Dash."""

    _namespace = "rankscope"
    _type = "Still"
    _children_props: ClassVar[list[str]] = []
    _base_nodes: ClassVar[list[str]] = []
    _valid_wildcard_attributes: ClassVar[list[str]] = []
    available_wildcard_properties: ClassVar[list[str]] = []
    _prop_names: ClassVar[list[str]] = ["tree"]
    available_properties: ClassVar[list[str]] = _prop_names


def written(component: Component | None) -> Any:
    """A component as JSON of Dash."""
    return json.loads(json.dumps(component, cls=PlotlyJSONEncoder))


def stilled(node: Any) -> Any:
    """The page ``node`` (JSON of Dash), with each subtree without an id as one component."""
    if isinstance(node, list):
        return [stilled(child) for child in node]
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
        return all(_is_still(child) for child in node)
    if not _is_component(node):
        return True
    types = PLAIN.get(node["namespace"], set())
    is_plain = (types is None or node["type"] in types) and "id" not in node["props"]
    return is_plain and all(_is_still(child) for child in node["props"].values())


def _size(node: Any) -> int:
    """The number of components in a tree."""
    if isinstance(node, list):
        return sum(_size(child) for child in node)
    return 1 + sum(_size(child) for child in node["props"].values()) if _is_component(node) else 0


class SpanTimeline(Component):  # type: ignore[misc]
    """Spans of some ranks on a canvas that can be zoomed, searched and clicked. Browser part: ``assets/timeline/``.

    Inputs:

    * ``data``: what ``ui.dashboard.pages.timeline.spans_buffer`` returns; None draws nothing
    * ``selected``: ``{"rank": 5, "seq": "1042"}``, or None
    * ``zoom``: ``[first, last]`` in nanoseconds from the earliest span; None shows all
    * ``pinned``: ranks whose rows stay at the top
    * ``area``: ``[first, last, top, bottom]``: two times as in ``zoom``, ranks of the outer rows; or None
    * ``suspects``: ranks to mark
    * ``theme``: ``light``, ``dark``, or ``auto`` for the theme of the page

    Outputs, each with an increasing ``number``, so that an equal value is also reported:

    * ``clicked``: ``{"rank", "seq", "number"}`` of the chosen span; ``rank`` is None if no span is chosen
    * ``hovered``: the same for the span under a resting pointer
    * ``zoomed``: ``{"range": [first, last] or None, "number"}``, after zoom or pan
    * ``marked``: ``{"area": [first, last, top, bottom] or None, "number"}``
    * ``pins``: ``{"ranks": [...], "number"}``
    """

    _namespace = "rankscope"
    _type = "SpanTimeline"
    _children_props: ClassVar[list[str]] = []
    _base_nodes: ClassVar[list[str]] = []
    _valid_wildcard_attributes: ClassVar[list[str]] = []
    available_wildcard_properties: ClassVar[list[str]] = []
    _prop_names: ClassVar[list[str]] = [
        "id",
        "label",
        "data",
        "selected",
        "zoom",
        "pinned",
        "area",
        "suspects",
        "theme",
        "clicked",
        "hovered",
        "zoomed",
        "marked",
        "pins",
    ]
    available_properties: ClassVar[list[str]] = _prop_names

    def __init__(self, **props: Any) -> None:
        """``id``, ``label`` (the picture for screen readers) and the properties above.

        Raises:
            TypeError: unknown property.
        """
        super().__init__(**props)
