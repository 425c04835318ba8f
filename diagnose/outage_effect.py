"""What a loss of link did to the job: which operations stood still over it, whose, and for how long.

    rank 4 (host-2)  grads-all-reduce  |--|      |------------------|      overlaps the outage, and takes longer than
    link of host-2   ------------------------.        .-------------       the same operation in other steps by much of
                                       down  '--------' up                 the outage: it was stretched

Those of a group that leaves the host were stretched by the link; whoever else stood waited for them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.interfaces import may_carry
from diagnose.operations import Operations
from diagnose.outages import NS_PER_S, Outage, find_outages
from diagnose.view import FloatVector, RunView
from telemetry.stages import Stage, StageClass, Stream
from telemetry.topology import Axis

Ints = npt.NDArray[np.int64]

MUCH = 0.3
"""Of the outage that an operation must stand longer than usual."""
LEAST_S = 0.1
TWICE = 2.0
CLOCKS_NS = 5 * NS_PER_S
"""Hosts agree on the time within this."""
MOST = 200
_ALONG: dict[Stream, Axis] = {Stream.DP: "dp", Stream.TP: "tp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretched:
    """Operations of one stage and group that stood over an outage."""

    stage: Stage
    ranks: tuple[int, ...]
    """The group, or the two sides."""
    step: int
    held_s: float
    """The longest beyond its usual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Of one outage on the job."""

    outage: Outage
    stretched: tuple[Stretched, ...]
    """By the link itself: groups of the host's ranks that leave the host. The longest first."""
    held_up: tuple[int, ...]
    """All ranks that stood, on any host."""
    held_s: float
    """The longest of all."""
    steps: tuple[int, ...]

    @property
    def hurt(self) -> bool:
        return bool(self.stretched)


def outage_effects(view: RunView) -> list[Effect]:
    """The newest losses of link and what each did, in order of time: nothing by a card that the job does not use."""
    return [
        effect_of(view, outage) if may_carry(view.words, outage) else _without_effect(outage)
        for outage in find_outages(view.fleet.events)[-MOST:]
    ]


def _without_effect(outage: Outage) -> Effect:
    return Effect(outage=outage, stretched=(), held_up=(), held_s=0.0, steps=())


def effect_of(view: RunView, outage: Outage) -> Effect:
    """What the steps of ``view`` show of ``outage``; nothing where they do not overlap."""
    found = [one for stage in view.operations for one in _held(view, stage, outage)]
    home = {rank for rank, host in enumerate(view.hosts) if host == outage.host}
    direct: dict[tuple[Stage, tuple[int, ...]], Stretched] = {}
    for one in found:
        ranks = _group(view, one)
        if home & set(ranks) and not set(ranks) <= home:
            key, before = (one.stage, ranks), direct.get((one.stage, ranks))
            if before is None or before.held_s < one.held_s:
                direct[key] = Stretched(stage=one.stage, ranks=ranks, step=one.step, held_s=one.held_s)
    return Effect(
        outage=outage,
        stretched=tuple(sorted(direct.values(), key=lambda one: -one.held_s)),
        held_up=tuple(sorted({one.rank for one in found})),
        held_s=max((one.held_s for one in found), default=0.0),
        steps=tuple(sorted({one.step for one in found})),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    stage: Stage
    rank: int
    peer: int
    step: int
    held_s: float


def _held(view: RunView, stage: Stage, outage: Outage) -> Iterator[_Held]:
    """Operations of a stage that stood over the outage."""
    operations = view.operations[stage]
    until_ns = outage.up_ns or view.fleet.seen_ns or 2**62
    near = _near(view, outage.down_ns, until_ns)
    if near.start == near.stop:
        return
    least_ns = max(LEAST_S, MUCH * outage.seconds(until_ns)) * NS_PER_S
    started, lasted = operations.start_ns[near], operations.duration_ns[near]
    over = (started < until_ns) & (started + lasted > outage.down_ns) & (lasted > least_ns)
    rows, occurrences, ranks = np.nonzero(over)
    rows += near.start
    if not len(rows):
        return
    held_ns = operations.duration_ns[rows, occurrences, ranks] - _usual_ns(operations, rows, occurrences, ranks)
    for index in np.flatnonzero(held_ns >= least_ns):
        row, occurrence, rank = int(rows[index]), int(occurrences[index]), int(ranks[index])
        duration_ns = operations.duration_ns[row, occurrence, rank]
        if duration_ns >= TWICE * (duration_ns - held_ns[index]):
            yield _Held(
                stage=stage,
                rank=rank,
                peer=int(operations.peer[row, occurrence, rank]),
                step=int(view.steps[row]),
                held_s=float(held_ns[index]) / NS_PER_S,
            )


def _near(view: RunView, down_ns: int, until_ns: int) -> slice:
    """Rows of the steps that may overlap the outage."""
    if view.step_start_ns is None or not len(view.steps):
        return slice(0, len(view.steps))
    ends_ns = view.step_start_ns + view.step_ns.astype(np.int64)
    first = int(np.searchsorted(ends_ns, down_ns - CLOCKS_NS))
    return slice(first, max(first, int(np.searchsorted(view.step_start_ns, until_ns + CLOCKS_NS))))


def _usual_ns(operations: Operations, rows: Ints, occurrences: Ints, ranks: Ints) -> FloatVector:
    """Of each operation the median of the same in other steps; the least that any took where there is none."""
    durations = np.where(
        operations.present[:, occurrences, ranks], operations.duration_ns[:, occurrences, ranks], np.nan
    )
    durations[rows, np.arange(len(rows))] = np.nan
    known = ~np.isnan(durations).all(axis=0)
    usual = np.zeros(len(rows))
    usual[known] = np.nanmedian(durations[:, known], axis=0)
    return usual


def _group(view: RunView, one: _Held) -> tuple[int, ...]:
    """Who takes part: of a transfer both sides; of compute those whose tensor-parallel collectives lie inside it."""
    if one.peer >= 0:
        return tuple(sorted((one.rank, one.peer)))
    along = "tp" if one.stage.stage_class is StageClass.COMPUTE else _ALONG.get(one.stage.stream)
    return (one.rank,) if along is None else tuple(view.topology.group(one.rank, along=along))
