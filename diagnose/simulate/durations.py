"""Durations of slots in all lanes [steps, dp, tp], without waiting: the work, or the transfer of a collective.

work      = seconds of its stage * noise * conditions      separately for each rank
transfer  = seconds of its stage * noise * slowest link    the same for all members
"""

from dataclasses import dataclass

import numpy as np

from diagnose.model.operations import Bools
from diagnose.simulate.layers import Groups, LayerTimes
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import LAYERS, SimulatedRun
from diagnose.simulate.scene import Conditions, Floats
from diagnose.simulate.schedule import Schedule
from telemetry.stages import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTimes:
    """Seconds of a forward or backward in all lanes."""

    wall_s: Floats
    """Time from its begin to its collective."""
    cpu_s: Floats
    collection_s: Floats
    """Garbage collection, which is part of ``wall_s`` and of ``cpu_s``."""


def layers_of(times: ComputeTimes, jitter: Floats) -> Floats:
    """The work of each layer, [layers, steps, dp, tp]: equal parts, multiplied by ``jitter``. Garbage collection is in
    the middle layer."""
    work = (times.wall_s - times.collection_s) / LAYERS * jitter
    work[LAYERS // 2] += times.collection_s
    return work


TRANSFERS = {
    Stage.FORWARD_SEND: Stage.FORWARD_SEND,
    Stage.FORWARD_RECV: Stage.FORWARD_SEND,
    Stage.BACKWARD_SEND: Stage.BACKWARD_SEND,
    Stage.BACKWARD_RECV: Stage.BACKWARD_SEND,
}
"""Stage of a transfer -> the stage whose duration both sides have: that of the sender."""
LAYERS_DRAW = 1_000_000
"""First number of the random draws of layers."""
EXCHANGE_DRAW = 100_000_000
"""First number of the random draws of exchanges of tokens."""


class Durations:
    """Durations of a run. They are computed when needed, and repeated calls give the same values."""

    def __init__(self, plan: SimulatedRun, schedule: Schedule, conditions: Conditions) -> None:
        self._plan = plan
        self._slots = schedule.program.slots
        self._other_side = schedule.transfers.other_side
        self._conditions = conditions
        self._draws = Draws(noise=plan.noise, seed=plan.seed)
        topology = plan.topology
        self._shape = (plan.num_steps, topology.dp, topology.tp)
        self._ranks = self._draws.ranks(plan.num_steps, topology.world_size) * conditions.work
        self._stages = schedule.stages
        self._collects = bool(conditions.collection_s.any())
        self._silent = _silent_slots(schedule, plan)
        self._shards = Groups(topology=topology)
        self._host = topology.arranged(np.unique(plan.hosts, return_inverse=True)[1])

    def compute(self, slot: int) -> ComputeTimes:
        """Durations of a forward or backward."""
        pp, stage = self._place(slot)
        work = self._seconds(stage) * self._draws.compute(slot, self._shape) * self.lanes(self._ranks, pp)
        work *= self._conditions.sequences[:, :, int(self._slots.microbatch[slot]), None]
        wall = work * self.lanes(self._conditions.wall, pp)
        if self._plan.noise.wall_spread:
            wall = wall * self._draws.wall(slot, self._shape)
        collection = self._collection(slot, pp, stage)
        return ComputeTimes(wall_s=wall + collection, cpu_s=work + collection, collection_s=collection)

    def inner(self, slot: int) -> Floats:
        """Seconds of the tensor-parallel collective inside a forward or backward, [steps, dp, 1]."""
        spread = self._plan.noise.transfer_spread
        seconds = self._seconds(Stage.TP_ALL_REDUCE)
        return seconds * self._draws.transfer(len(self._slots) + slot, (*self._shape[:2], 1), spread)

    def exchange(self, slot: int, number: int) -> Floats:
        """Seconds of an exchange of tokens inside a forward or backward at mean load, [steps, 1, 1]."""
        drawn = self._draws.transfer(
            EXCHANGE_DRAW + 2 * slot + number, (self._shape[0], 1, 1), self._plan.noise.transfer_spread
        )
        return np.asarray(self._seconds(Stage.EP_ALL_TO_ALL) * drawn)

    def layers(self, slot: int, times: ComputeTimes) -> LayerTimes:
        """Durations of the layers of a forward or backward with sharded parameters."""
        pp, stage = self._place(slot)
        noise, shape = self._plan.noise, (LAYERS, *self._shape)
        key = LAYERS_DRAW + 4 * slot
        link = self.lanes(self._conditions.dp_link, pp).max(axis=1, keepdims=True)

        def collective(of: Stage, number: int, spread: float) -> Floats:
            drawn = self._draws.transfer(key + number, (LAYERS, self._shape[0], 1, self._shape[2]), spread)
            return np.asarray(self._seconds(of) / LAYERS * drawn * link)

        tensor = self._draws.transfer(key + 2, (LAYERS, *self._shape[:2], 1), noise.transfer_spread)
        reduce_s = np.zeros(0)
        if stage is Stage.BACKWARD_COMPUTE:
            is_first = np.arange(LAYERS)[:, None, None, None] == 0
            reduce_s = collective(Stage.GRADS_REDUCE_SCATTER, 1, noise.reduce_spread) + is_first * self.silence(slot)
        return LayerTimes(
            work_s=layers_of(times, self._draws.compute(key, shape)),
            gather_s=collective(Stage.PARAMS_ALL_GATHER, 0, noise.gather_spread),
            reduce_s=reduce_s,
            tensor_s=self._seconds(Stage.TP_ALL_REDUCE) / LAYERS * tensor,
        )

    def other(self, slot: int) -> Floats:
        """Seconds of a slot that is not a forward or backward."""
        pp, stage = self._place(slot)
        match stage:
            case Stage.DATA_LOAD:
                return self._alone(slot, stage) + self.lanes(self._conditions.data_s, pp)
            case Stage.OPTIMIZER:
                return self._alone(slot, stage) * self.lanes(self._ranks, pp)
            case Stage.GC:
                return self._alone(slot, stage)
            case Stage.PARAMS_ALL_GATHER | Stage.GRADS_REDUCE_SCATTER:
                return self._across_dp(slot, pp, stage)
            case Stage.OPTIMIZER_CLIP:
                key, spread = self._stages.index(stage), self._plan.noise.gather_spread
                return self._seconds(stage) * self._draws.transfer(key, (self._shape[0], 1, 1), spread)
            case Stage.EMBEDDING_GRADS_ALL_REDUCE:
                return self._across_pp(self._stages.index(stage), stage, (0, self._plan.topology.pp - 1))
            case _:
                return self._transfer(slot, pp, stage)

    def silence(self, slot: int) -> Floats:
        """Delay of a slot by link losses, in seconds. :meth:`other` includes it. With sharded parameters and without a
        pipeline, it is the delay of the first reduction inside a backward: :meth:`layers` includes it.

        If the slot is the transfer of the last gradient that leaves the host of the sender, the delay is the link loss
        of the sender. It is also that of the receiver, if the last gradient of the receiver does not leave its host.
        So the link loss of a card is counted only once.
        """
        (pp, _), other = self._place(slot), int(self._other_side[slot])
        if not self._conditions.silences or (min(slot, other) if other >= 0 else slot) not in self._silent:
            return np.zeros((1, 1, 1))
        own = self.lanes(self._conditions.silence_s, pp)
        if self._plan.fsdp and other < 0:
            return np.asarray(self._shards.last(own))
        if other < 0:
            return np.asarray(own.max(axis=1, keepdims=True))
        peer = int(self._slots.pp[other])
        sender, receiver = (pp, peer) if self._stages[slot] is Stage.BACKWARD_SEND else (peer, pp)
        leaves, sends = self._leaves(sender, receiver), self._leaves(receiver, receiver - 1)
        sent, received = (self.lanes(self._conditions.silence_s, end) for end in (sender, receiver))
        return np.asarray(np.maximum(sent * leaves, received * (leaves & ~sends)))

    def _leaves(self, sender: int, receiver: int) -> Bools:
        """Whether gradients of the sender go to another host: [dp, tp]."""
        goes = receiver >= 0 or self._plan.num_chunks > 1
        return np.asarray(goes & (self._host[:, sender] != self._host[:, receiver]))

    def _seconds(self, stage: Stage) -> Floats:
        """Seconds of a stage without noise, [steps, 1, 1]."""
        factor = self._conditions.durations.get(stage, np.ones(self._plan.num_steps))
        return np.asarray(self._plan.seconds(stage) * factor[:, None, None])

    def lanes(self, ranks: Floats, pp: int) -> Floats:
        """The lanes of one pipeline rank: [steps, ranks] -> [steps, dp, tp]."""
        return self._plan.topology.arranged(np.atleast_2d(ranks))[:, :, pp, :]

    def _place(self, slot: int) -> tuple[int, Stage]:
        return int(self._slots.pp[slot]), self._stages[slot]

    def _alone(self, slot: int, stage: Stage) -> Floats:
        return self._seconds(stage) * self._draws.compute(slot, self._shape)

    def _collection(self, slot: int, pp: int, stage: Stage) -> Floats:
        if stage is not Stage.FORWARD_COMPUTE or not self._collects:
            return np.zeros(self._shape)
        here = self.lanes(self._conditions.collection_in, pp) == self._slots.occurrence[slot]
        return np.where(here, self.lanes(self._conditions.collection_s, pp), 0.0)

    def _across_dp(self, slot: int, pp: int, stage: Stage) -> Floats:
        """Seconds of a collective of a data-parallel group. Its slowest link determines the time."""
        noise = self._plan.noise
        spread = noise.gather_spread if stage is Stage.PARAMS_ALL_GATHER else noise.reduce_spread
        drawn = self._draws.transfer(slot, (self._shape[0], 1, self._shape[2]), spread)
        link = self.lanes(self._conditions.dp_link, pp).max(axis=1, keepdims=True)
        transfer = self._seconds(stage) / self._plan.num_chunks * drawn * link
        return np.asarray(transfer + self.silence(slot))

    def _across_pp(self, slot: int, stage: Stage, ends: tuple[int, ...]) -> Floats:
        """Seconds of a transfer between pipeline ranks. The slower side determines the time. ``slot``: that of the
        first side."""
        link = np.maximum.reduce([self.lanes(self._conditions.pp_link, pp) for pp in ends])
        drawn = self._draws.transfer(slot, self._shape, self._plan.noise.transfer_spread)
        return np.asarray(self._seconds(stage) * drawn * link)

    def _transfer(self, slot: int, pp: int, stage: Stage) -> Floats:
        other = int(self._other_side[slot])
        peer = int(self._slots.pp[other])
        seconds = self._across_pp(min(slot, other), TRANSFERS[stage], (pp, peer))
        return np.asarray(seconds + self.silence(slot))


def _silent_slots(schedule: Schedule, plan: SimulatedRun) -> set[int]:
    """Slots that a link loss can delay.

    This is the first reduction of gradients on each pipeline rank. If gradients are reduced inside computes, it is the
    last gradient that each rank sends, or the first backward if there is no pipeline.
    """
    slots = schedule.program.slots
    reductions = np.flatnonzero((slots.stage == Stage.GRADS_REDUCE_SCATTER) & (slots.occurrence == 0)).tolist()
    if reductions:
        return set(reductions)
    if plan.fsdp and plan.topology.pp == 1:
        return set(slots.of(0, Stage.BACKWARD_COMPUTE)[:1])
    sends = [slot for pp in range(int(slots.pp.max()) + 1) for slot in slots.of(pp, Stage.BACKWARD_SEND)[-1:]]
    return {min(slot, int(schedule.transfers.other_side[slot])) for slot in sends}
