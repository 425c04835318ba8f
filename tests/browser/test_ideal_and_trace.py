"""The lost time of a step and its trace file, in a real browser."""

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from playwright.sync_api import Page, expect
from starlette.responses import HTMLResponse

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.on_page import (
    DEADLINE_MS,
    control,
    region,
    spans_canvas,
    told_by_timeline,
    wait_until_drawn,
)
from tests.diagnose.trace.opened import opened_json
from tests.ui.served_dashboard import serving, serving_app
from tests.ui.simulated_run import store_simulated
from ui.dashboard.pages.timeline.perfetto import VARIABLE

pytestmark = pytest.mark.browser
VIEWER = """<!doctype html><title>viewer</title><p></p><script>
addEventListener("message", async ({data, source}) => {
    if (source !== opener) return;
    if (data === "PING") return source.postMessage("PONG", "*");
    const digest = await crypto.subtle.digest("SHA-256", data.perfetto.buffer);
    const hex = [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    document.querySelector("p").textContent = [data.perfetto.title, data.perfetto.fileName, hex].join(" | ");
});
</script>"""
"""A page that receives files as Perfetto documents it (perfetto.dev: deep linking)."""


@pytest.fixture(scope="module")
def slow(store: EmbeddedStore, address: str) -> str:
    """Address of the timeline of a run whose rank 5 is slow."""
    store_simulated(store, "slow", "slow:rank=5,factor=1.4")
    return f"{address}?view=timeline&run=slow&group=pp&rank=5&step=25"


@pytest.mark.long
def test_step_shows_its_lost_time_and_its_trace_is_downloaded(
    page: Page, slow: str, address: str, tmp_path: Path
) -> None:
    page.goto(slow)
    wait_until_drawn(page)
    control(page, "ideal").get_by_text("Shown").click()
    page.wait_for_url("**ideal=shown**")
    expect(region(page, "ideal")).to_contain_text(") is lost.", timeout=DEADLINE_MS)
    page.wait_for_function("document.querySelector('.span-timeline').timeline.ideal()", timeout=DEADLINE_MS)
    ideal = told_by_timeline(page, "timeline.ideal()")
    assert ideal["lost"] > 0
    assert len(ideal["rows"]) == 2

    wait_until_drawn(page)
    spans_canvas(page).scroll_into_view_if_needed()
    key = told_by_timeline(page, "timeline.spans({stage: 'backward-compute', rank: 5})[1]")
    real, bar = (told_by_timeline(page, f"timeline.{name}(argument)", key) for name in ("where", "whereIdeal"))
    assert bar["y"] > real["y"] + real["height"]
    assert bar["width"] < real["width"]
    page.mouse.move(bar["x"] + bar["width"] / 2 - 2, bar["y"] + 3)
    page.mouse.move(bar["x"] + bar["width"] / 2, bar["y"] + 3)
    expect(page.locator(".span-timeline-tooltip")).to_contain_text("backward-compute, ideal")
    expect(page.locator(".span-timeline-tooltip")).to_contain_text("measured: ")
    page.mouse.click(bar["x"] + bar["width"] / 2, bar["y"] + 3)
    page.wait_for_url(f"**span=5-{key['seq']}**")

    page.get_by_text("Open in Perfetto").click()
    link = region(page, "trace").get_by_role("link", name="Chrome JSON").first
    with page.expect_download(timeout=DEADLINE_MS) as given:
        link.click()
    path = tmp_path / given.value.suggested_filename
    given.value.save_as(path)
    assert path.name == "slow-steps-25-25.json.gz"
    drawn = told_by_timeline(page, "timeline.spans().length")
    assert len(opened_json(path).slices) == drawn + 2, "the spans in the picture, and the step of each rank"

    page.goto(f"{address}?view=timeline&run=slow-rank-5&rank=5&step=20&ideal=shown")
    expect(region(page, "ideal")).to_contain_text("wait for each other in a cycle", timeout=DEADLINE_MS)
    assert told_by_timeline(page, "[timeline.ideal(), timeline.spans().length > 0]") == [None, True]


@pytest.fixture
def viewer() -> Iterator[str]:
    server = FastAPI()
    server.add_api_route("/", lambda: HTMLResponse(VIEWER), include_in_schema=False)
    with serving_app(server) as address:
        yield address


def test_a_trace_opens_in_a_new_tab_that_receives_the_file(
    page: Page,
    slow: str,
    store: EmbeddedStore,
    viewer: str,
    second_site: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, viewer)
    with serving(StoreReader(store), second_site) as address:
        page.goto(f"{address}?{slow.partition('?')[2]}")
        wait_until_drawn(page)
        page.get_by_text("Open in Perfetto").click()
        trace = region(page, "trace")
        button = trace.get_by_role("button", name="Open in a new tab").first
        page.context.set_offline(True)
        expect(button).to_be_disabled()
        page.context.set_offline(False)
        with page.expect_popup() as opened, page.expect_response("**/trace?**") as file:
            button.click()
        digest = hashlib.sha256(file.value.body()).hexdigest()
        expect(opened.value.locator("p")).to_have_text(f"slow, step 25 | slow-steps-25-25.json.gz | {digest}")
        opened.value.close()
        expect(trace.locator(".perfetto-answer")).to_be_empty()
        page.goto("about:blank")
