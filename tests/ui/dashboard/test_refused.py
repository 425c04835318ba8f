"""Invalid requests, and errors in our code: the answer, and the log entry."""

import logging
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.ui.asked import Property, PropertyValue, ask
from tests.ui.served_dashboard import serving_app
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.app import mount_dashboard
from ui.dashboard.data import Reads
from ui.dashboard.serving import callbacks
from ui.dashboard.serving.drawing import draw_page
from ui.dashboard.view_state import View, ViewState


@pytest.fixture(scope="module")
def address(store: EmbeddedStore, run: SyntheticRun) -> Iterator[str]:
    server = FastAPI()
    mount_dashboard(server, StoreReader(store))
    with serving_app(server) as address:
        yield address


@each_case(
    "body", [b"", b"garbage", b"[]", b"{}", b"1", b'{"output": 3}', b'{"output": "x.y", "inputs": []}', b"\xff" * 99]
)
def test_invalid_callback_request_returns_status_400_and_is_logged(
    address: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    answer = httpx.post(f"{address}_dash-update-component", content=body, verify=False)
    assert httpx.get(address, verify=False).status_code == 200
    assert answer.status_code == 400
    assert "reload the page" in answer.json()["error"]
    assert [one.levelno for one in caplog.records if one.name == "ui.dashboard.app"] == [logging.WARNING]


def test_error_in_a_callback_is_logged_with_its_traceback(
    address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def freshness(*_: object) -> None:
        raise ZeroDivisionError("made")

    monkeypatch.setattr(callbacks, "freshness", freshness)
    outputs: list[Property] = [("freshness", "data"), ("known", "data"), ("connection", "children")]
    search = "?view=overview&run=made"
    shown: list[PropertyValue] = [("page", "data-drawn", "overview/made/None/page"), ("known", "data", None)]
    clock = ("clock", "n_intervals", 1)
    assert ask(address, outputs, [clock], [("url", "search", search), *shown], ["clock.n_intervals"]) == {}
    written = [one for one in caplog.records if one.name == "ui.dashboard.app"]
    assert [type(one.exc_info[1]) for one in written if one.exc_info] == [ZeroDivisionError]


def test_page_that_cannot_be_drawn_shows_an_error_and_recovers(
    reads: Reads, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = ViewState(view=View.OVERVIEW, run="made")
    with monkeypatch.context() as broken:
        broken.setattr(reads, "attempts", lambda _: 1 / 0)
        drawn = draw_page(state, reads)
        assert "This page could not be drawn" in str(drawn.make())
    assert "ZeroDivisionError" in caplog.text
    assert draw_page(state, reads).key != drawn.key
