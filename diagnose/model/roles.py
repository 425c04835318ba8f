"""Roles: the programs of a job, such as actor, rollout and reward in reinforcement learning.

Ranks are compared within a role only. So a job with several roles is seen as several smaller jobs:

    job       rank 0 1 2 3   4 5 6 7     mesh dp=8
    rollout        0 1 2 3               mesh dp=4         a view for each role: its ranks, its part of the mesh,
    actor                    0 1 2 3     mesh dp=4         and operations between its ranks

Step times are those of the whole job: a role that waits for another one has the same steps. (RobustRL,
arXiv 2512.22492: roles differ by nature.)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from diagnose.model.operations import ABSENT, NO_GROUP, Bools, Floats, Ints, Operations, recorded_masks
from diagnose.model.peers import medians
from diagnose.model.view import RunView, Work
from telemetry.group_names import GROUP_BASE
from telemetry.records import role_in
from telemetry.stages import Stage
from telemetry.topology import Topology

MAX_ROLES = 32
"""A job with more roles gives each rank another name by mistake. Its ranks are compared as those of one program."""
MOST_IDLE = 0.05
"""Largest share of a step in which the last rank to finish may still wait, for example for new weights."""


def role_of_ranks(meta: Sequence[Mapping[str, str]], num_ranks: int) -> tuple[str, ...]:
    """The role of each rank. Empty text for all ranks if the ranks that reported have one role, none, or too many.

    ``meta``: what each rank reported at its start. Ranks that never reported belong to no role.
    """
    roles = tuple(role_in(meta[rank]) if rank < len(meta) else "" for rank in range(num_ranks))
    reported = {role for role, words in zip(roles, meta, strict=False) if words}
    return roles if 1 < len(reported) <= MAX_ROLES else ("",) * num_ranks


def role_views(view: RunView) -> list[RunView]:
    """A view of each role, in the order of their first ranks. A job with one program: the view itself."""
    roles = role_of_ranks(view.meta, view.topology.world_size)
    names = list(dict.fromkeys(roles))
    if len(names) < 2:
        return [view]
    number = np.array([names.index(role) for role in roles])
    places = _places_on_host(view.hosts)
    return [_view_of(view, name, number == at, places) for at, name in enumerate(names)]


def _places_on_host(hosts: Sequence[str]) -> list[int]:
    counts: Counter[str] = Counter()
    places = []
    for host in hosts:
        places.append(counts[host])
        counts[host] += 1
    return places


def peer_groups(topology: Topology, meta: Sequence[Mapping[str, str]]) -> Ints:
    """A number for each rank. Ranks of the same role and pipeline stage have the same number. ``meta``: what each rank
    reported at its start."""
    roles = role_of_ranks(meta, topology.world_size)
    names = list(dict.fromkeys(roles))
    role = np.array([names.index(each) for each in roles], dtype=np.int64)
    return np.asarray(role * topology.pp + topology.index["pp"])


def topology_of_role(topology: Topology, ranks: Ints) -> Topology:
    """The part of the mesh that these ranks form. If they do not form a box in the mesh, all count as data parallel."""
    places = [tuple(topology.coordinates(int(rank)).values()) for rank in ranks]
    degrees = [len(set(along)) for along in zip(*places, strict=True)]
    if prod(degrees) != len(ranks):
        return Topology(dp=len(ranks))
    return Topology(mesh=tuple((name, degree) for (name, _), degree in zip(topology.mesh, degrees, strict=True)))


def _view_of(view: RunView, role: str, is_member: Bools, places: Sequence[int]) -> RunView:
    ranks = np.flatnonzero(is_member)
    operations = {stage: _within(each, view.topology, is_member) for stage, each in view.operations.items()}
    inner = {stage: _within(each, view.topology, is_member) for stage, each in view.inner.items()}
    work = {stage: _work_of(each, ranks) for stage, each in view.work.items() if _is_known(each.ns, ranks)}
    exchanges = None if view.exchanges is None else view.exchanges.chosen(ranks=ranks)
    return replace(
        view,
        role=role,
        rank_numbers=tuple(ranks.tolist()),
        places_on_host=tuple(map(places.__getitem__, ranks.tolist())),
        topology=topology_of_role(view.topology, ranks),
        hosts=tuple(view.hosts[rank] for rank in ranks),
        work=work,
        off_cpu={stage: ns[:, ranks] for stage, ns in view.off_cpu.items() if stage in work},
        overlap={stage: ns[:, ranks] for stage, ns in view.overlap.items() if stage in work},
        operations={stage: each for stage, each in operations.items() if each.present.any()},
        inner={stage: each for stage, each in inner.items() if each.present.any()},
        exposed={stage: ns[:, ranks] for stage, ns in view.exposed.items()},
        exchanges=exchanges if exchanges is not None and exchanges.present.any() else None,
        meta=tuple(view.meta[rank] for rank in ranks if rank < len(view.meta)),
    )


def _is_known(ns: Floats, ranks: Ints) -> bool:
    return not bool(np.isnan(ns[:, ranks]).all())


def _work_of(work: Work, ranks: Ints) -> Work:
    each_ns = None if work.each_ns is None else work.each_ns[:, :, ranks]
    return replace(work, ns=work.ns[:, ranks], each_ns=each_ns)


def _within(operations: Operations, topology: Topology, is_member: Bools) -> Operations:
    """The operations of a role without those that other roles take part in. Peers get their numbers in the role."""
    leaves = operations.present & _leaves_role(operations, topology, is_member)
    number = np.where(is_member, np.cumsum(is_member) - 1, ABSENT)
    is_peer = (operations.peer >= 0) & (operations.peer < topology.world_size)
    peer = np.where(is_peer, number[np.where(is_peer, operations.peer, 0)], operations.peer).astype(np.int32)
    kept = replace(operations, peer=peer).chosen(ranks=np.flatnonzero(is_member))
    return _without(kept, leaves[:, :, is_member])


def _leaves_role(operations: Operations, topology: Topology, is_member: Bools) -> Bools:
    """Whether an operation is a transfer to a rank of another role, or a collective of a group with such a rank, in the
    shape of the operations."""
    leaves = operations.peer >= topology.world_size
    is_peer = (operations.peer >= 0) & ~leaves
    leaves[is_peer] = ~is_member[operations.peer[is_peer]]
    if not (operations.peer < GROUP_BASE).any():
        return leaves
    masks = recorded_masks(operations.peer, topology)
    for mask in np.unique(masks[operations.present]).tolist():
        if mask != NO_GROUP:
            members = topology.members(mask)
            is_mixed = np.empty(topology.world_size, dtype=bool)
            is_mixed[members] = ~is_member[members].all(axis=1, keepdims=True)
            leaves |= (masks == mask) & is_mixed
    return leaves


def _without(operations: Operations, left_out: Bools) -> Operations:
    """The operations without those in ``left_out``. The others of each rank and step move to the front."""
    if not left_out.any():
        return operations
    order = np.argsort(left_out | ~operations.present, axis=1, kind="stable")
    return operations.changed(
        lambda values: np.take_along_axis(np.where(left_out, ABSENT, values), order, axis=1).astype(values.dtype)
    )


def busy_ns(view: RunView) -> Floats:
    """Time of each rank in each step that its spans cover, [steps, ranks]: all stages but data-load, in which a rank
    waits for what others produce. Spans that overlap count once."""
    spans = [each for stage, each in view.operations.items() if stage is not Stage.DATA_LOAD]
    if not spans:
        return np.zeros((len(view.steps), view.topology.world_size))
    present = np.concatenate([each.present for each in spans], axis=1)
    start = np.where(present, np.concatenate([each.start_ns for each in spans], axis=1), np.iinfo(np.int64).max)
    end = np.where(present, np.concatenate([each.end_ns for each in spans], axis=1), 0)
    order = np.argsort(start, axis=1, kind="stable")
    start, end = np.take_along_axis(start, order, axis=1), np.take_along_axis(end, order, axis=1)
    before = np.zeros_like(end)
    before[:, 1:] = np.maximum.accumulate(end, axis=1)[:, :-1]
    return np.asarray(np.maximum(end - np.maximum(start, before), 0).sum(axis=1), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """How much of each step a role works."""

    role: str
    """Its name, or ``without a name``."""
    num_ranks: int
    share: Floats
    """[steps]: median over its ranks."""

    @property
    def typical(self) -> float:
        return float(np.median(self.share))


def busy_by_role(view: RunView) -> list[Busy]:
    """One entry for each role, in the order of their first ranks."""
    return [
        Busy(
            role=each.role or "without a name",
            num_ranks=each.topology.world_size,
            share=np.minimum(medians(busy_ns(each), axis=1) / view.step_ns, 1.0),
        )
        for each in role_views(view)
    ]


def share_as_last(view: RunView, ranks: Sequence[int], rows: slice) -> float:
    """Share of the steps in which one of these ranks works until the end of the step. In other steps the job waits for
    another role, so a slow rank of this one costs nothing."""
    idle_ns = view.step_ns[rows] - busy_ns(view)[rows][:, list(ranks)].max(axis=1)
    return float(np.mean(idle_ns < MOST_IDLE * view.step_ns[rows]))
