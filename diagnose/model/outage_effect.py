"""What a loss of link did to the job: which operations stood still over it, whose, and for how long.

    rank 4 (host-2)  grads-all-reduce  |--|      |------------------|      overlaps the outage, and takes longer than
    link of host-2   ------------------------.        .-------------       the same operation in other steps by much of
                                       down  '--------' up                 the outage: it was stretched

Those of a group that leaves the host were stretched by the link; whoever else stood waited for them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Operations, recorded_masks, usual_mask
from diagnose.model.outages import NS_PER_S, Effect, Outage, Stretched, find_outages, may_carry
from diagnose.model.peers import medians
from diagnose.model.view import FloatVector, RunView
from telemetry.stages import Stage, StageClass

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MUCH = 0.3
"""Of the outage that an operation must stand longer than usual."""
LEAST_S = 0.1
OFTEN = 0.25
"""Of steps without the outage: what stands still that often does so without it."""
MOST_HELD = 5_000
"""Operations of one stage that are looked at more closely."""
CLOCKS_NS = 5 * NS_PER_S
"""Hosts whose clocks are not aligned agree on the time within this."""
MOST = 200


def with_effects(view: RunView) -> RunView:
    """The view with the newest losses of link and what each did, in order of time: nothing by a card that the job does
    not use."""
    latest_ns = (view.fleet.seen_ns or 2**62) + CLOCKS_NS
    seen = [one for one in find_outages(view.fleet.events) if 0 < one.down_ns <= latest_ns]
    used = [one for one in seen if may_carry(view.words, one)][-MOST:]
    unused = [one for one in seen if not may_carry(view.words, one)][-MOST:]
    effects = [*(effect_of(view, one) for one in used), *map(_without_effect, unused)]
    return replace(view, effects=tuple(sorted(effects, key=lambda one: one.outage.down_ns)))


def _without_effect(outage: Outage) -> Effect:
    return Effect(outage=outage, stretched=(), held_up=(), held_s=0.0, steps=())


def effect_of(view: RunView, outage: Outage) -> Effect:
    """What the steps of ``view`` show of ``outage``; nothing where they do not overlap."""
    is_home = np.array([host == outage.host for host in view.hosts], dtype=np.bool_)
    home = set(np.flatnonzero(is_home).tolist())
    found = [one for stage in view.operations for one in _held(view, stage, outage, is_home)] if home else []
    direct: dict[tuple[Stage, tuple[int, ...]], Stretched] = {}
    for one in found:
        ranks = _group(view, one)
        if one.rank in home and not set(ranks) <= home:
            key, before = (one.stage, ranks), direct.get((one.stage, ranks))
            if before is None or before.held_s < one.held_s:
                direct[key] = Stretched(stage=one.stage, ranks=ranks, step=one.step, held_s=one.held_s)
    steps = {one.step for one in direct.values()}
    found = [one for one in found if one.step in steps]  # the others' clocks may differ: they stood in the same steps
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


def _held(view: RunView, stage: Stage, outage: Outage, is_home: Bools) -> Iterator[_Held]:
    """Operations of a stage that stood over the outage."""
    operations = view.operations[stage]
    until_ns = outage.up_ns or view.fleet.seen_ns or 2**62
    shift_ns, slack_ns = _clocks(view, outage, is_home)
    near = _near(view, outage.down_ns, until_ns, int((abs(shift_ns) + slack_ns).max()))
    least_ns = max(LEAST_S, MUCH * outage.seconds(until_ns)) * NS_PER_S
    started, lasted = operations.start_ns[near] - shift_ns, operations.duration_ns[near]
    over = (started < until_ns + slack_ns) & (started + lasted > outage.down_ns - slack_ns) & (lasted > least_ns)
    rows, occurrences, ranks = _longest(lasted, np.nonzero(over))
    usual_ns = _usual_ns(operations, rows + near.start, occurrences, ranks, least_ns)
    longer_ns = lasted[rows, occurrences, ranks] - usual_ns
    for index in np.flatnonzero((longer_ns >= least_ns) & (longer_ns >= usual_ns)).tolist():
        row, occurrence, rank = int(rows[index]) + near.start, int(occurrences[index]), int(ranks[index])
        yield _Held(
            stage=stage,
            rank=rank,
            peer=int(operations.peer[row, occurrence, rank]),
            step=int(view.steps[row]),
            held_s=float(longer_ns[index]) / NS_PER_S,
        )


def _longest(lasted: Ints, found: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """Of very many the longest: when a switch dies, all ranks stand."""
    if len(found[0]) <= MOST_HELD:
        return found
    chosen = np.argpartition(-lasted[found], MOST_HELD)[:MOST_HELD]
    return tuple(one[chosen] for one in found)


def _clocks(view: RunView, outage: Outage, is_home: Bools) -> tuple[Ints, Ints]:
    """The outage is told by the host's own clock: how far each rank's is ahead of it, and within what, [ranks]."""
    shift_ns = np.zeros(len(is_home), dtype=np.int64)
    slack_ns = np.where(is_home, 0, CLOCKS_NS)
    for host in set(view.hosts) - {"", outage.host}:
        if (known := view.clocks.between(outage.host, host, outage.down_ns)) is not None:
            there = np.array([one == host for one in view.hosts], dtype=np.bool_)
            shift_ns[there], slack_ns[there] = known.offset_ns, known.bound_ns
    return shift_ns, slack_ns


def _near(view: RunView, down_ns: int, until_ns: int, apart_ns: int) -> slice:
    """Rows of the steps that may overlap the outage, of whichever host: their clocks lie up to ``apart_ns`` apart."""
    if view.step_start_ns is None or not len(view.steps):
        return slice(0, len(view.steps))
    ends_ns = view.step_start_ns + view.step_ns.astype(np.int64)
    room_ns = max(CLOCKS_NS, apart_ns)
    first = int(np.searchsorted(ends_ns, down_ns - room_ns))
    return slice(first, max(first, int(np.searchsorted(view.step_start_ns, until_ns + room_ns))))


def _usual_ns(operations: Operations, rows: Ints, occurrences: Ints, ranks: Ints, least_ns: float) -> FloatVector:
    """Of each operation the median of the same in other steps; NaN where there is none, or where it often stands
    still for ``least_ns`` without any outage."""
    durations = np.where(
        operations.present[:, occurrences, ranks], operations.duration_ns[:, occurrences, ranks], np.nan
    )
    durations[rows, np.arange(len(rows))] = np.nan
    usual = medians(durations, axis=0)
    with np.errstate(invalid="ignore"):
        often = (durations - usual >= least_ns).sum(axis=0) > OFTEN * (~np.isnan(durations)).sum(axis=0)
    usual[often] = np.nan
    return usual


def _group(view: RunView, one: _Held) -> tuple[int, ...]:
    """Who takes part: of a transfer both sides; of compute those whose tensor-parallel collectives lie inside it."""
    if one.peer >= 0:
        return tuple(sorted((one.rank, one.peer)))
    topology = view.topology
    if one.stage.stage_class is StageClass.COMPUTE:
        return topology.group(one.rank, along="tp")
    recorded = int(recorded_masks(np.array([one.peer]), topology)[0])
    mask = recorded or usual_mask(one.stage, topology)
    return topology.group_of(one.rank, mask) if mask else (one.rank,)
