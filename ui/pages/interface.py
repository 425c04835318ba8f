"""What a page is: a skeleton that paints at once, and regions that are drawn each on its own when their data is there.

Every component that callbacks find has an id of one of three kinds: a region is drawn into, a control changes the
address, a graph is clicked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dash.development.base_component import Component

from ui.reads import Reads
from ui.view_state import ViewState

Draw = Callable[[ViewState, Reads], Component | list[Component]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of a page. ``live``: drawn again when something has arrived, else only when the address changes."""

    draw: Draw
    live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A view. ``needs_steps``: without a stored step there is nothing to draw."""

    title: str
    skeleton: Callable[[], Component]
    regions: Mapping[str, Region]
    needs_run: bool = True
    needs_steps: bool = True


def region_id(name: str) -> dict[str, str]:
    return {"region": name}


def control_id(name: str) -> dict[str, str]:
    """``name`` is the field of the view that the control sets."""
    return {"control": name}


def graph_id(name: str) -> dict[str, str]:
    return {"graph": name}
