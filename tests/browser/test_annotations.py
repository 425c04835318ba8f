"""Tags and saved views in a browser: edit tags with the write token, save the filtered list, and open it from a run."""

import re
import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.conftest import log_in
from tests.browser.on_page import region
from tests.deadline import until
from tests.telemetry.served import serving
from tests.ui.made_annotations import annotate
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.app import mount_dashboard

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def collector(store: EmbeddedStore, site: socket.socket) -> Iterator[str]:
    """A collector with its dashboard and two runs, one with a tag."""
    for name in ("first", "second"):
        run = SyntheticRun(run_id=name)
        run.introduce(store)
        run.advance(store, 3)
    annotate(store, "tag", "first", name="old")
    app = create_app(store, CollectorSettings.checked(token="all", write_token="in", read_token="out", linger_s=0.0))
    mount_dashboard(app, StoreReader(store), takes_actions=True)
    with serving(app, site) as url:
        yield url


def test_tags_are_edited_with_the_write_token_and_the_filtered_list_is_a_saved_view(
    context: BrowserContext, collector: str
) -> None:
    log_in(context, collector, "out")
    with context.new_page() as page:
        page.goto(f"{collector}/?view=runs")
        runs = region(page, "runs")
        runs.get_by_role("button", name="Edit the tags of first").click()
        page.get_by_label("Your name").fill("Ada")
        page.get_by_label("Tags:").fill("baseline driver-560")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("alert")).to_contain_text("this token may only read")
        page.get_by_label("Write token of the collector").fill("in")
        page.get_by_role("button", name="Send").click()
        expect(runs.locator(".tag")).to_have_text(["baseline", "driver-560"])
        runs.get_by_role("link", name="driver-560").click()
        expect(page).to_have_url(re.compile("tag=driver-560"))
        expect(runs.locator(".run-link")).to_have_text(["first"])
        menu = page.locator(".views-menu")
        menu.locator("summary").click()
        menu.get_by_role("button", name="Save this view").click()
        page.get_by_label("Name of the view").fill("<b>560</b>")
        page.get_by_role("button", name="Send").click()
        view = menu.get_by_role("link", name="<b>560</b>")

        def is_listed() -> bool:
            """Pages may show an older list of views for about a second."""
            page.goto(f"{collector}/?view=grid&run=second&rank=3")
            menu.locator("summary").click()
            return view.count() == 1

        until(is_listed, seconds=30, what="the saved view in the menu of another page")
        view.click()
        expect(runs.locator(".run-link")).to_have_text(["first"])
        expect(menu.get_by_role("link")).to_be_hidden()
        page.evaluate("localStorage.clear()")
