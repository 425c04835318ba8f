"""What would be gained: the run replayed with one thing put right.

a rank like its peers     the computes of its worker, all tp ranks, take what they take on the other replicas
balanced stages           every pp rank has the same mean compute
equal microbatches        every microbatch takes what a microbatch of its worker takes on average
planned collections       all ranks collect garbage at the same time
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Operations
from diagnose.model.own_work import WORK_STAGES, without_inner
from diagnose.whatif.analysis import Replayed
from diagnose.whatif.slots import Lanes, Slots
from telemetry.stages import Stage
from telemetry.topology import Topology

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One thing put right, and what that gains over the replayed steps."""

    change: str
    saved_s: float
    """Of all replayed steps together; below zero where it would cost."""
    share: float
    """Of their time."""

    @property
    def gains(self) -> bool:
        """Whether there is a gain to be told: below zero the noise of the steps is larger than it."""
        return self.saved_s > 0


def rank_like_peers(run: Replayed, topology: Topology, rank: int) -> Fix | None:
    """None where no other replica does the same work."""
    place = topology.place(rank)
    if topology.dp < 2:
        return None
    mine = np.flatnonzero(_is_compute(run.times.slots) & (run.times.slots.pp == place.pp))
    own = run.assumptions.own_s.copy()
    others = np.delete(own[mine], place.dp, axis=2)
    own[mine, :, place.dp] = others.mean(axis=2)
    return _fix(run, own, f"rank {rank} like its peers")


def balanced_stages(run: Replayed) -> Fix | None:
    """None without a pipeline."""
    slots = run.times.slots
    if len(np.unique(slots.pp)) < 2:
        return None
    own = run.assumptions.own_s.copy()
    for stage in WORK_STAGES:
        of_stage = slots.stage == stage
        if of_stage.any():
            for pp in np.unique(slots.pp):
                mine = of_stage & (slots.pp == pp)
                own[mine] *= own[of_stage].mean() / own[mine].mean()
    return _fix(run, own, "pipeline stages balanced")


def equal_microbatches(run: Replayed) -> Fix:
    """Lasting differences between workers stay: only what differs from one microbatch to the next goes."""
    slots, own = run.times.slots, run.assumptions.own_s.copy()
    for same in _alike(slots):
        own[same] = own[same].mean(axis=(0, 1), keepdims=True)
    return _fix(run, own, "microbatches of equal work")


def planned_collections(run: Replayed, operations: Mapping[Stage, Operations], topology: Topology) -> Fix | None:
    """None where no garbage was collected within a compute, or computes gather parameters inside."""
    compute = {stage: operations[stage] for stage in WORK_STAGES if stage in operations}
    if Stage.GC not in operations or not compute or run.times.work_s is not None:  # own work has no collections in it
        return None
    collecting = {
        stage: operations[stage].duration_ns - left
        for stage, left in without_inner(compute, {Stage.GC: operations[Stage.GC]}).items()
    }
    own = run.assumptions.own_s.copy()
    for slot in np.flatnonzero(_is_compute(run.times.slots)).tolist():
        own[slot] -= _lanes(collecting, run, topology, slot) / 1e9
    each_rank_ns = sum(float(ns[run.times.rows].sum()) for ns in collecting.values()) / topology.world_size
    if each_rank_ns == 0:
        return None
    return _fix(run, np.maximum(own, 0), "collections planned on all ranks together", costs_s=each_rank_ns / 1e9)


def _lanes(collecting: Mapping[Stage, Array], run: Replayed, topology: Topology, slot: int) -> Array:
    """Nanoseconds of collection in a slot: [steps, dp, tp]."""
    slots = run.times.slots
    stage = next(stage for stage in collecting if stage == slots.stage[slot])
    ns = collecting[stage][run.times.rows][:, slots.occurrence[slot]]
    return np.asarray(topology.arranged(ns)[:, :, slots.pp[slot]])


def _alike(slots: Slots) -> Iterator[Array]:
    """Computes that differ in the microbatch alone."""
    for stage in WORK_STAGES:
        for pp in np.unique(slots.pp):
            for chunk in np.unique(slots.chunk):
                same = (slots.stage == stage) & (slots.pp == pp) & (slots.chunk == chunk)
                if same.any():
                    yield same


def _is_compute(slots: Slots) -> Array:
    return np.isin(slots.stage, WORK_STAGES)


def _fix(run: Replayed, own: Lanes, change: str, costs_s: float = 0.0) -> Fix:
    before = run.assumptions.with_times(run.assumptions.own_s).sum()
    saved = float(before - run.assumptions.with_times(own).sum()) - costs_s
    return Fix(change=change, saved_s=saved, share=saved / float(before))
