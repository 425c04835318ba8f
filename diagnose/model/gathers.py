"""Compute time of device spans in which parameters are gathered (FSDP, ZeRO-3), without waiting for others.

A compute waits for its gathers, and a gather for the last rank of its group. So a slow rank makes the forwards of all
members as long as its own, and the duration of a gather does not say what the compute lost by it:

    prefetched  slow rank     gathers  |G1|     |G2|     |G3|        a gather runs beside the layer before
                              compute  |== 0 ===|== 1 ===|== 2 ==
                victim        gathers  |G1|  |-- G2 -|--- G3 --|     it waits in G2 beside its work at no cost,
                              compute  |= 0 =|= 1 =|..|= 2 =|..      and then (..) with nothing left to do
                                             ^ gap ^

    exposed     victim        gathers  |G1|     |- G2 --|            nothing runs beside a gather: all of it is lost
                              compute      |= 0 =|       |= 1 =|
                                           ^ gap ^

From the begin of a gather to the begin of the next one a rank does one layer. The gap between two gathers shows which
case applies: beside work, a gather that takes longer leaves a shorter gap (slope -1); where it is
exposed, the gap is the layer itself, and does not change (slope 0).

exposed     compute time = duration less everything that collectives cover
prefetched  compute time = time of the layers that did not wait, times the number of all layers. A layer did not wait
            if its gather ended while the rank still worked: a gap follows it. Likewise for reductions in backward.
            In the first layers of a step nobody is far behind, so there are such layers even beside a slow rank. All
            ranks of a pipeline stage are measured by the same layers: those that held up few of them, else all. A rank
            that may have been held up in a layer is taken to work like those that were not, so that no victim is named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnose.model.line_of_ranks import LineOfRanks
from diagnose.model.operations import Bools, Int64s, Operations
from diagnose.model.peers import medians
from diagnose.model.self_time import Covered, covered
from telemetry.stages import Stage

Floats = npt.NDArray[np.float64]

LEAST_GATHERS = 3
"""Within one compute: fewer do not show layers."""
LEAST_GAP = 0.1
"""Of a layer, for work to have gone on after a gather had ended: copying its parameters takes a little."""
LEAST_SLOPE = -0.5
"""Of gaps over gathers: above it they are exposed."""
MOST_OF = 0.75
"""Of the ranks of a pipeline stage that a layer must not have held up, to be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """One entry for each gather, [steps, gathers, ranks]; a *layer* goes from its begin to that of the next one."""

    compute: Int64s
    """Number of the compute operation that it lies in, in the order of ``LineOfRanks.flat``; -1: in none, or in one
    with few gathers."""
    own_ns: Floats
    """Work of the layer without collectives that always stop it; NaN of the last one in a compute."""
    gather_ns: Floats
    gap_ns: Floats
    is_free: Bools
    """Whether the layer was surely not held up, if gathers run beside work."""


def layers_inside(
    line: LineOfRanks, compute: list[Operations], gathers: Operations, reductions: Operations | None, inner: Covered
) -> Layers | None:
    """The layers of all ``compute``; None where gathers do not lie inside them. ``inner``: what always stops work."""
    outer_begin, outer_ns, _ = line.flat(compute)
    begin, gather_ns, place = line.flat([gathers])
    owner = np.searchsorted(outer_begin, begin, side="right") - 1
    owner[(owner >= 0) & (begin >= outer_begin[owner] + outer_ns[owner])] = -1
    number = np.bincount(owner[owner >= 0], minlength=len(outer_begin))
    owner[(owner >= 0) & (number[owner] < LEAST_GATHERS)] = -1
    if not (owner >= 0).any():
        return None
    goes_on = np.flatnonzero((owner[:-1] == owner[1:]) & (owner[:-1] >= 0))
    first, following = begin[goes_on], begin[goes_on + 1]
    period = following - first
    gap = following - first - gather_ns[goes_on]
    blocked = _blocked(line, reductions, first, following, np.asarray(LEAST_GAP * period))
    values = {
        "own_ns": period - (inner.until(following) - inner.until(first)),
        "gather_ns": gather_ns[goes_on],
        "gap_ns": gap,
        "is_free": (gap > LEAST_GAP * period) & ~blocked,
    }
    dense = {name: _placed(gathers, place[goes_on], one.astype(np.float64)) for name, one in values.items()}
    owners = _placed(gathers, place, owner.astype(np.float64))
    return Layers(
        compute=np.nan_to_num(owners, nan=-1).astype(np.int64),
        own_ns=dense["own_ns"],
        gather_ns=dense["gather_ns"],
        gap_ns=dense["gap_ns"],
        is_free=dense["is_free"] == 1.0,
    )


def _blocked(
    line: LineOfRanks, reductions: Operations | None, first: Int64s, following: Int64s, least_ns: Floats
) -> Bools:
    """Whether a reduction began within each layer, or at its end, as soon as the one before it had ended: work may have
    waited."""
    if reductions is None:
        return np.zeros(len(first), dtype=np.bool_)
    begin, duration, _ = line.flat([reductions])
    gap = np.diff(begin, prepend=begin[:1] - 2**62) - np.concatenate([[0], duration[:-1]])
    at = np.searchsorted(begin, first, side="left"), np.searchsorted(begin, following + least_ns, side="right")
    least_gap = np.full(len(first), np.inf)
    for number in range(int((at[1] - at[0]).max(initial=0))):
        here = at[0] + number < at[1]
        least_gap[here] = np.minimum(least_gap[here], gap[at[0][here] + number])
    return np.asarray(least_gap <= least_ns)


def _placed(one: Operations, place: Int64s, values: Floats) -> Floats:
    """``values`` of some operations as they are stored; NaN elsewhere."""
    flat = np.full(int(one.present.sum()), np.nan)
    flat[place] = values
    dense = np.full(one.duration_ns.shape, np.nan)
    dense[one.present] = flat
    return dense


def gathers_by_layer(operations: Mapping[Stage, Operations]) -> bool:
    """Whether computes gather the parameters of their layers inside."""
    compute = [operations[stage] for stage in (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE) if stage in operations]
    gathers = operations.get(Stage.PARAMS_ALL_GATHER)
    if not compute or gathers is None or gathers.present.sum(axis=1).max(initial=0) < LEAST_GATHERS:
        return False
    line = LineOfRanks([*compute, gathers])
    return layers_inside(line, compute, gathers, None, cover_of(line, [])) is not None


def are_exposed(layers: Layers) -> bool:
    """Whether nothing runs beside the gathers: gaps do not shrink where gathers take longer."""
    period = layers.gather_ns + layers.gap_ns
    usual = medians(period.reshape(1, -1), axis=1)[0]
    known = layers.gather_ns < usual / 2  # chosen by the gather alone: to choose by the gap would bend the slope
    gather, gap = (np.where(known, one, np.nan) for one in (layers.gather_ns, layers.gap_ns))
    for axis in (0, 1):  # without what a rank, a layer or a step have for good
        gather, gap = gather - _mean(gather, axis), gap - _mean(gap, axis)
    spread = float(np.nansum(gather * gather))
    return spread > 0 and float(np.nansum(gather * gap)) / spread > LEAST_SLOPE


def _mean(values: Floats, axis: int) -> Floats:
    known = np.isfinite(values)
    count = known.sum(axis=axis, keepdims=True)
    return np.asarray(np.where(known, values, 0.0).sum(axis=axis, keepdims=True) / np.maximum(count, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredWork:
    """Compute time of one compute stage, from layers that did not wait. NaN where no layer shows it."""

    total_ns: Floats
    """[steps, ranks]: of the operations that gather inside, together."""
    each_ns: Floats
    """[steps, occurrences, ranks]: by the layers of the operation itself."""


def layered_work(
    layers: Layers, compute: Mapping[Stage, Operations], stage: Stage, numbers: Int64s, pp_of_rank: Int64s
) -> LayeredWork:
    """``numbers``: of each operation of ``stage`` its number in ``Layers.compute``, [steps, occurrences, ranks]."""
    one = compute[stage]
    mine = (layers.compute >= 0) & np.isin(layers.compute, numbers[one.present])
    known = mine & np.isfinite(layers.own_ns)
    measured = _measured(known, layers.is_free, pp_of_rank)
    own_ns = _without_held_up(layers, known, pp_of_rank)
    per_layer = _sum(own_ns, measured) / _count(measured)
    total = per_layer * mine.sum(axis=1)
    return LayeredWork(
        total_ns=np.where(mine.any(axis=1), total, np.nan),
        each_ns=_each(replace(layers, own_ns=own_ns), mine, measured, numbers, one),
    )


def _measured(known: Bools, is_free: Bools, pp_of_rank: Int64s) -> Bools:
    """The layers that ranks of a pipeline stage are measured by; all of a step in which none is free."""
    measured = np.zeros_like(known)
    for pp in np.unique(pp_of_rank):
        ranks = np.flatnonzero(pp_of_rank == pp)
        here = known[:, :, ranks]
        free = (here & is_free[:, :, ranks]).sum(axis=2) >= MOST_OF * np.maximum(here.sum(axis=2), 1)
        free |= ~free.any(axis=1, keepdims=True)
        measured[:, :, ranks] = here & free[:, :, None]
    return measured


def _without_held_up(layers: Layers, known: Bools, pp_of_rank: Int64s) -> Floats:
    """Work of layers; where a rank may have been held up, at most what is typical of the others in that layer."""
    own = np.where(known, layers.own_ns, np.nan)
    for pp in np.unique(pp_of_rank):
        ranks = np.flatnonzero(pp_of_rank == pp)
        here, free = own[:, :, ranks], layers.is_free[:, :, ranks]
        free = np.where(free.any(axis=2, keepdims=True), free, True)
        typical = medians(np.where(free, here, np.nan), axis=2)[:, :, None]
        own[:, :, ranks] = np.where(layers.is_free[:, :, ranks], here, np.fmin(here, typical))
    return own


def _each(layers: Layers, mine: Bools, measured: Bools, numbers: Int64s, one: Operations) -> Floats:
    """Of each operation: by its measured layers, else by all that it has."""
    most = int(layers.compute.max()) + 1
    weights = np.where(mine, layers.compute, 0).ravel()

    def by_owner(values: Floats) -> Floats:
        return np.asarray(np.bincount(weights, np.where(mine, values, 0.0).ravel(), most))

    own, known = np.nan_to_num(layers.own_ns), np.isfinite(layers.own_ns)
    counts, sums = by_owner(measured.astype(np.float64)), by_owner(np.where(measured, own, 0.0))
    all_counts, all_sums = by_owner(known.astype(np.float64)), by_owner(np.where(known, own, 0.0))
    number = by_owner(mine.astype(np.float64))
    typical = np.where(counts > 0, sums, all_sums) / np.maximum(np.where(counts > 0, counts, all_counts), 1)
    each: Floats = np.full(one.duration_ns.shape, np.nan)
    owner = numbers[one.present]
    inside = (owner < most) & (number[np.minimum(owner, most - 1)] > 0)
    each[one.present] = np.where(inside, (typical * number)[np.minimum(owner, most - 1)], np.nan)
    return each


def _sum(values: Floats, chosen: Bools) -> Floats:
    return np.asarray(np.where(chosen, values, 0.0).sum(axis=1))


def _count(chosen: Bools) -> Floats:
    return np.asarray(np.maximum(chosen.sum(axis=1), 1), dtype=np.float64)


def cover_of(line: LineOfRanks, some: list[Operations]) -> Covered:
    """The time that operations cover, on the line of all ranks."""
    if not some:
        return covered(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    begin, duration, _ = line.flat(some)
    return covered(begin, duration)
