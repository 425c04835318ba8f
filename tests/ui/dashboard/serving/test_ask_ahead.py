"""Queries that the server sends before the scripts of a page request their results."""

import threading

import httpx
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.deadline import until
from tests.ui.served_dashboard import serving
from ui.dashboard.data import Reads
from ui.dashboard.serving.first_answer import AT_ONCE
from ui.dashboard.view_state import ViewState

ANOTHER = 999


def test_queries_sent_ahead_beyond_the_limit_are_dropped_and_not_queued(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, asked = threading.Event(), list[int | None]()

    def ask(state: ViewState, reads: Reads) -> None:
        asked.append(state.rank)
        go_on.wait(60)

    monkeypatch.setattr("ui.dashboard.serving.first_answer.ask", ask)
    with serving(StoreReader(store)) as address:
        try:
            for rank in range(5 * AT_ONCE):
                httpx.get(f"{address}?view=timeline&run=made&rank={rank}", verify=False).raise_for_status()
            until(lambda: len(asked) == AT_ONCE, what="those that have room")
        finally:
            go_on.set()
        until(lambda: _is_asked(address, asked), what="room for another")
    assert set(asked) == {*range(AT_ONCE), ANOTHER}


def _is_asked(address: str, asked: list[int | None]) -> bool:
    httpx.get(f"{address}?view=timeline&run=made&rank={ANOTHER}", verify=False).raise_for_status()
    return ANOTHER in asked
