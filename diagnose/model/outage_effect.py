"""What a link loss did to the job: which operations it delayed, on which ranks, and for how long.

    rank 4 (host-2)  grads-all-reduce  |--|      |------------------|
    link of host-2   ------------------------.        .-------------
                                       down  '--------' up

An operation is *stretched* if it overlaps the outage and takes longer than in other steps: by at least 30% of the
outage, by at least 0.1 s, and by at least its usual time.

The link itself delayed operations of groups that leave the host. All other delayed ranks waited for those.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.fleet import NS_PER_S
from diagnose.model.operations import Floats, Ints, Operations, recorded_masks, usual_mask
from diagnose.model.outages import Effect, Outage, Stretched, find_outages, may_carry
from diagnose.model.peers import medians
from diagnose.model.view import RunView
from telemetry.clocks.align_evidence import Shift
from telemetry.stages import Stage, StageClass

MUCH = 0.3
"""Share of the outage by which an operation must be longer than usual."""
LEAST_S = 0.1
OFTEN = 0.25
"""If an operation is delayed in more than this share of the steps without the outage, its delay proves nothing."""
MOST_HELD = 5_000
"""Number of operations of one stage that are examined in detail: the longest."""
CLOCKS_NS = 5 * NS_PER_S
"""Largest assumed difference of clocks that are not aligned."""
MOST = 200
"""Number of outages that are examined: the newest."""


def with_effects(view: RunView) -> RunView:
    """The view with its newest link losses and their effects, in order of time.

    A card that the job does not use has no effect.
    """
    latest_ns = (view.fleet.seen_ns or 2**62) + CLOCKS_NS
    found = [outage for outage in find_outages(view.fleet.events) if 0 < outage.down_ns <= latest_ns]
    used = [outage for outage in found if may_carry(view.meta, outage.device)][-MOST:]
    unused = [outage for outage in found if not may_carry(view.meta, outage.device)][-MOST:]
    effects = [
        *(effect_of(view, outage) for outage in used),
        *(Effect(outage=outage, stretched=(), held_up=(), held_s=0.0, steps=()) for outage in unused),
    ]
    return replace(view, effects=tuple(sorted(effects, key=lambda effect: effect.outage.down_ns)))


def effect_of(view: RunView, outage: Outage) -> Effect:
    """The effect of ``outage`` on the steps of ``view``. Empty if they do not overlap."""
    home = {rank for rank, host in enumerate(view.hosts) if host == outage.host}
    held: list[_Held] = []
    if home:
        clocks = _clocks(view, outage)
        held = [each for stage in view.operations for each in _held(view, stage, outage, clocks)]
    direct: dict[tuple[Stage, tuple[int, ...]], Stretched] = {}
    for each in held:
        ranks = _group(view, each)
        if each.rank in home and not set(ranks) <= home:
            before = direct.get((each.stage, ranks))
            if before is None or before.held_s < each.held_s:
                direct[each.stage, ranks] = Stretched(stage=each.stage, ranks=ranks, step=each.step, held_s=each.held_s)
    steps = {stretched.step for stretched in direct.values()}
    held = [each for each in held if each.step in steps]  # clocks of other hosts may differ: compare by step
    return Effect(
        outage=outage,
        stretched=tuple(sorted(direct.values(), key=lambda stretched: -stretched.held_s)),
        held_up=tuple(sorted({each.rank for each in held})),
        held_s=max((each.held_s for each in held), default=0.0),
        steps=tuple(sorted({each.step for each in held})),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A delayed operation."""

    stage: Stage
    rank: int
    peer: int
    step: int
    held_s: float


def _held(view: RunView, stage: Stage, outage: Outage, clocks: tuple[Ints, Ints]) -> Iterator[_Held]:
    """Operations of a stage that were delayed during the outage. ``clocks``: see :func:`_clocks`."""
    operations = view.operations[stage]
    until_ns = outage.up_ns or view.fleet.seen_ns or 2**62
    shift_ns, slack_ns = clocks
    near = _near(view, outage.down_ns, until_ns, int((abs(shift_ns) + slack_ns).max()))
    least_ns = max(LEAST_S, MUCH * outage.seconds(until_ns)) * NS_PER_S
    started, lasted = operations.start_ns[near] - shift_ns, operations.duration_ns[near]
    over = (started < until_ns + slack_ns) & (started + lasted > outage.down_ns - slack_ns) & (lasted > least_ns)
    found = np.nonzero(over)
    if len(found[0]) > MOST_HELD:  # the longest: if a switch dies, all ranks stall
        chosen = np.argpartition(-lasted[found], MOST_HELD)[:MOST_HELD]
        found = tuple(index[chosen] for index in found)
    rows, occurrences, ranks = found
    usual_ns = _usual_ns(operations, rows + near.start, occurrences, ranks, least_ns)
    longer_ns = lasted[found] - usual_ns
    for index in np.flatnonzero((longer_ns >= least_ns) & (longer_ns >= usual_ns)).tolist():
        row, occurrence, rank = int(rows[index]) + near.start, int(occurrences[index]), int(ranks[index])
        yield _Held(
            stage=stage,
            rank=rank,
            peer=int(operations.peer[row, occurrence, rank]),
            step=int(view.steps[row]),
            held_s=float(longer_ns[index]) / NS_PER_S,
        )


def _clocks(view: RunView, outage: Outage) -> tuple[Ints, Ints]:
    """How far each rank's clock is ahead of the clock of the outage's host, and the error bound, [ranks].

    The time does not grow with ranks times hosts: a job may have thousands of both.
    """
    unknown = Shift(offset_ns=0, bound_ns=CLOCKS_NS)
    of_host = {
        host: (view.clocks.between(outage.host, host, outage.down_ns) if host else None) or unknown
        for host in set(view.hosts)
    }
    shifts = [of_host[host] for host in view.hosts]
    return (
        np.array([shift.offset_ns for shift in shifts], dtype=np.int64),
        np.array([shift.bound_ns for shift in shifts], dtype=np.int64),
    )


def _near(view: RunView, down_ns: int, until_ns: int, apart_ns: int) -> slice:
    """Rows of the steps that may overlap the outage on any host. Clocks differ by up to ``apart_ns``."""
    if view.step_start_ns is None or not len(view.steps):
        return slice(0, len(view.steps))
    ends_ns = view.step_start_ns + view.step_ns.astype(np.int64)
    room_ns = max(CLOCKS_NS, apart_ns)
    first = int(np.searchsorted(ends_ns, down_ns - room_ns))
    return slice(first, max(first, int(np.searchsorted(view.step_start_ns, until_ns + room_ns))))


def _usual_ns(operations: Operations, rows: Ints, occurrences: Ints, ranks: Ints, least_ns: float) -> Floats:
    """Median duration of each operation in the other steps.

    NaN if there is no other step, or if the operation is often ``least_ns`` longer without an outage.
    """
    durations = np.where(
        operations.present[:, occurrences, ranks], operations.duration_ns[:, occurrences, ranks], np.nan
    )
    durations[rows, np.arange(len(rows))] = np.nan
    usual = medians(durations, axis=0)
    with np.errstate(invalid="ignore"):
        often = (durations - usual >= least_ns).sum(axis=0) > OFTEN * (~np.isnan(durations)).sum(axis=0)
    usual[often] = np.nan
    return usual


def _group(view: RunView, held: _Held) -> tuple[int, ...]:
    """The ranks of an operation. Compute: the ranks of the tensor-parallel collectives inside it."""
    if held.peer >= 0:
        return tuple(sorted((held.rank, held.peer)))
    topology = view.topology
    if held.stage.stage_class is StageClass.COMPUTE:
        return topology.group(held.rank, along="tp")
    recorded = int(recorded_masks(np.array([held.peer]), topology)[0])
    mask = recorded or usual_mask(held.stage, topology)
    return topology.group_of(held.rank, mask) if mask else (held.rank,)
