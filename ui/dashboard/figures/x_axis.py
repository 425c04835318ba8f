"""An x axis of steps or of wall clock that several charts share, and the places of values and events on it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ui.dashboard.chart_view import Axis
from ui.dashboard.events import RunEvent
from ui.dashboard.figures.markers import Marker, combine
from ui.dashboard.figures.style import titled
from ui.dashboard.records import Floats, Ints, Series
from ui.dashboard.wording import local_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class XAxis:
    """The x axis that all charts of a page share. Steps, or nanoseconds since the epoch."""

    axis: Axis
    first: int
    last: int
    gaps_ns: Sequence[tuple[int, int]] = ()
    """Times without a step, ascending."""
    zone: str = ""
    """Name of the time zone of the wall clock."""

    @property
    def title(self) -> dict[str, object]:
        """The name of the axis, as plotly takes it."""
        return titled("step" if self.axis is Axis.STEP else f"wall clock, {self.zone}")

    @property
    def ends(self) -> tuple[float, float]:
        """The places of ``first`` and ``last`` on the axis, as :meth:`at` returns them."""
        first, last = self.at(np.array([self.first, self.last])).tolist()
        return first, last

    def markers(self, events: Sequence[RunEvent]) -> list[Marker]:
        """The markers of the events between the ends. A finding that began earlier and lasts is at the first end."""
        first, last = self.ends

        def places(step: str, at_ns: str) -> list[float]:
            columns = ([getattr(event, name) for event in events] for name in (step, at_ns))
            found: list[float] = self.of(*(np.array(column, np.int64) for column in columns)).tolist()
            return found

        begins, lasts = places("step", "at_ns"), places("last_step", "last_ns")
        shown = [
            (max(begin, first), event)
            for begin, until, event in zip(begins, lasts, events, strict=True)
            if max(begin, until) >= first
        ]
        return combine(shown, first, last)

    def of(self, step: Ints, at_ns: Ints) -> Floats:
        """Places of values, as plotly draws them: steps, or milliseconds in the time zone of the server."""
        return step.astype(np.float64) if self.axis is Axis.STEP else self.at(at_ns)

    def at(self, place: Ints) -> Floats:
        """Places from steps or nanoseconds."""
        if self.axis is Axis.STEP:
            return np.asarray(place, dtype=np.float64)
        return (place - self.first) / 1e6 + local_ms(self.first)

    def broken(self, series: Series) -> Series:
        """``series`` with a NaN in each gap, so that no line is drawn there."""
        if self.axis is Axis.STEP or not self.gaps_ns:
            return series
        part = np.searchsorted([until for _, until in self.gaps_ns], series.at_ns, side="right")
        breaks = np.flatnonzero(np.diff(part)) + 1
        columns = {name: np.insert(getattr(series, name), breaks, getattr(series, name)[breaks - 1]) for name in _INTS}
        return Series(metric=series.metric, value=np.insert(series.value, breaks, np.nan), **columns)


_INTS = ("attempt", "step", "at_ns")
