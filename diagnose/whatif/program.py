"""The dependency graph of a step: which slots must end before others begin, and which wait for each other.

    on one rank     recv -> compute -> send;   computes in order;   each transfer stream in order
                    params-all-gather of a chunk -> its first forward;   computes -> gc -> gradients -> optimizer
    between ranks   a *collective* ends for its members once the last has begun: the two sides of a transfer, the
                    embedding gradients of first and last stage, the gradient norm of all ranks, a data-parallel group

    pp0   |forward 0|-send 0->           |backward 0|
    pp1            -recv 0->|forward 0|-...

A receive belongs to the compute that needs it, a send to the compute that made its data: by chunk and microbatch if
recorded, else the n-th to the n-th. Recorders also write transfers that did not take place: before the first compute
there is nothing to send, after the last one nothing to receive, and the ends of the model have no neighbour.

Source of the rules: What-if analysis (arXiv 2505.05713, section 3.2) and its published artifact.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from diagnose.model.collectives import DP_STAGES
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.operations import Int64s
from diagnose.whatif.slots import Slots
from telemetry.stages import Stage

CLOCK_S = 5e-5
"""Times of one rank that are closer than this have no certain order."""
ALONE = -1
DP_STREAM = (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER)


@dataclass(frozen=True, slots=True)
class Direction:
    """One of the four transfers between pipeline ranks."""

    stage: Stage
    other: Stage
    compute: Stage
    sends: bool
    towards: int
    """+1: the other side is the next pipeline rank, and the next piece of the model."""


DIRECTIONS = (
    Direction(Stage.FORWARD_SEND, Stage.FORWARD_RECV, Stage.FORWARD_COMPUTE, sends=True, towards=1),
    Direction(Stage.FORWARD_RECV, Stage.FORWARD_SEND, Stage.FORWARD_COMPUTE, sends=False, towards=-1),
    Direction(Stage.BACKWARD_SEND, Stage.BACKWARD_RECV, Stage.BACKWARD_COMPUTE, sends=True, towards=-1),
    Direction(Stage.BACKWARD_RECV, Stage.BACKWARD_SEND, Stage.BACKWARD_COMPUTE, sends=False, towards=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """For each slot: its compute and its other side. ``ALONE`` if it is no transfer, or does not have one."""

    compute: Int64s
    other_side: Int64s


class Across(IntEnum):
    """Lanes of a collective that wait for each other, in addition to its slots."""

    NONE = 0
    DP = 1
    ALL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Slots that end together: a collective, or one slot by itself. If computes have collectives inside, the lanes of
    such a slot in ``across`` end together, too: each works, and then waits for the slowest."""

    slots: tuple[int, ...]
    meets: bool
    across: Across


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Slots, their rounds in an order in which each follows its dependencies, and the dependencies."""

    slots: Slots
    rounds: tuple[Round, ...]
    before: tuple[tuple[int, ...], ...]
    """For each slot, the slots that must have ended on the same lane."""
    inner_groups: Int64s | None = None
    """Replicas that end a compute together, [groups, members]. None: all of them."""


class CircularProgramError(Exception):
    """Operations wait for each other in a cycle: the trace does not follow the rules."""


def match_transfers(slots: Slots, num_pp: int) -> Transfers:
    """Match transfers with computes, and the two sides of each."""
    compute, other_side = np.full(len(slots), ALONE), np.full(len(slots), ALONE)
    num_chunks = int(slots.chunk.max(initial=0)) + 1
    real: dict[tuple[Stage, int], list[int]] = {}
    for pp in range(num_pp):
        for way in DIRECTIONS:
            pairs = _with_computes(slots, pp, way)
            for transfer, work in pairs:
                compute[transfer] = work
            real[way.stage, pp] = [one for one, work in pairs if _has_neighbour(slots, work, way, num_pp, num_chunks)]
    for (stage, pp), mine in real.items():
        way = next(direction for direction in DIRECTIONS if direction.stage is stage)
        if way.sends:
            for a, b in zip(mine, real[way.other, (pp + way.towards) % num_pp], strict=False):
                other_side[a], other_side[b] = b, a
    return Transfers(compute=compute, other_side=other_side)


def _with_computes(slots: Slots, pp: int, way: Direction) -> list[tuple[int, int]]:
    """Transfers of one pipeline rank in one direction, each with its compute."""
    computes, transfers = slots.of(pp, way.compute), slots.of(pp, way.stage)

    def label(slot: int) -> tuple[int, int]:
        return int(slots.chunk[slot]), int(slots.microbatch[slot])

    compute_of = {label(slot): slot for slot in computes}
    if transfers and all(min(label(slot)) >= 0 for slot in transfers):
        pairs = [(slot, compute_of[label(slot)]) for slot in transfers if label(slot) in compute_of]
        if pairs:
            return pairs
    transfers = [slot for slot in transfers if _took_place(slots, slot, computes, way)]
    # An interleaved schedule may lack the very first receive: the first piece of the model needs none.
    skipped = 1 if not way.sends and len(transfers) == len(computes) - 1 else 0
    return list(zip(transfers, computes[skipped:], strict=False))


def _took_place(slots: Slots, transfer: int, computes: list[int], way: Direction) -> bool:
    """Whether a recorded transfer took place. There is nothing to send before the first compute ends, and nothing to
    receive after the last one has begun."""
    if not computes:
        return False
    if way.sends:
        return bool(slots.end_s[transfer] >= slots.end_s[computes].min() - CLOCK_S)
    return bool(slots.begin_s[transfer] <= slots.begin_s[computes].max() + CLOCK_S)


def _has_neighbour(slots: Slots, compute: int, way: Direction, num_pp: int, num_chunks: int) -> bool:
    """Whether the piece of the model that ``compute`` works on has another one on that side."""
    piece = max(int(slots.chunk[compute]), 0) * num_pp + int(slots.pp[compute])
    return 0 <= piece + way.towards < num_pp * num_chunks


def link(slots: Slots, transfers: Transfers, num_pp: int, num_dp: int, *, in_step: bool = False) -> Program:
    """The dependency graph of a step. ``in_step``: whether replicas end a compute together.

    Raises:
        CircularProgramError: the slots cannot have happened in this order.
    """
    before: list[list[int]] = [[] for _ in range(len(slots))]
    for pp in range(num_pp):
        _link_computes(before, slots, transfers, pp)
        if num_dp > 1:
            _chain(before, slots.of(pp, *DP_STREAM))
            _link_parameters(before, slots, pp)
        _link_ending(before, slots, pp, uses_dp=num_dp > 1)
    collectives = list(_collectives(slots, transfers, num_pp, num_dp))
    known = tuple(tuple(dict.fromkeys(earlier)) for earlier in before)
    return Program(slots=slots, rounds=_ordered(slots, known, collectives, in_step=in_step), before=known)


def _chain(before: list[list[int]], slots: Sequence[int], after: Iterable[int] = ()) -> None:
    """Add the dependencies of slots that follow each other. The first slot comes after ``after``."""
    last = list(after)
    for slot in slots:
        before[slot].extend(last)
        last = [slot]


def _link_computes(before: list[list[int]], slots: Slots, transfers: Transfers, pp: int) -> None:
    computes = slots.of(pp, *WORK_STAGES)
    _chain(before, computes, slots.of(pp, Stage.DATA_LOAD)[:1])
    for way in DIRECTIONS:
        stream = slots.of(pp, way.stage)
        _chain(before, stream)
        of_kind = slots.of(pp, way.compute)
        earlier = dict(zip(of_kind[1:], of_kind, strict=False))
        for transfer in stream:
            compute = int(transfers.compute[transfer])
            if compute < 0:
                continue
            if way.sends:
                before[transfer].append(compute)
            else:
                before[compute].append(transfer)
                before[transfer].extend([earlier[compute]] if compute in earlier else [])
    # The first transfers of the backward pass are posted after the last forward but one of the warm-up.
    backwards = np.flatnonzero(slots.stage[computes] == Stage.BACKWARD_COMPUTE)
    if len(backwards) and backwards[0] >= 2:
        for stage in (Stage.BACKWARD_RECV, Stage.BACKWARD_SEND):
            for transfer in slots.of(pp, stage)[:1]:
                before[transfer].append(computes[backwards[0] - 2])


def _link_parameters(before: list[list[int]], slots: Slots, pp: int) -> None:
    """Add the dependencies on parameters: the newest gather of a chunk comes before its first forward."""
    gathers = {int(slots.chunk[gather]): gather for gather in slots.of(pp, Stage.PARAMS_ALL_GATHER)}
    for chunk, gather in gathers.items():
        for forward in _of_chunk(slots, slots.of(pp, Stage.FORWARD_COMPUTE), chunk)[:1]:
            before[forward].append(gather)


def _of_chunk(slots: Slots, computes: list[int], chunk: int) -> list[int]:
    """Those of ``computes`` that work on ``chunk``; all if it is not recorded."""
    return [slot for slot in computes if chunk in (slots.chunk[slot], -1)]


def _link_ending(before: list[list[int]], slots: Slots, pp: int, *, uses_dp: bool) -> None:
    """Add the dependencies of the operations after the last compute, which follow each other."""
    computes = slots.of(pp, *WORK_STAGES)
    last = [max(computes, key=slots.end_s.__getitem__)] if computes else []
    collections = slots.of(pp, Stage.GC)[:1]
    _chain(before, collections, last)
    scatters = slots.of(pp, Stage.GRADS_REDUCE_SCATTER) if uses_dp else []
    apart = slots.of(pp, Stage.SEPARATE_GRADS_ALL_REDUCE) if uses_dp else []
    if apart:
        _link_scatters(before, slots, scatters, pp)
    _chain(
        before,
        [
            *slots.of(pp, Stage.LAYERNORM_GRADS_ALL_REDUCE),
            *slots.of(pp, Stage.EMBEDDING_GRADS_ALL_REDUCE),
            *(apart or scatters),
            *(slots.of(pp, Stage.GRADS_ALL_REDUCE) if uses_dp else []),
            *slots.of(pp, Stage.OPTIMIZER_CLIP),
            *slots.of(pp, Stage.OPTIMIZER),
        ],
        [*(collections or last), *(scatters[-1:] if apart else [])],
    )


def _link_scatters(before: list[list[int]], slots: Slots, scatters: list[int], pp: int) -> None:
    """Gradients are reduced during the backward pass: add that a chunk's first reduction follows its last backward."""
    first_of_chunk = {int(slots.chunk[scatter]): scatter for scatter in reversed(scatters)}
    for chunk, scatter in first_of_chunk.items():
        if backwards := _of_chunk(slots, slots.of(pp, Stage.BACKWARD_COMPUTE), chunk):
            before[scatter].append(max(backwards, key=slots.end_s.__getitem__))


def _collectives(slots: Slots, transfers: Transfers, num_pp: int, num_dp: int) -> Iterable[Round]:
    is_transfer = np.isin(slots.stage, [way.stage for way in DIRECTIONS])
    for slot in np.flatnonzero(is_transfer).tolist():
        other = int(transfers.other_side[slot])
        if other < 0 or slot < other:
            yield Round(slots=(slot,) if other < 0 else (slot, other), meets=True, across=Across.NONE)
    if num_dp > 1:
        for slot in np.flatnonzero(np.isin(slots.stage, DP_STAGES)).tolist():
            yield Round(slots=(slot,), meets=True, across=Across.DP)
    yield from _by_occurrence(slots, Stage.EMBEDDING_GRADS_ALL_REDUCE, Across.NONE)
    yield from _by_occurrence(slots, Stage.OPTIMIZER_CLIP, Across.ALL)


def _by_occurrence(slots: Slots, stage: Stage, across: Across) -> Iterable[Round]:
    """One collective of all pipeline ranks for each occurrence."""
    members: dict[int, list[int]] = defaultdict(list)
    for slot in np.flatnonzero(slots.stage == stage).tolist():
        members[int(slots.occurrence[slot])].append(slot)
    for together in members.values():
        yield Round(slots=tuple(together), meets=True, across=across)


def _ordered(
    slots: Slots, before: Sequence[Sequence[int]], collectives: list[Round], *, in_step: bool
) -> tuple[Round, ...]:
    """All rounds, which are collectives and single slots. Each comes after the rounds that it depends on."""
    met = {slot for round_ in collectives for slot in round_.slots}
    together = np.isin(slots.stage, WORK_STAGES) & in_step
    alone = [
        Round(slots=(slot,), meets=False, across=Across.ALL if together[slot] else Across.NONE)
        for slot in range(len(slots))
        if slot not in met
    ]
    rounds = [*collectives, *alone]
    round_of = {slot: number for number, round_ in enumerate(rounds) for slot in round_.slots}
    waits = [{round_of[earlier] for slot in round_.slots for earlier in before[slot]} for round_ in rounds]
    followers: dict[int, list[int]] = defaultdict(list)
    for number, earlier_rounds in enumerate(waits):
        for earlier in earlier_rounds:
            followers[earlier].append(number)
    missing = [len(earlier_rounds) for earlier_rounds in waits]
    ready = [number for number, count in enumerate(missing) if not count]
    ordered: list[Round] = []
    while ready:
        number = ready.pop()
        ordered.append(rounds[number])
        for follower in followers[number]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    if len(ordered) != len(rounds):
        raise CircularProgramError
    return tuple(ordered)
