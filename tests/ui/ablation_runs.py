"""Simulated runs of an ablation in a store."""

from dataclasses import replace

from diagnose.simulate.noise import SILENT
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import parse_fault
from telemetry.imports.write import StoreTarget
from telemetry.labels import label_meta
from telemetry.stores.interface import Store
from telemetry.topology import Topology

EIGHT = Topology(dp=2, pp=2, tp=2)


def put_run(store: Store, run_id: str, labels: dict[str, str], *faults: str, num_steps: int = 12) -> None:
    plan = SimulatedRun(
        name=run_id,
        topology=EIGHT,
        num_steps=num_steps,
        gpus_per_host=8,
        noise=SILENT,
        faults=tuple(map(parse_fault, faults)),
    )
    simulation = simulate(plan)
    made = as_run(simulation)
    meta = {**made.meta, **label_meta(f"{name}={value}" for name, value in labels.items())}
    put_simulation(replace(made, meta=meta), samples_table(simulation), StoreTarget(store))


def labels(row: int, technique: str, ablation: str = "abl") -> dict[str, str]:
    return {"ablation": ablation, "row": str(row), "technique": technique, "options": f"--row {row}"}
