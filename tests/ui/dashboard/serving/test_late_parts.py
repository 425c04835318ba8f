"""Answers of the server to the parts that did not come with a page, requested as a browser does it."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.asked import Property, PropertyValue, ask
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun

SHOWN = "drawn a moment ago"


class Part(NamedTuple):
    """A part of each kind: its view, the ids of its drawing and of its panel, and the properties of both.

    The last property of the panel identifies the shown content.
    """

    view: str
    drawing: dict[str, str]
    panel: dict[str, str]
    of_drawing: tuple[str, ...]
    of_panel: tuple[str, ...]

    def outputs(self) -> list[Property | list[Property]]:
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


PAGE_IS_UP, DATA_ARRIVED = ["here.data"], ["here.data", "freshness.data"]


@pytest.fixture(scope="module")
def address(store: EmbeddedStore, run: SyntheticRun) -> Iterator[str]:
    with serving(StoreReader(store)) as address:
        yield address


def is_drawn(address: str, part: Part, shown: str | None, some: bool, changed: list[str]) -> bool:
    search = f"?view={part.view}&run=made"
    inputs = [("here", "data", {"search": search, "some": some}), ("freshness", "data", None)]
    state: list[PropertyValue] = [("url", "search", search), (part.panel, part.of_panel[-1], shown)]
    return bool(ask(address, part.outputs(), inputs, state, changed))


@pytest.fixture(params=[REGION, CHART, CANVAS], ids=["region", "chart", "canvas"])
def part(request: pytest.FixtureRequest) -> Part:
    kind: Part = request.param
    return kind


def test_part_that_came_with_the_page_is_not_drawn_again(address: str, part: Part) -> None:
    assert not is_drawn(address, part, SHOWN, some=True, changed=PAGE_IS_UP)


def test_part_that_did_not_come_with_the_page_is_drawn(address: str, part: Part) -> None:
    assert is_drawn(address, part, None, some=True, changed=PAGE_IS_UP)


def test_every_part_is_drawn_when_no_part_came_with_the_page(address: str, part: Part) -> None:
    assert is_drawn(address, part, SHOWN, some=False, changed=PAGE_IS_UP)


def test_part_that_came_with_the_page_is_drawn_again_when_new_data_arrived(address: str, part: Part) -> None:
    assert is_drawn(address, part, SHOWN, some=True, changed=DATA_ARRIVED)
