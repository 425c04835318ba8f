"""Pictures of every page on meshes of other axes than dp, pp and tp: ``python -m tests.ui.mesh_pictures OUT``.

The clock of the dashboard stands shortly after the end of the runs, so that their alerts are open.

``--store DIR --runs NAME ...``: of stored runs, such as those that ``tests.scenarios.mesh_trials --out`` keeps.
"""

import argparse
from contextlib import AbstractContextManager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from telemetry.stages import Stage, Stream
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Runs, Spans
from tests.browser.on_page import wait_until_drawn
from tests.memory_store import memory_store
from tests.parts import CHROMIUM, require
from tests.ui.mesh_runs import MESHES, SLOW, report_runs, store_runs
from tests.ui.screenshots import FLAGS, SIZE
from tests.ui.served_dashboard import serving, serving_at

OF_ALL = {"runs": "?view=runs", "alerts": "?view=alerts"}
OF_RUN = {
    "overview": "?view=overview&run={run}",
    "alerts": "?view=alerts&run={run}",
    "heatmap": "?view=heatmap&run={run}",
    "heatmap-ms": "?view=heatmap&run={run}&stage=backward-compute&metric=ms",
    "heatmap-share": "?view=heatmap&run={run}&metric=share",
    "heatmap-wall": "?view=heatmap&run={run}&time=wall",
    "heatmap-wait": "?view=heatmap&run={run}&metric=wait",
    "heatmap-collective": "?view=heatmap&run={run}&stage={collective}&metric=ms",
    "heatmap-collective-wait": "?view=heatmap&run={run}&stage={collective}&metric=wait",
    "timeline": "?view=timeline&run={run}",
    "timeline-pp": "?view=timeline&run={run}&group=pp&rank=5",
    "timeline-tp": "?view=timeline&run={run}&group=tp&rank=5",
    "timeline-dp": "?view=timeline&run={run}&group=dp&rank=5",
    "timeline-inner": "?view=timeline&run={run}&group={axis}&rank=5",
    "timeline-all": "?view=timeline&run={run}&group=all&rank=5",
    "timeline-ideal": "?view=timeline&run={run}&group=all&rank=5&ideal=shown",
    "timeline-span": "?view=timeline&run={run}&group=all&rank=5&step=20&span={span}",
    "timeline-steps": "?view=timeline&run={run}&group=all&rank=5&step=20&num-steps=4",
    "timeline-order": "?view=timeline&run={run}&group=all&rank=5&step=20&rank-order=compute",
    "timeline-table": "?view=timeline&run={run}&group=all&rank=5&step=20&table=-duration",
    "timeline-area": "?view=timeline&run={run}&group=all&rank=5&area=100000000-300000000-0-7",
    "grid": "?view=grid&run={run}",
    "grid-3d": "?view=grid&run={run}&form=3d&rank=5",
    "grid-metric": "?view=grid&run={run}&colour=metric&rank=5",
    "grid-blame": "?view=grid&run={run}&colour=blame&rank=5",
    "whatif": "?view=whatif&run={run}",
    "goodput": "?view=goodput&run={run}",
    "hang-none": "?view=hang&run={run}",
    "fleet": "?view=fleet&run={run}",
    "clock": "?view=clock&run={run}",
}
STUCK = {
    "stuck-hang": "?view=hang&run={run}-stuck",
    "stuck-hang-victim": "?view=hang&run={run}-stuck&rank=1",
    "stuck-hang-near": "?view=hang&run={run}-stuck&rank=7",
    "stuck-overview": "?view=overview&run={run}-stuck",
    "stuck-timeline": "?view=timeline&run={run}-stuck&group=all",
    "stuck-timeline-victim": "?view=timeline&run={run}-stuck&group=all&rank=1&num-steps=2",
    "stuck-grid": "?view=grid&run={run}-stuck&rank=0",
    "stuck-grid-3d": "?view=grid&run={run}-stuck&rank=0&form=3d",
}
HOSTS = {
    "hosts-overview": "?view=overview&run={run}-hosts",
    "hosts-fleet-network": "?view=fleet&run={run}-hosts&family=network&host=gpu-001",
    "hosts-fleet-gpu": "?view=fleet&run={run}-hosts&family=gpu&host=gpu-000",
    "hosts-fleet-host": "?view=fleet&run={run}-hosts&family=host",
    "hosts-clock": "?view=clock&run={run}-hosts",
    "hosts-timeline": "?view=timeline&run={run}-hosts&group=dp&rank=2",
    "hosts-timeline-counters": "?view=timeline&run={run}-hosts&group=all&rank=2&counters=all",
    "hosts-heatmap": "?view=heatmap&run={run}-hosts",
    "hosts-whatif": "?view=whatif&run={run}-hosts",
}
UNEQUAL = {
    "unequal-overview": "?view=overview&run=experts-unequal",
    "unequal-heatmap": "?view=heatmap&run=experts-unequal",
    "unequal-heatmap-wait": "?view=heatmap&run=experts-unequal&stage=ep-all-to-all&metric=wait",
    "unequal-timeline": "?view=timeline&run=experts-unequal",
    "unequal-grid": "?view=grid&run=experts-unequal",
}
COLLECTIVES = {
    "titan": Stage.PARAMS_ALL_GATHER,
    "context": Stage.CP_ALL_GATHER,
    "experts": Stage.EP_ALL_TO_ALL,
}


def views_of(mesh: str) -> dict[str, str]:
    return OF_RUN | STUCK | HOSTS | (UNEQUAL if mesh == "experts" else {})


def span_of(reader: StoreReader, run_id: str, stage: Stage) -> str:
    """A span of the slow rank, as the address names it."""
    query = Spans(run_id=run_id, attempt=0, first_step=20, last_step=20, ranks=(SLOW,), stages=(int(stage),))
    spans = reader.read(query)
    return f"{SLOW}-{spans['seq'][1].as_py()}" if spans.num_rows > 1 else f"{SLOW}-0"


def addresses(reader: StoreReader, mesh: str, run_id: str, views: dict[str, str]) -> dict[str, str]:
    """``overview-context`` -> the address of the page."""
    collective = COLLECTIVES[mesh]
    axis = {Stream.CP: "cp", Stream.EP: "ep"}.get(collective.stream, "tp")
    words = {"run": run_id, "collective": collective.label, "axis": axis, "span": span_of(reader, run_id, collective)}
    return {f"{name}-{run_id}": view.format(**words) for name, view in views.items()}


def take(dashboard: AbstractContextManager[str], views: dict[str, str], out: Path, *, is_dark: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with dashboard as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require(CHROMIUM), args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="dark" if is_dark else "light")
        for run in sorted({search.partition("run=")[2].partition("&")[0] for search in views.values()} - {""}):
            wait_for_suspects(page, f"{address}?view=overview&run={run}")
        for name, search in views.items():
            if "ideal=shown" in search:  # its strip is computed while the rest is drawn
                page.goto(address + search)
                expect(page.locator("main").get_by_text("if all ranks were equally fast")).to_be_visible(timeout=60_000)
            page.goto(address + search)
            wait_until_drawn(page, timeout_ms=60_000)
            expect(page.locator(".view-tab").first).to_be_visible(timeout=60_000)
            page.screenshot(path=out / f"{name}{'-dark' * is_dark}.png", full_page=True)
        browser.close()


def wait_for_suspects(page: Page, overview: str) -> None:
    """Return once the ranks of a run are compared. All pages then mark the suspects as soon as they are drawn."""
    page.goto(overview)
    wait_until_drawn(page, timeout_ms=60_000)
    expect(page.locator("main .looking")).to_have_count(0, timeout=60_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mesh", nargs="+", choices=MESHES, default=list(MESHES), help="these meshes alone")
    parser.add_argument("--only", nargs="*", help="names of pictures")
    parser.add_argument("--dark", action="store_true", help="in dark colours")
    parser.add_argument("--store", type=Path, help="a store on disk, with --runs; one --mesh")
    parser.add_argument("--runs", nargs="+", default=[])
    given = parser.parse_args()
    if given.store:
        store = EmbeddedStore(given.store)
        reader = StoreReader(store)
        chosen = {name: view for name, view in OF_RUN.items() if not given.only or name in given.only}
        runs = given.runs or [row["run_id"] for row in reader.read(Runs()).to_pylist()]
        views = {key: view for run in runs for key, view in addresses(reader, given.mesh[0], run, chosen).items()}
        take(serving(reader), views, given.out, is_dark=given.dark)
        store.close()
        return
    with memory_store() as made:
        for mesh in given.mesh:
            store_runs(made, mesh)
        now_ns = report_runs(made, given.mesh)
        reader = StoreReader(made)
        views = dict(OF_ALL)
        for mesh in given.mesh:
            chosen = {name: view for name, view in views_of(mesh).items() if not given.only or name in given.only}
            views |= addresses(reader, mesh, mesh, chosen)
        take(serving_at(reader, now_ns), views, given.out, is_dark=given.dark)


if __name__ == "__main__":
    main()
