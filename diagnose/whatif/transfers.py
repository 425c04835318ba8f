"""Which compute a send or receive belongs to.

    pp0   |forward 0|-send 0->           |backward 0|
    pp1            -recv 0->|forward 0|-...

A receive belongs to the compute that needs it, a send to the compute that made what it carries: by chunk and microbatch
where the recorder wrote them down, else the n-th to the n-th. Recorders also write transfers that never were: before
the first compute there is nothing to send, after the last one nothing to receive, and the ends of the model have no
neighbour. Those stand alone.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import Int64s
from diagnose.whatif.slots import Slots
from telemetry.stages import Stage

CLOCK_S = 5e-5
"""Stamps of one rank closer than this may stand in either order."""
ALONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One of the four transfers between pipeline ranks."""

    stage: Stage
    other: Stage
    compute: Stage
    sends: bool
    towards: int
    """+1: the other side is the next pipeline rank, and the next piece of the model."""


DIRECTIONS = (
    Direction(stage=Stage.FORWARD_SEND, other=Stage.FORWARD_RECV, compute=Stage.FORWARD_COMPUTE, sends=True, towards=1),
    Direction(
        stage=Stage.FORWARD_RECV, other=Stage.FORWARD_SEND, compute=Stage.FORWARD_COMPUTE, sends=False, towards=-1
    ),
    Direction(
        stage=Stage.BACKWARD_SEND, other=Stage.BACKWARD_RECV, compute=Stage.BACKWARD_COMPUTE, sends=True, towards=-1
    ),
    Direction(
        stage=Stage.BACKWARD_RECV, other=Stage.BACKWARD_SEND, compute=Stage.BACKWARD_COMPUTE, sends=False, towards=1
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """For each slot: its compute and its other side; ``ALONE`` where it is no transfer, or has none."""

    compute: Int64s
    other_side: Int64s


def match_transfers(slots: Slots, num_pp: int) -> Transfers:
    """Match transfers with computes, and the two sides of each."""
    compute = np.full(len(slots), ALONE)
    other_side = np.full(len(slots), ALONE)
    num_chunks = int(slots.chunk.max(initial=0)) + 1
    real: dict[tuple[Stage, int], list[int]] = {}
    for pp in range(num_pp):
        for way in DIRECTIONS:
            pairs = _with_computes(slots, pp, way)
            for transfer, work in pairs:
                compute[transfer] = work
            real[way.stage, pp] = [
                transfer for transfer, work in pairs if _has_neighbour(slots, work, way, num_pp, num_chunks)
            ]
    for (stage, pp), mine in real.items():
        way = next(one for one in DIRECTIONS if one.stage is stage)
        if way.sends:
            for a, b in zip(mine, real[way.other, (pp + way.towards) % num_pp], strict=False):
                other_side[a], other_side[b] = b, a
    return Transfers(compute=compute, other_side=other_side)


def _with_computes(slots: Slots, pp: int, way: Direction) -> list[tuple[int, int]]:
    """Transfers of one pipeline rank in one direction, each with its compute."""
    computes = slots.of(pp, way.compute)
    if labelled := _by_label(slots, slots.of(pp, way.stage), computes):
        return labelled
    transfers = [one for one in slots.of(pp, way.stage) if _was(slots, one, computes, way)]
    # An interleaved schedule may lack the very first receive: the first piece of the model needs none.
    skipped = 1 if not way.sends and len(transfers) == len(computes) - 1 else 0
    return list(zip(transfers, computes[skipped:], strict=False))


def _by_label(slots: Slots, transfers: list[int], computes: list[int]) -> list[tuple[int, int]]:
    """By chunk and microbatch, where every transfer says them; nothing where one does not."""
    work_of = {(int(slots.chunk[one]), int(slots.microbatch[one])): one for one in computes}
    labels = [(int(slots.chunk[one]), int(slots.microbatch[one])) for one in transfers]
    if any(chunk < 0 or microbatch < 0 for chunk, microbatch in labels):
        return []
    return [(one, work_of[label]) for one, label in zip(transfers, labels, strict=True) if label in work_of]


def _was(slots: Slots, transfer: int, computes: list[int], way: Direction) -> bool:
    """Whether there was something to carry: before the first compute ends there is nothing to send, once the last one
    has begun nothing to receive."""
    if not computes:
        return False
    if way.sends:
        return bool(slots.end_s[transfer] >= slots.end_s[computes].min() - CLOCK_S)
    return bool(slots.begin_s[transfer] <= slots.begin_s[computes].max() + CLOCK_S)


def _has_neighbour(slots: Slots, compute: int, way: Direction, num_pp: int, num_chunks: int) -> bool:
    """Whether the piece of the model that ``compute`` works on has another one on that side."""
    piece = max(int(slots.chunk[compute]), 0) * num_pp + int(slots.pp[compute])
    return 0 <= piece + way.towards < num_pp * num_chunks
