"""The SQL page in a real browser with a real server: queries run, and a forbidden query is rejected."""

import socket

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from telemetry.stores.interface import StoreReader
from telemetry.stores.open import open_store
from tests.browser.on_page import region
from tests.clickhouse_server import SQL_USER, ClickHouseServer
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.serving.sql_route import VARIABLE

pytestmark = [pytest.mark.browser, pytest.mark.clickhouse]


def test_sql_page_runs_the_query_of_a_page_and_shows_the_error_of_a_forbidden_query(
    page: Page,
    context: BrowserContext,
    clickhouse_server: ClickHouseServer,
    site: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(clickhouse_server.url("browsed"))
    run = SyntheticRun(run_id="made")
    run.introduce(store)
    run.advance(store, 3)
    monkeypatch.setenv(VARIABLE, clickhouse_server.url("browsed", user=SQL_USER))
    with serving(StoreReader(store), site) as address:
        page.goto(f"{address}?view=sql&run=made")
        sql, field = region(page, "sql"), page.locator("#sql-text")
        sql.get_by_role("button", name="overview: step time of each step").click()
        sql.get_by_role("button", name="Run", exact=True).click()
        expect(sql.locator(".sql-state")).to_contain_text("3 rows, ")
        assert sql.locator(".sql-rows thead").inner_text().split() == [
            *("step", "start_ns", "duration_ns", "num_ranks", "num_spans")
        ]
        field.fill("SELECT '<b>' AS text")
        field.press("Control+Enter")
        expect(sql.locator(".sql-state")).to_contain_text("1 row, ")
        expect(sql.locator(".sql-rows td")).to_have_text("<b>")
        page.goto("about:blank")
        refused = context.new_page()  # the browser logs a status of 400 as an error
        refused.goto(f"{address}?view=sql&run=made")
        refused.locator("#sql-text").fill("DROP TABLE spans")
        refused.locator("#sql-text").press("Control+Enter")
        expect(refused.locator(".sql-state")).to_contain_text("readonly mode")
        refused.close()
    store.close()
