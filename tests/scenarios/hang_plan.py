"""Trials of the hang verdict: which fault, on which rank, at which stage of which grid. All of it from a seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from telemetry.stages import Stage
from telemetry.topology import Topology
from trainer.faults.inject import BOUNDARIES, COLLECTIVES

FOUR = (Topology(dp=2, pp=2, tp=1),)
FOUR_IN_TP = (Topology(dp=2, pp=1, tp=2),)
EIGHT = (Topology(dp=2, pp=2, tp=2),)
SIXTEEN = (Topology(dp=2, pp=4, tp=2), Topology(dp=4, pp=2, tp=2), Topology(dp=2, pp=2, tp=4))
SIXTEEN_EVERY = 3
"""One trial in so many has sixteen ranks."""
STEPS = (8, 14)
"""Between which the fault comes: by then an agent has learned what a step takes, however late it was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One job and what is to be found in it."""

    number: int
    kind: str
    topology: Topology
    fault: str
    """As ``trainer/faults/inject.py`` reads it."""
    guilty: tuple[int, ...]
    """Exactly the ranks that the verdict must name; none in a healthy job."""
    kills: bool
    """Whether the job is ended by kill -9 of its launcher, afterwards; else by SIGTERM."""

    @property
    def name(self) -> str:
        grid = "x".join(str(degree) for degree in (self.topology.dp, self.topology.pp, self.topology.tp))
        return f"#{self.number} {self.kind}, {grid}: {self.fault}"


def _hang(how: str) -> Callable[[random.Random, int, Topology], str]:
    return lambda rng, rank, grid: f"hang:rank={rank},step={_step(rng)},before={_boundary(rng, rank, grid)},how={how}"


def _die(rng: random.Random, rank: int, grid: Topology) -> str:
    return f"die:rank={rank},step={_step(rng)},before={_boundary(rng, rank, grid)},how=kill"


def _drought(rng: random.Random, rank: int, grid: Topology) -> str:
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
    "data loader that never returns": _drought,
}
IN_EVERY_RUN = {
    "stopped (SIGSTOP)": EIGHT,
    "skipped collective": FOUR_IN_TP,
}
"""Kinds that differ most in what they leave behind, and on what grid; the others are tried by ``make trials``."""
NO_FAULT = "none"
FIRST_STEP_S, SLOW_STEP_S, LONG_PHASE_S = 10.0, 2.0, 12.0
HEALTHY: dict[str, Callable[[random.Random, int], str]] = {
    "nothing wrong": lambda rng, rank: NO_FAULT,
    "slow first step": lambda rng, rank: f"data-stall:rank={rank},step=0,seconds={FIRST_STEP_S}",
    "one slow step": lambda rng, rank: f"data-stall:rank={rank},step={_step(rng)},seconds={SLOW_STEP_S}",
}
"""What a healthy job may look like; the long phases, which this trainer has not, are in ``hang_long_phases.py``."""


def plan(seed: int, count: int) -> list[Trial]:
    """``count`` faults, the kinds in turn."""
    return [_trial(seed, number, list(KINDS)[number % len(KINDS)]) for number in range(count)]


def healthy_plan(seed: int) -> list[Trial]:
    """A healthy job of each sort."""
    return [_healthy(seed, number, kind) for number, kind in enumerate(HEALTHY)]


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


def _healthy(seed: int, number: int, kind: str) -> Trial:
    rng = random.Random(f"{seed}/healthy/{number}")
    grid = EIGHT[0]
    fault = HEALTHY[kind](rng, rng.randrange(grid.world_size))
    return Trial(number=number, kind=kind, topology=grid, fault=fault, guilty=(), kills=False)


def _step(rng: random.Random) -> int:
    return rng.randint(*STEPS)


def _boundary(rng: random.Random, rank: int, grid: Topology) -> str:
    """A stage that this rank comes to: the ends of a pipeline send and receive to one side only."""
    pp = grid.place(rank).pp
    never: set[Stage] = set()
    if pp == 0:
        never |= {Stage.FORWARD_RECV, Stage.BACKWARD_SEND}
    if pp == grid.pp - 1:
        never |= {Stage.FORWARD_SEND, Stage.BACKWARD_RECV}
    return rng.choice([stage for stage in BOUNDARIES if stage not in never]).label
