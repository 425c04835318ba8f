"""The part of an address that says how curves are drawn: ``axis=time&range=1000&smooth=51&scale=log&metrics=a,b,``."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote, unquote

from ui.dashboard.address_fields import ReadField

SMOOTHINGS = (11, 51, 201)
"""The choices for the number of steps of the moving median."""
MAX_METRICS = 8
"""Metrics of the user's code that a page shows as charts."""
MAX_METRIC_NAME = 64
"""Characters of a name. A metric with a longer name is not shown as a chart."""
OFF = "off"


class Axis(StrEnum):
    """The x axis of curves."""

    STEP = "step"
    TIME = "time"
    """Wall clock, with all attempts of the run."""


class ChartRange(StrEnum):
    """The part of a run that curves show."""

    ALL = "all"
    STEPS_1000 = "1000"
    STEPS_100 = "100"
    DAY = "1d"
    HOUR = "1h"


class Scale(StrEnum):
    """The y axis of the loss and of the user's own metrics."""

    LINEAR = "linear"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartView:
    """How curves are drawn. The selection does not depend on it."""

    axis: Axis = Axis.STEP
    range: ChartRange = ChartRange.ALL
    smooth: int = 0
    """Number of steps of the moving median; 0 for no smoothing."""
    scale: Scale = Scale.LINEAR
    metrics: tuple[str, ...] | None = None
    """The user's own metrics that are shown; None for the first ones by name."""

    def fields(self) -> dict[str, object]:
        """Name -> value of each field of the address. A field whose value is None is not in the address."""
        return {
            "axis": None if self.axis is Axis.STEP else self.axis.value,
            "range": None if self.range is ChartRange.ALL else self.range.value,
            "smooth": self.smooth or None,
            "scale": None if self.scale is Scale.LINEAR else self.scale.value,
            "metrics": None
            if self.metrics is None
            else "".join(quote(name, safe="") + "," for name in self.metrics) or ",",
        }


PLAIN_CHARTS = ChartView()


def read_chart_view(read: ReadField) -> ChartView:
    """Read the view of curves from the fields of an address."""
    values: dict[str, Any] = {name: read(name, convert, getattr(PLAIN_CHARTS, name)) for name, convert in _READ.items()}
    return ChartView(**values)


def with_chart_field(view: ChartView, name: str, value: object) -> ChartView:
    """The view after a control was set. ``metrics`` is a list of names, any other value a text.

    Raises:
        ValueError: the value is not valid.
    """
    if name == "metrics":
        given = value if isinstance(value, list) else []
        return replace(view, metrics=_valid([str(each) for each in given]))
    text = str(value or "")
    changed: dict[str, Any] = {name: 0 if text == OFF else _READ[name](text)}
    return replace(view, **changed)


def _smooth(text: str) -> int:
    if text not in map(str, SMOOTHINGS):
        raise ValueError(text)
    return int(text)


def _metrics(text: str) -> tuple[str, ...]:
    return _valid([unquote(name) for name in text.split(",") if name])


def _valid(names: list[str]) -> tuple[str, ...]:
    is_valid = all(name.isprintable() and 0 < len(name) <= MAX_METRIC_NAME for name in names)
    if not is_valid or len(names) > MAX_METRICS or len(set(names)) < len(names):
        raise ValueError(names)
    return tuple(names)


_READ: dict[str, Callable[[str], Any]] = {
    "axis": Axis,
    "range": ChartRange,
    "smooth": _smooth,
    "scale": Scale,
    "metrics": _metrics,
}
CHART_FIELDS = tuple(_READ)
"""Fields that a control sets."""
