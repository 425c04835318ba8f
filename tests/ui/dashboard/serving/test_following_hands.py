"""Answers of the server after a user changed a control, requested as a browser does it."""

from collections.abc import Iterator
from typing import Any

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.asked import Property, PropertyValue, ask
from tests.ui.served_dashboard import serving

SHOWN = {"stage": "forward-compute", "metric": "ratio", "clock": "own", "first": "", "last": ""}
SEARCH = "?view=heatmap&run=slow-rank-5"


@pytest.fixture(scope="module")
def address(store: EmbeddedStore) -> Iterator[str]:
    with serving(StoreReader(store)) as address:
        yield address


def answer(address: str, changed: list[str], brush: object = None, **controls: str) -> dict[str, Any]:
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
    return ask(address, [("goes-to", "data"), ids], inputs, [], changed)


@pytest.mark.parametrize("also", [[], ["url.search"], ["freshness.data"]])
def test_changed_control_sets_the_address_even_if_other_inputs_changed(address: str, also: list[str]) -> None:
    found = answer(address, [*also, '{"control":"metric"}.value'], metric="ms")
    assert found["goes-to"]["data"][:2] == [SEARCH, f"{SEARCH}&metric=ms"]
    assert [*found] == ["goes-to"]


def test_only_a_control_that_differs_from_the_address_is_set(address: str) -> None:
    assert answer(address, ["url.search"]) == {}
    assert answer(address, ["url.search"], metric="ms") == {'{"control":"metric"}': {"value": "ratio"}}


def test_newly_created_controls_do_not_change_the_address(address: str) -> None:
    every = [f'{{"control":"{name}"}}.value' for name in SHOWN]
    assert answer(address, every, metric="ms") == {}


def test_drag_along_the_steps_of_a_chart_selects_them(address: str) -> None:
    drag = {"chart": "cells", "first": 10.6, "last": 20.4, "number": 1}
    found = answer(address, ["brushed.data"], drag)
    assert found["goes-to"]["data"][:2] == [SEARCH, f"{SEARCH}&steps=11-20"]
    for other in (
        {**drag, "chart": "hosts"},
        {**drag, "chart": "none"},
        {**drag, "first": "x"},
        [],
    ):
        assert "goes-to" not in answer(address, ["brushed.data"], other)
