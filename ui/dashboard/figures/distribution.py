"""How the values of ranks are distributed: a histogram, and the values that 50%, 95% and 100% of the ranks reach."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from diagnose.model.peers import MAD_TO_SIGMA
from ui.dashboard.records import Floats, Ints

NUM_BINS = 40
FAR_SIGMAS = 6.0
"""Values that are further from the median than this have a bin of their own, so that they do not compress the
others."""
EQUAL = 1e-6
"""Values count as equal if their range is at most this share of the largest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The known values of some ranks.

    Bin ``i`` holds the values in ``[edges[i], edges[i + 1])``, the last one also its upper edge. All bins are equally
    wide, except the first one if ``is_first_far``, and the last one if ``is_last_far``: these hold distant values.
    """

    edges: Floats
    """Ascending, [bins + 1]."""
    counts: Ints
    """Ranks in each bin, [bins]."""
    is_first_far: bool
    is_last_far: bool
    p50: float
    """The median. It is linear between two ranks, as ``numpy.percentile`` computes it."""
    p95: float
    """The 95th percentile, computed in the same way."""
    highest: float
    """The highest value."""
    last_ranks: Ints
    """The ranks in the last bin, ascending."""
    last_values: Floats
    suspects: Ints
    """The suspects that have a value, ascending."""
    suspect_values: Floats

    @property
    def is_constant(self) -> bool:
        """Whether all values are equal. They share one bin."""
        return len(self.counts) == 1

    @property
    def num_ranks(self) -> int:
        return int(self.counts.sum())


def distribution(value: Floats, ranks: Ints, suspects: Collection[int]) -> Distribution | None:
    """The distribution of the values of ``ranks``. None if no value is known.

    ``value``: by rank, NaN if unknown. ``suspects``: those that are not in ``ranks`` are ignored.
    """
    known = ranks[np.isfinite(value[ranks])]
    if not len(known):
        return None
    values = value[known]
    edges, is_first_far, is_last_far = _edges(values)
    marked = np.sort(known[np.isin(known, [*suspects])])
    last = np.sort(known[values >= edges[-2]])
    p50, p95 = np.percentile(values, (50, 95))
    return Distribution(
        edges=edges,
        counts=np.histogram(values, bins=edges)[0],
        is_first_far=is_first_far,
        is_last_far=is_last_far,
        p50=float(p50),
        p95=float(p95),
        highest=float(values.max()),
        last_ranks=last,
        last_values=value[last],
        suspects=marked,
        suspect_values=value[marked],
    )


def _edges(values: Floats) -> tuple[Floats, bool, bool]:
    """Edges of the bins, and whether the first and the last bin hold distant values."""
    lowest, highest, middle = float(values.min()), float(values.max()), float(np.median(values))
    least_width = max(abs(highest), abs(lowest), 1e-6) * EQUAL
    if highest - lowest <= least_width:
        return np.array([lowest, highest + least_width]), False, False
    reach = FAR_SIGMAS * MAD_TO_SIGMA * float(np.median(np.abs(values - middle))) or highest - lowest
    near = values[np.abs(values - middle) <= reach]
    low, high = float(near.min()), float(np.nextafter(near.max(), np.inf))  # the last bin contains its highest value
    inner = np.linspace(low, high, NUM_BINS + 1)
    below, above = [lowest] * (lowest < low), [highest] * (highest > high)
    return np.concatenate([below, inner, above]), bool(below), bool(above)
