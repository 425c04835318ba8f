"""What the server answers to the parts of a page whose first answer came without some of them, as a browser asks it."""

from typing import NamedTuple

import httpx
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.reader import StoreReader
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun

SHOWN = "drawn a moment ago"


class Part(NamedTuple):
    """One of each kind: its view, the ids of what is drawn and of the panel around it, the properties of both, and the
    one that tells what it shows."""

    view: str
    drawing: dict[str, str]
    panel: dict[str, str]
    of_drawing: tuple[str, ...]
    of_panel: tuple[str, ...]

    def outputs(self) -> list[tuple[dict[str, str], str]]:
        return [*((self.drawing, name) for name in self.of_drawing), *((self.panel, name) for name in self.of_panel)]


REGION = Part("heatmap", {"region": "heat-says"}, {"region": "heat-says"}, ("children",), ("data-drawn",))
CHART = Part(
    "heatmap",
    {"chart": "hosts", "part": "graph"},
    {"chart": "hosts", "part": "panel"},
    ("figure", "style"),
    ("className", "data-kind"),
)
CANVAS = Part(
    "timeline",
    {"canvas": "timeline", "part": "spans"},
    {"canvas": "timeline", "part": "panel"},
    ("data", "selected", "zoom", "pinned", "area"),
    ("className", "data-kind"),
)


def is_drawn(address: str, part: Part, shown: str | None, some: bool, changed: list[str]) -> bool:
    search = f"?view={part.view}&run=made"
    question = {
        "output": f"..{'...'.join(f'{_matched(one)}.{name}' for one, name in part.outputs())}..",
        "outputs": [{"id": one, "property": name} for one, name in part.outputs()],
        "inputs": [
            {"id": "here", "property": "data", "value": {"search": search, "some": some}},
            {"id": "freshness", "property": "data", "value": None},
        ],
        "state": [
            {"id": "url", "property": "search", "value": search},
            {"id": part.panel, "property": part.of_panel[-1], "value": shown},
        ],
        "changedPropIds": changed,
    }
    told = httpx.post(f"{address}_dash-update-component", json=question, timeout=60).raise_for_status()
    return bool(told.json()["response"])


def _matched(identity: dict[str, str]) -> str:
    """As Dash writes it in the name of a callback."""
    kind, *rest = identity
    written = [f'"{kind}":["MATCH"]', *(f'"{name}":"{identity[name]}"' for name in rest)]
    return f"{{{','.join(written)}}}"


@pytest.mark.parametrize("part", [REGION, CHART, CANVAS], ids=["region", "chart", "canvas"])
def test_what_came_with_the_page_is_not_drawn_again(store: EmbeddedStore, run: SyntheticRun, part: Part) -> None:
    page_is_up, told = ["here.data"], ["here.data", "freshness.data"]
    with serving(StoreReader(store)) as address:
        httpx.get(f"{address}_dash-dependencies").raise_for_status()
        assert not is_drawn(address, part, SHOWN, some=True, changed=page_is_up)
        assert is_drawn(address, part, None, some=True, changed=page_is_up)
        assert is_drawn(address, part, SHOWN, some=False, changed=page_is_up)
        assert is_drawn(address, part, SHOWN, some=True, changed=told)
