"""How the time in a stage is read: against the peers', in milliseconds, or against the step."""

from typing import NamedTuple

from ui.records import Floats, PooledTimes, StageTimes
from ui.view_state import Metric


class Reading(NamedTuple):
    """A metric in words."""

    title: str
    """Of colours."""
    written: str
    """A value in a cell, for ``format``."""
    pointed: str
    """What pointing at a value tells, as plotly writes it, ``@`` for where the value stands."""

    def at(self, place: str) -> str:
        """``pointed`` of a value that stands in ``place``."""
        return self.pointed.replace("@", place)


READINGS = {
    Metric.RATIO: Reading("x peers", "{:.2f}x", "%{@:.2f}x its peers"),
    Metric.MILLISECONDS: Reading("ms", "{:.1f} ms", "%{@:.1f} ms"),
    Metric.SHARE: Reading("% of step", "{:.1f}%", "%{@:.1f}% of the step"),
}
BESIDE = {
    Metric.RATIO: Metric.MILLISECONDS,
    Metric.MILLISECONDS: Metric.RATIO,
    Metric.SHARE: Metric.MILLISECONDS,
}
"""What pointing tells beside what is coloured."""


def values(times: StageTimes | PooledTimes, metric: Metric) -> Floats:
    """In the units of :data:`READINGS`; shape as ``times.ns``."""
    match metric:
        case Metric.RATIO:
            return times.ratio
        case Metric.MILLISECONDS:
            return times.ns / 1e6
        case Metric.SHARE:
            return 100 * times.ns / times.step_ns[:, None]
