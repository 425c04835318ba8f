"""A page that is fetched by its address is drawn before its scripts ask for it, and once."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.reader import StoreReader
from tests.deadline import until
from tests.ui.asked import ask_for_page
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun
from ui.ahead import AT_ONCE
from ui.drawing import Drawn, draw_page
from ui.reads import Reads
from ui.view_state import ViewState

SEARCH = "?view=heatmap&run=made"
ANOTHER = "?view=grid&run=made"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses of pages, as they are drawn."""
    drawn: list[str] = []

    def counted(state: ViewState, reads: Reads) -> Drawn:
        drawn.append(str(state.view))
        return draw_page(state, reads)

    monkeypatch.setattr("ui.first_answer.draw_page", counted)
    return drawn


@pytest.fixture
def address(store: EmbeddedStore, run: SyntheticRun, drawn: list[str]) -> Iterator[str]:
    with serving(StoreReader(store)) as address:
        yield address


def open_page(address: str, search: str = SEARCH) -> None:
    httpx.get(address + search).raise_for_status()


def test_a_page_is_drawn_before_its_scripts_ask_for_it(address: str, drawn: list[str]) -> None:
    open_page(address)
    until(lambda: drawn == ["heatmap"], what="the page to be drawn")
    ahead = ask_for_page(address, SEARCH)
    assert drawn == ["heatmap"]
    assert ahead["page"] == ask_for_page(address, SEARCH)["page"]
    assert drawn == ["heatmap"] * 2


def test_a_page_of_another_address_is_not_given_in_its_place(address: str, drawn: list[str]) -> None:
    open_page(address)
    until(lambda: drawn == ["heatmap"], what="the page to be drawn")
    assert ask_for_page(address, ANOTHER)["page"]["data-drawn"].startswith("grid/made/")
    assert drawn == ["heatmap", "grid"]


def test_a_page_that_nobody_asked_for_in_time_is_drawn_again(
    address: str, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.ahead.KEPT_S", 0.0)
    open_page(address)
    until(lambda: drawn == ["heatmap"], what="the page to be drawn")
    assert ask_for_page(address, SEARCH)["page"]["data-drawn"]
    assert drawn == ["heatmap"] * 2


def test_fetching_many_addresses_draws_few_pages(
    store: EmbeddedStore, run: SyntheticRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = threading.Event(), []

    def wait(state: ViewState, reads: Reads) -> Drawn:
        begun.append(state)
        go_on.wait(60)
        return Drawn("slow", lambda: None)

    monkeypatch.setattr("ui.first_answer.draw_page", wait)
    with serving(StoreReader(store)) as address:
        try:
            for rank in range(3 * AT_ONCE):
                open_page(address, f"?view=timeline&run=made&rank={rank}")
            until(lambda: len(begun) >= AT_ONCE, what="pages to be begun")
        finally:
            go_on.set()
    assert len(begun) == AT_ONCE
