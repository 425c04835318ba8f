"""Pictures of every page, light and dark: ``python -m tests.ui.screenshots OUT``; ``--docs``: those of docs/images."""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
from playwright.sync_api import Page, sync_playwright

from diagnose.alerts.alert import Phase
from diagnose.findings import Severity
from diagnose.simulate.faults import Throttle
from diagnose.simulate.host_faults import Flap
from diagnose.simulate.noise import RECORDED
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from telemetry.clocks.windows import estimate_newest
from telemetry.imports.write import StoreTarget
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Runs, Spans
from telemetry.tables import owned
from telemetry.topology import Topology
from tests.browser.on_page import wait_until_drawn
from tests.memory_store import memory_store
from tests.parts import require
from tests.ui.made_fleet import tell_of_clocks, tell_of_hosts
from tests.ui.made_hang import STEP as STEP_OF_STALL
from tests.ui.made_hang import S, evidence_rows
from tests.ui.reported_alerts import made_alert, tell, tell_look
from tests.ui.served_dashboard import serving
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import MS, SyntheticRun

FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SIZE: dict[Literal["width", "height"], int] = {"width": 1440, "height": 900}
RUN = "demo-20261121-0301"
STUCK_RUN = "demo-20261120-2214"
SIMULATED_RUN = "simulated-slow-rank"
EARLIER_RUN = "simulated-before"
SICK_RUN = "llm-7b-20261119"
TOLD_RUN = "llm-7b-20261118"
STEP = 32
SLOW = 5
IN_DOCS = {
    **{f"{name}-light": name for name in ("overview", "heatmap", "timeline", "span", "hang")},
    "heatmap-dark": "heatmap-dark",
}
"""Name of a picture -> that of its file in docs/images."""


@contextmanager
def made_dashboard() -> Iterator[tuple[str, dict[str, str]]]:
    """Served runs of eight ranks, one with a slow rank and one that hangs, and the address of each page."""
    with memory_store() as store:
        stand_still(store)
        store_simulated(store, EARLIER_RUN, num_microbatches=8, noise=RECORDED, seed=1)
        store_simulated(store, SIMULATED_RUN, f"slow:rank={SLOW},factor=1.4", num_microbatches=8, noise=RECORDED)
        fall_ill(store)
        run = SyntheticRun(run_id=RUN)
        run.introduce(store)
        run.advance(store, 60)
        run.beat(store, at_ns=run.now_ns, ended=True)
        put_alerts(store)
        reader = StoreReader(store)
        stored = next(row for row in reader.read(Runs()).to_pylist() if row["run_id"] == SIMULATED_RUN)
        spans = reader.read(
            Spans(
                run_id=SIMULATED_RUN,
                attempt=stored["attempt"],
                first_step=STEP,
                last_step=STEP,
                ranks=(SLOW,),
                stages=(int(Stage.BACKWARD_COMPUTE),),
            )
        )
        span = f"{SLOW}-{spans['seq'][1].as_py()}"
        with serving(reader) as address:
            yield address, addresses(SIMULATED_RUN, span)


def stand_still(store: EmbeddedStore) -> None:
    """A run whose rank 5 hangs in its data loader."""
    stuck = SyntheticRun(run_id=STUCK_RUN, slow={}, started_ns=1_780_000_000_000_000_000)
    stuck.introduce(store)
    stuck.advance(store, STEP_OF_STALL)
    stopped_ns = stuck.advance_into_a_step(store, 400 * MS)
    stuck.leave_evidence(store, evidence_rows(stopped_ns + 34 * S, in_step_ns=400 * MS))


def fall_ill(store: EmbeddedStore) -> None:
    """A simulated run of four hosts: the NIC of one loses its link, and a GPU of another is throttled."""
    plan = SimulatedRun(
        name=SICK_RUN,
        topology=Topology(dp=4, pp=2, tp=4),
        num_steps=160,
        clock_offset_ms=40.0,
        clock_drift_ppm=8.0,
        faults=(Flap(host="gpu-001", seconds=4.0), Throttle(rank=21, factor=1.4, first_step=60)),
    )
    told = SyntheticRun(run_id=TOLD_RUN, device="cuda", started_ns=1_770_000_000_000_000_000)
    told.introduce(store)
    told.advance(store, 30)
    tell_of_hosts(store, told)
    tell_of_clocks(store, told, 30)
    simulation = simulate(plan)
    put_simulation(as_run(simulation), samples_table(simulation), StoreTarget(store))
    clocks = store_clocks(StoreReader(store))
    store.insert("host_clocks", owned(clocks, SICK_RUN, 0))


def store_clocks(reader: StoreReader) -> pa.Table:
    """The clock estimates that a collector makes during the run."""
    windows = [list(estimate_newest(reader, SICK_RUN, 0, last_step, most=1)) for last_step in range(39, 160, 40)]
    return pa.concat_tables([estimate.rows(1) for some in windows for estimate in some])


def put_alerts(store: EmbeddedStore) -> None:
    """Current alerts of both runs, an alert that was resolved an hour ago, and a live run."""
    now_ns = time.time_ns()
    living = SyntheticRun(run_id="gpt-7b-long-context", slow={}, started_ns=now_ns - 60 * S, seed=3)
    living.introduce(store)
    living.advance(store, 60)
    living.beat(store, at_ns=now_ns)
    tell(store, made_alert(RUN, began_ns=now_ns - 400 * S), at_ns=now_ns)
    hung = made_alert(
        STUCK_RUN,
        began_ns=now_ns - 900 * S,
        kind="hung-collective",
        severity=Severity.CRITICAL,
        summary="rank 5 is behind: it is in data-load, and seven ranks wait for it",
    )
    tell(store, hung, at_ns=now_ns)
    tell(store, made_alert(RUN, began_ns=now_ns - 20 * S, kind="slow-link", phase=Phase.PENDING, rank=2), at_ns=now_ns)
    tell(store, made_alert(RUN, began_ns=now_ns - 3600 * S, kind="nic-flap", phase=Phase.RESOLVED), at_ns=now_ns)
    for run_id in (RUN, STUCK_RUN, living.run_id):
        tell_look(store, run_id, at_ns=now_ns)


def addresses(run_id: str, span: str) -> dict[str, str]:
    """Name of a picture -> the view in it."""
    return {
        "runs": "?view=runs",
        "alerts": "?view=alerts",
        "overview": f"?view=overview&run={run_id}",
        "heatmap": f"?view=heatmap&run={run_id}",
        "heatmap-collective": f"?view=heatmap&run={run_id}&stage=grads-reduce-scatter&metric=ms",
        "timeline": f"?view=timeline&run={run_id}&group=pp&rank={SLOW}&step={STEP}",
        "span": f"?view=timeline&run={run_id}&group=all&rank={SLOW}&step={STEP}&span={span}",
        "timeline-of-steps": f"?view=timeline&run={run_id}&rank={SLOW}&step={STEP}&num-steps=4&table=-duration",
        "timeline-of-a-stall": f"?view=timeline&run={STUCK_RUN}&group=all",
        "timeline-counters": f"?view=timeline&run={TOLD_RUN}&group=pp&rank=4&step=18&num-steps=3&counters=all",
        "grid": f"?view=grid&run={RUN}",
        "grid-3d": f"?view=grid&run={RUN}&form=3d",
        "grid-metric": f"?view=grid&run={RUN}&colour=metric&rank=2",
        "grid-blame": f"?view=grid&run={SIMULATED_RUN}&colour=blame",
        "grid-of-a-stall": f"?view=grid&run={STUCK_RUN}&rank=2",
        "grid-of-a-stall-3d": f"?view=grid&run={STUCK_RUN}&rank=2&form=3d",
        "whatif": f"?view=whatif&run={SIMULATED_RUN}",
        "compare": f"?view=compare&run={SIMULATED_RUN}&a={EARLIER_RUN}",
        "hang": f"?view=hang&run={STUCK_RUN}",
        "hang-victim": f"?view=hang&run={STUCK_RUN}&rank=2",
        "overview-of-a-stall": f"?view=overview&run={STUCK_RUN}",
        "fleet": f"?view=fleet&run={SICK_RUN}&host=gpu-001&family=network",
        "fleet-gpu": f"?view=fleet&run={SICK_RUN}&family=gpu&host=gpu-002",
        "fleet-nothing-told": f"?view=fleet&run={SICK_RUN}&family=host",
        "overview-of-a-flap": f"?view=overview&run={SICK_RUN}",
        "timeline-of-hosts": f"?view=timeline&run={SICK_RUN}&group=dp&rank=0",
        "clock": f"?view=clock&run={SICK_RUN}",
        "clock-refused": f"?view=clock&run={TOLD_RUN}&host=gpu-02",
        "fleet-told": f"?view=fleet&run={TOLD_RUN}&host=gpu-03",
        "unknown-run": "?view=overview&run=nope",
    }


def picture(page: Page, address: str, path: Path) -> None:
    """Take a picture of the whole page after every part is drawn."""
    page.goto(address)
    wait_until_drawn(page, timeout_ms=60_000)
    page.screenshot(path=path, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--docs", action="store_true", help="only what the documentation shows, by its names")
    given = parser.parse_args()
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    with made_dashboard() as (address, views), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=FLAGS)
        schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
        for scheme in schemes:
            with browser.new_context(viewport=SIZE, color_scheme=scheme) as context:
                page = context.new_page()
                for view, search in views.items():
                    name = f"{view}-{scheme}"
                    if not given.docs or name in IN_DOCS:
                        picture(page, address + search, out / f"{IN_DOCS[name] if given.docs else name}.png")
        browser.close()


if __name__ == "__main__":
    main()
