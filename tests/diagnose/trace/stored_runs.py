"""Runs in a store, simulated or written down by hand."""

from dataclasses import replace
from functools import cache

import pyarrow as pa

from diagnose.simulate.run import simulate
from diagnose.simulate.store import HostedRun, as_run, put_simulation, samples_table
from telemetry.clocks.align_evidence import HostClock
from telemetry.clocks.stored_evidence import Window
from telemetry.clocks.windows import Estimate, estimate_newest
from telemetry.imports.write import StoreTarget
from telemetry.stages import Stage
from telemetry.stores.interface import Store, StoreReader
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import plan
from tests.telemetry.made_rows import insert, made

GRID = Topology(dp=2, pp=2, tp=2)
WIDE = Topology(dp=2, pp=3, tp=2)
APART_S = 3


def put(store: Store, name: str, **more: object) -> None:
    """A simulated run of twelve steps with a slow rank."""
    put_simulation(*simulated(name, **more), StoreTarget(store))


@cache
def simulated(name: str, **more: object) -> tuple[HostedRun, pa.Table]:
    """The run and its samples."""
    simulation = simulate(replace(plan("slow:rank=1,factor=1.3", **{"num_microbatches": 2, **more}), name=name))
    return as_run(simulation), samples_table(simulation)


def estimate(store: Store, run: str) -> None:
    """Estimate the clocks of its hosts, like a collector."""
    for one in estimate_newest(StoreReader(store), run, 0, last_step=11):
        insert(store, "host_clocks", one.rows(estimated_ns=1), run_id=run)


def refuse(store: Store, run: str, last_step: int) -> None:
    """Store that the clocks of its four hosts could not be estimated in steps 0 to ``last_step``."""
    window = Window(run_id=run, attempt=0, first_step=0, last_step=last_step, first_ns=0, last_ns=0)
    clocks = tuple(HostClock(host=f"gpu-00{number}", reference="gpu-000") for number in range(4))
    insert(store, "host_clocks", Estimate(window=window, clocks=clocks).rows(estimated_ns=1), run_id=run)


def put_by_hand(store: Store, run: str, spans: list[tuple[Stage | int, int, int, int]]) -> None:
    """One rank with spans of stage, start, duration and step."""
    rows = [
        {
            "seq": seq, "stage": int(stage), "stream": int(stage.stream) if isinstance(stage, Stage) else 9,
            "start_ns": start_ns, "duration_ns": duration_ns, "step": step,
        }
        for seq, (stage, start_ns, duration_ns, step) in enumerate(spans)
    ]  # fmt: skip
    insert(store, "spans", made("spans", rows), run_id=run)
    grid = {"rank": 0, "host": "here", "dp_size": 1, "pp_size": 1, "tp_size": 1, "started_ns": 1}
    insert(store, "ranks", made("ranks", [grid]), run_id=run)
