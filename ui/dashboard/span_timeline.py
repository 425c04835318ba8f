"""The timeline as a Dash component. The browser's half is ``assets/timeline/``: plain scripts that Dash serves."""

from typing import Any, ClassVar

from dash.development.base_component import Component


class SpanTimeline(Component):  # type: ignore[misc]
    """Spans of some ranks on a canvas that is zoomed, searched and clicked.

    What it is given:

    * ``data``: what ``ui.dashboard.figures.spans_buffer`` makes; None draws nothing
    * ``selected``: ``{"rank": 5, "seq": "1042"}``, or None
    * ``zoom``: ``[first, last]`` in nanoseconds from the earliest span; None shows all
    * ``pinned``: ranks whose rows stay at the top
    * ``area``: ``[first, last, top, bottom]``: two times as in ``zoom``, ranks of the outer rows; or None
    * ``suspects``: ranks that are marked
    * ``theme``: ``light``, ``dark``, or ``auto``: as the page is

    What it tells, each with a ``number`` that grows, so that the same answer twice is told twice:

    * ``clicked``: ``{"rank", "seq", "number"}`` of the span chosen by pointer or key; ``rank`` is None: none any more
    * ``hovered``: the same of the span under the pointer, a moment after it has come to rest
    * ``zoomed``: ``{"range": [first, last] or None, "number"}``, once zoom and pan have come to rest
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
        """``id``, ``label`` (what the picture shows, in words) and the properties above.

        Raises:
            TypeError: a property that it does not have.
        """
        super().__init__(**props)
