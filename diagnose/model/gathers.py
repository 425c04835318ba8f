"""Compute time of device spans in which parameters are gathered (FSDP, ZeRO-3), without waiting for other ranks.

A compute span waits for its gathers, and a gather waits for the last rank of its group. So a slow rank makes the
forward of every member as long as its own. The duration of a gather does not show the time that compute lost:

    prefetched  slow rank     gathers  |G1|     |G2|     |G3|        A gather runs beside the layer before it.
                              compute  |== 0 ===|== 1 ===|== 2 ==
                victim        gathers  |G1|  |-- G2 -|--- G3 --|     It waits in G2 beside its work at no cost,
                              compute  |= 0 =|= 1 =|..|= 2 =|..      and then (..) without work.
                                             ^ gap ^

    exposed     victim        gathers  |G1|     |- G2 --|            No work runs beside a gather: all of it is lost.
                              compute      |= 0 =|       |= 1 =|
                                           ^ gap ^

A *layer* lasts from the begin of a gather to the begin of the next one. The gap between two gathers shows the case. If
gathers are prefetched, a longer gather leaves a shorter gap (slope -1). If they are exposed, the gap is the compute of
the layer and does not change (slope 0).

    exposed     compute time = duration without everything that collectives cover
    prefetched  compute time = time of the layers that did not wait, times the number of all layers

A layer did not wait if its gather ended while the rank still worked: a gap follows it. The same holds for reductions in
the backward. In the first layers of a step no rank is far behind. So such layers exist even beside a slow rank. All
ranks of a pipeline stage are measured by the same layers: those that delayed few of the ranks, otherwise all. A rank
that may have been delayed in a layer counts like those that were not. So no victim is named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.operations import Bools, Floats, Ints, Operations
from diagnose.model.peers import medians
from diagnose.model.self_time import Covered, LineOfRanks
from telemetry.stages import Stage

LEAST_GATHERS = 3
"""Gathers within one compute span. Fewer do not show layers."""
LEAST_GAP = 0.1
"""Share of a layer. A longer gap shows that work continued after the gather: copying parameters takes a little."""
LEAST_SLOPE = -0.5
"""Slope of gaps over gathers. Above it, gathers are exposed."""
MOST_OF = 0.75
"""Share of the ranks of a pipeline stage that a measured layer must not have delayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """One entry for each gather, [steps, gathers, ranks]."""

    compute: Ints
    """Number of the compute operation around it, in the order of ``LineOfRanks.flat``. -1: none, or one with few
    gathers."""
    own_ns: Floats
    """Work of the layer without the collectives that always stop it. NaN for the last layer of a compute span."""
    gather_ns: Floats
    gap_ns: Floats
    is_free: Bools
    """Whether the layer was certainly not delayed, if gathers are prefetched."""


def layers_inside(
    line: LineOfRanks,
    compute: Mapping[Stage, Operations],
    gathers: Operations,
    reductions: Operations | None,
    inner: Covered,
) -> Layers | None:
    """The layers of all ``compute``. None if no gathers are inside. ``inner``: time of collectives that stop work."""
    outer_begin, outer_ns, _ = line.flat(compute.values())
    begin, gather_ns, place = line.flat([gathers])
    owner = np.searchsorted(outer_begin, begin, side="right") - 1
    owner[(owner >= 0) & (begin >= outer_begin[owner] + outer_ns[owner])] = -1
    number = np.bincount(owner[owner >= 0], minlength=len(outer_begin))
    owner[(owner >= 0) & (number[owner] < LEAST_GATHERS)] = -1
    if not (owner >= 0).any():
        return None
    continued = np.flatnonzero((owner[:-1] == owner[1:]) & (owner[:-1] >= 0))
    first, following = begin[continued], begin[continued + 1]
    period = following - first
    gap = period - gather_ns[continued]
    blocked = _blocked(line, reductions, first, following, np.asarray(LEAST_GAP * period))

    def placed(values: Ints | Bools, at: Ints) -> Floats:
        flat = np.full(int(gathers.present.sum()), np.nan)
        flat[at] = values
        dense = np.full(gathers.duration_ns.shape, np.nan)
        dense[gathers.present] = flat
        return dense

    return Layers(
        compute=np.nan_to_num(placed(owner, place), nan=-1).astype(np.int64),
        own_ns=placed(period - (inner.until(following) - inner.until(first)), place[continued]),
        gather_ns=placed(gather_ns[continued], place[continued]),
        gap_ns=placed(gap, place[continued]),
        is_free=placed((gap > LEAST_GAP * period) & ~blocked, place[continued]) == 1.0,
    )


def _blocked(line: LineOfRanks, reductions: Operations | None, first: Ints, following: Ints, least_ns: Floats) -> Bools:
    """Whether work may have waited for a reduction in each layer.

    This is so if a reduction began in the layer, or at its end, as soon as the reduction before it had ended.
    """
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


def gathers_by_layer(operations: Mapping[Stage, Operations]) -> bool:
    """Whether computes gather the parameters of their layers inside."""
    stages = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
    compute = {stage: operations[stage] for stage in stages if stage in operations}
    gathers = operations.get(Stage.PARAMS_ALL_GATHER)
    if not compute or gathers is None or gathers.present.sum(axis=1).max(initial=0) < LEAST_GATHERS:
        return False
    line = LineOfRanks([*compute.values(), gathers])
    return layers_inside(line, compute, gathers, None, line.covered([])) is not None


def are_exposed(layers: Layers) -> bool:
    """Whether no work runs beside the gathers: gaps do not shrink if gathers take longer."""
    period = layers.gather_ns + layers.gap_ns
    usual = medians(period.reshape(1, -1), axis=1)[0]
    known = layers.gather_ns < usual / 2  # chosen by the gather only: a choice by the gap would change the slope
    gather, gap = (np.where(known, values, np.nan) for values in (layers.gather_ns, layers.gap_ns))
    for axis in (0, 1):  # remove what is constant for a rank, a layer or a step
        gather, gap = gather - _mean(gather, axis), gap - _mean(gap, axis)
    spread = float(np.nansum(gather * gather))
    return spread > 0 and float(np.nansum(gather * gap)) / spread > LEAST_SLOPE


def _mean(values: Floats, axis: int) -> Floats:
    known = np.isfinite(values)
    count = known.sum(axis=axis, keepdims=True)
    return np.asarray(np.where(known, values, 0.0).sum(axis=axis, keepdims=True) / np.maximum(count, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredWork:
    """Compute time of one compute stage, from layers that did not wait. NaN if no layer shows it."""

    total_ns: Floats
    """[steps, ranks]: sum over the operations that gather inside."""
    each_ns: Floats
    """[steps, occurrences, ranks]: from the layers of the operation itself."""


def layered_work(layers: Layers, operations: Operations, numbers: Ints, pp_of_rank: Ints) -> LayeredWork:
    """Compute time of one compute stage, measured by its layers.

    ``numbers``: the number of each of ``operations`` in ``Layers.compute``, [steps, occurrences, ranks].
    """
    inside = (layers.compute >= 0) & np.isin(layers.compute, numbers[operations.present])
    known = inside & np.isfinite(layers.own_ns)
    measured = _measured(known, layers.is_free, pp_of_rank)
    own_ns = _without_delayed(layers, known, pp_of_rank)
    sums = np.where(measured, own_ns, 0.0).sum(axis=1)
    total = sums / np.maximum(measured.sum(axis=1), 1) * inside.sum(axis=1)
    return LayeredWork(
        total_ns=np.where(inside.any(axis=1), total, np.nan),
        each_ns=_each(replace(layers, own_ns=own_ns), inside, measured, numbers, operations),
    )


def _measured(known: Bools, is_free: Bools, pp_of_rank: Ints) -> Bools:
    """Whether the ranks of a pipeline stage are measured by a layer: if it is free on most of them (``MOST_OF``). If no
    layer of a step is, all its layers are used."""
    measured = np.zeros_like(known)
    for pp in np.unique(pp_of_rank):
        ranks = np.flatnonzero(pp_of_rank == pp)
        here = known[:, :, ranks]
        free = (here & is_free[:, :, ranks]).sum(axis=2) >= MOST_OF * np.maximum(here.sum(axis=2), 1)
        free |= ~free.any(axis=1, keepdims=True)
        measured[:, :, ranks] = here & free[:, :, None]
    return measured


def _without_delayed(layers: Layers, known: Bools, pp_of_rank: Ints) -> Floats:
    """Work of layers. If a rank may have been delayed in a layer, at most the typical work of the others there."""
    own = np.where(known, layers.own_ns, np.nan)
    for pp in np.unique(pp_of_rank):
        ranks = np.flatnonzero(pp_of_rank == pp)
        here, free = own[:, :, ranks], layers.is_free[:, :, ranks]
        free = np.where(free.any(axis=2, keepdims=True), free, True)
        typical = medians(np.where(free, here, np.nan), axis=2)[:, :, None]
        own[:, :, ranks] = np.where(layers.is_free[:, :, ranks], here, np.fmin(here, typical))
    return own


def _each(layers: Layers, inside: Bools, measured: Bools, numbers: Ints, operations: Operations) -> Floats:
    """Compute time of each operation: from its measured layers, else from all its layers."""
    most = int(layers.compute.max()) + 1
    weights = np.where(inside, layers.compute, 0).ravel()

    def by_owner(values: Floats | Bools) -> Floats:
        return np.asarray(np.bincount(weights, np.where(inside, values, 0.0).ravel(), most))

    own, known = np.nan_to_num(layers.own_ns), np.isfinite(layers.own_ns)
    counts, sums = by_owner(measured), by_owner(np.where(measured, own, 0.0))
    all_counts, all_sums = by_owner(known), by_owner(np.where(known, own, 0.0))
    number = by_owner(inside)
    typical = np.where(counts > 0, sums, all_sums) / np.maximum(np.where(counts > 0, counts, all_counts), 1)
    each: Floats = np.full(operations.duration_ns.shape, np.nan)
    owner = numbers[operations.present]
    has_layers = (owner < most) & (number[np.minimum(owner, most - 1)] > 0)
    each[operations.present] = np.where(has_layers, (typical * number)[np.minimum(owner, most - 1)], np.nan)
    return each
