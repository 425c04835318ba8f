"""What is compared of a run: for each stage, a time in each step in which no rank waits for another one.

    compute stages       compute time of each rank                  [steps, ranks]   ranks are compared one by one
    optimizer            median rank, without the collectives inside  [steps, 1]
    collectives          the shortest member: the transfer          [steps, 1]       mean over the groups
    sends and receives   the shorter side                           [steps, 1]       mean over the pairs
    other collectives    the shortest rank                          [steps, 1]       only if all ranks are compared
    data-load, gc,       mean over the ranks                        [steps, 1]       as everywhere (``stage_seconds``)
    checkpoints

So a rank that waits for a slower one changes no time here. ``forward-backward`` and ``communication-wait`` contain
nothing but other stages and waiting. They are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from diagnose.model.collectives import GROUP_STAGES, PAIRS, Collectives, group_collectives, pair_transfers
from diagnose.model.operations import Floats, Ints, Operations, summed
from diagnose.model.peers import medians
from diagnose.model.roles import role_views
from diagnose.model.self_time import without_inner
from diagnose.model.view import Basis as WorkBasis
from diagnose.model.view import RunView
from telemetry.stages import Stage, StageClass

ALONE = (Stage.OPTIMIZER, Stage.EVALUATION)
"""Compute whose collectives may not all be recorded. So no single rank is named."""
LEFT_OUT = (Stage.STEP, Stage.FORWARD_BACKWARD, Stage.COMMUNICATION_WAIT)


class Basis(StrEnum):
    """Which time of a stage is compared."""

    COMPUTE = "compute time of each rank"
    PROCESSOR = "processor time of each rank"
    TRANSFER = "transfer"
    MEDIAN = "median rank"
    SHORTEST = "shortest rank"
    MEAN = "mean over the ranks"


OF_RANKS = (Basis.COMPUTE, Basis.PROCESSOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The time of one stage."""

    stage: Stage
    role: str
    """Empty in a job with one program."""
    basis: Basis
    ns: Floats
    """Time of the stage in nanoseconds, [steps, columns]. NaN in a step without the stage. Columns are ranks if
    ``basis`` is in ``OF_RANKS``."""
    ranks: Ints
    """Rank of each column, as numbered in the whole job. Empty if columns are not ranks."""
    groups: Ints
    """Pipeline stage of each of ``ranks``."""


def measures_of(view: RunView, ranks: Sequence[int] = ()) -> dict[tuple[str, Stage], Measure]:
    """The measures of a run by role and stage, in the order of roles and stages.

    ``ranks``: the ranks that are measured. If empty, all ranks.
    """
    chosen = frozenset(ranks)
    found = [each for of_role in role_views(view) for each in _of_role(of_role, chosen)]
    return {(each.role, each.stage): each for each in found}


def _of_role(view: RunView, chosen: frozenset[int]) -> Iterator[Measure]:
    columns = np.array([at for at in range(view.topology.world_size) if not chosen or view.number(at) in chosen])
    if not len(columns):
        return
    operations = {**view.operations, **view.inner}
    received = {receive for send, receive, _ in PAIRS if send in operations}
    for stage in Stage:
        if stage in LEFT_OUT or stage in received or not (stage in view.work or stage in operations):
            continue
        if stage in view.work:
            work = view.work[stage]
            is_processor = work.basis is WorkBasis.PROCESSOR_TIME
            basis, ns = Basis.PROCESSOR if is_processor else Basis.COMPUTE, work.ns[:, columns]
        else:
            basis, ns = _of_stage(stage, operations, view, columns)
        is_compute = basis in OF_RANKS
        if not np.isnan(ns).all():
            yield Measure(
                stage=stage,
                role=view.role,
                basis=basis,
                ns=ns,
                ranks=np.array(view.numbers(columns)) if is_compute else np.zeros(0, dtype=np.int64),
                groups=view.pp_of_rank[columns] if is_compute else np.zeros(0, dtype=np.int64),
            )


def _of_stage(
    stage: Stage, operations: Mapping[Stage, Operations], view: RunView, columns: Ints
) -> tuple[Basis, Floats]:
    """The basis and the time, [steps, 1], of a stage whose ranks are not compared one by one."""
    if stage in ALONE:
        return Basis.MEDIAN, medians(_without_collectives(stage, operations)[:, columns], axis=1)[:, None]
    groups = [each for each in _collectives(stage, operations, view) if len(each.ranks)]
    totals = [each.transfer_total_ns()[:, np.isin(each.ranks, columns).all(axis=1)] for each in groups]
    if totals and sum(total.shape[1] for total in totals):
        return Basis.TRANSFER, _mean(np.concatenate(totals, axis=1))
    total_ns = operations[stage].total_ns()[:, columns]
    if stage.stage_class in (StageClass.HOST, StageClass.CHECKPOINT):
        return Basis.MEAN, _mean(total_ns)
    if stage is Stage.EMBEDDING_GRADS_ALL_REDUCE:  # its members are the ends of each pipeline
        pipelines = view.topology.members(view.topology.wide_mask("pp"))
        inside = pipelines[np.isin(pipelines, columns).all(axis=1)]
        return Basis.TRANSFER, _mean(_shortest(operations[stage].total_ns()[:, inside]))
    if len(columns) < view.topology.world_size:  # all of these ranks may wait for one of the others
        return Basis.SHORTEST, np.full((len(total_ns), 1), np.nan)
    return Basis.SHORTEST, _shortest(total_ns)[:, None]


def _without_collectives(stage: Stage, operations: Mapping[Stage, Operations]) -> Floats:
    """Time of each rank in a stage, [steps, ranks], without the collectives inside."""
    communication = {other: each for other, each in operations.items() if other.stage_class is StageClass.COMMUNICATION}
    own = without_inner({stage: operations[stage]}, communication)[stage]
    return summed(own, operations[stage].present)


def _collectives(stage: Stage, operations: Mapping[Stage, Operations], view: RunView) -> list[Collectives]:
    """The operations of a communication stage by group. A transfer between two ranks is shown once, at its send."""
    for send, receive, towards in PAIRS:
        if stage is send and receive in operations:
            return [pair_transfers(send, operations[send], operations[receive], view.topology, towards=towards)]
    if stage in GROUP_STAGES:
        return group_collectives(stage, operations[stage], view.topology)
    return []


def _shortest(ns: Floats) -> Floats:
    """The shortest known value along the last axis. NaN if all values are unknown."""
    shortest = np.where(np.isnan(ns), np.inf, ns).min(axis=-1)
    return np.where(np.isfinite(shortest), shortest, np.nan)


def _mean(ns: Floats) -> Floats:
    """Mean over the known columns, [steps, 1]."""
    known = ~np.isnan(ns)
    count = known.sum(axis=1, keepdims=True)
    total = np.where(known, ns, 0.0).sum(axis=1, keepdims=True)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
