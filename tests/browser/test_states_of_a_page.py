"""Pages in special states: live, dark, empty store, unreachable collector, hostile address."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.on_page import figure, figure_data, region, wait_for_points, wait_until_drawn
from tests.memory_store import memory_store
from tests.ui.served_dashboard import serving
from tests.ui.switchable import Switchable
from tests.ui.synthetic_run import SyntheticRun

pytestmark = pytest.mark.browser

VIEWS = ("runs", "overview", "heatmap", "timeline", "hang", "alerts")
TICK_COLOUR = """() => {
  const tick = document.querySelector('.xtick text, .ytick text');
  return tick && getComputedStyle(tick).fill;
}"""


def test_heat_map_of_a_live_run_is_updated_without_redrawing_the_page(
    page: Page, address: str, store: EmbeddedStore, live_run: SyntheticRun
) -> None:
    page.goto(f"{address}?view=heatmap&run=live")
    figure(page, "cells").evaluate("plot => { plot.dataset.kept = 'yes'; }")
    before = figure_data(page, "cells", "plot._fullData[0].x.length")
    live_run.advance(store, 3)
    live_run.beat(store, at_ns=time.time_ns())
    wait_for_points(page, "cells", before + 3)
    assert figure(page, "cells").evaluate("plot => plot.dataset.kept") == "yes"


@pytest.mark.long
def test_zoom_of_a_chart_survives_an_update(
    page: Page, address: str, store: EmbeddedStore, live_run: SyntheticRun
) -> None:
    page.goto(f"{address}?view=overview&run=live")
    wait_until_drawn(page)
    box = figure(page, "step-time").locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    zoomed = figure_data(page, "step-time", "plot.layout.xaxis.range.map(Number)")
    assert zoomed[1] - zoomed[0] < 6
    before = figure_data(page, "step-time", "plot._fullData[0].x.length")
    live_run.advance(store, 2)
    live_run.beat(store, at_ns=time.time_ns())
    page.wait_for_function(
        "before => document.querySelector('[id*=step-time] .js-plotly-plot')._fullData[0].x.length > before",
        arg=before,
    )
    assert figure_data(page, "step-time", "plot.layout.xaxis.range.map(Number)") == pytest.approx(zoomed)


SOME_VIEWS = [view if view == "overview" else pytest.param(view, marks=pytest.mark.long) for view in VIEWS]


@pytest.mark.parametrize("view", SOME_VIEWS)
def test_page_and_figures_follow_the_colour_scheme_and_no_button_uploads_a_chart(
    page: Page, address: str, view: str
) -> None:
    for scheme, dark in (("dark", True), ("light", False)):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{address}?view={view}&run=slow-rank-5")
        wait_until_drawn(page)
        assert (_brightness(page, "body", "backgroundColor") < 100) is dark
        assert (_brightness(page, "main", "color") > 150) is dark
        if tick_colour := page.evaluate(TICK_COLOUR):  # in one go: a redraw replaces the ticks
            assert (_brightness_of(tick_colour) > 120) is dark
    assert page.locator("[data-title*='hare'], [data-attr='sendChartToCloud']").count() == 0


@pytest.mark.long
def test_the_colour_scheme_is_switched_and_remembered(page: Page, address: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(address)
    expect(page.get_by_role("link", name="slow-rank-5")).to_be_visible()
    page.get_by_role("button", name="switch between light and dark").click()
    page.wait_for_function("document.documentElement.dataset.mantineColorScheme === 'dark'")
    page.reload()
    expect(page.get_by_role("link", name="slow-rank-5")).to_be_visible()
    assert _brightness(page, "body", "backgroundColor") < 100


def test_page_of_an_empty_store_shows_instructions_and_then_the_first_run(
    page: Page, second_site: socket.socket
) -> None:
    with memory_store() as store, serving(StoreReader(store), second_site) as address:
        page.goto(f"{address}?view=overview")
        expect(page.locator("main")).to_contain_text("rankscope demo")
        run = SyntheticRun(run_id="first")
        run.introduce(store)
        run.advance(store, 10)
        expect(region(page, "verdict")).to_contain_text("rank 5")
        page.close()


@pytest.mark.parametrize(
    ("search", "says"),
    [
        pytest.param("?view=overview&run=nope", "No run is called nope", marks=pytest.mark.long),
        pytest.param("?view=heatmap&run=slow-rank-5&attempt=7", "has no attempt 7", marks=pytest.mark.long),
        ("?view=heatmap&run=slow-rank-5&steps=1000-2000", "this run has steps 0 to 39"),
        pytest.param("?view=timeline&run=slow-rank-5&step=999", "Step 999 is not stored", marks=pytest.mark.long),
        pytest.param("?view=timeline&run=slow-rank-5&rank=64", "There is no rank 64", marks=pytest.mark.long),
        ("?view=timeline&run=slow-rank-5&step=3&span=0-999999", "Span not found"),
        pytest.param("?view=heatmap&run=slow-rank-5&stage=gc", "No rank recorded gc", marks=pytest.mark.long),
    ],
)
def test_page_reports_a_missing_run_attempt_step_rank_span_or_stage(
    page: Page, address: str, search: str, says: str
) -> None:
    page.goto(address + search)
    expect(page.locator("main").get_by_text(says, exact=False).first).to_be_visible()


@pytest.mark.parametrize(
    "search",
    [
        "?view=<script>alert(1)</script>&run=slow-rank-5",
        pytest.param("?view=timeline&run=slow-rank-5&step=-1&rank=1e9&group=xp&span=5", marks=pytest.mark.long),
        pytest.param("?view=heatmap&run=slow-rank-5&steps=9-1&stage=%00&metric=%F0%9F%92%A9", marks=pytest.mark.long),
        pytest.param("?view=heatmap&run=slow-rank-5&stage=__class__&time=" + "9" * 3000, marks=pytest.mark.long),
    ],
)
def test_a_hostile_address_shows_defaults_and_a_note(page: Page, address: str, search: str) -> None:
    page.goto(address + search)
    expect(page.locator("#notes")).to_contain_text("in the address is not valid; the default is shown")
    wait_until_drawn(page)
    expect(page.locator("main [id]:visible").first).to_be_visible()


class LongHosts(SyntheticRun):
    """A run whose hosts have long names without a place for a line break."""

    def host(self, rank: int) -> str:
        return f"host-{'h' * 240}{rank // 2}"


@pytest.mark.long
def test_long_names_do_not_make_the_page_wider(page: Page, address: str, store: EmbeddedStore) -> None:
    name = "n" * 200
    long = LongHosts(run_id=name, slow={5: 1.4})
    long.introduce(store)
    long.advance(store, 12)
    long.beat(store, at_ns=long.now_ns, ended=True)
    unknown = f"?view=overview&run={'q' * 300}"
    searches = [f"?view={view}&run={name}" for view in ("heatmap", "grid")]
    for search in ("?view=runs", *searches, unknown):
        page.goto(address + search)
        wait_until_drawn(page)
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond == 0, search
    expect(page.locator("main")).to_contain_text("No run is called qqq")


@contextmanager
def _switchable(store: EmbeddedStore, site: socket.socket) -> Iterator[tuple[str, Switchable]]:
    reader = Switchable(StoreReader(store))
    with serving(reader, site) as address:
        yield address, reader


def test_page_reports_an_unreachable_collector_and_recovers(
    page: Page, store: EmbeddedStore, run: SyntheticRun, second_site: socket.socket
) -> None:
    with _switchable(store, second_site) as (address, reader):
        reader.reachable = False
        page.goto(f"{address}?view=overview&run=slow-rank-5")
        expect(page.locator("main")).to_contain_text("The collector does not answer")
        expect(page.locator("main")).to_contain_text("rankscope collect")
        reader.reachable = True
        expect(region(page, "verdict")).to_contain_text("rank 5")
        expect(page.locator("#connection")).to_be_empty()
        page.close()


@pytest.mark.long
def test_page_is_requested_again_when_its_response_is_lost(
    context: BrowserContext, store: EmbeddedStore, run: SyntheticRun, second_site: socket.socket
) -> None:
    lost: list[str] = []

    def lose(route: Route) -> None:
        is_page = "page.children" in (route.request.post_data or "")
        if is_page and not lost:
            lost.append(route.request.url)
            route.abort()
        else:
            route.fallback()

    with _switchable(store, second_site) as (address, _), context.new_page() as page:
        page.goto(f"{address}?view=heatmap&run=slow-rank-5")
        wait_until_drawn(page)
        page.route(re.compile("_dash-update-component"), lose)
        page.get_by_role("link", name="Overview").click()
        expect(region(page, "verdict")).to_contain_text("rank 5", timeout=60_000)
        assert lost


def test_every_control_is_reached_by_keyboard_and_has_a_name(page: Page, address: str) -> None:
    page.goto(f"{address}?view=heatmap&run=slow-rank-5")
    figure(page, "cells")
    names = []
    for _ in range(30):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate(
                "document.activeElement.ariaLabel || document.activeElement.innerText || "
                "document.activeElement.labels?.[0]?.innerText || ''"
            )
        )
    reached = " ".join(names)
    for name in (
        "Skip to content",
        "Overview",
        "Timeline",
        "switch between light and dark",
        "Stage",
        "From step",
        "Copy link",
    ):
        assert name in reached


def test_address_keeps_a_user_change_made_while_a_control_is_processed(page: Page, address: str) -> None:
    page.goto(f"{address}?view=heatmap&run=slow-rank-5&metric=ms")
    wait_until_drawn(page)
    asked = page.evaluate("location.search")
    page.evaluate("() => history.pushState({}, '', location.search.replace('&metric=ms', '&pins=3'))")
    page.evaluate("(asked) => dash_clientside.rankscope.goTo([asked, `${asked}&time=wall`])", asked)
    assert page.evaluate("location.search") == "?view=heatmap&run=slow-rank-5&time=wall&pins=3"


WIDENED = """() => [...document.querySelectorAll(".panel:not(.hidden) .js-plotly-plot")].map(
    ({layout: {margin}, _fullLayout: {_size}}) => "lrtb".split("").filter((side) => _size[side] > margin[side]).join()
)"""
"""For each chart: the sides on which plotly needed a wider margin and drew the chart again."""


@pytest.mark.long
def test_every_chart_has_sufficient_margins_when_it_is_first_drawn(page: Page, address: str) -> None:
    for view in ("overview", "heatmap", "grid"):
        page.goto(f"{address}?view={view}&run=slow-rank-5")
        wait_until_drawn(page)
        widened = page.evaluate(WIDENED)
        assert widened, view
        assert not any(widened), (view, widened)


def _brightness(page: Page, selector: str, name: str) -> float:
    return _brightness_of(page.locator(selector).first.evaluate(f"one => getComputedStyle(one).{name}"))


def _brightness_of(colour: str) -> float:
    parts = [float(part) for part in colour[colour.index("(") + 1 : -1].replace(",", " ").split()[:3]]
    return sum(parts) / 3
