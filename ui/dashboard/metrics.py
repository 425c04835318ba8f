"""The readings of the time in a stage: ratio to peers, milliseconds, share of the step, wait caused."""

from typing import NamedTuple

import numpy as np

from ui.dashboard.records import Floats, PooledTimes, StageTimes
from ui.dashboard.view_state import Metric


class Reading(NamedTuple):
    """A metric in words."""

    title: str
    """Of colours."""
    written: str
    """A value in a cell, for ``format``."""
    told: str
    """What pointing at a value tells, for ``format``."""

    def at(self, place: str) -> str:
        """``told`` as plotly writes it, of a value that stands in ``place``."""
        return self.told.replace("{", "%{" + place)


READINGS = {
    Metric.RATIO: Reading("x peers", "{:.2f}x", "{:.2f}x its peers"),
    Metric.MILLISECONDS: Reading("ms", "{:.1f} ms", "{:.1f} ms"),
    Metric.SHARE: Reading("% of step", "{:.1f}%", "{:.1f}% of the step"),
    Metric.WAIT: Reading("% of step", "{:.1f}%", "others wait {:.1f}% of the step for it"),
}
BESIDE = {
    Metric.RATIO: Metric.MILLISECONDS,
    Metric.MILLISECONDS: Metric.RATIO,
    Metric.SHARE: Metric.MILLISECONDS,
    Metric.WAIT: Metric.MILLISECONDS,
}
"""What pointing tells beside what is coloured."""


def values(times: StageTimes | PooledTimes, metric: Metric) -> Floats:
    """In the units of :data:`READINGS`; shape as ``times.ns``. ``WAIT`` of times that were asked for with it."""
    match metric:
        case Metric.RATIO:
            return times.ratio
        case Metric.MILLISECONDS:
            return times.ns / 1e6
        case Metric.SHARE:
            return 100 * times.ns / times.step_ns[:, None]
        case Metric.WAIT:
            return 100 * waited_for_ns(times) / times.step_ns[:, None]


def waited_for_ns(times: StageTimes | PooledTimes) -> Floats:
    """How long the others of its group waited for each rank, at their median: all leave a collective together, so
    that who comes later is in it for a shorter time (the late-arriver rule of ``diagnose.model.collectives``). Shape as
    ``times.ns``; NaN where there is nobody to wait."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(0.0, times.ns / times.ratio - times.ns)
