"""What the server answers where somebody has used a control, as a browser asks it."""

from typing import Any

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.asked import Property, PropertyValue, ask
from tests.ui.served_dashboard import serving

SHOWN = {"stage": "forward-compute", "metric": "ratio", "clock": "own", "first": "", "last": ""}
SEARCH = "?view=heatmap&run=slow-rank-5"


def answer(store: EmbeddedStore, changed: list[str], **controls: str) -> dict[str, Any]:
    """``controls``: values that are not as :data:`SHOWN`."""
    ids: list[Property] = [({"control": name}, "value") for name in SHOWN]
    values = {**SHOWN, **controls}
    shown: list[PropertyValue] = [({"control": name}, "value", values[name]) for name in SHOWN]
    inputs: list[PropertyValue | list[PropertyValue]] = [
        ("url", "search", SEARCH),
        ("freshness", "data", None),
        shown,
        [],
    ]
    with serving(StoreReader(store)) as address:
        return ask(address, [("goes-to", "data"), ids], inputs, [], changed)


@pytest.mark.parametrize("also", [[], ["url.search"], ["freshness.data"]])
def test_a_control_is_followed_whatever_else_has_changed(store: EmbeddedStore, also: list[str]) -> None:
    found = answer(store, [*also, '{"control":"metric"}.value'], metric="ms")
    assert found["goes-to"]["data"][:2] == [SEARCH, f"{SEARCH}&metric=ms"]
    assert [*found] == ["goes-to"]


def test_only_a_control_that_shows_something_else_is_set(store: EmbeddedStore) -> None:
    assert answer(store, ["url.search"]) == {}
    assert answer(store, ["url.search"], metric="ms") == {'{"control":"metric"}': {"value": "ratio"}}


def test_controls_that_have_just_come_lead_nowhere(store: EmbeddedStore) -> None:
    every = [f'{{"control":"{name}"}}.value' for name in SHOWN]
    assert answer(store, every, metric="ms") == {}
