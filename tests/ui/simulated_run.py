"""A simulated run in a store: its steps wait for each other as those of a real job do, so that they can be replayed."""

from diagnose.simulate.noise import SILENT, Noise
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.role_names import Role
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import parse_fault
from telemetry.imports.write import StoreTarget
from telemetry.stores.interface import Store
from telemetry.topology import Topology

EIGHT = Topology(dp=2, pp=2, tp=2)


def store_simulated(
    store: Store,
    name: str,
    *faults: str,
    num_steps: int = 40,
    num_microbatches: int = 4,
    noise: Noise = SILENT,
    clock_offset_ms: float = 0.0,
    topology: Topology = EIGHT,
    fsdp: bool = False,
    experts: bool = False,
    roles: tuple[Role, ...] = (),
    seed: int = 0,
) -> None:
    """Two ranks on each host, with ``faults`` such as ``slow:rank=5,factor=1.4``."""
    plan = SimulatedRun(
        name=name,
        topology=topology,
        num_steps=num_steps,
        num_microbatches=num_microbatches,
        gpus_per_host=2,
        noise=noise,
        fsdp=fsdp,
        experts=experts,
        roles=roles,
        clock_offset_ms=clock_offset_ms,
        seed=seed,
        faults=tuple(parse_fault(one) for one in faults),
    )
    simulation = simulate(plan)
    put_simulation(as_run(simulation), samples_table(simulation), StoreTarget(store))
