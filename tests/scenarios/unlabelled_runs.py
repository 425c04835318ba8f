"""Six runs with neutral names in one store: five have one fault each, one has none. A user must find out which.

python -m tests.scenarios.unlabelled_runs OUT [--seed 0]          then: rankscope ui --store embedded:OUT/store

    slow rank, flap, hang, healthy    real: eight gloo ranks (dp2 x pp2 x tp2) over four network namespaces
    slow stage, long sequences        simulated: 32 ranks (dp4 x pp4 x tp2) on eight hosts

OUT/truth.json has the fault of each run. Needs root. Takes three minutes on two cores.
"""

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from diagnose.hang.stored import stored_verdict
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import parse_fault
from telemetry.imports.write import StoreTarget
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.topology import Topology
from tests.deadline import until
from tests.netns.cluster import Cluster
from tests.netns.collector import Collector
from tests.netns.job import Job, quick_config
from tests.netns.zygote import Zygote
from tests.scenarios.hang_job import AGENT_OPTIONS, VERDICT_S, accused_now
from trainer.config import TrainConfig

FAULTS = ("slow rank", "slow stage", "long sequences", "flap", "hang", "healthy")
REAL = ("slow rank", "flap", "hang", "healthy")
NUM_RANKS, RANKS_PER_HOST = 8, 2
NUM_STEPS = 30
SETTLED_STEP = 8
NUM_FLAPS, FLAP_S, STEPS_BETWEEN = 3, 3.0, 4
TIMEOUT_S = 60.0
"""Timeout of collectives: much longer than a flap."""
LONG_STEP_MICROBATCHES = 4
SIMULATED = Topology(dp=4, pp=4, tp=2)
SIMULATED_RANKS_PER_HOST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlabelled:
    """A run, and its fault."""

    run_id: str
    fault: str
    """One of ``FAULTS``."""
    rank: int = -1
    """The rank that is slow or hangs; -1: no single rank."""
    host: str = ""
    pp: int = -1
    """The slow stage."""
    device: str = ""
    """The device that flaps."""


def drawn(seed: int) -> list[Unlabelled]:
    """The six runs in order of their names. Faults and places are drawn from the seed."""
    draw = random.Random(seed)
    faults = draw.sample(FAULTS, len(FAULTS))
    return [_drawn(f"run-{letter}", fault, draw) for letter, fault in zip("abcdef", faults, strict=True)]


def _drawn(run_id: str, fault: str, draw: random.Random) -> Unlabelled:
    run, rank = Unlabelled(run_id=run_id, fault=fault), draw.randrange(NUM_RANKS)
    match fault:
        case "slow rank" | "hang":
            return replace(run, rank=rank, host=f"host-{rank // RANKS_PER_HOST}")
        case "flap":
            return replace(run, host=f"host-{rank // RANKS_PER_HOST}", device="data0")
        case "slow stage":
            return replace(run, pp=draw.randrange(SIMULATED.pp))
        case _:
            return run


def make_runs(folder: Path, seed: int) -> list[Unlabelled]:
    """Write all six runs into ``folder/store``, and close it."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = drawn(seed)
    with Cluster() as cluster, Collector(cluster, folder / "store") as collector, Zygote(folder) as zygote:
        for run in runs:
            if run.fault in REAL:
                train(run, collector, folder / "jobs" / run.run_id, zygote)
    store = EmbeddedStore(folder / "store")
    try:
        for run in runs:
            if run.fault not in REAL:
                put_simulated(run, store, seed)
    finally:
        store.close()
    (folder / "truth.json").write_text(json.dumps([asdict(run) for run in runs], indent=1))
    return runs


def train(run: Unlabelled, collector: Collector, out: Path, zygote: Zygote) -> None:
    """Train a real run to its end. A run that hangs is trained until its verdict is in the store."""
    out.parent.mkdir(exist_ok=True)
    job = Job(
        collector.cluster,
        collector,
        out,
        run_id=run.run_id,
        config=_config(run),
        collective_timeout_s=TIMEOUT_S,
        fault=_fault(run),
        agent_options=AGENT_OPTIONS if run.fault == "hang" else (),
        zygote=zygote,
    )
    with job:
        if run.fault == "hang":
            until(lambda: _is_explained(run, collector), seconds=TIMEOUT_S + VERDICT_S, what="verdict and stack")
            for agent in job.agents.values():  # before they see how the job is ended
                agent.kill()
            return
        if run.fault == "flap":
            for _ in range(NUM_FLAPS):
                job.wait_for_step(max(SETTLED_STEP, job.step + STEPS_BETWEEN))
                collector.cluster.flap(int(run.host.removeprefix("host-")), FLAP_S)
        job.wait()
        job.wait_until_stored()


def _is_explained(run: Unlabelled, collector: Collector) -> bool:
    """Whether the store has the rank at fault and its stack."""
    if accused_now(collector, run.run_id) != (run.rank,):
        return False
    verdict = stored_verdict(collector, run.run_id, 0)
    return verdict is not None and bool(verdict.evidence.ranks[run.rank].stack)


def _config(run: Unlabelled) -> TrainConfig:
    """Steps of about a second, except in the run with flaps."""
    config = quick_config(NUM_STEPS + NUM_FLAPS * STEPS_BETWEEN if run.fault == "flap" else NUM_STEPS)
    if run.fault == "flap":
        return config
    return replace(config, parallel=replace(config.parallel, num_microbatches=LONG_STEP_MICROBATCHES))


def _fault(run: Unlabelled) -> str:
    """The fault in the format of the trainer."""
    faults = {"slow rank": f"slow:rank={run.rank},factor=2", "hang": f"hang:rank={run.rank},step=15,how=spin"}
    return faults.get(run.fault, "none")


def put_simulated(run: Unlabelled, store: Store, seed: int) -> None:
    """Store a simulated run, which would need too many ranks to train."""
    fault = f"stage:pp={run.pp},factor=1.4" if run.fault == "slow stage" else "sequences:spread=0.4"
    plan = SimulatedRun(
        name=run.run_id,
        topology=SIMULATED,
        num_steps=2 * NUM_STEPS,
        gpus_per_host=SIMULATED_RANKS_PER_HOST,
        host_names=tuple(_hosts()),
        faults=(parse_fault(fault),),
        seed=seed,
    )
    simulation = simulate(plan)
    put_simulation(as_run(simulation), samples_table(simulation), StoreTarget(store))


def _hosts() -> Iterator[str]:
    return (f"host-{number}" for number in range(SIMULATED.world_size // SIMULATED_RANKS_PER_HOST))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    make_runs(given.out, given.seed)
    print(f"rankscope ui --store embedded:{given.out / 'store'}")


if __name__ == "__main__":
    main()
