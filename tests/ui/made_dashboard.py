"""Served runs that show every page of the dashboard, and the address of each page and view.

The server takes orders of profiles and actions, as a collector does. So all buttons are shown.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from fastapi import FastAPI

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
from telemetry.tables import FINDING_ACTIONS, owned
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.ablation_runs import labels, put_run
from tests.ui.driven_run import NAME as DRIVEN_RUN
from tests.ui.driven_run import store_driven_run
from tests.ui.made_annotations import annotate
from tests.ui.made_fleet import tell_of_clocks, tell_of_hosts
from tests.ui.made_hang import STEP as STEP_OF_STALL
from tests.ui.made_hang import S, evidence_rows
from tests.ui.made_profiles import store_profiles
from tests.ui.reported_alerts import made_alert, tell, tell_log, tell_look
from tests.ui.served_dashboard import serving_app
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import MS, SyntheticRun
from ui.dashboard.app import mount_dashboard
from ui.dashboard.serving.sql_route import VARIABLE

RUN = "demo-20261121-0301"
STUCK_RUN = "demo-20261120-2214"
SIMULATED_RUN = "simulated-slow-rank"
EARLIER_RUN = "simulated-before"
SICK_RUN = "llm-7b-20261119"
HOSTS_RUN = "llm-7b-20261118"
ABLATION_RUN = "abl.01.0"
SQL_SERVER = "clickhouse://127.0.0.1:9000/rankscope"
"""The SQL page is shown, and no query is sent."""
STEP = 32
SLOW = 5


@contextmanager
def made_dashboard() -> Iterator[tuple[str, dict[str, str]]]:
    """Address of a dashboard, and of each view from its ``?`` on."""
    with memory_store() as store, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, SQL_SERVER)
        stand_still(store)
        store_simulated(store, EARLIER_RUN, num_microbatches=8, noise=RECORDED, seed=1)
        store_simulated(store, SIMULATED_RUN, f"slow:rank={SLOW},factor=1.4", num_microbatches=8, noise=RECORDED)
        fall_ill(store)
        store_driven_run(store)
        for row, technique in enumerate(("baseline", "fsdp", "fsdp with overlap")):
            put_run(store, f"abl.{row:02}.0", labels(row, technique))
        run = SyntheticRun(run_id=RUN)
        run.introduce(store)
        run.advance(store, 60)
        run.beat(store, at_ns=run.now_ns, ended=True)
        put_alerts(store)
        store_profiles(store, RUN, at_ns=run.now_ns)
        write_annotations(store)
        reader = StoreReader(store)
        server = FastAPI()
        mount_dashboard(server, reader, takes_orders=True, takes_actions=True)
        with serving_app(server) as address:
            yield address, addresses(SIMULATED_RUN, slow_span(reader))


def slow_span(reader: StoreReader) -> str:
    """A span of the slow rank, as the address names it."""
    stored = next(row for row in reader.read(Runs()).to_pylist() if row["run_id"] == SIMULATED_RUN)
    backward = Spans(
        run_id=SIMULATED_RUN,
        attempt=stored["attempt"],
        first_step=STEP,
        last_step=STEP,
        ranks=(SLOW,),
        stages=(int(Stage.BACKWARD_COMPUTE),),
    )
    return f"{SLOW}-{reader.read(backward)['seq'][1].as_py()}"


def write_annotations(store: EmbeddedStore) -> None:
    """Tags and notes of a run, and saved views."""
    for tag in ("baseline", "driver-560"):
        annotate(store, "tag", SIMULATED_RUN, name=tag)
    annotate(store, "note", SIMULATED_RUN, text="the clocks of gpu-03 were reset before this run")
    annotate(store, "view", SIMULATED_RUN, name="slow rank", text=f"?view=timeline&run={SIMULATED_RUN}&rank={SLOW}")
    annotate(store, "view", "", name="backward pass", text="?view=heatmap&stage=backward-compute")


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
    sampled = SyntheticRun(run_id=HOSTS_RUN, device="cuda", started_ns=1_770_000_000_000_000_000)
    sampled.introduce(store)
    sampled.advance(store, 30)
    tell_of_hosts(store, sampled)
    tell_of_clocks(store, sampled, 30)
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
    living.beat(store, at_ns=now_ns + 3600 * S)  # it is live as long as its pages are shown
    known = made_alert(living.run_id, began_ns=now_ns - 500 * S, rank=3)
    tell(store, known, at_ns=now_ns)
    action = {"fingerprint": known.fingerprint, "raised_ns": known.raised_ns, "at_ns": now_ns - 9 * S, "action_id": "1"}
    rows = [action | {"action": "acknowledge", "who": "Ada", "text": "the GPU is ordered", "until_ns": 0}]
    store.insert("finding_actions", pa.Table.from_pylist(rows, schema=FINDING_ACTIONS))
    tell(store, made_alert(RUN, began_ns=now_ns - 400 * S), at_ns=now_ns)
    hung = made_alert(
        STUCK_RUN,
        began_ns=now_ns - 900 * S,
        kind="hung-collective",
        severity=Severity.CRITICAL,
        summary="rank 5 is behind: it is in data-load, and seven ranks wait for it",
    )
    tell(store, hung, at_ns=now_ns)
    lost = made_alert(RUN, began_ns=now_ns - 3600 * S, kind="nic-flap", phase=Phase.RESOLVED)
    tell_log(store, [hung, lost], at_ns=now_ns)
    tell(store, made_alert(RUN, began_ns=now_ns - 20 * S, kind="slow-link", phase=Phase.PENDING, rank=2), at_ns=now_ns)
    tell(store, lost, at_ns=now_ns)
    for run_id in (RUN, STUCK_RUN, living.run_id):
        tell_look(store, run_id, at_ns=now_ns)


def addresses(run_id: str, span: str) -> dict[str, str]:
    """Name -> view. ``span``: a span of the run, as the address names it."""
    return {
        "runs": "?view=runs",
        "runs-of-a-tag": "?view=runs&tag=baseline&order=mfu",
        "alerts": "?view=alerts",
        "alerts-of-a-run": f"?view=alerts&run={RUN}",
        "findings-log": "?view=findings-log",
        "findings-log-of-a-run": f"?view=findings-log&run={RUN}",
        "overview": f"?view=overview&run={run_id}",
        "overview-with-profiles": f"?view=overview&run={RUN}",
        "overview-by-time": f"?view=overview&run={DRIVEN_RUN}&axis=time&smooth=11&scale=log",
        "overview-of-a-stall": f"?view=overview&run={STUCK_RUN}",
        "overview-of-a-flap": f"?view=overview&run={SICK_RUN}",
        "heatmap": f"?view=heatmap&run={run_id}",
        "heatmap-collective": f"?view=heatmap&run={run_id}&stage=grads-reduce-scatter&metric=ms",
        "heatmap-wait": f"?view=heatmap&run={run_id}&stage=grads-reduce-scatter&metric=wait&sort=value",
        "timeline": f"?view=timeline&run={run_id}&group=pp&rank={SLOW}&step={STEP}",
        "span": f"?view=timeline&run={run_id}&group=all&rank={SLOW}&step={STEP}&span={span}",
        "timeline-ideal": f"?view=timeline&run={run_id}&group=all&rank={SLOW}&step={STEP}&ideal=shown",
        "timeline-of-an-area": f"?view=timeline&run={run_id}&group=all&step={STEP}&area=100000000-300000000-0-7",
        "timeline-of-steps": f"?view=timeline&run={run_id}&rank={SLOW}&step={STEP}&num-steps=4&table=-duration",
        "timeline-of-a-stall": f"?view=timeline&run={STUCK_RUN}&group=all",
        "timeline-counters": f"?view=timeline&run={HOSTS_RUN}&group=pp&rank=4&step=18&num-steps=3&counters=all",
        "timeline-of-hosts": f"?view=timeline&run={SICK_RUN}&group=dp&rank=0",
        "grid": f"?view=grid&run={RUN}",
        "grid-3d": f"?view=grid&run={RUN}&form=3d",
        "grid-metric": f"?view=grid&run={RUN}&colour=metric&rank=2",
        "grid-blame": f"?view=grid&run={SIMULATED_RUN}&colour=blame",
        "grid-of-a-stall": f"?view=grid&run={STUCK_RUN}&rank=2",
        "grid-of-a-stall-3d": f"?view=grid&run={STUCK_RUN}&rank=2&form=3d",
        "whatif": f"?view=whatif&run={SIMULATED_RUN}",
        "compare": f"?view=compare&run={SIMULATED_RUN}&a={EARLIER_RUN}",
        "goodput": f"?view=goodput&run={DRIVEN_RUN}",
        "ablation": f"?view=ablation&run={ABLATION_RUN}",
        "hang": f"?view=hang&run={STUCK_RUN}",
        "hang-victim": f"?view=hang&run={STUCK_RUN}&rank=2",
        "hang-of-a-healthy-run": f"?view=hang&run={run_id}",
        "fleet": f"?view=fleet&run={SICK_RUN}&host=gpu-001&family=network",
        "fleet-gpu": f"?view=fleet&run={SICK_RUN}&family=gpu&host=gpu-002",
        "fleet-without-samples": f"?view=fleet&run={SICK_RUN}&family=host",
        "fleet-of-hosts": f"?view=fleet&run={HOSTS_RUN}&host=gpu-03",
        "clock": f"?view=clock&run={SICK_RUN}",
        "clock-refused": f"?view=clock&run={HOSTS_RUN}&host=gpu-02",
        "sql": f"?view=sql&run={run_id}",
        "selection": f"?view=overview&run={run_id}&steps=5-30&step=12&rank=2&host=gpu-02&pins=4.6",
        "unknown-run": "?view=overview&run=nope",
        "wrong-address": f"?view=timeline&run={run_id}&group=nope&rank=99",
    }
