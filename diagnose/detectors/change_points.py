"""When a series of durations became longer, permanently or for a time: change points and slow drift.

    step time   ..-.'..-.|''''-'''''''      a change point that lasts
                ..-.|''''|..-.'..-.'..      a change that ended
                ..-..-.-''.-''-''''''''     a drift: the newest steps against the best ones before
                ..__--==""                a ramp: steps along a line, with independent noise

Sources: CUSUM with a verification bound of 10% (GREYHOUND), and the mean of the newest 50 steps against the best 50
(EROICA). This module uses medians on a logarithmic scale and clipped values, so regular checkpoints are no change and
no drift. Autocorrelated noise counts as fewer steps.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diagnose.model.operations import Bools, Floats
from diagnose.model.peers import MEDIAN_EFFICIENCY, robust_sigma

MIN_STEPS = 30
MIN_SEGMENT = 10
MIN_RATIO = 1.10
MIN_DRIFT = 1.05
DRIFT_STEPS = 50
MIN_Z = 6.0
MIN_WANDERS = 5.0
"""A rise must be at least this many deviations of the levels outside it. A series whose level always varies has not
risen."""
MIN_SHARE = 0.75
"""Share of the steps on each side of a change that are on their side of the middle."""
MAX_HIGHER = 0.1
"""Largest share of the levels between the best and the newest that are clearly above the newest. With more, the series
only varies."""
MOST_OFF = 0.1
"""Logarithmic distance of a step from its neighbours. A step further away (a checkpoint) is not part of a ramp."""
MIN_RAMP_Z = 8.0
MAX_LINGERING = 0.4
SMOOTHED = 5
"""Number of steps of a moving median before steps are assigned to a side."""
CLIP = 3.0
"""Steps are clipped at this number of deviations."""
NOISE_FLOOR = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """Values are higher from row ``first`` to row ``end`` (not included) than in the rows ``before``."""

    before: slice
    first: int
    end: int
    before_ns: float
    after_ns: float
    share: float
    """Share of steps on their side of the middle."""
    sudden: bool

    @property
    def ratio(self) -> float:
        return self.after_ns / self.before_ns

    @property
    def lost_ns(self) -> float:
        return (self.after_ns - self.before_ns) * (self.end - self.first)


def find_rise(ns: Floats) -> Rise | None:
    """The costliest rise that lasts to the end. Otherwise a drift, a ramp, or the newest rise that ended. None if there
    is no rise.

    ``ns``: positive durations in order of steps. With fewer than 30, the result is None.
    """
    if len(ns) < MIN_STEPS:
        return None
    bounds = [0, *change_points(ns), len(ns)]
    rises = [rise for place in range(1, len(bounds) - 1) if (rise := _rise_at(ns, bounds, place)) is not None]
    lasting = [rise for rise in rises if rise.end == len(ns)]
    if lasting:
        return max(lasting, key=lambda rise: rise.lost_ns)
    return _drift(ns, bounds) or _ramp(ns) or (rises[-1] if rises else None)


def change_points(ns: Floats) -> list[int]:
    """First rows of new levels, ascending: binary segmentation by CUSUM of clipped logarithms."""
    log_ns = np.log(ns)
    noise = _step_noise(log_ns)
    found: list[int] = []
    pending = [(0, len(ns))]
    while pending:
        first, end = pending.pop()
        row = _split(log_ns[first:end], noise)
        if row is not None:
            found.append(first + row)
            pending += [(first, first + row), (first + row, end)]
    return _sharpened(log_ns, [0, *sorted(found), len(ns)])


def _sharpened(log_ns: Floats, bounds: list[int]) -> list[int]:
    """The inner bounds, each moved to the row with the fewest steps on the wrong side. A third level in the series may
    have shifted a bound."""
    sharp = bounds[:1]
    for row, end in pairwise(bounds[1:]):
        left, right = np.median(log_ns[sharp[-1] : row]), np.median(log_ns[row:end])
        half = abs(right - left) / 2
        on_left = np.clip(((left + right) / 2 - log_ns[sharp[-1] : end]) * np.sign(right - left), -half, half)
        inside = slice(MIN_SEGMENT - 1, len(on_left) - MIN_SEGMENT)
        sharp.append(sharp[-1] + MIN_SEGMENT + int(np.argmax(np.cumsum(on_left)[inside])))
    return sharp[1:]


def _split(log_ns: Floats, noise: float) -> int | None:
    """Row of the largest change of the mean, or None if it is not significant."""
    if len(log_ns) < 2 * MIN_SEGMENT:
        return None
    values = np.clip((log_ns - np.median(log_ns)) / noise, -CLIP, CLIP)
    rows = np.arange(MIN_SEGMENT, len(values) - MIN_SEGMENT + 1)
    total = np.cumsum(values)
    left, right = rows, len(values) - rows
    gap = (total[-1] - total[rows - 1]) / right - total[rows - 1] / left
    z = np.abs(gap) * np.sqrt(left * right / len(values))
    best = int(np.argmax(z))
    return int(rows[best]) if z[best] >= MIN_Z else None


def _step_noise(log_ns: Floats) -> float:
    """Noise from one step to the next: a change of level does not increase it."""
    return robust_sigma(np.diff(log_ns), NOISE_FLOOR * 2**0.5) / 2**0.5


def _rise_at(ns: Floats, bounds: list[int], place: int) -> Rise | None:
    """The rise that begins at ``bounds[place]`` and ends when a level is nearer to the level before. None if there is
    no rise."""
    before = slice(bounds[place - 1], bounds[place])
    levels = [float(np.median(ns[first:end])) for first, end in pairwise(bounds)]
    middle = (levels[place - 1] * levels[place]) ** 0.5
    over = [bounds[later] for later in range(place + 1, len(levels)) if levels[later] < middle]
    rise = _measured(ns, before, bounds[place], min(over, default=len(ns)), sudden=True)
    wanted = rise.ratio >= MIN_RATIO and rise.share >= MIN_SHARE and levels[place] >= MIN_RATIO * levels[place - 1]
    return rise if wanted and _significant(ns[before], ns[rise.first : rise.end]) and _stands_out(ns, rise) else None


def _stands_out(ns: Floats, rise: Rise) -> bool:
    """Whether the rise is higher than the variation of blocks of steps outside it. True if there are few blocks."""
    outside = np.concatenate((ns[: rise.first], ns[rise.end :]))
    width = min(max(MIN_SEGMENT, min(len(outside) // 8, rise.end - rise.first)), DRIFT_STEPS)
    num_blocks = len(outside) // width
    if num_blocks < 4:
        return True
    levels = np.log(np.median(outside[-num_blocks * width :].reshape(num_blocks, width), axis=1))
    return float(np.log(rise.after_ns) - np.median(levels)) >= MIN_WANDERS * robust_sigma(levels, NOISE_FLOOR)


def _drift(ns: Floats, bounds: list[int]) -> Rise | None:
    """The rise of the newest 50 steps over the best 50 before them, or None if there is no drift. In a short series,
    both are a third of the steps."""
    width = min(DRIFT_STEPS, len(ns) // 3)
    begins = np.arange(0, len(ns) - 2 * width + 1, max(1, width // 5))
    levels = np.median(np.lib.stride_tricks.sliding_window_view(ns, width)[begins], axis=1)
    best = int(begins[np.argmin(levels)])
    before, newest = slice(best, best + width), ns[-width:]
    ratio = float(np.median(newest) / np.median(ns[before]))
    between = levels[(begins >= best + width) & (begins <= len(ns) - 2 * width)]
    wanders = len(between) and np.mean(between > np.median(newest) * ratio**0.25) > MAX_HIGHER
    if ratio < MIN_DRIFT or wanders or not _significant(ns[before], newest):
        return None
    sudden = [row for row in bounds[1:-1] if row >= before.stop - width // 2 and _jump(ns, row) >= ratio**0.5]
    first = max(sudden, key=lambda row: _jump(ns, row)) if sudden else before.stop
    rise = _measured(ns, before, first, len(ns), sudden=bool(sudden))
    return rise if rise.ratio > 1.0 else None


def _ramp(ns: Floats) -> Rise | None:
    """The rise along a line through the durations or through their logarithms, or None if there is no ramp."""
    log_ns = np.log(ns)
    off = np.abs(log_ns - np.pad(_smooth(log_ns), SMOOTHED // 2, mode="edge"))
    inside = off < max(MOST_OFF, CLIP * _step_noise(log_ns))
    if inside.mean() < MIN_SHARE or not any(_is_line(level, inside) for level in (log_ns, ns / np.median(ns))):
        return None
    third = len(ns) // 3
    rise = _measured(ns, slice(0, third), third, len(ns), sudden=False)
    return rise if rise.ratio > 1.0 else None


def _is_line(level: Floats, inside: Bools) -> bool:
    """Whether a line through the values ``inside`` rises by at least ``MIN_RATIO`` and ``MIN_RAMP_Z`` standard errors.

    The noise must be independent, otherwise it may have caused the line.
    """
    rows = np.arange(len(level)) / len(level)
    slope, base = np.polyfit(rows[inside], level[inside], 1)
    residual = level - (base + slope * rows)
    noise = robust_sigma(residual, NOISE_FLOOR)
    certain = slope >= MIN_RAMP_Z * noise * (12 / len(level)) ** 0.5
    return slope >= np.log(MIN_RATIO) and certain and _autocorrelation(residual / noise) <= MAX_LINGERING


def _jump(ns: Floats, row: int) -> float:
    return float(np.median(ns[row : row + MIN_SEGMENT]) / np.median(ns[row - MIN_SEGMENT : row]))


def _measured(ns: Floats, before: slice, first: int, end: int, *, sudden: bool) -> Rise:
    before_ns, after_ns = float(np.median(ns[before])), float(np.median(ns[first:end]))
    middle = (before_ns * after_ns) ** 0.5
    lower, higher = _smooth(ns[before]) < middle, _smooth(ns[first:end]) > middle
    return Rise(
        before=before,
        first=first,
        end=end,
        before_ns=before_ns,
        after_ns=after_ns,
        share=float(min(lower.mean(), higher.mean())),
        sudden=sudden,
    )


def _smooth(ns: Floats) -> Floats:
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(ns, SMOOTHED), axis=1), dtype=np.float64)


def _significant(before: Floats, after: Floats) -> bool:
    """Whether the medians differ by six standard errors, corrected for autocorrelation."""
    parts = [np.log(part) - np.median(np.log(part)) for part in (before, after)]
    noise = robust_sigma(np.concatenate(parts), NOISE_FLOOR)
    lingering = max(_autocorrelation(part / noise) for part in parts)
    error = MEDIAN_EFFICIENCY * noise * ((1 + lingering) / (1 - lingering) * (1 / len(before) + 1 / len(after))) ** 0.5
    return float(np.log(np.median(after) / np.median(before))) >= MIN_Z * float(error)


def _autocorrelation(residual: Floats) -> float:
    """Autocorrelation of neighbouring steps, 0 to 0.9. A single long step does not count."""
    values = np.clip(residual, -CLIP, CLIP)
    power = float(np.mean(values**2))
    return min(0.9, max(0.0, float(np.mean(values[1:] * values[:-1])) / power)) if power else 0.0
