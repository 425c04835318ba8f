"""Runs of jobs with roles, and of jobs with experts: drawn from their seeds, as in ``cases``."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from diagnose.simulate.faults import Fault, Slow
from diagnose.simulate.job_faults import IdleRole, Tail, UnequalExperts
from diagnose.simulate.noise import HEAVY, RECORDED
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.role_names import parse_roles
from telemetry.topology import Topology
from tests.score.cases import Case, Random

ROLES = (
    "rollout=8,reward=4,reference=4,actor=8",
    "rollout=16,reward=4,reference=4,actor=8",
    "actor=8,rollout=8,reference=4,reward=4",
    "rollout=32,reward=8,reference=8,actor=16",
)
MESHES = ("dp=2,ep=4", "ep=8", "dp=4,ep=4", "pp=2,dp=2,ep=4", "dp_replicate=2,dp_shard=2,ep=4")

RoleFaults = Callable[[Random, SimulatedRun], tuple[Fault, ...]]


def role_case(name: str, seed: int) -> Case:
    """A run for one row of the table. The name is that of the fault."""
    random = np.random.default_rng([seed, 11, [*CASES].index(name)])
    plan = _with_roles(random, seed) if name.startswith("roles") else _with_experts(random, seed)
    return Case(name=name, seed=seed, plan=replace(plan, faults=CASES[name](random, plan)))


def _with_roles(random: Random, seed: int) -> SimulatedRun:
    roles = parse_roles(ROLES[random.integers(len(ROLES))])
    return SimulatedRun(
        topology=Topology(dp=sum(role.num_ranks for role in roles)),
        roles=roles,
        num_microbatches=int(random.choice([4, 8])),
        gpus_per_host=int(random.choice([2, 4, 8])),
        **_settings(random, seed),
    )


def _with_experts(random: Random, seed: int) -> SimulatedRun:
    topology = Topology.parse(MESHES[random.integers(len(MESHES))])
    return SimulatedRun(
        topology=topology,
        experts=True,
        num_microbatches=2 * topology.pp if topology.pp > 1 else 4,
        gpus_per_host=int(random.choice([2, 4])),
        **_settings(random, seed),
    )


def _settings(random: Random, seed: int) -> dict[str, object]:
    return {
        "num_steps": int(random.integers(30, 61)),
        "noise": HEAVY if random.random() < 0.25 else RECORDED,
        "clock": "device" if random.random() < 0.5 else "host",
        "clock_offset_ms": float(random.choice([0.0, 1.0, 10.0])),
        "seed": seed,
    }


def _slow(random: Random, plan: SimulatedRun, ranks: list[int] | None = None) -> Slow:
    rank = int(random.choice(ranks or range(plan.topology.world_size)))
    first_step = int(random.integers(1, plan.num_steps // 2)) if random.random() < 0.5 else 0
    return Slow(rank=rank, factor=float(random.choice([1.1, 1.2, 1.5, 2.0, 3.0])), first_step=first_step)


def _tail(random: Random) -> Tail:
    return Tail(factor=float(random.choice([1.8, 2.5, 4.0])), share=float(random.choice([0.7, 1.0])))


def _idle(random: Random, plan: SimulatedRun) -> IdleRole:
    role = str(random.choice([role.name for role in plan.roles]))
    return IdleRole(role=role, factor=float(random.choice([3.0, 5.0])))


def _unequal(random: Random, plan: SimulatedRun) -> UnequalExperts:
    degree = dict(plan.topology.mesh)["ep"]
    return UnequalExperts(factor=float(random.choice([1.5, 2.0, 3.0])), ep=int(random.integers(degree)))


def _unequal_and_slow(random: Random, plan: SimulatedRun) -> tuple[Fault, ...]:
    """The slow rank is not among those with the most tokens."""
    unequal = _unequal(random, plan)
    places = [plan.topology.coordinates(rank)["ep"] for rank in range(plan.topology.world_size)]
    return unequal, _slow(random, plan, [rank for rank, ep in enumerate(places) if ep != unequal.ep])


CASES: Mapping[str, RoleFaults] = {
    "roles, healthy": lambda random, plan: (),
    "roles, slow rank": lambda random, plan: (_slow(random, plan),),
    "roles, long-tailed rollouts": lambda random, plan: (_tail(random),),
    "roles, idle role": lambda random, plan: (_idle(random, plan),),
    "experts, healthy": lambda random, plan: (),
    "experts, slow rank": lambda random, plan: (_slow(random, plan),),
    "experts, unequal": lambda random, plan: (_unequal(random, plan),),
    "experts, unequal, and a slow rank": _unequal_and_slow,
}
