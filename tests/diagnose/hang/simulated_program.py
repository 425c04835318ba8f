"""Random programs of a dp x pp x tp grid: what each rank issues, and what its host waits for, in order.

    a step of a stage, 1F1B, two microbatches       F: receive, tp collectives of each layer, send
                                                    B: the same backwards; in the last one dp reduce-scatters
    all ranks    dp gathers    F F B F B B    wait for dp    pp, all ranks    wait for everything

Which of these there are, how many and in which order is drawn once for all ranks, so that every program ends.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from diagnose.hang.evidence import WHOLE_GROUP, Group
from telemetry.topology import Place, Topology

WORLD = "all ranks"
TRANSFERS = "pp transfers"
PLAIN_SIZE = 8


class Kind(StrEnum):
    """What sort of operation it is."""

    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The rank issues this."""

    kind: Kind
    group: int
    """Index into the groups of the grid."""
    name: str
    size: int
    peer: int = WHOLE_GROUP
    waits: bool = True
    """Whether the program goes on only after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """The rank waits for what it issued before."""

    index: int | None = None
    """Of the operation in the program; None: for all of them."""


Program = tuple[Operation | Await, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the programs of all ranks have in common."""

    num_steps: int
    num_microbatches: int
    num_layers: tuple[int, ...]
    """Of each stage of the pipeline."""
    forward_first: bool
    """All forward passes before the first backward one; else 1F1B."""
    eager_sends: bool
    """A send ends without its receiver."""
    ends_with_world: bool
    begins_with_world: bool
    has_pp_collective: bool
    gathers_early: bool
    """The dp gathers are issued together and waited for afterwards."""
    reduces_in_backward: bool
    """Gradients are reduced layer by layer and waited for at the end of the step."""
    sizes_differ: bool
    has_broadcast: bool
    ends_in_sync: bool
    """The host waits for everything at the end of the step."""


def random_grid(rng: random.Random) -> Topology:
    """A grid of 8 to 64 ranks."""
    while True:
        grid = Topology(dp=rng.choice([1, 2, 2, 4]), pp=rng.choice([1, 2, 4]), tp=rng.choice([1, 2, 2, 4, 8]))
        if 8 <= grid.world_size <= 64:
            return grid


def random_shape(rng: random.Random, grid: Topology) -> Shape:
    """A shape for programs of ``grid``."""
    return Shape(
        num_steps=rng.choice([1, 2, 2]),
        num_microbatches=rng.choice([1, 2, grid.pp, 2 * grid.pp]),
        num_layers=tuple(rng.randint(1, 2) for _ in range(grid.pp)),
        forward_first=rng.random() < 0.4,
        eager_sends=rng.random() < 0.4,
        ends_with_world=rng.random() < 0.6,
        begins_with_world=rng.random() < 0.2,
        has_pp_collective=rng.random() < 0.4,
        gathers_early=rng.random() < 0.4,
        reduces_in_backward=rng.random() < 0.5,
        sizes_differ=rng.random() < 0.7,
        has_broadcast=rng.random() < 0.15,
        ends_in_sync=rng.random() < 0.7,
    )


def groups_of(grid: Topology) -> tuple[Group, ...]:
    """One along each axis that has more than one rank, and one of all; transfers count apart from pp collectives."""
    groups = []
    for axis in ("tp", "dp", "pp"):
        names = (axis, TRANSFERS) if axis == "pp" else (axis,)
        for members in grid.groups(along=axis):
            groups += [Group(name=name, members=members) for name in names if len(members) > 1]
    return (*groups, Group(name=WORLD, members=tuple(range(grid.world_size))))


def program_of(rank: int, *, grid: Topology, groups: Sequence[Group], shape: Shape) -> Program:
    """All that ``rank`` does."""
    own = {group.name: at for at, group in enumerate(groups) if rank in group.members}
    writing = _Writing(grid=grid, place=grid.place(rank), own_groups=own, shape=shape)
    for _ in range(shape.num_steps):
        writing.step()
    writing.collective(WORLD, "barrier", 0)
    writing.program.append(Await())
    return tuple(writing.program)


@dataclass(slots=True, kw_only=True)
class _Writing:
    """The program of one rank, as far as it is written."""

    grid: Topology
    place: Place
    own_groups: Mapping[str, int]
    """Indices by name."""
    shape: Shape
    program: list[Operation | Await] = field(default_factory=list)

    @property
    def _later_stages(self) -> int:
        return self.grid.pp - 1 - self.place.pp

    def step(self) -> None:
        shape = self.shape
        if shape.begins_with_world:
            self.collective(WORLD, "all_reduce", 4)
        self._gather_parameters()
        if shape.has_broadcast:
            self.collective("tp", "broadcast", PLAIN_SIZE)
        self._await(self._passes())
        if not shape.reduces_in_backward:
            self.collective("dp", "reduce_scatter", 64)
        if shape.has_pp_collective:
            self.collective("pp", "all_reduce", 4)
        if shape.ends_with_world:
            self.collective(WORLD, "all_reduce", 1)
        if shape.ends_in_sync:
            self.program.append(Await())

    def collective(self, along: str, name: str, size: int, *, waits: bool = True) -> list[int]:
        """Its index in the program; nothing where the rank has no such group."""
        group = self.own_groups.get(along)
        if group is None:
            return []
        size = size if self.shape.sizes_differ else PLAIN_SIZE
        self.program.append(Operation(kind=Kind.COLLECTIVE, group=group, name=name, size=size, waits=waits))
        return [len(self.program) - 1]

    def _transfer(self, kind: Kind, stage: int) -> None:
        group = self.own_groups[TRANSFERS]
        peer = self.grid.rank(self.place._replace(pp=stage))
        waits = kind is Kind.RECV
        self.program.append(Operation(kind=kind, group=group, name=kind.value, size=PLAIN_SIZE, peer=peer, waits=waits))

    def _await(self, indices: list[int]) -> None:
        self.program += [Await(index=index) for index in indices]

    def _gather_parameters(self) -> None:
        early = self.shape.gathers_early
        gathers = [at for _ in range(2) for at in self.collective("dp", "all_gather", 128, waits=not early)]
        self._await(gathers if early else [])

    def _passes(self) -> list[int]:
        """All passes of the step, in the order of the schedule; the indices of what is to be waited for after them."""
        total = self.shape.num_microbatches
        ahead = total if self.shape.forward_first else min(total, self._later_stages)
        for _ in range(ahead):
            self._forward()
        reduces: list[int] = []
        for done in range(1, total + 1):
            if done <= total - ahead:
                self._forward()
            reduces += self._backward(is_last=done == total)
        return reduces

    def _forward(self) -> None:
        if self.place.pp > 0:
            self._transfer(Kind.RECV, self.place.pp - 1)
        for _ in range(self.shape.num_layers[self.place.pp]):
            self.collective("tp", "all_gather", 16)
            self.collective("tp", "reduce_scatter", 32)
        if self._later_stages:
            self._transfer(Kind.SEND, self.place.pp + 1)

    def _backward(self, *, is_last: bool) -> list[int]:
        reduces = []
        if self._later_stages:
            self._transfer(Kind.RECV, self.place.pp + 1)
        for _ in range(self.shape.num_layers[self.place.pp]):
            self.collective("tp", "reduce_scatter", 32)
            self.collective("tp", "all_gather", 16)
            if is_last and self.shape.reduces_in_backward:
                reduces += self.collective("dp", "reduce_scatter", 64, waits=False)
        if self.place.pp > 0:
            self._transfer(Kind.SEND, self.place.pp - 1)
        return reduces
