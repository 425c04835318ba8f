"""Pictures of docs/images: ``python -m tests.ui.screenshots OUT``.

Pictures of every page: ``python -m tests.browser.every_page OUT``.
"""

import argparse
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

from tests.browser.on_page import wait_until_drawn
from tests.parts import CHROMIUM, require
from tests.ui.made_dashboard import made_dashboard

FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SIZE: dict[Literal["width", "height"], int] = {"width": 1440, "height": 900}
IN_DOCS = {
    **{f"{name}-light": name for name in ("overview", "heatmap", "timeline", "span", "hang")},
    "heatmap-dark": "heatmap-dark",
}
"""View and colours -> name of the picture."""


def picture(page: Page, address: str, path: Path) -> None:
    """Take a picture of the whole page after every part is drawn."""
    page.goto(address)
    wait_until_drawn(page, timeout_ms=60_000)
    page.screenshot(path=path, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    with made_dashboard() as (address, views), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require(CHROMIUM), args=FLAGS)
        schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
        for scheme in schemes:
            with browser.new_context(viewport=SIZE, color_scheme=scheme) as context:
                page = context.new_page()
                for view, search in views.items():
                    if name := IN_DOCS.get(f"{view}-{scheme}"):
                        picture(page, address + search, out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
