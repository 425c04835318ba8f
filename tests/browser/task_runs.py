"""Runs of any size for the tasks of docs/guides/tasks.md, and the dashboard that shows them.

slow     a rank computes 1.4 times as long from a step on; it still sends heartbeats, and its alert is open
before   a host loses its link three times; an alert of it is over
stuck    a rank hangs in its data loader
day      one step in ten minutes for a day, with a loss
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnose.alerts.alert import Phase
from diagnose.simulate.faults import Slow
from diagnose.simulate.host_faults import Flap
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.imports.write import StoreTarget
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.benchmarks.large_hang import STEP as STUCK_STEP
from tests.benchmarks.large_hang import evidence_rows
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.reported_alerts import S, made_alert, tell, tell_log, tell_look
from tests.ui.served_dashboard import serving_app
from ui.dashboard.app import mount_dashboard

SLOW, BEFORE, STUCK, DAY = "slow", "before", "stuck", "day"
RANKS_A_HOST = 8
FACTOR = 1.4
FIRST_NS = 1_790_000_000 * S
DAY_STEP_NS, DAY_STEPS = 600 * S, 150
STEP_NS = 2 * S
DAYS_AGO_NS = 3 * 86_400 * S
GRIDS = {
    8: Topology(dp=2, pp=2, tp=2),
    2048: Topology(dp=32, pp=8, tp=8),
    12_288: Topology(dp=192, pp=8, tp=8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRuns:
    """The size of the runs, and where their faults are."""

    grid: Topology
    num_steps: int = 24
    onset: int = 8

    @property
    def rank(self) -> int:
        """The rank that is slow, and that hangs."""
        return self.grid.world_size * 5 // 8

    @property
    def ranks_a_host(self) -> int:
        return min(RANKS_A_HOST, self.grid.world_size // 4)

    def host(self, rank: int) -> str:
        """As the simulation names it."""
        digits = max(3, len(str(self.grid.world_size // self.ranks_a_host)))
        return f"gpu-{rank // self.ranks_a_host:0{digits}d}"

    @property
    def flapping_host(self) -> str:
        return self.host(self.ranks_a_host)


def store_task_runs(store: EmbeddedStore, runs: TaskRuns) -> None:
    """Store all runs."""
    _simulate(store, runs, BEFORE, Flap(host=runs.flapping_host, seconds=2.0))
    _simulate(store, runs, SLOW, Slow(rank=runs.rank, factor=FACTOR, first_step=runs.onset))
    _store_stuck(store, runs)
    _store_day(store, runs)
    _store_alerts(store, runs)


def _simulate(store: EmbeddedStore, runs: TaskRuns, name: str, fault: Slow | Flap) -> None:
    plan = SimulatedRun(
        name=name,
        topology=runs.grid,
        num_steps=runs.num_steps,
        num_microbatches=4,
        gpus_per_host=runs.ranks_a_host,
        faults=(fault,),
    )
    simulation = simulate(plan)
    put_simulation(as_run(simulation), samples_table(simulation), StoreTarget(store))


def _store_stuck(store: EmbeddedStore, runs: TaskRuns) -> None:
    for stage, share in ((Stage.FORWARD_COMPUTE, 0.2), (Stage.STEP, 1.0)):
        insert(store, "spans", _spans(runs.grid, stage, STUCK_STEP, STEP_NS, share), run_id=STUCK)
    rows = evidence_rows(runs.grid, runs.rank, FIRST_NS + (STUCK_STEP + 30) * STEP_NS)
    insert(store, "evidence", made("evidence", rows), run_id=STUCK)
    _introduce(store, runs, STUCK)


def _store_day(store: EmbeddedStore, runs: TaskRuns) -> None:
    insert(store, "spans", _spans(runs.grid, Stage.STEP, DAY_STEPS, DAY_STEP_NS, 0.99), run_id=DAY)
    losses = [
        {"rank": 0, "seq": 10**6 + step, "step": step, "at_ns": FIRST_NS + step * DAY_STEP_NS, "metric": "loss"}
        | {"value": 2.0 + 3.0 * float(np.exp(-step / 40))}
        for step in range(DAY_STEPS)
    ]
    insert(store, "samples", made("samples", losses), run_id=DAY)
    _introduce(store, runs, DAY)


def _spans(grid: Topology, stage: Stage, num_steps: int, step_ns: int, share: float) -> pa.Table:
    """A span of each rank in each step, which takes ``share`` of the step. Columns: those of one made row."""
    world = grid.world_size
    step, rank = np.divmod(np.arange(num_steps * world), world)
    alike = made("spans", [{"stage": int(stage), "stream": int(stage.stream)}])
    columns = {name: pa.repeat(alike[name][0], len(step)) for name in alike.column_names}
    columns |= {
        "rank": pa.array(rank),
        "step": pa.array(step),
        "seq": pa.array(2 * step + int(stage is Stage.STEP)),
        "start_ns": pa.array(FIRST_NS + step * step_ns),
        "duration_ns": pa.array(np.full(len(step), int(share * step_ns))),
    }
    return pa.table(columns).cast(alike.schema)


def _introduce(store: EmbeddedStore, runs: TaskRuns, run_id: str) -> None:
    grid = {"dp_size": runs.grid.dp, "pp_size": runs.grid.pp, "tp_size": runs.grid.tp, "started_ns": FIRST_NS}
    rows = [
        {"rank": rank, "host": runs.host(rank), "local_rank": rank % runs.ranks_a_host, **grid}
        for rank in range(runs.grid.world_size)
    ]
    insert(store, "ranks", made("ranks", rows), run_id=run_id)


def _store_alerts(store: EmbeddedStore, runs: TaskRuns) -> None:
    now_ns = time.time_ns()
    beats = [
        {"rank": rank, "at_ns": now_ns + 3600 * S, "beat_ns": now_ns, "step": runs.num_steps - 1, "alive": 1}
        for rank in range(runs.grid.world_size)
    ]
    insert(store, "heartbeats", made("heartbeats", beats), run_id=SLOW)
    slow = made_alert(SLOW, began_ns=now_ns - 300 * S, rank=runs.rank, host=runs.host(runs.rank))
    began_ns = now_ns - DAYS_AGO_NS
    over = made_alert(BEFORE, began_ns=began_ns, kind="nic-flap", host=runs.flapping_host, phase=Phase.RESOLVED)
    for alert in (slow, over):
        tell(store, alert, at_ns=now_ns)
    tell_look(store, SLOW, at_ns=now_ns)
    tell_log(store, [slow, over], at_ns=now_ns)


@contextmanager
def serving_task_runs(num_ranks: int, site: socket.socket | None = None) -> Iterator[tuple[str, TaskRuns]]:
    """Address of a collector and its dashboard with runs of ``num_ranks`` ranks. ``site``: a listening socket."""
    runs = TaskRuns(grid=GRIDS[num_ranks])
    with memory_store() as store:
        store_task_runs(store, runs)
        app = create_app(store, CollectorSettings.checked(linger_s=0.0))
        mount_dashboard(app, StoreReader(store), takes_actions=True)
        with serving_app(app, site) as address:
            yield address, runs
