"""A job of simulated ranks that goes on until nothing moves.

    gloo    the host waits for an operation; it takes part in it by issuing it
    nccl    the host runs ahead of its device, which takes part in the operations of each communicator in order

One or two ranks have trouble at a random place of their program. A collective ends when all members take part in
the same one, a transfer when both sides do.
"""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum

from diagnose.hang.evidence import Group
from telemetry.topology import Topology
from tests.diagnose.hang.simulated_program import (
    Await,
    Kind,
    Operation,
    Program,
    groups_of,
    program_of,
    random_grid,
    random_shape,
)

START_NS = 1_000_000_000_000
WINDOW = 4
"""How many times its lead a host looks back for operations that have not ended."""

Key = tuple[int | str, ...]
"""What the two sides of a transfer, or all members of a collective, call the same operation."""


class Backend(StrEnum):
    """How operations are carried out."""

    GLOO = "gloo"
    NCCL = "nccl"


class Trouble(StrEnum):
    """What happens to a rank."""

    HOST_STOPS = "its host stops"
    DEVICE_STOPS = "its device takes part in nothing more"
    LEAVES_OUT = "it leaves a collective out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The trouble that a rank is to have."""

    rank: int
    trouble: Trouble
    at: int
    """Index into the rank's program."""


@dataclass(slots=True, kw_only=True, eq=False)
class Issued:
    """An operation that a rank has issued."""

    operation: Operation
    at: int
    """Index into the rank's program."""
    seq: int
    key: Key
    communicator: Key
    issued_ns: int
    ended_ns: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedRank:
    """One rank, and how far it has come."""

    rank: int
    program: Program
    at: int = 0
    waits_for: Issued | None = None
    """The operation that its host waits for."""
    issued: list[Issued] = field(default_factory=list)
    stopped: bool = False
    counts: Counter[Key] = field(default_factory=Counter)
    num_ended: int = 0
    """All operations before this index of ``issued`` have ended."""

    @property
    def unended(self) -> list[Issued]:
        while self.num_ended < len(self.issued) and self.issued[self.num_ended].ended_ns:
            self.num_ended += 1
        return [one for one in self.issued[self.num_ended :] if not one.ended_ns]


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedJob:
    """All ranks."""

    rng: random.Random
    backend: Backend
    grid: Topology
    groups: tuple[Group, ...]
    ranks: tuple[SimulatedRank, ...]
    faults: tuple[Fault, ...]
    lead: int
    """Operations that a host may run ahead of its device."""
    in_order: bool
    """Whether a device begins nothing behind an operation that its program waits for."""
    eager_sends: bool
    now_ns: int = START_NS
    taking_part: defaultdict[Key, dict[int, Issued]] = field(default_factory=lambda: defaultdict(dict))
    """By operation and rank."""
    troubled: set[int] = field(default_factory=set)
    """The ranks whose trouble has happened."""
    moves: bool = False
    """Whether the job makes progress at this moment. Then no watchdog reports."""

    def run(self, rounds: int | None = None) -> int:
        """Go on until nothing moves, or for so many rounds. Returns the number of rounds."""
        moved, done = True, 0
        while moved and (rounds is None or done < rounds):
            done += 1
            order = list(self.ranks)
            self.rng.shuffle(order)
            moved = any([self._turn(one) for one in order])
            if self.backend is Backend.NCCL:
                moved |= any([self._device_turn(one) for one in self.ranks])
        return done

    def _turn(self, one: SimulatedRank) -> bool:
        """Let the host of the rank make a few moves. Return whether it made any."""
        for moves in range(self.rng.randint(1, 4)):
            if not self._move(one):
                return moves > 0
        return True

    def _move(self, one: SimulatedRank) -> bool:
        self.now_ns += self.rng.randint(1, 50)
        if one.stopped or one.at >= len(one.program):
            return False
        if one.waits_for is not None:
            return self._wake(one)
        if self._has_trouble(one, Trouble.HOST_STOPS):
            one.stopped = True
            return False
        action = one.program[one.at]
        if isinstance(action, Await):
            return self._await(one, action)
        if self._has_trouble(one, Trouble.LEAVES_OUT):
            one.at += 1
            return True
        return self._begin(one, action)

    def _has_trouble(self, one: SimulatedRank, trouble: Trouble) -> bool:
        for fault in self.faults:
            if fault.rank == one.rank and fault.at == one.at and fault.trouble is trouble:
                self.troubled.add(one.rank)
                return True
        return False

    def _wake(self, one: SimulatedRank) -> bool:
        if one.waits_for is None or not one.waits_for.ended_ns:
            return False
        one.waits_for = None
        one.at += isinstance(one.program[one.at], Operation)  # an Await runs again: it may wait for more operations
        return True

    def _await(self, one: SimulatedRank, action: Await) -> bool:
        if action.index is None:
            one.waits_for = next(iter(one.unended), None)
        elif self.backend is Backend.GLOO:  # else the device waits, not the host
            one.waits_for = next((issued for issued in one.unended if issued.at == action.index), None)
        one.at += one.waits_for is None
        return True

    def _begin(self, one: SimulatedRank, operation: Operation) -> bool:
        is_ahead = self.backend is Backend.NCCL
        oldest = max(one.num_ended, len(one.issued) - WINDOW * self.lead)
        if is_ahead and len([True for issued in one.issued[oldest:] if not issued.ended_ns]) >= self.lead:
            return False
        issued = self._issue(one, operation)
        if is_ahead:
            one.at += 1
            return True
        self._take_part(one, issued)
        if operation.waits and not issued.ended_ns:
            one.waits_for = issued
        else:
            one.at += 1
        return True

    def _issue(self, one: SimulatedRank, operation: Operation) -> Issued:
        communicator: Key = ("collective", operation.group)
        if operation.kind is not Kind.COLLECTIVE:
            ends = (one.rank, operation.peer)
            communicator = ("transfer", *(ends if operation.kind is Kind.SEND else reversed(ends)))
        one.counts[communicator] += 1
        seq = one.counts[communicator]
        key = (*communicator, seq)
        issued = Issued(
            operation=operation, at=one.at, seq=seq, key=key, communicator=communicator, issued_ns=self.now_ns
        )
        one.issued.append(issued)
        return issued

    def _take_part(self, one: SimulatedRank, issued: Issued) -> None:
        here = self.taking_part[issued.key]
        here[one.rank] = issued
        if issued.operation.kind is Kind.SEND and self.eager_sends:
            issued.ended_ns = self.now_ns
        if self._is_whole(issued.operation, here):
            for other in here.values():
                other.ended_ns = other.ended_ns or self.now_ns

    def _is_whole(self, operation: Operation, here: dict[int, Issued]) -> bool:
        if operation.kind is not Kind.COLLECTIVE:
            return len(here) == 2
        if len(here) < len(self.groups[operation.group].members):
            return False
        return len({(other.operation.name, other.operation.size) for other in here.values()}) == 1

    def _device_turn(self, one: SimulatedRank) -> bool:
        """Let the device of the rank take part in all operations that it can. Return whether there was any."""
        busy: set[Key] = set()
        moved = halted = False
        for issued in one.unended:
            if halted and self.in_order:
                break
            if issued.communicator not in busy and one.rank not in self.taking_part[issued.key]:
                if self._device_stops(one, issued):
                    break
                self.now_ns += 1
                self._take_part(one, issued)
                moved = True
            if not issued.ended_ns:
                busy.add(issued.communicator)
                halted |= issued.operation.waits
        return moved

    def _device_stops(self, one: SimulatedRank, issued: Issued) -> bool:
        for fault in self.faults:
            if fault.rank == one.rank and fault.at <= issued.at and fault.trouble is Trouble.DEVICE_STOPS:
                self.troubled.add(one.rank)
                return True
        return False


def simulated_job(seed: int, backend: Backend, trouble: Trouble) -> SimulatedJob:
    """A job that has not begun. Equal arguments give equal jobs."""
    rng = random.Random(f"{backend}/{seed}")
    grid = random_grid(rng)
    groups, shape = groups_of(grid), random_shape(rng, grid)
    programs = [program_of(rank, grid=grid, groups=groups, shape=shape) for rank in range(grid.world_size)]
    return SimulatedJob(
        rng=rng,
        backend=backend,
        grid=grid,
        groups=groups,
        ranks=tuple(SimulatedRank(rank=rank, program=program) for rank, program in enumerate(programs)),
        faults=tuple(_random_fault(rng, programs, trouble) for _ in range(rng.choice([1, 1, 1, 2]))),
        lead=rng.choice([3, 6, 12, 40]),
        in_order=rng.random() < 0.7,
        eager_sends=shape.eager_sends,
    )


def _random_fault(rng: random.Random, programs: list[Program], trouble: Trouble) -> Fault:
    rank = rng.randrange(len(programs))
    program = programs[rank]
    if trouble is not Trouble.LEAVES_OUT:
        return Fault(rank=rank, trouble=trouble, at=rng.randrange(len(program)))
    collectives = [at for at, one in enumerate(program) if isinstance(one, Operation) and one.kind is Kind.COLLECTIVE]
    return Fault(rank=rank, trouble=trouble, at=rng.choice(collectives))
