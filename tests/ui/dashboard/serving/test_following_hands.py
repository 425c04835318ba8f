"""Answers of the server after a user changed a control, requested as a browser does it."""

from typing import Any

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.asked import Property, PropertyValue, ask
from tests.ui.served_dashboard import serving

SHOWN = {"stage": "forward-compute", "metric": "ratio", "clock": "own", "first": "", "last": ""}
SEARCH = "?view=heatmap&run=slow-rank-5"


def answer(store: EmbeddedStore, changed: list[str], brush: object = None, **controls: str) -> dict[str, Any]:
    """``controls``: values that differ from :data:`SHOWN`. ``brush``: the newest drag along a chart."""
    ids: list[Property] = [({"control": name}, "value") for name in SHOWN]
    values = {**SHOWN, **controls}
    shown: list[PropertyValue] = [({"control": name}, "value", values[name]) for name in SHOWN]
    inputs: list[PropertyValue | list[PropertyValue]] = [
        ("url", "search", SEARCH),
        ("freshness", "data", None),
        shown,
        [],
        ("brushed", "data", brush),
    ]
    with serving(StoreReader(store)) as address:
        return ask(address, [("goes-to", "data"), ids], inputs, [], changed)


@pytest.mark.parametrize("also", [[], ["url.search"], ["freshness.data"]])
def test_changed_control_sets_the_address_even_if_other_inputs_changed(store: EmbeddedStore, also: list[str]) -> None:
    found = answer(store, [*also, '{"control":"metric"}.value'], metric="ms")
    assert found["goes-to"]["data"][:2] == [SEARCH, f"{SEARCH}&metric=ms"]
    assert [*found] == ["goes-to"]


def test_only_a_control_that_differs_from_the_address_is_set(store: EmbeddedStore) -> None:
    assert answer(store, ["url.search"]) == {}
    assert answer(store, ["url.search"], metric="ms") == {'{"control":"metric"}': {"value": "ratio"}}


def test_newly_created_controls_do_not_change_the_address(store: EmbeddedStore) -> None:
    every = [f'{{"control":"{name}"}}.value' for name in SHOWN]
    assert answer(store, every, metric="ms") == {}


def test_drag_along_the_steps_of_a_chart_selects_them(store: EmbeddedStore) -> None:
    drag = {"chart": "cells", "first": 10.6, "last": 20.4, "number": 1}
    found = answer(store, ["brushed.data"], drag)
    assert found["goes-to"]["data"][:2] == [SEARCH, f"{SEARCH}&steps=11-20"]
    for other in (
        {**drag, "chart": "hosts"},
        {**drag, "chart": "none"},
        {**drag, "first": "x"},
        [],
    ):
        assert "goes-to" not in answer(store, ["brushed.data"], other)
