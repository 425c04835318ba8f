"""The text of a part of a page, and the views of its links, without a browser."""

from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.serving.drawing import draw_region
from ui.dashboard.view_state import View, ViewState


def said(
    region: str,
    reads: Reads,
    rank: int | None = None,
    view: View = View.HANG,
    run: str = "made",
    attempt: int | None = None,
) -> str:
    """The words of a region, each separated by a space."""
    drawn = draw_region(region, ViewState(view=view, run=run, attempt=attempt, rank=rank), reads, by_clock=False)
    assert drawn is not None
    words = " ".join(texts(drawn.make()))
    return " ".join(words.split())


def texts(content: object) -> list[str]:
    """The strings of a component, written as JSON of Dash, in order."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [text for one in content for text in texts(one)]
    if not isinstance(content, dict):
        return []
    names = {"Alert": ("title", "children"), "Still": ("tree",)}.get(content["type"], ("children",))
    return [text for name in names for text in texts(content["props"].get(name))]


def leads_to(content: object) -> list[ViewState]:
    """The views of all links of a component, written as JSON of Dash, in order."""
    if isinstance(content, list):
        return [view for one in content for view in leads_to(one)]
    if not isinstance(content, dict):
        return []
    here = [parse_search(content["props"]["href"]).state] if content.get("type") == "Link" else []
    return here + [view for one in content.values() for view in leads_to(one)]
