"""Every page and view at three widths in light and dark colours: ``python -m tests.browser.every_page OUT``.

For each view, width and colours it prints the faults: texts that are clipped or overlap, axes without a title, serious
faults that axe finds, and messages of the console. It writes a picture to OUT. With a fault, the exit status is 1.

``--meshes``: views of runs on meshes of other axes. ``--large STORE``: views of 12,288 ranks, in the store that
``tests.benchmarks.large_runs`` fills. ``--only WORD ...``: views with one of these words in their names.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, expect, sync_playwright

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.benchmarks.large_runs import build
from tests.browser.conftest import FLAGS, is_of_a_removed_part
from tests.browser.large_walks import VIEWS
from tests.browser.on_page import wait_until_drawn
from tests.memory_store import memory_store
from tests.parts import CHROMIUM, require
from tests.ui.made_dashboard import made_dashboard
from tests.ui.mesh_pictures import addresses, views_of
from tests.ui.mesh_runs import MESHES, report_runs, store_runs
from tests.ui.served_dashboard import serving, serving_at

WIDTHS = (1920, 1440, 900)
HEIGHT = 1000
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
GRAVE = ("serious", "critical")
LOADED_MS = 240_000
LAYOUT_FAULTS = (Path(__file__).parent / "page_faults.js").read_text()
STILL = "*, *::before, *::after { transition: none !important; animation: none !important }"
HINTS_OF_CHROMIUM = ("GL Driver Message", "Canvas2D: Multiple readback operations", "preloaded using link preload")
"""How Chromium reports that something is slow: 3D pictures without a GPU, plotly's labels, a page on a busy machine."""
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 250))))"


class Shown(NamedTuple):
    """A view at a width in one colour scheme."""

    name: str
    width: int
    scheme: Literal["light", "dark"]

    def __str__(self) -> str:
        return f"{self.name}-{self.width}-{self.scheme}"


def walk(page: Page, views: Mapping[str, str], out: Path | None = None) -> Iterator[tuple[Shown, list[str]]]:
    """The faults of each view at each width in both colour schemes. ``views``: name -> address. ``out``: the folder of
    the pictures."""
    messages: list[str] = []
    page.on("console", lambda message: messages.extend(_text_of(message)))
    page.on("pageerror", lambda error: messages.append(str(error)))
    for name, address in views.items():
        page.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
        page.goto(address)
        wait_until_drawn(page, timeout_ms=LOADED_MS)
        expect(page.locator("main .looking")).to_have_count(0, timeout=LOADED_MS)
        page.add_style_tag(content=STILL)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                wait_until_drawn(page, timeout_ms=LOADED_MS)
                page.evaluate(FRAMES)
                shown = Shown(name, width, scheme)
                if out is not None:
                    page.screenshot(path=out / f"{shown}.png", full_page=True)
                yield shown, [*page.evaluate(LAYOUT_FAULTS), *accessibility_faults(page), *messages]
                messages.clear()


def _text_of(message: ConsoleMessage) -> list[str]:
    is_known = any(hint in message.text for hint in HINTS_OF_CHROMIUM) or is_of_a_removed_part(message.text)
    return [] if is_known else [f"console, {message.type}: {message.text}"]


def accessibility_faults(page: Page) -> Iterator[str]:
    """The serious rules of axe that the current page breaks, each with the first elements that break it."""
    for violation in Axe().run(page).response["violations"]:
        if violation["impact"] in GRAVE:
            places = [" ".join(map(str, node["target"])) for node in violation["nodes"][:3]]
            yield f"axe, {violation['id']} ({len(violation['nodes'])}): {'; '.join(places)}"


@contextmanager
def views_of_pages() -> Iterator[dict[str, str]]:
    """Name -> address of every view of the made dashboard."""
    with made_dashboard() as (root, views):
        yield {name: root + search for name, search in views.items()}


@contextmanager
def views_of_meshes() -> Iterator[dict[str, str]]:
    with memory_store() as store:
        for mesh in MESHES:
            store_runs(store, mesh)
        now_ns = report_runs(store, [*MESHES])
        reader = StoreReader(store)
        views = {name: view for mesh in MESHES for name, view in addresses(reader, mesh, mesh, views_of(mesh)).items()}
        with serving_at(reader, now_ns) as root:
            yield {name: root + search for name, search in views.items()}


@contextmanager
def views_of_large_runs(folder: Path) -> Iterator[dict[str, str]]:
    build(folder)
    store = EmbeddedStore(folder)
    try:
        store.migrate()
        with serving(StoreReader(store)) as root:
            yield {f"large-{name.replace(' ', '-')}": f"{root}?{search}" for name, search in VIEWS.items()}
    finally:
        store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--meshes", action="store_true")
    parser.add_argument("--large", type=Path, metavar="STORE")
    parser.add_argument("--only", nargs="+", metavar="WORD")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    views = views_of_large_runs(given.large) if given.large else views_of_meshes() if given.meshes else views_of_pages()
    num_faults = 0
    with views as every, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require(CHROMIUM), args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(LOADED_MS)
        chosen = {
            name: address
            for name, address in every.items()
            if not given.only or any(word in name for word in given.only)
        }
        for shown, faults in walk(page, chosen, given.out):
            print(shown, *(f"\n  {fault}" for fault in faults), sep="", flush=True)
            num_faults += len(faults)
        browser.close()
    print(f"{num_faults} faults")
    return int(num_faults > 0)


if __name__ == "__main__":
    sys.exit(main())
