"""Pictures of every page on meshes of other axes than dp, pp and tp: ``python -m tests.ui.mesh_pictures OUT``."""

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from playwright.sync_api import sync_playwright

from diagnose.simulate.noise import RECORDED
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import parse_fault
from telemetry.imports.write import StoreTarget
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.tables import TABLES, owned
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.parts import require
from tests.ui.screenshots import FLAGS, SIZE, picture
from tests.ui.served_dashboard import serving

MESHES = {
    "titan": Topology.parse("pp=2,dp_shard=2,tp=2"),
    "context": Topology.parse("pp=1,dp=2,cp=2,tp=2"),
}
SLOW = 5
S = 1_000_000_000
VIEWS = {
    "overview": "?view=overview&run={run}",
    "heatmap": "?view=heatmap&run={run}",
    "heatmap-wait": "?view=heatmap&run={run}&stage=params-all-gather&metric=wait",
    "timeline": "?view=timeline&run={run}&group=all&rank=5",
    "timeline-dp": "?view=timeline&run={run}&group=dp&rank=5",
    "grid": "?view=grid&run={run}&rank=5",
    "grid-3d": "?view=grid&run={run}&form=3d&rank=5",
    "grid-metric": "?view=grid&run={run}&colour=metric&rank=5",
    "grid-blame": "?view=grid&run={run}&colour=blame&rank=5",
    "whatif": "?view=whatif&run={run}",
    "fleet": "?view=fleet&run={run}",
    "clock": "?view=clock&run={run}",
    "hang": "?view=hang&run={run}-stuck",
    "hang-victim": "?view=hang&run={run}-stuck&rank=1",
}


def store_run(store: EmbeddedStore, name: str, topology: Topology, *, is_stuck: bool = False) -> None:
    """A run with a slow rank that shards its parameters; ``is_stuck``: it ends in a hang of the slow rank."""
    plan = SimulatedRun(
        name=name,
        topology=topology,
        num_steps=40,
        num_microbatches=4,
        gpus_per_host=4,
        noise=RECORDED,
        clock="device",
        fsdp=True,
        faults=(parse_fault(f"slow:rank={SLOW},factor=1.4"),),
    )
    simulation = simulate(plan)
    run = as_run(simulation)
    put_simulation(run, samples_table(simulation), StoreTarget(store))
    if is_stuck:
        ends_ns = max(int(one.end_ns.max()) for one in simulation.operations.values())
        rows = [
            {"rank": rank, "at_ns": ends_ns + 40 * S, "kind": "state", "body": json.dumps(_state(plan, rank, ends_ns))}
            for rank in range(topology.world_size)
        ]
        store.insert("evidence", owned(pa.Table.from_pylist(rows, schema=TABLES["evidence"]), name, 0))


def _state(plan: SimulatedRun, rank: int, ends_ns: int) -> dict[str, Any]:
    """The state page of a rank: all wait in a gather but the slow one, which computes."""
    topology = plan.topology
    mask = topology.replica_mask
    waits = rank in topology.group_of(SLOW, mask) and rank != SLOW
    in_tensor_group = not waits and rank != SLOW
    stage = "params-all-gather" if waits else "tp-all-reduce" if in_tensor_group else "forward-compute"
    rows = [
        ("params-all-gather", mask, 80 + (1 if waits else 0)),
        ("tp-all-reduce", topology.mask("tp"), 80 + (1 if in_tensor_group else 0)),
    ]
    return {
        "rank": rank,
        "host": plan.hosts[rank],
        "pid": 4000 + rank,
        "process": "alive",
        "died_ns": 0,
        "at_ns": ends_ns + 40 * S,
        "step": plan.num_steps,
        "step_started_ns": ends_ns + S // 100,
        "beat_ns": ends_ns + S,
        "recorded": 4000,
        "topology": {"dp": topology.dp, "pp": topology.pp, "tp": topology.tp, "mesh": str(topology)},
        "open": [
            {"stage": "step", "since_ns": ends_ns + S // 100},
            {"stage": stage, "since_ns": ends_ns + S},
        ],
        "operations": [
            {"axis": None, "mask": axes, "stage": name, "peer": -1, "issued": issued, "completed": 80}
            | {"issued_ns": ends_ns + S, "completed_ns": ends_ns + S // 2, "size_bytes": 4096}
            for name, axes, issued in rows
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=list(VIEWS), help="names of pictures")
    given = parser.parse_args()
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    with memory_store() as store, sync_playwright() as playwright:
        for name, topology in MESHES.items():
            store_run(store, name, topology)
            store_run(store, f"{name}-stuck", topology, is_stuck=True)
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=FLAGS)
        with serving(StoreReader(store)) as address, browser.new_context(viewport=SIZE) as context:
            page = context.new_page()
            picture(page, address + "?view=runs", out / "runs.png")
            for name in MESHES:
                for view in given.only:
                    picture(page, address + VIEWS[view].format(run=name), out / f"{view}-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
