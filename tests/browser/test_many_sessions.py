"""Twenty sessions are open while the store becomes slow, becomes unreachable, and loses a run."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.conftest import LOADED_MS, Complaints
from tests.browser.on_page import DEADLINE_MS, region, wait_until_drawn
from tests.memory_store import memory_store
from tests.ui.served_dashboard import serving
from tests.ui.switchable import GONE, Switchable
from tests.ui.synthetic_run import SyntheticRun

pytestmark = [pytest.mark.browser, pytest.mark.long]

SESSIONS = 20
VIEWS = ("overview", "heatmap", "timeline", "grid", "whatif", "hang", "fleet", "clock", "alerts", "runs")
SLOW_S = 0.3


def test_twenty_sessions_recover_from_a_slow_and_unreachable_store_and_a_deleted_run(
    context: BrowserContext, site: socket.socket
) -> None:
    with memory_store() as store:
        reader = Switchable(StoreReader(store))
        for name in ("kept", "doomed"):
            run = SyntheticRun(run_id=name)
            run.introduce(store)
            run.advance(store, 20)
            run.beat(store, at_ns=run.now_ns, ended=True)
        with serving(reader, site) as address, sessions(context, address) as pages:
            reader.slow_s = SLOW_S
            for page in pages:
                page.reload()
            for page in pages:
                wait_until_drawn(page, timeout_ms=DEADLINE_MS)
            reader.slow_s, reader.reachable = 0.0, False
            for page in pages:
                expect(page.locator("body")).to_contain_text(GONE, timeout=DEADLINE_MS)
            delete(store, "doomed")
            reader.reachable = True
            for page in pages:
                expect(page.locator("body")).not_to_contain_text(GONE, timeout=DEADLINE_MS)
                wait_until_drawn(page, timeout_ms=DEADLINE_MS)
            for page in pages:
                if "run=doomed" in page.url and not any(view in page.url for view in ("view=alerts", "view=runs")):
                    expect(page.locator("main")).to_contain_text("No run is called doomed", timeout=DEADLINE_MS)
                elif "view=overview" in page.url:
                    expect(region(page, "verdict")).to_contain_text("rank 5")


@contextmanager
def sessions(context: BrowserContext, address: str) -> Iterator[list[Page]]:
    """Pages on all views of both runs. No page logs an error."""
    pages, complaints = [], []
    for number in range(SESSIONS):
        page = context.new_page()
        page.set_default_timeout(LOADED_MS)
        complaints.append(Complaints(page))
        run = ("kept", "doomed")[number % 2]
        page.goto(f"{address}?view={VIEWS[number // 2]}&run={run}")
        pages.append(page)
    try:
        yield pages
    finally:
        for page in pages:
            page.close()
    assert [(one.errors, one.strangers) for one in complaints] == [([], [])] * SESSIONS


def delete(store: EmbeddedStore, run_id: str) -> None:
    """Delete a run from every table, as an operator does it."""
    tables = store.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' "
        "AND name IN (SELECT table FROM system.columns WHERE database = currentDatabase() AND name = 'run_id')"
    )["name"].to_pylist()
    assert {"spans", "ranks", "heartbeats"} <= set(tables)
    for table in tables:
        store.query(f"ALTER TABLE {table} DELETE WHERE run_id = '{run_id}' SETTINGS mutations_sync = 2")
