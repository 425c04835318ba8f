"""Simulated runs in a real store, as if they had just been recorded, and heartbeats of their ranks."""

import time
from dataclasses import replace

from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import parse_fault
from telemetry.imports.write import StoreTarget
from telemetry.stores.interface import Store
from telemetry.topology import Topology
from tests.telemetry.made_rows import insert, made

SECOND_NS = 1_000_000_000


def put_run(store: Store, name: str, *faults: str, num_steps: int = 30, ended_s: float = 0) -> None:
    """A run of eight ranks whose last step was ``ended_s`` ago."""
    plan = SimulatedRun(
        name=name,
        topology=Topology(dp=2, pp=2, tp=2),
        num_steps=num_steps,
        num_microbatches=4,
        gpus_per_host=4,
        faults=tuple(map(parse_fault, faults)),
    )
    plan = replace(plan, started_ns=time.time_ns() - int((plan.expected_s + ended_s) * SECOND_NS))
    simulation = simulate(plan)
    put_simulation(as_run(simulation), samples_table(simulation), StoreTarget(store))


def put_beats(store: Store, name: str, *, ended: bool) -> None:
    """A heartbeat of each rank, now."""
    now_ns = time.time_ns()
    said = {"at_ns": now_ns, "beat_ns": now_ns, "alive": int(not ended), "ended": int(ended)}
    beats = ({"rank": rank, **said} for rank in range(8))
    insert(store, "heartbeats", made("heartbeats", beats), run_id=name)
