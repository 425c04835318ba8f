"""The schedule of the pipeline, as slots for a replay.

1F1B, pp 4, 4 microbatches (forward and backward of equal length)

    pp0   F0 F1 F2 F3          B0    B1    B2    B3         warm-up  pp - rank - 1 forwards
    pp1      F0 F1 F2       B0 F3 B1    B2    B3            then     one forward, one backward
    pp2         F0 F1    B0 F2 B1 F3 B2    B3               then     the backwards that are left
    pp3            F0 B0 F1 B1 F2 B2 F3 B3

    idle: (pp - 1) / microbatches of the work

Interleaved 1F1B, pp 2, 2 chunks on each rank, 4 microbatches; small letters are chunk 1

    pp0   F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1    b2    b3 B2 B3      warm-up  2 (pp - rank - 1) + pp (chunks - 1)
    pp1      F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3         a chunk at a time for pp microbatches

    idle: (pp - 1) / (chunks * microbatches) of the work

Source: Megatron-LM's schedules (Efficient large-scale training, arXiv 2104.04473, section 2.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.whatif.program import ALONE, DIRECTIONS, Direction, Program, Transfers, link
from diagnose.whatif.slots import Slots
from telemetry.stages import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A forward or backward of a microbatch in a chunk."""

    stage: Stage
    chunk: int
    microbatch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Settings that determine the order of slots. Interleaving needs a multiple of ``pp`` microbatches."""

    pp: int
    dp: int
    num_chunks: int
    num_microbatches: int
    collects: bool = False
    """Whether each rank collects garbage after its last compute."""
    gathers_inside: bool = False
    """Whether parameters are gathered and gradients reduced inside the computes."""

    @property
    def num_pieces(self) -> int:
        """Number of pieces of the model."""
        return self.pp * self.num_chunks


def order(layout: Layout, pp: int) -> list[Compute]:
    """All forwards and backwards of a step on one pipeline rank, in order."""
    total = layout.num_microbatches * layout.num_chunks
    warm_up = min(total, _warm_up(layout, pp))
    forwards = [_forward(layout, number) for number in range(total)]
    backwards = [_backward(layout, number) for number in range(total)]
    steady = [one for pair in zip(forwards[warm_up:], backwards, strict=False) for one in pair]
    return [*forwards[:warm_up], *steady, *backwards[total - warm_up :]]


def _warm_up(layout: Layout, pp: int) -> int:
    if layout.num_chunks == 1:
        return layout.pp - pp - 1
    return (layout.pp - pp - 1) * 2 + (layout.num_chunks - 1) * layout.pp


def _forward(layout: Layout, number: int) -> Compute:
    if layout.num_chunks == 1:
        return Compute(stage=Stage.FORWARD_COMPUTE, chunk=0, microbatch=number)
    group, within = divmod(number, layout.num_pieces)
    chunk, place = divmod(within, layout.pp)
    return Compute(stage=Stage.FORWARD_COMPUTE, chunk=chunk, microbatch=group * layout.pp + place)


def _backward(layout: Layout, number: int) -> Compute:
    mirrored = _forward(layout, number)
    chunk = layout.num_chunks - 1 - mirrored.chunk
    return Compute(stage=Stage.BACKWARD_COMPUTE, chunk=chunk, microbatch=mirrored.microbatch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    pp: int
    stage: Stage
    chunk: int = -1
    microbatch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The program of one step, and for each transfer its compute and its other side."""

    program: Program
    transfers: Transfers
    stages: tuple[Stage, ...]
    """Stage of each slot."""


def schedule(layout: Layout) -> Schedule:
    """The program of one step on all pipeline ranks."""
    listed = [one for pp in range(layout.pp) for one in _step_of(layout, pp)]
    slots = _slots(listed)
    number = {(one.pp, one.stage, one.chunk, one.microbatch): slot for slot, one in enumerate(listed)}
    transfers = _transfers(layout, listed, number)
    program = link(slots, transfers, layout.pp, layout.dp)
    return Schedule(program=program, transfers=transfers, stages=tuple(one.stage for one in listed))


def _step_of(layout: Layout, pp: int) -> Iterator[_Slot]:
    """All slots of a pipeline rank in a step."""
    yield _Slot(pp=pp, stage=Stage.DATA_LOAD)
    if layout.dp > 1 and not layout.gathers_inside:
        yield from (_Slot(pp=pp, stage=Stage.PARAMS_ALL_GATHER, chunk=chunk) for chunk in range(layout.num_chunks))
    for compute in order(layout, pp):
        yield from _with_transfers(layout, pp, compute)
    if layout.collects:
        yield _Slot(pp=pp, stage=Stage.GC)
    if layout.pp > 1 and pp in (0, layout.pp - 1):
        yield _Slot(pp=pp, stage=Stage.EMBEDDING_GRADS_ALL_REDUCE)
    if layout.dp > 1 and not layout.gathers_inside:
        chunks = reversed(range(layout.num_chunks))
        yield from (_Slot(pp=pp, stage=Stage.GRADS_REDUCE_SCATTER, chunk=chunk) for chunk in chunks)
    yield _Slot(pp=pp, stage=Stage.OPTIMIZER_CLIP)
    yield _Slot(pp=pp, stage=Stage.OPTIMIZER)


def _with_transfers(layout: Layout, pp: int, compute: Compute) -> Iterator[_Slot]:
    """The slots of a compute and its transfers: receive, compute, send. The first and the last piece of the model have
    fewer transfers."""
    of_compute = [direction for direction in DIRECTIONS if direction.compute is compute.stage]
    for sends in (False, True):
        for direction in of_compute:
            if direction.sends is sends and _other_place(layout, pp, compute.chunk, direction) is not None:
                yield _Slot(pp=pp, stage=direction.stage, chunk=compute.chunk, microbatch=compute.microbatch)
        if not sends:
            yield _Slot(pp=pp, stage=compute.stage, chunk=compute.chunk, microbatch=compute.microbatch)


def _other_place(layout: Layout, pp: int, chunk: int, direction: Direction) -> tuple[int, int] | None:
    """Pipeline rank and chunk on the other side of a transfer. None at the ends of the model."""
    piece = chunk * layout.pp + pp + direction.towards
    return (piece % layout.pp, piece // layout.pp) if 0 <= piece < layout.num_pieces else None


def _slots(listed: list[_Slot]) -> Slots:
    """The slots as columns. The index of a slot is used as its time, because a program uses only the order of times."""
    seen: dict[tuple[int, Stage], int] = {}
    occurrence = []
    for one in listed:
        occurrence.append(seen.get((one.pp, one.stage), 0))
        seen[one.pp, one.stage] = occurrence[-1] + 1
    place = np.arange(len(listed), dtype=np.float64)
    return Slots(
        pp=np.array([one.pp for one in listed]),
        stage=np.array([int(one.stage) for one in listed]),
        occurrence=np.array(occurrence),
        chunk=np.array([one.chunk for one in listed]),
        microbatch=np.array([one.microbatch for one in listed]),
        begin_s=place,
        end_s=place + 0.5,
    )


def _transfers(layout: Layout, listed: list[_Slot], number: dict[tuple[int, Stage, int, int], int]) -> Transfers:
    directions = {direction.stage: direction for direction in DIRECTIONS}
    compute = np.full(len(listed), ALONE)
    other_side = np.full(len(listed), ALONE)
    for slot, one in enumerate(listed):
        if one.stage not in directions:
            continue
        direction = directions[one.stage]
        place = _other_place(layout, one.pp, one.chunk, direction)
        assert place is not None, one
        compute[slot] = number[one.pp, direction.compute, one.chunk, one.microbatch]
        other_side[slot] = number[place[0], direction.other, place[1], one.microbatch]
    return Transfers(compute=compute, other_side=other_side)
