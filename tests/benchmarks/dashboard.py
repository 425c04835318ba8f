"""Time and transferred data until each page of the dashboard can be used: a run of 8 ranks, and runs of 12,288.

python -m tests.benchmarks.dashboard [--store DIR] [--only WORD] [--json]

The time is from the address to a page with all parts drawn, in Chromium, with the server on this machine. The page is
opened in three ways: in a new tab with a separate process, in a tab that shows the clock page of the run, and by a
link in that tab. Each measurement has a new server that has not yet answered requests for the page. The browser has
visited the dashboard before, so it has the scripts in compiled form.
Megabytes are those of all answers of the page, before compression. If ``--store`` names a folder, the runs are kept
there and not made again.
"""

import argparse
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from playwright.sync_api import BrowserContext, Error, Page, Response, sync_playwright

from telemetry.collector.serving import listen
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.large_runs import LARGE, LONG, LONG_STEPS, SMALL, STUCK, build
from tests.deadline import until
from tests.parts import CHROMIUM, require
from tests.ui.served_dashboard import serving
from ui.dashboard.address import parse_search
from ui.dashboard.data.reports import REPORT_AFTER_S
from ui.dashboard.view_state import View

FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
TURNS = 3
VISITS = 3
"""After this many visits Chromium keeps a script in compiled form."""
SMALL_MS, HEAT_MAP_MS, TIMELINE_MS, MAX_MB = 700.0, 1500.0, 1000.0, 1.5
LIMIT_MS = 120_000
REST_S = 0.4
ASKED_ONCE = ("_dash-layout", "_dash-dependencies")
"""Requests that a server prepares at the first visit, with any store."""
DRAWN = """() => {
    if (!document.querySelector("main > *") || document.querySelector("main .loading, main .waiting")) return false;
    const shown = (kind) => [...document.querySelectorAll(`.panel:not(.hidden) ${kind}`)];
    const plotted = shown(".figure").every((one) => one.querySelector(".js-plotly-plot")?.calcdata?.length > 0);
    return plotted && shown(".span-timeline").every((one) => one.dataset.drawn) && performance.now();
}"""
AT_WORK = """() => [...document.querySelectorAll("main .loading")].some((one) => one.innerText.includes("Replaying"))
    && performance.now()"""
FOLLOW = """(search) => {
    window.followedMs = performance.now();
    history.pushState({}, "", search);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
}"""
"""The action of a clicked link of the dashboard."""
FOLLOWED = f"""(view) => document.querySelector("main").dataset.drawn.startsWith(view + "/") && ({DRAWN})()
    && performance.now() - window.followedMs"""
VERDICT = "() => document.querySelector('main .verdict') && performance.now()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A page that is timed."""

    name: str
    search: str
    bound_ms: float | None = None
    ready: str = DRAWN
    turns: int = TURNS
    link: str = ""
    """The address of a link on the page of ``search``. The time starts at the click."""
    is_pasted: bool = False
    """Whether ``link`` is typed into the address bar, and not clicked."""


class Look(NamedTuple):
    """One measurement: milliseconds until the page can be used, and megabytes of answers until then."""

    ms: float
    megabytes: float


def views() -> Iterator[Timed]:
    """Every page, of the small run first."""
    every, of_long = f"&run={LARGE}", f"&run={LONG}&steps=0-{LONG_STEPS - 1}"
    pages = {
        "overview": "view=overview",
        "heat map": "view=heatmap",
        "timeline": "view=timeline",
        "grid": "view=grid",
        "what if": "view=whatif",
        "hang": "view=hang",
        "fleet": "view=fleet",
        "clock": "view=clock",
        "runs": "view=runs",
        "alerts": "view=alerts",
    }
    halves = f"a={SMALL}/0/steps=0-19&b={SMALL}/0/steps=20-39"
    of_small = pages | {
        "compare": f"view=compare&{halves}",
        "goodput": "view=goodput",
        "findings log": "view=findings-log",
    }
    timed = {f"8 ranks: {name}": (f"{search}&run={SMALL}", SMALL_MS) for name, search in of_small.items()}
    timed["heat map, newest 100 steps"] = f"view=heatmap&run={LONG}", HEAT_MAP_MS
    timed["heat map, 1,000 steps"] = f"view=heatmap{of_long}", HEAT_MAP_MS
    timed["heat map, 25 steps in milliseconds"] = f"view=heatmap&metric=ms{every}", HEAT_MAP_MS
    timed["timeline of a step, 64 ranks"] = f"view=timeline&group=dp&rank=4001{every}", TIMELINE_MS
    for name, (search, bound_ms) in timed.items():
        run = parse_search(search).state.run
        another = View.CLOCK if "clock" not in name else View.HANG
        from_there = Timed(
            name=f"{name}, by a link", search=f"?view={another}&run={run}", bound_ms=bound_ms, link=f"?{search}"
        )
        yield from_there
        yield replace(from_there, name=f"{name}, by its URL", is_pasted=True)
        yield Timed(name=f"{name}, in a new tab", search=f"?{search}", bound_ms=bound_ms)
    for name, search in pages.items():
        if name not in ("heat map", "timeline", "what if", "hang"):
            yield Timed(name=name, search=f"?{search}{every}")
    yield Timed(name="what if: that it is being replayed", search=f"?view=whatif{every}", ready=AT_WORK)
    yield Timed(name="what if: all of it", search=f"?view=whatif{every}", turns=1)
    yield Timed(name="overview: the verdict", search=f"?{every}", ready=VERDICT, turns=1)
    yield Timed(name="fleet over 1,000 steps", search=f"?view=fleet{of_long}")
    yield Timed(name="hang", search=f"?view=hang&run={STUCK}")
    yield Timed(name="overview of a hang", search=f"?run={STUCK}")


class DashboardBenchmark:
    """Every page in a browser."""

    title = "Pages of the dashboard"
    command = "python -m tests.benchmarks.dashboard"

    def run(self, folder: Path | None = None, only: str = "", turns: int = TURNS) -> list[Figure]:
        if folder is None:
            with tempfile.TemporaryDirectory(prefix="rankscope-dashboard-") as name:
                return self.run(Path(name) / "store", only, turns)
        build(folder)
        store = EmbeddedStore(folder)
        try:
            store.migrate()
            chosen = [view for view in views() if only in view.name]
            return [figure for view, looks in _looked(store, chosen, turns) for figure in _figures(view, looks)]
        finally:
            store.close()


def _looked(store: EmbeddedStore, chosen: Sequence[Timed], turns: int) -> Iterator[tuple[Timed, list[Look]]]:
    with (
        listen("127.0.0.1", 0) as site,
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory(prefix="rankscope-profile-") as profile,
        playwright.chromium.launch_persistent_context(
            profile, executable_path=require(CHROMIUM), args=FLAGS, viewport={"width": 1440, "height": 1000}
        ) as context,
    ):
        for _ in range(VISITS):
            _look(context, store, site, next(views()))
        for view in chosen:
            looks = [_look(context, store, site, view) for _ in range(min(view.turns, turns))]
            print(f"{view.name}: {', '.join(f'{one.ms:,.0f} ms' for one in looks)}", file=sys.stderr, flush=True)
            yield view, looks


def _look(context: BrowserContext, store: EmbeddedStore, site: socket.socket, view: Timed) -> Look:
    with serving(StoreReader(store), site) as address:
        for path in ASKED_ONCE:
            urllib.request.urlopen(address + path).read()
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        answers: list[Response] = []
        page.on("response", lambda answer: answers.append(answer) if "_dash-update-component" in answer.url else None)
        page.goto(address + view.search)
        ready_ms = page.wait_for_function(view.ready).json_value()
        if view.link:
            _wait_for_rest()
            answers.clear()
            ready_ms = _paste(page, address, view) if view.is_pasted else _follow(page, view)
        megabytes = sum(_size(answer) for answer in list(answers) if answer.status == 200) / 1e6
        page.close()
        _wait_for_rest()
    return Look(float(ready_ms), megabytes)


def _size(answer: Response) -> int:
    """Bytes of an answer. 0 if the answer belongs to a previous page, because its body is gone."""
    with suppress(Error):
        return len(answer.body())
    return 0


def _paste(page: Page, address: str, view: Timed) -> Any:
    page.goto(address + view.link)
    return page.wait_for_function(view.ready).json_value()


def _follow(page: Page, view: Timed) -> Any:
    page.evaluate(FOLLOW, view.link)
    return page.wait_for_function(FOLLOWED, arg=parse_search(view.link).state.view.value).json_value()


def _wait_for_rest() -> None:
    """Wait until the server, in this process, has finished all background work."""
    time.sleep(REPORT_AFTER_S)
    until(_is_at_rest, seconds=LIMIT_MS / 1e3, what="the server to end what it began in the background")


def _is_at_rest() -> bool:
    """Whether this process is idle."""
    before_s = time.process_time()
    time.sleep(REST_S)
    return time.process_time() - before_s < REST_S / 10


def _figures(view: Timed, looks: list[Look]) -> Iterator[Figure]:
    median, low, high = np.percentile([one.ms for one in looks], (50, 10, 90)).tolist()
    yield Figure(name=view.name, value=median, low=low, high=high, unit="ms", bound=view.bound_ms)
    most = max(one.megabytes for one in looks)
    yield Figure(name=f"{view.name}: data sent", value=most, unit="MB", bound=MAX_MB)


BENCHMARK = DashboardBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, help="folder of the runs; made where it is missing")
    parser.add_argument("--only", default="", help="pages with this in their names")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    figures = BENCHMARK.run(chosen.store, chosen.only, chosen.turns)
    return report(BENCHMARK.title, figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
