"""A simulated run in a store. The clocks of its hosts disagree, and their true offsets are known."""

import time
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa

from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.recording import Clocks, clocks_of
from diagnose.simulate.run import simulate
from diagnose.simulate.store import spans_table
from telemetry.stores.interface import Store
from telemetry.tables import RANKS
from telemetry.topology import Topology
from tests.telemetry.made_rows import insert, made

RUN = "disagreeing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A run with the true values of its clocks."""

    plan: SimulatedRun
    clocks: Clocks
    spans: pa.Table

    def error_ns(self, row: dict) -> float:
        """The largest error of a row of ``HostClocks``."""
        host, against = (self.clocks.hosts.index(row[name]) for name in ("host", "reference"))
        middle = (row["first_ns"] + row["last_ns"]) // 2
        worst = 0.0
        for reading in (row["first_ns"], middle, row["last_ns"]):
            since_ns = (reading - int(self.clocks.offset_ns[host])) / (1 + self.clocks.rate[host])
            true = reading - int(self.clocks.offset_ns[against]) - since_ns * (1 + self.clocks.rate[against])
            worst = max(worst, abs(true - row["offset_ns"] - row["drift_ppm"] * 1e-6 * (reading - middle)))
        return worst


@cache
def simulated(**changes: object) -> Simulated:
    """A run of sixteen ranks on four hosts that has just ended. Clocks are up to five seconds and 50 ppm off."""
    usual = {
        "topology": Topology(dp=4, pp=2, tp=2),
        "num_steps": 32,
        "num_microbatches": 2,
        "gpus_per_host": 4,
        "clock_offset_ms": 5000,
        "clock_drift_ppm": 50,
        "started_ns": time.time_ns() - 30_000_000_000,
    }
    plan = SimulatedRun(name=RUN, **{**usual, **changes})
    return Simulated(
        plan=plan, clocks=clocks_of(plan, Draws(noise=plan.noise, seed=plan.seed)), spans=spans_table(simulate(plan))
    )


def put(run: Simulated, store: Store) -> None:
    """Write the run into a store, as if its ranks had recorded it."""
    topology = run.plan.topology
    degrees = {f"{axis}_size": getattr(topology, axis) for axis in ("dp", "pp", "tp")}
    rows = [
        {"rank": rank, "host": host, "started_ns": run.plan.started_ns, **degrees}
        for rank, host in enumerate(run.plan.hosts)
    ]
    into = partial(insert, store, run_id=RUN)
    into("spans", run.spans)
    into("ranks", made("ranks", rows).cast(RANKS))
