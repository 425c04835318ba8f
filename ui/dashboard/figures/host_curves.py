"""From samples of a host to curves: levels as they are, counters as what they grew by.

counter   o.....o/o''o''o     told rarely while it stands still: it stood where it was, and did not grow slowly
rate      ______/'|______     between two looks that rate, not a slope
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.fleet import HostSeries
from diagnose.model.gpus import knots
from ui.dashboard.figures.host_families import Panel, Reading
from ui.dashboard.records import Floats, Ints
from ui.dashboard.wording import NS_PER_S

MAX_CURVES = 16
"""In one panel: those that reach highest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCurve:
    """A quantity over the host's own time; arrays of one length."""

    device: str
    """``gpu0``, ``eth0``, ``rank 5``; empty: of the whole host."""
    kind: str
    """What is told of it, where a panel tells several things of each."""
    at_ns: Ints
    value: Floats
    holds: bool
    """Whether a value holds up to the next point, as a rate does."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.device, self.kind))) or "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A panel's curves, and how many more there are."""

    panel: Panel
    curves: tuple[HostCurve, ...]
    num_left_out: int


def curves_of(panels: Sequence[Panel], series: Sequence[tuple[str, HostSeries]]) -> list[Curves]:
    """The panels for which something was told, in their order."""
    found = []
    for panel in panels:
        curves = [_curve(panel, metric, one) for metric, one in series if metric in panel.metrics and len(one.at_ns)]
        known = [one for one in curves if len(one.at_ns) and (one.value.any() or not panel.hides_zero)]
        if known:
            highest = sorted(known, key=lambda one: -float(one.value.max()))[:MAX_CURVES]
            shown = tuple(sorted(highest, key=lambda one: natural(one.name)))
            found.append(Curves(panel=panel, curves=shown, num_left_out=len(known) - len(shown)))
    return found


def rate(series: HostSeries) -> tuple[Ints, Floats]:
    """By how much a counter grows a second, from each moment on; the last value holds no longer. None of one look."""
    if len(series.at_ns) < 2:
        return np.zeros(0, np.int64), np.zeros(0)
    since_ns, counted = knots(series, int(series.at_ns[-1]))
    moments = np.concatenate([np.diff(since_ns) > 0, [True]])
    since_ns, counted = since_ns[moments], counted[moments]
    grown = np.diff(counted) / np.diff(since_ns) * NS_PER_S
    return series.at_ns[0] + since_ns.astype(np.int64), np.concatenate([grown, grown[-1:]])


def _curve(panel: Panel, metric: str, series: HostSeries) -> HostCurve:
    if panel.reading is Reading.RATE:
        at_ns, value = rate(series)
    elif panel.reading is Reading.GROWTH:
        since_ns, value = knots(series, int(series.at_ns[-1]))
        at_ns = series.at_ns[0] + since_ns.astype(np.int64)
    else:
        at_ns, value = series.at_ns, series.mean
    return HostCurve(
        device=series.device,
        kind=panel.metrics[metric],
        at_ns=at_ns,
        value=value * panel.scale,
        holds=panel.reading is not Reading.LEVEL,
    )


def natural(name: str) -> list[tuple[int, str]]:
    """``gpu2`` before ``gpu10``."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts)]
