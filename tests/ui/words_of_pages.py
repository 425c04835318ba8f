"""What a part of a page says, as text, without a browser."""

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
