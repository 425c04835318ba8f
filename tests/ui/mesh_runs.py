"""Runs on meshes of other axes than dp, pp and tp, in a store: a slow rank, a hang, hosts with faults, unequal experts.

titan     pp=2,dp_shard=2,tp=2      parameters are sharded along dp_shard
context   pp=1,dp=2,cp=2,tp=2       parameters are sharded along dp and cp; ranks of cp gather keys and values
experts   dp=2,ep=4                 experts: all-to-all of the four ranks along ep
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.model.operations import ABSENT, Operations
from diagnose.simulate.noise import RECORDED
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import Simulation, simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import parse_fault
from telemetry.clocks.windows import estimate_newest
from telemetry.group_names import peer_of_mask
from telemetry.imports.write import StoreTarget
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import Runs
from telemetry.tables import TABLES, owned
from telemetry.topology import Topology
from tests.ui.made_profiles import store_profiles
from tests.ui.reported_alerts import made_alert, tell, tell_look

MESHES = {
    "titan": Topology.parse("pp=2,dp_shard=2,tp=2"),
    "context": Topology.parse("pp=1,dp=2,cp=2,tp=2"),
    "experts": Topology.parse("dp=2,ep=4"),
}
SLOW = 5
S = 1_000_000_000
SLOWED = f"slow:rank={SLOW},factor=1.4"
ILL = ("flap:host=gpu-001,seconds=4,times=2", "throttle:rank=2,factor=1.4")
UNEQUAL = "experts:factor=1.6,ep=1"
NUM_STEPS_OF_HOSTS = 120
EXCHANGE_NS = 2_000_000
AFTER_NS = 60 * S
"""From the end of the last run to the time at which it is shown."""
DONE = 80
"""Operations of each group that a stuck run has completed."""


def store_runs(store: EmbeddedStore, mesh: str) -> None:
    """``mesh``: a slow rank. ``mesh-stuck``: this rank hangs at the end. ``mesh-hosts``: a NIC without a link, a GPU
    with reduced clocks, and host clocks that disagree. ``experts-unequal``: one expert receives more tokens."""
    put(store, simulated(mesh, mesh, SLOWED))
    put(store, stuck := simulated(f"{mesh}-stuck", mesh, SLOWED))
    leave_evidence(store, stuck)
    hosts = simulated(f"{mesh}-hosts", mesh, *ILL, num_steps=NUM_STEPS_OF_HOSTS, clock_offset_ms=40.0)
    put(store, hosts, every_steps=40)
    if mesh == "experts":
        put(store, simulated("experts-unequal", mesh, UNEQUAL))


def simulated(name: str, mesh: str, *faults: str, num_steps: int = 40, **more: Any) -> Simulation:
    """A run on a mesh: four ranks on each host, parameters sharded unless there are experts."""
    topology = MESHES[mesh]
    has_experts = "ep" in dict(topology.mesh)
    plan = SimulatedRun(
        **{
            "name": name,
            "topology": topology,
            "num_steps": num_steps,
            "num_microbatches": 4,
            "gpus_per_host": 4,
            "noise": RECORDED,
            "clock": "device",
            "fsdp": not has_experts,
            "experts": has_experts,
            "faults": tuple(map(parse_fault, faults)),
            **more,
        }
    )
    found = simulate(plan)
    return with_context(found) if "cp" in dict(topology.mesh) else found


def with_context(simulation: Simulation) -> Simulation:
    """The ranks along cp gather keys and values as each forward and backward begins: at the end of their wait."""
    topology = simulation.plan.topology
    mask = topology.wide_mask("cp")
    computes = [simulation.operations[stage] for stage in (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)]
    starts, microbatches, chunks = (
        np.concatenate([getattr(each, name) for each in computes], axis=1)
        for name in ("start_ns", "microbatch", "chunk")
    )
    in_time = np.argsort(starts, axis=1)  # operations are numbered in this order
    starts, microbatches, chunks = (
        np.take_along_axis(values, in_time, axis=1) for values in (starts, microbatches, chunks)
    )
    ends = np.empty_like(starts)
    members = topology.members(mask)
    ends[..., members] = starts[..., members].max(axis=-1, keepdims=True) + EXCHANGE_NS
    gathers = Operations(
        start_ns=starts,
        duration_ns=ends - starts,
        cpu_ns=np.full_like(starts, ABSENT),
        microbatch=microbatches,
        chunk=chunks,
        peer=np.full(starts.shape, peer_of_mask(mask), dtype=np.int32),
    )
    return replace(simulation, operations={**simulation.operations, Stage.CP_ALL_GATHER: gathers})


def put(store: Store, simulation: Simulation, every_steps: int | None = None) -> None:
    """Store a run, and the offsets of its host clocks as ``rankscope simulate`` does. ``every_steps``: as a collector
    estimates them during the run, each time so many steps are complete."""
    run, target = as_run(simulation), StoreTarget(store)
    put_simulation(run, samples_table(simulation), target)
    if every_steps is None:
        target.keep_clocks(run)
        return
    lasts = range(every_steps - 1, simulation.plan.num_steps, every_steps)
    windows = [list(estimate_newest(StoreReader(store), run.run_id, 0, last, most=1)) for last in lasts]
    rows = [estimate.rows(max(clock.last_ns for clock in estimate.clocks)) for window in windows for estimate in window]
    store.insert("host_clocks", owned(pa.concat_tables(rows), run.run_id, 0))


def report_runs(store: Store, meshes: Sequence[str]) -> int:
    """Store profiles, the alert of the slow rank, and the newest check of the watcher. Returns the time of this check:
    then the alert is open."""
    runs = {row["run_id"]: row["last_ns"] for row in StoreReader(store).read(Runs()).to_pylist()}
    now_ns = max(runs.values()) + AFTER_NS
    for mesh in meshes:
        tell(store, made_alert(mesh, began_ns=runs[mesh] - 5 * S, rank=SLOW, host="gpu-001"), at_ns=now_ns)
        tell_look(store, mesh, at_ns=now_ns)
        store_profiles(store, mesh, at_ns=runs[mesh])
    return now_ns


def leave_evidence(store: Store, simulation: Simulation) -> None:
    """The state pages of a hang: the slow rank computes, the others wait for it."""
    plan = simulation.plan
    ends_ns = max(int(one.end_ns.max()) for one in simulation.operations.values())
    rows = [
        {"rank": rank, "at_ns": ends_ns + 40 * S, "kind": "state", "body": json.dumps(_state(plan, rank, ends_ns))}
        for rank in range(plan.topology.world_size)
    ]
    store.insert("evidence", owned(pa.Table.from_pylist(rows, schema=TABLES["evidence"]), plan.name, 0))


def groups_of(plan: SimulatedRun) -> Mapping[str, int]:
    """Stage -> axes of its group, as a bit mask. The narrowest group first."""
    topology = plan.topology
    across = "grads-reduce-scatter" if plan.experts else "params-all-gather"
    masks = {
        "tp-all-reduce": topology.wide_mask("tp"),
        "cp-all-gather": topology.wide_mask("cp"),
        "ep-all-to-all": topology.wide_mask("ep"),
        across: topology.replica_mask,
    }
    return {stage: mask for stage, mask in masks.items() if mask}


def waits_in(plan: SimulatedRun, rank: int) -> str:
    """The stage in which a rank waits: in the narrowest group that it shares with the slow rank; in the other half of
    the pipeline for the next stage; else in its own tensor-parallel group. Empty for the slow rank."""
    topology = plan.topology
    if rank == SLOW:
        return ""
    for stage, mask in groups_of(plan).items():
        if SLOW in topology.group_of(rank, mask):
            return stage
    return "backward-recv" if topology.place(rank).pp != topology.place(SLOW).pp else "tp-all-reduce"


def _state(plan: SimulatedRun, rank: int, ends_ns: int) -> dict[str, Any]:
    """The state page of a rank."""
    topology = plan.topology
    stage = waits_in(plan, rank)
    since = {"issued_ns": ends_ns + S, "completed_ns": ends_ns + S // 2, "size_bytes": 4096}
    operations = [
        {"axis": None, "mask": mask, "stage": name, "peer": -1, "issued": DONE + (name == stage), "completed": DONE}
        | since
        for name, mask in groups_of(plan).items()
    ]
    if stage == "backward-recv":
        peer = int(topology.neighbour(1)[rank])
        recv = {"axis": None, "mask": topology.mask("pp"), "stage": stage, "peer": peer}
        operations.append(recv | {"issued": DONE + 1, "completed": DONE} | since)
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
            {"stage": stage or "forward-compute", "since_ns": ends_ns + S},
        ],
        "operations": operations,
    }
