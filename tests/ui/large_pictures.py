"""Pictures of 12,288 ranks for the documentation: python -m tests.ui.large_pictures STORE docs/images

STORE: the folder that tests/benchmarks/large_runs.py fills.
"""

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.benchmarks.dashboard import DRAWN
from tests.benchmarks.large_runs import LARGE, LONG, LONG_STEPS, STUCK, build
from tests.parts import CHROMIUM, require
from tests.ui.screenshots import FLAGS, SIZE
from tests.ui.served_dashboard import serving

LOADED_MS = 300_000
KNOWN = "() => !/Comparing [0-9,]+ ranks/.test(document.querySelector('main').innerText)"
"""True when the detectors have finished, so that suspects are marked."""
PICTURES = {
    "large-heatmap": (f"view=heatmap&run={LONG}&steps=0-{LONG_STEPS - 1}", ".panel:has([id*='\"cells\"'])"),
    "large-timeline": (f"view=timeline&run={LARGE}&group=dp&rank=4242&step=13", ".panel:has(.span-timeline)"),
    "large-hang": (f"view=hang&run={STUCK}&rank=700", ".panel:has([id*='\"grid\"'])"),
}
"""Name -> view, and the part of its page that is shown."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    build(given.store)
    store = EmbeddedStore(given.store)
    with serving(StoreReader(store)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require(CHROMIUM), args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.set_default_timeout(LOADED_MS)
        for name, (search, part) in PICTURES.items():
            page.goto(f"{address}?run={search.partition('run=')[2].partition('&')[0]}")
            page.wait_for_function(DRAWN)
            page.wait_for_function(KNOWN)
            page.goto(f"{address}?{search}")
            page.wait_for_function(DRAWN)
            page.locator(part).first.screenshot(path=given.out / f"{name}.png")
        browser.close()
    store.close()


if __name__ == "__main__":
    main()
