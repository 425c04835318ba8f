"""Simulated runs with known truth, for the scoreboard.

A case is drawn from its seed alone: kind of fault, size, place, grid, noise, clocks. Seeds below ``REPORTING`` are for
tuning thresholds (those used were below 1,000,000); those from it on are for the page only. Every third case is
healthy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagnose.simulate.faults import Fault, HeavyStage, Loss, Sequences, Slow, Throttle
from diagnose.simulate.host_faults import Collections, Contention, DataStall, Decline, Drift, Flap, SlowLink, SlowWriter
from diagnose.simulate.noise import HEAVY, HEAVY_ON_CPU, ON_CPU, RECORDED
from diagnose.simulate.plan import SimulatedRun
from telemetry.topology import Topology

REPORTING = 4_000_000

Random = np.random.Generator

SMALL = (
    Topology(dp=2, pp=2, tp=2),
    Topology(dp=8, pp=1, tp=1),
    Topology(dp=4, pp=4, tp=1),
    Topology(dp=4, pp=2, tp=4),
    Topology(dp=8, pp=4, tp=2),
    Topology(dp=16, pp=4, tp=8),
)
PLACED = (Topology(dp=4, pp=4, tp=2), Topology(dp=8, pp=4, tp=2), Topology(dp=16, pp=4, tp=8))
DRIFTING = (Topology(dp=8), Topology(dp=8, pp=4, tp=2), Topology(dp=16, pp=2, tp=2))
MESHES = tuple(
    map(
        Topology.parse,
        (
            "pp=2,dp_shard=4,tp=2",
            "dp_shard=8",
            "pp=2,dp_replicate=2,dp_shard=4",
            "dp_shard=4,cp=2,tp=2",
            "pp=4,dp_shard=2,cp=2,tp=2",
            "tp=2,pp=2,dp_shard=8",
        ),
    )
)
"""Meshes of jobs that shard their parameters."""
LARGE = (Topology(dp=32, pp=8, tp=8), Topology(dp=192, pp=8, tp=8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run, and the sort of its fault."""

    name: str
    """``healthy``, or the fault in a word."""
    seed: int
    plan: SimulatedRun


def case(seed: int) -> Case:
    """The case of a seed."""
    random = np.random.default_rng([seed, 7])
    names = [*FAULTS]
    name = "healthy" if seed % 3 == 0 else names[(seed - seed // 3 - 1) % len(names)]
    run = _run(random, seed)
    if name == "healthy":
        return Case(name=name, seed=seed, plan=run)
    run = _fit(name, run)
    return Case(name=name, seed=seed, plan=replace(run, faults=(FAULTS[name](random, run),)))


def straggler_case(seed: int) -> Case:
    """A rank that is slow by a twentieth, every other time by a tenth or more, in the noise of a production job."""
    random = np.random.default_rng([seed, 9])
    run = _run(random, seed)
    run = replace(run, noise=ON_CPU if run.device == "cpu" else RECORDED)
    factor = float(random.choice([1.1, 1.1, 1.15, 1.2, 1.3, 2.0])) if seed % 2 else 1.05
    fault = Slow(rank=_a_rank(random, run), factor=factor, first_step=_begin(random, run))
    return Case(name="slow rank", seed=seed, plan=replace(run, faults=(fault,)))


def sharded_case(seed: int) -> Case:
    """A job with device clocks that shards its parameters, on a mesh of any axes. Every third is healthy."""
    random = np.random.default_rng([seed, 10])
    topology = MESHES[random.integers(len(MESHES))]
    run = SimulatedRun(
        topology=topology,
        num_microbatches=2 * topology.pp,
        num_steps=int(random.integers(30, 61)),
        noise=HEAVY if random.random() < 0.25 else RECORDED,
        clock="device",
        fsdp=True,
        prefetches=bool(random.random() < 0.75),
        clock_offset_ms=float(random.choice([0.0, 1.0, 10.0])),
        gpus_per_host=2 if topology.world_size <= 16 else 4,
        seed=seed,
    )
    names = [*SHARDED_FAULTS]
    name = "healthy" if seed % 3 == 0 else names[(seed - seed // 3 - 1) % len(names)]
    if name == "healthy":
        return Case(name=name, seed=seed, plan=run)
    if name == "heavy stage" and topology.pp == 1:
        run = replace(run, topology=MESHES[0], num_microbatches=2 * MESHES[0].pp)
    return Case(name=name, seed=seed, plan=replace(run, faults=(SHARDED_FAULTS[name](random, run),)))


def large_case(seed: int) -> Case:
    """A job of thousands of ranks: a slow one among them, or healthy."""
    random = np.random.default_rng([seed, 8])
    topology = LARGE[seed // 2 % len(LARGE)]
    run = SimulatedRun(topology=topology, num_steps=20, num_microbatches=topology.pp, clock_offset_ms=1.0, seed=seed)
    if seed % 2:
        rank, factor = _a_rank(random, run), float(random.choice([1.1, 1.2, 1.5]))
        run = replace(run, faults=(Slow(rank=rank, factor=factor),))
    return Case(name="slow rank" if seed % 2 else "healthy", seed=seed, plan=run)


def _run(random: Random, seed: int) -> SimulatedRun:
    topology = SMALL[random.integers(len(SMALL))]
    on_cpu = bool(random.random() < 0.2)
    heavy = bool(random.random() < 0.25)
    interleaved = topology.pp > 1 and bool(random.random() < 0.25)
    noise = {(False, False): RECORDED, (False, True): HEAVY, (True, False): ON_CPU, (True, True): HEAVY_ON_CPU}
    return SimulatedRun(
        topology=topology,
        num_chunks=2 if interleaved else 1,
        num_microbatches=2 * topology.pp if topology.pp > 1 else 4,
        num_steps=int(random.integers(30, 81)),
        first_step=int(random.integers(0, 1000)),
        noise=noise[on_cpu, heavy],
        device="cpu" if on_cpu else "cuda",
        clock_offset_ms=float(random.choice([0.0, 1.0, 10.0])),
        clock_drift_ppm=float(random.choice([0.0, 5.0])),
        checkpoint_every=int(random.choice([0, 10 if topology.pp > 1 else 25])),
        collects_by_plan=bool(random.random() < 0.3),
        seed=seed,
    )


def _fit(name: str, run: SimulatedRun) -> SimulatedRun:
    """The run, changed so that the fault can happen in it."""
    if name == "heavy stage" and run.topology.pp == 1:
        run = replace(run, topology=Topology(dp=4, pp=4), num_microbatches=8)
    if name == "host contention":
        run = replace(run, device="cpu", noise=ON_CPU)
    if name == "garbage collection":
        run = replace(run, collects_by_plan=False)
    if name == "slow checkpoint":
        run = replace(run, checkpoint_every=10 if run.topology.pp > 1 else 25, num_steps=100)
    if name == "slow link":  # a host is one cell of the grid, so that groups on different links can be distinguished
        run = replace(run, topology=PLACED[run.seed % len(PLACED)], num_chunks=1, num_microbatches=8)
        run = replace(run, gpus_per_host=run.topology.tp)
    if name == "communication decline" and min(run.topology.dp, run.topology.pp) < 4:
        run = replace(run, topology=Topology(dp=8, pp=4, tp=2), num_chunks=1, num_microbatches=8)
    if name == "launch drift":  # where ranks share a processor, their launches scatter by more
        run = replace(run, device="cuda", noise=HEAVY if run.noise in (HEAVY, HEAVY_ON_CPU) else RECORDED)
        run = replace(run, topology=DRIFTING[run.seed % len(DRIFTING)], num_chunks=1, num_microbatches=8, num_steps=80)
    if name == "throttled GPU":  # a job on CPUs has no GPU
        run = replace(run, device="cuda", noise=HEAVY if run.noise in (HEAVY, HEAVY_ON_CPU) else RECORDED)
    if name in ("slow host", "flapping card", "throttled GPU") and run.topology.world_size <= 16:
        run = replace(run, gpus_per_host=2)
    return run


def _a_rank(random: Random, run: SimulatedRun) -> int:
    return int(random.integers(run.topology.world_size))


def _a_host(random: Random, run: SimulatedRun) -> str:
    return run.hosts[_a_rank(random, run)]


def _begin(random: Random, run: SimulatedRun) -> int:
    """The first step of the fault. Half of the faults start at the first step of the run."""
    late = random.random() < 0.5
    return run.first_step + (int(random.integers(1, run.num_steps // 2)) if late else 0)


def _factor(random: Random) -> float:
    return float(random.choice([1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0, 3.0]))


def _slow_rank(random: Random, run: SimulatedRun) -> Fault:
    return Slow(rank=_a_rank(random, run), factor=_factor(random), first_step=_begin(random, run))


def _slow_host(random: Random, run: SimulatedRun) -> Fault:
    return Slow(host=_a_host(random, run), factor=float(random.choice([1.1, 1.2, 1.5])), first_step=_begin(random, run))


def _heavy_stage(random: Random, run: SimulatedRun) -> Fault:
    pp = int(random.choice([0, run.topology.pp - 1, run.topology.pp - 1]))
    return HeavyStage(pp=pp, factor=float(random.choice([1.3, 1.5, 2.0])))


def _sequences(random: Random, run: SimulatedRun) -> Fault:
    return Sequences(spread=float(random.choice([0.2, 0.3, 0.5])))


def _collections(random: Random, run: SimulatedRun) -> Fault:
    return Collections(every=float(random.choice([4.0, 8.0])), ms=float(random.choice([200.0, 400.0])))


def _drift(random: Random, run: SimulatedRun) -> Fault:
    return Drift(ms=float(random.choice([200.0, 400.0])))


def _slow_link(random: Random, run: SimulatedRun) -> Fault:
    return SlowLink(host=_a_host(random, run), factor=float(random.choice([3.0, 5.0, 10.0])), first_step=run.first_step)


def _data_stall(random: Random, run: SimulatedRun) -> Fault:
    everywhere = random.random() < 0.3
    seconds = float(random.choice([0.5, 1.0, 3.0]))
    return DataStall(
        rank=-1 if everywhere else _a_rank(random, run), seconds=seconds, share=float(random.choice([0.2, 0.5]))
    )


def _contention(random: Random, run: SimulatedRun) -> Fault:
    return Contention(
        rank=_a_rank(random, run), factor=float(random.choice([3.0, 4.0])), first_step=_begin(random, run)
    )


def _decline(random: Random, run: SimulatedRun) -> Fault:
    return Decline(factor=float(random.choice([8.0, 15.0])))


def _loss(random: Random, run: SimulatedRun) -> Fault:
    step = run.first_step + int(random.integers(run.num_steps // 2, run.num_steps - 8))
    return Loss(step=step, how="nan" if random.random() < 0.5 else "jump", size=float(random.choice([2.0, 4.0])))


def _slow_writer(random: Random, run: SimulatedRun) -> Fault:
    return SlowWriter(rank=_a_rank(random, run), factor=float(random.choice([2.0, 4.0])), first_step=run.first_step)


def _flap(random: Random, run: SimulatedRun) -> Fault:
    """Flaps of the card of a host, or of the card beside a GPU."""
    seconds, times = float(random.choice([1.0, 2.0, 4.0, 10.0])), int(random.integers(3, 7))
    if random.random() < 0.5:
        return Flap(host=_a_host(random, run), seconds=seconds, times=times)
    return Flap(rank=_a_rank(random, run), seconds=seconds, times=times)


def _throttle(random: Random, run: SimulatedRun) -> Fault:
    """In waves of half a minute or more, permanent, or increasing."""
    settings: dict[str, Any] = {
        "factor": float(random.choice([1.1, 1.2, 1.3, 1.5, 2.0])),
        "reason": str(random.choice(["heat", "power", "brake"])),
        "shape": "ramp" if random.random() < 0.3 else "waves",
        "period": int(random.choice([40, 1000])),
        "first_step": _begin(random, run),
    }
    if random.random() < 0.3:
        return Throttle(host=_a_host(random, run), **settings)
    return Throttle(rank=_a_rank(random, run), **settings)


FAULTS: Mapping[str, Callable[[Random, SimulatedRun], Fault]] = {
    "slow rank": _slow_rank,
    "slow host": _slow_host,
    "heavy stage": _heavy_stage,
    "long sequences": _sequences,
    "garbage collection": _collections,
    "launch drift": _drift,
    "slow link": _slow_link,
    "data stall": _data_stall,
    "host contention": _contention,
    "communication decline": _decline,
    "loss anomaly": _loss,
    "slow checkpoint": _slow_writer,
    "flapping card": _flap,
    "throttled GPU": _throttle,
}

SHARDED_FAULTS: Mapping[str, Callable[[Random, SimulatedRun], Fault]] = {
    "slow rank": _slow_rank,
    "slow host": _slow_host,
    "heavy stage": _heavy_stage,
    "data stall": _data_stall,
}
