"""Trials of the hang verdict: the fault, its rank, stage and grid. All are drawn from a seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from telemetry.stages import Stage
from telemetry.topology import Topology
from trainer.faults.inject import BOUNDARIES, COLLECTIVES

TWO = Topology(dp=2, pp=1, tp=1)
FOUR = (Topology(dp=2, pp=2, tp=1),)
FOUR_IN_TP = (Topology(dp=2, pp=1, tp=2),)
EIGHT = (Topology(dp=2, pp=2, tp=2),)
SIXTEEN = (Topology(dp=2, pp=4, tp=2), Topology(dp=4, pp=2, tp=2), Topology(dp=2, pp=2, tp=4))
SIXTEEN_EVERY = 3
"""One round of kinds in this many has sixteen ranks."""
STEPS = (8, 14)
"""The fault comes between these steps. By then even an agent that started late has learned the step time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One job and the ranks that must be named."""

    number: int
    kind: str
    topology: Topology
    fault: str
    """As ``trainer/faults/inject.py`` reads it."""
    guilty: tuple[int, ...]
    """Exactly the ranks that the verdict must name; none in a healthy job."""
    kills: bool
    """Whether the trial ends the job by kill -9 of its launcher; else by SIGTERM."""

    @property
    def name(self) -> str:
        grid = "x".join(str(degree) for degree in (self.topology.dp, self.topology.pp, self.topology.tp))
        return f"#{self.number} {self.kind}, {grid}: {self.fault}"


def _hang(how: str) -> Callable[[random.Random, int, Topology], str]:
    return lambda rng, rank, grid: f"hang:rank={rank},step={_step(rng)},before={_boundary(rng, rank, grid)},how={how}"


def _die(rng: random.Random, rank: int, grid: Topology) -> str:
    return f"die:rank={rank},step={_step(rng)},before={_boundary(rng, rank, grid)},how=kill"


def _no_data(rng: random.Random, rank: int, grid: Topology) -> str:
    return f"hang:rank={rank},step={_step(rng)},before=data-load,how=wait"


def _skip(rng: random.Random, rank: int, grid: Topology) -> str:
    return f"skip:rank={rank},step={_step(rng)},stage={rng.choice(COLLECTIVES).label}"


def _shape(rng: random.Random, rank: int, grid: Topology) -> str:
    stage, sizes = rng.choice(COLLECTIVES).label, rng.choice(("half", "double"))
    return f"shape:rank={rank},step={_step(rng)},stage={stage},sizes={sizes}"


KINDS: dict[str, Callable[[random.Random, int, Topology], str]] = {
    "stopped (SIGSTOP)": _hang("stop"),
    "killed (kill -9)": _die,
    "endless loop in Python": _hang("spin"),
    "interpreter locked in C": _hang("gil"),
    "skipped collective": _skip,
    "wrong shape": _shape,
    "data loader that never returns": _no_data,
}
IN_EVERY_RUN = {
    "stopped (SIGSTOP)": FOUR,
    "skipped collective": FOUR_IN_TP,
}
"""Kinds whose evidence differs most, and their grids. ``make trials`` runs the others."""
NO_FAULT = "none"
FIRST_STEP_S, SLOW_STEP_S, LONG_PHASE_S = 10.0, 2.0, 12.0
HEALTHY: dict[str, Callable[[random.Random, int], str]] = {
    "nothing wrong": lambda rng, rank: NO_FAULT,
    "slow first step": lambda rng, rank: f"data-stall:rank={rank},step=0,seconds={FIRST_STEP_S}",
    "one slow step": lambda rng, rank: f"data-stall:rank={rank},step={_step(rng)},seconds={SLOW_STEP_S}",
}
"""Sorts of healthy jobs. The long phases, which this trainer does not have, are in ``hang_long_phases.py``."""


def plan(seed: int, count: int) -> list[Trial]:
    """``count`` trials, the kinds in turn."""
    return [_trial(seed, number, list(KINDS)[number % len(KINDS)]) for number in range(count)]


def healthy_plan(seed: int, grid: Topology = EIGHT[0]) -> list[Trial]:
    """A healthy job of each sort."""
    return [_healthy(seed, number, kind, grid) for number, kind in enumerate(HEALTHY)]


def in_every_run(seed: int) -> list[Trial]:
    """A trial of some kinds."""
    return [_trial(seed, number, kind, grids=grids) for number, (kind, grids) in enumerate(IN_EVERY_RUN.items())]


def _trial(seed: int, number: int, kind: str, grids: tuple[Topology, ...] = ()) -> Trial:
    rng = random.Random(f"{seed}/{number}")
    sixteen = number // len(KINDS) % SIXTEEN_EVERY == SIXTEEN_EVERY - 1
    grid = rng.choice(grids or (SIXTEEN if sixteen else EIGHT))
    rank = rng.randrange(grid.world_size)
    fault = KINDS[kind](rng, rank, grid)
    return Trial(
        number=number, kind=kind, topology=grid, fault=fault, guilty=(rank,), kills=rng.random() < 0.5
    )  # fmt: skip


def _healthy(seed: int, number: int, kind: str, grid: Topology) -> Trial:
    rng = random.Random(f"{seed}/healthy/{number}")
    fault = HEALTHY[kind](rng, rng.randrange(grid.world_size))
    return Trial(number=number, kind=kind, topology=grid, fault=fault, guilty=(), kills=False)


def _step(rng: random.Random) -> int:
    return rng.randint(*STEPS)


def _boundary(rng: random.Random, rank: int, grid: Topology) -> str:
    """A stage that this rank reaches. The first and last pipeline stages send and receive only on one side."""
    pp = grid.place(rank).pp
    never: set[Stage] = set()
    if pp == 0:
        never |= {Stage.FORWARD_RECV, Stage.BACKWARD_SEND}
    if pp == grid.pp - 1:
        never |= {Stage.FORWARD_SEND, Stage.BACKWARD_RECV}
    return rng.choice([stage for stage in BOUNDARIES if stage not in never]).label
