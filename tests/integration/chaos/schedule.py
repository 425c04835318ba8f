"""The disturbances of the parts of a world and their times, as a pure function of a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill", "pause", "cut", "halve", "slow", "fill", "move", "jump"]
SECONDS = 3.0
"""All disturbances start within this time."""
MAX_SEGMENTS = (4, 16, 64, 64)
"""Maximum number of segments of a rank file. With few segments, an outage loses records."""
JUMPS_S = (0.3, 5.0, 3600.0, 40 * 86_400.0)
"""Sizes of jumps of a wall clock, forwards or back. The largest one reaches another month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A disturbance of a part, undone after some time."""

    at_s: float
    kind: Kind
    part: str
    """A process, a link, a disk or a clock of the world."""
    seconds: float
    jump_s: float = 0.0
    """Size of the jump of a clock."""

    def __str__(self) -> str:
        how_far = f" by {self.jump_s:+g}s" if self.jump_s else ""
        return f"{self.at_s:.2f} {self.kind} {self.part}{how_far} {self.seconds:.2f}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One trial."""

    seed: int
    disturbances: tuple[Disturbance, ...]
    """Sorted by their start."""
    max_segments: int

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.max_segments} segments: {'; '.join(map(str, self.disturbances))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The parts of a world that can be disturbed."""

    processes: tuple[str, ...]
    links: tuple[str, ...]
    disks: tuple[str, ...]
    clocks: tuple[str, ...]


def make_schedule(seed: int, scope: Scope, *, seconds: float = SECONDS) -> Schedule:
    """Three to eight disturbances, and one or two jumps of clocks. They may overlap."""
    chance = random.Random(seed)
    found = [_disturbance(chance, scope, seconds) for _ in range(chance.randint(3, 8))]
    max_segments = chance.choice(MAX_SEGMENTS)
    found += [_jump(chance, scope, seconds) for _ in range(chance.randint(1, 2))]
    return Schedule(
        seed=seed,
        disturbances=tuple(sorted(found, key=lambda one: one.at_s)),
        max_segments=max_segments,
    )


def _disturbance(chance: random.Random, scope: Scope, seconds: float) -> Disturbance:
    kinds: list[tuple[Kind, Sequence[str], float, float]] = [
        ("kill", scope.processes, 0.0, 0.8),
        ("kill", scope.processes, 0.0, 0.8),
        ("kill", scope.processes, 0.0, 0.1),
        ("pause", scope.processes, 0.05, 1.5),
        ("cut", scope.links, 0.0, 1.5),
        ("halve", scope.links, 0.0, 0.0),
        ("slow", [name for name in scope.processes if name in ("server", "collector")], 0.5, 2.0),
        ("move", ["agent"], 0.0, 0.0),
    ]
    if scope.disks:
        kinds += [("fill", scope.disks, 0.2, 1.5)] * 2
    kind, parts, least_s, most_s = chance.choice(kinds)
    return Disturbance(
        at_s=chance.uniform(0.0, seconds),
        kind=kind,
        part=chance.choice(list(parts)),
        seconds=chance.uniform(least_s, most_s),
    )


def _jump(chance: random.Random, scope: Scope, seconds: float) -> Disturbance:
    return Disturbance(
        at_s=chance.uniform(0.0, seconds),
        kind="jump",
        part=chance.choice(scope.clocks),
        seconds=chance.uniform(0.05, 2.0),
        jump_s=chance.choice(JUMPS_S) * chance.choice((-1, 1)),
    )
