"""The dependency graph of a step: what must end before what begins, and who must meet.

    on one rank     recv -> compute -> send;   computes in order;   each transfer stream in order
                    params-all-gather of a chunk -> its first forward;   computes -> gc -> gradients -> optimizer
    between ranks   a *collective* ends for its members once the last has begun: the two sides of a transfer, the
                    embedding gradients of first and last stage, the gradient norm of all ranks, a data-parallel group

Source of the rules: What-if analysis (arXiv 2505.05713, section 3.2) and its published artifact.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from diagnose.model.collectives import DP_STAGES
from diagnose.model.compute_time import WORK_STAGES
from diagnose.whatif.slots import Slots
from diagnose.whatif.transfers import DIRECTIONS, Transfers
from telemetry.stages import Stage

DP_STREAM = (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER)


class Across(IntEnum):
    """Which lanes of a collective wait for each other, beside its slots."""

    NONE = 0
    DP = 1
    ALL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Slots that end together: a collective, or one slot by itself. Of a slot by itself the lanes in ``across`` end
    together, too, where computes gather parameters inside: each works, and then waits for the slowest."""

    slots: tuple[int, ...]
    meets: bool
    across: Across


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Slots, the rounds they come in, ordered so that each follows all it depends on, and who comes before whom."""

    slots: Slots
    rounds: tuple[Round, ...]
    before: tuple[tuple[int, ...], ...]
    """For each slot, those that must have ended on the same lane."""


class CircularProgramError(Exception):
    """Operations that wait for each other in a circle: the trace is not what the rules take it for."""


def link(slots: Slots, transfers: Transfers, num_pp: int, num_dp: int, *, in_step: bool = False) -> Program:
    """The dependency graph of a step. ``in_step``: all replicas of a compute end it together.

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
    known = tuple(tuple(dict.fromkeys(one)) for one in before)
    return Program(slots=slots, rounds=_ordered(slots, known, collectives, in_step=in_step), before=known)


def _chain(before: list[list[int]], slots: Sequence[int], after: Iterable[int] = ()) -> None:
    """Each slot comes after the one before it; the first one after ``after``."""
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
    _link_first_backward(before, slots, computes, pp)


def _link_first_backward(before: list[list[int]], slots: Slots, computes: list[int], pp: int) -> None:
    """The first transfers of the backward pass are posted once the last forward but one of the warm-up has ended."""
    first = next((place for place, one in enumerate(computes) if slots.stage[one] == Stage.BACKWARD_COMPUTE), 0)
    if first < 2:
        return
    for stage in (Stage.BACKWARD_RECV, Stage.BACKWARD_SEND):
        for transfer in slots.of(pp, stage)[:1]:
            before[transfer].append(computes[first - 2])


def _link_parameters(before: list[list[int]], slots: Slots, pp: int) -> None:
    """The newest gather of a chunk's parameters comes before its first forward."""
    gathers = {int(slots.chunk[one]): one for one in slots.of(pp, Stage.PARAMS_ALL_GATHER)}
    for chunk, gather in gathers.items():
        forward = [one for one in slots.of(pp, Stage.FORWARD_COMPUTE) if chunk in (slots.chunk[one], -1)]
        if forward:
            before[forward[0]].append(gather)


def _link_ending(before: list[list[int]], slots: Slots, pp: int, *, uses_dp: bool) -> None:
    """What follows the last compute, one after the other."""
    computes = slots.of(pp, *WORK_STAGES)
    last = [max(computes, key=lambda one: slots.end_s[one])] if computes else []
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
    """Gradients reduced during the backward pass: a chunk's first reduce-scatter follows its last backward."""
    seen: set[int] = set()
    for scatter in scatters:
        chunk = int(slots.chunk[scatter])
        backward = [one for one in slots.of(pp, Stage.BACKWARD_COMPUTE) if chunk in (slots.chunk[one], -1)]
        if chunk not in seen and backward:
            before[scatter].append(max(backward, key=lambda one: slots.end_s[one]))
        seen.add(chunk)


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
    """Collectives, and slots by themselves, each after all it depends on."""
    met = {slot for one in collectives for slot in one.slots}
    together = np.isin(slots.stage, WORK_STAGES) & in_step
    alone = [
        Round(slots=(slot,), meets=False, across=Across.ALL if together[slot] else Across.NONE)
        for slot in range(len(slots))
        if slot not in met
    ]
    rounds = [*collectives, *alone]
    round_of = {slot: number for number, one in enumerate(rounds) for slot in one.slots}
    waits = [{round_of[earlier] for slot in one.slots for earlier in before[slot]} for one in rounds]
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
