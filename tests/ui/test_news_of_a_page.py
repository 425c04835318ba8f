"""What the server answers to the clock of a page, as a browser asks it."""

from typing import Any

import httpx

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.reader import StoreReader
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun

SEARCH = "?view=heatmap&run=made"


def answers(store: EmbeddedStore, shown: str | None, *known: list[str] | None) -> list[dict[str, Any]]:
    """To one question for each of what is ``known``, on an address that has just become :data:`SEARCH`."""
    outputs = [("freshness", "data"), ("known", "data"), ("connection", "children")]
    with serving(StoreReader(store)) as address:
        httpx.get(f"{address}_dash-dependencies").raise_for_status()
        found = []
        for one in known:
            question = {
                "output": "..freshness.data...known.data...connection.children..",
                "outputs": [{"id": name, "property": value} for name, value in outputs],
                "inputs": [{"id": "clock", "property": "n_intervals", "value": 1}],
                "state": [
                    {"id": "url", "property": "search", "value": SEARCH},
                    {"id": "page", "property": "data-drawn", "value": shown},
                    {"id": "known", "property": "data", "value": one},
                ],
                "changedPropIds": ["clock.n_intervals"],
            }
            told = httpx.post(f"{address}_dash-update-component", json=question, timeout=60).raise_for_status()
            found.append(told.json()["response"])
    return found


def test_a_page_that_is_up_is_told_once_of_what_is_stored(store: EmbeddedStore, run: SyntheticRun) -> None:
    (first,) = answers(store, "heatmap/made/None/page", None)
    (again,) = answers(store, "heatmap/made/None/page", first["known"]["data"])
    assert first["freshness"] == first["known"]
    assert "freshness" not in again


def test_a_page_that_is_on_its_way_is_asked_for_again_only_where_it_does_not_come(
    store: EmbeddedStore, run: SyntheticRun
) -> None:
    on_its_way, lost = answers(store, "overview/made/None/page", ["known", "before"], [SEARCH])
    assert on_its_way == {"known": {"data": [SEARCH]}}
    assert lost["freshness"] == lost["known"] != on_its_way["known"]
