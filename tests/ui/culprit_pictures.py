"""Pictures for docs/guides/find-the-culprit.md: for each run, the page to which the clicks lead.

python -m tests.scenarios.unlabelled_runs OUT && python -m tests.ui.culprit_pictures OUT docs/images
"""

import argparse
import json
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.parts import CHROMIUM, require
from tests.scenarios.unlabelled_runs import Unlabelled
from tests.ui.culprit_guide import GUIDE, click, clicks_by_fault, open_overview
from tests.ui.screenshots import FLAGS, SIZE
from tests.ui.served_dashboard import serving

LOADED_MS = 60_000


def take(page: Page, address: str, run: Unlabelled, clicks: list[str], out: Path) -> None:
    """``culprit-slow-rank.png``."""
    open_overview(page, address, run)
    for link in clicks:
        click(page, link)
    page.screenshot(path=out / f"culprit-{run.fault.replace(' ', '-')}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="what tests.scenarios.unlabelled_runs has made")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    expect.set_options(timeout=LOADED_MS)
    clicks, store = clicks_by_fault(GUIDE.read_text()), EmbeddedStore(given.runs / "store")
    with serving(StoreReader(store)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require(CHROMIUM), args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        for told in json.loads((given.runs / "truth.json").read_text()):
            run = Unlabelled(**told)
            take(page, address, run, clicks[run.fault], given.out)
        browser.close()
    store.close()


if __name__ == "__main__":
    main()
