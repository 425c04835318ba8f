"""Counters of hosts: they start anywhere and grow; one that falls has begun anew."""

import numpy as np

from diagnose.model.fleet import FloatVector, HostSeries, IntVector
from telemetry.thinning import REPEAT_S


def total_growth(series: HostSeries) -> FloatVector:
    """By how much a counter has grown since its first look, at each look."""
    if not len(series.value):
        return np.zeros(0)
    return np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(series.value), 0.0))])


def knots(series: HostSeries, until_ns: int) -> tuple[FloatVector, FloatVector]:
    """How far a counter had grown, over nanoseconds since its first look. It stood still where it was not told for
    longer than usual, and since it was last told."""
    counted = total_growth(series)
    gaps = np.diff(series.at_ns)
    usual_ns = _usual_gap_ns(gaps)
    still = np.flatnonzero(gaps > 1.5 * usual_ns)
    at_ns = np.concatenate([series.at_ns, series.at_ns[still + 1] - usual_ns, [max(until_ns, int(series.at_ns[-1]))]])
    stood = np.concatenate([counted, counted[still], counted[-1:]])
    order = np.argsort(at_ns, kind="stable")
    return (at_ns[order] - series.at_ns[0]).astype(np.float64), stood[order]


def _usual_gap_ns(gaps: IntVector) -> int:
    """Between two looks at a counter that moves. How often one is told that stands still says nothing about it."""
    moving = gaps[gaps < 0.9 * REPEAT_S * 1e9]
    some = moving if len(moving) else gaps
    return int(np.median(some)) if len(some) else 0
