"""Meetings that became slow and stayed so: compared with their own past, all that are alike together.

dp group {0, 4}  |==| |==| |==| |=====| |=====| |=====|      rises from the fourth step on
dp group {1, 5}  |==| |==| |==| |=====| |=====| |=====|      and so does the typical one of those alike
compute          |---| |---| |---| |---| |---| |---|         which keeps its pace: the machine is no busier
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.model.medians import medians
from diagnose.model.meetings import Floats, Meetings
from diagnose.model.peers import MEDIAN_EFFICIENCY, FloatVector, robust_sigma
from diagnose.model.view import RunView

MIN_RATIO = 1.5
MIN_Z = 6.0
NOISE_FLOOR = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """From one row on to the end."""

    row: int
    ratio: float
    """Beyond what compute takes longer."""
    share: float
    """Of rows that lie high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rises:
    """Of the groups of one stage, by their column."""

    slow: dict[int, Rise]
    """Those that became slow together with those alike, and themselves."""
    moved: set[int]
    """Those, and what did not stay as it was: in a decline that goes on, some rise late."""


def find_rises(meetings: Meetings, total_ns: Floats, view: RunView) -> Rises:
    """Where groups that are alike became slow, and which of them did."""
    found: dict[int, Rise] = {}
    moved: set[int] = set()
    pace = _pace_of_compute(view)
    for alike in np.unique(meetings.alike):
        columns = np.flatnonzero(meetings.alike == alike)
        typical = medians(total_ns[:, columns], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = _jump(np.log(typical), pace)
        row = len(total_ns) // 2 if rise is None else rise.row
        own = {column: _rose(total_ns[:, column], row) for column in columns.tolist()}
        if rise is not None:
            found.update({column: rise for column, ratio in own.items() if ratio >= np.sqrt(rise.ratio)})
        moved.update(found, (column for column, ratio in own.items() if ratio >= MIN_RATIO))
    return Rises(slow=found, moved=moved)


def _rose(total_ns: FloatVector, row: int) -> float:
    """By what factor a group is slower from ``row`` on than before; 0 where it never met on one side."""
    before, after = (float(medians(part, axis=0)) for part in (total_ns[:row], total_ns[row:]))
    return after / before if before > 0 and after > 0 else 0.0


def _pace_of_compute(view: RunView) -> FloatVector:
    """Log wall time that compute takes on a typical rank, [steps]: what a busier machine slows beside transfers."""
    compute = [view.operations[stage].total_ns() for stage in view.work if stage in view.operations]
    if not compute:
        return np.zeros(len(view.steps))
    return np.log(np.maximum(medians(np.sum(compute, axis=0), axis=1), 1.0))


def _jump(series: FloatVector, pace: FloatVector) -> Rise | None:
    """Where ``series`` (logs) begins to lie higher than ``pace`` explains; None where it does not, or not clearly, or
    comes back.
    """
    known = np.flatnonzero(np.isfinite(series) & np.isfinite(pace))
    values, count = series[known], len(known)
    if count < 2 * MIN_STEPS:
        return None
    before = np.arange(MIN_STEPS, count - MIN_STEPS + 1)
    sums = np.cumsum(values)
    gain = (sums[-1] - sums[before - 1]) / (count - before) - sums[before - 1] / before
    split = int(before[np.argmax(gain * np.sqrt(before * (count - before)))])
    low, high = float(np.median(values[:split])), float(np.median(values[split:]))
    slower = float(np.median(pace[known[split:]]) - np.median(pace[known[:split]]))
    noise = robust_sigma(np.concatenate([values[:split] - low, values[split:] - high]), NOISE_FLOOR)
    error = MEDIAN_EFFICIENCY * noise * np.sqrt(1.0 / split + 1.0 / (count - split))
    above = float(np.mean(values[split:] > (low + high) / 2))
    below = float(np.mean(values[:split] < (low + high) / 2))
    rise = high - low - max(0.0, slower)
    if rise < np.log(MIN_RATIO) or rise < MIN_Z * error or min(above, below) < 0.8:
        return None
    return Rise(row=int(known[split]), ratio=float(np.exp(rise)), share=above)
