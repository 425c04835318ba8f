"""Replicas that come late persistently: step after step, clearly, and later than the replicas differ among each other.

late, share of the step   dp0   .-._.-.._.'     fluctuates around zero
                          dp1   .-._''''''''    late from a step on
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.detectors.late_origin import members, origin_of
from diagnose.detectors.launch_offsets import Offsets
from diagnose.model.meetings import Floats, least_excess, noise_between_steps
from diagnose.model.peers import FloatVector, Stretch, highest_stretch, measure_excess, robust_sigma
from diagnose.model.view import RunView

MIN_COST = 0.03
"""Of step time; below it nothing is said."""
MIN_SHARE = 0.7
MIN_Z = 6.0
MIN_SPREADS = 5.0
NOISE_FLOOR = 0.002
UPPER_QUARTILE_TO_SIGMA = 0.6745
"""Distance of the upper quartile from the median, in standard deviations of a normal distribution."""
GC_PART = 0.3
"""Of the lateness, that a collection must last to be its cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateReplica:
    """A replica that comes late persistently."""

    replica: int
    origin: int | None
    """The rank that it comes from, if that is known."""
    stretch: Stretch
    share: float
    late_ns: float
    """Median over the stretch."""
    cost: float
    """Share of step time for which nobody but it is waited for."""
    num_with_gc: int
    """Steps with a collection of garbage that may explain it."""


def late_replicas(late: Floats, offsets: Offsets, view: RunView) -> list[LateReplica]:
    """Those that cost enough. ``late`` is unexplained lateness as a share of step time, [steps, dp]."""
    noise = noise_between_steps(late, NOISE_FLOOR)
    candidates = np.flatnonzero((late >= MIN_COST).sum(axis=0) >= MIN_STEPS // 2).tolist()
    found = {one: stretch for one in candidates if (stretch := _late_stretch(one, late, noise)) is not None}
    raw = offsets.replica_late_ns / view.step_ns[:, None]
    alone = np.minimum(_beyond_others(late, list(found)), _beyond_others(raw, list(found)))
    costs = {one: float(np.nanmedian(alone[stretch.rows, one])) for one, stretch in found.items()}
    return [_measured(one, found[one], cost, late, offsets, view) for one, cost in costs.items() if cost >= MIN_COST]


def _late_stretch(replica: int, late: Floats, noise: float) -> Stretch | None:
    stretch = highest_stretch(late[:, replica] - MIN_COST / 2)
    excess = measure_excess(late[stretch.rows, replica], above=MIN_COST / 2, noise=noise)
    if not excess.persists(MIN_STEPS) or excess.median < MIN_COST or excess.share < MIN_SHARE or excess.z < MIN_Z:
        return None
    restless = noise_between_steps(late[stretch.rows], NOISE_FLOOR)  # all may be, for a while
    if excess.median < least_excess(MIN_Z, restless, excess.num_rows):
        return None
    others = np.delete(late[stretch.rows], replica, axis=1)
    if others.shape[1] == 1:  # the mirror image
        return stretch
    return stretch if excess.median >= MIN_SPREADS * _spread(np.nanmedian(others, axis=0)) else None


def _spread(medians: FloatVector) -> float:
    """How far apart replicas lie that nobody suspects, as a standard deviation. Who is early lies at zero with all the
    others that are, so the upper half alone tells."""
    upper = float(np.quantile(medians, 0.75) - np.median(medians)) / UPPER_QUARTILE_TO_SIGMA
    return max(upper, robust_sigma(medians, NOISE_FLOOR))


def _beyond_others(late: Floats, replicas: list[int]) -> Floats:
    """By how much each column exceeds the latest of those not among ``replicas``."""
    others = np.delete(late, replicas, axis=1)
    latest: FloatVector = np.maximum(others.max(axis=1), 0.0) if others.shape[1] else np.zeros(len(late))
    return late - latest[:, None]


def _measured(
    replica: int, stretch: Stretch, cost: float, late: Floats, offsets: Offsets, view: RunView
) -> LateReplica:
    late_ns = offsets.unexplained_ns[stretch.rows, replica]
    gc_ns = offsets.gc_ns[stretch.rows][:, members(replica, view)].max(axis=1)
    return LateReplica(
        replica=replica,
        origin=origin_of(replica, stretch, offsets, view),
        stretch=stretch,
        share=float(np.mean(late[stretch.rows, replica] > MIN_COST / 2)),
        late_ns=float(np.nanmedian(late_ns)),
        cost=cost,
        num_with_gc=int(((gc_ns > 0) & (gc_ns >= GC_PART * np.nan_to_num(late_ns, nan=np.inf))).sum()),
    )
