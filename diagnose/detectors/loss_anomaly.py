"""loss-anomaly: loss or gradient norm stops being a number, or jumps far out of its recent range.

    loss   3.1 3.0 3.1 3.0 9.2 3.1 3.0      one spike that comes back: info
           3.1 3.0 3.1 3.0 6.8 7.0 6.9      it jumped and stays: the steps since then are lost
           3.1 3.0 nan nan nan              the step of the first NaN is the one to look at

A jump lies far above the recent finite values: five times their median for the gradient norm (ByteRobust, SOSP'25),
half as much again or a whole nat for the loss, and in both cases six robust deviations, on a linear and on a
logarithmic scale. The deviations of a loss are those from one value to the next, because a loss falls: its trend is no
noise. The first values of an attempt are not judged: a fresh run is wild. No rank is suspected: these numbers describe
the whole job.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.findings import Evidence, Finding, Kind, Severity, StepWindow
from diagnose.model.operations import Bools, Floats, Ints
from diagnose.model.peers import robust_sigma
from diagnose.model.view import NOTHING, RunView, Series

NAME = "loss-anomaly"
NORM_WARM_UP, LOSS_WARM_UP = 20, 12
"""Finite values before the first that is judged."""
RECENT = 50
"""Values whose median and scatter a new one is compared with."""
NEWEST, LAST = 15, 5
"""Of them, those that give the level of a loss, which falls: the lower median of the two counts."""
EARLY, EARLY_SHARE = 10, 0.2
"""The first values of a loss give its scale: where it has fallen to almost nothing, small rises are no jumps."""
MAX_VALUES = 5000
"""Judged at most, the newest: older jumps no longer explain anything."""
MIN_NORM_TIMES = 5.0
MIN_LOSS_RISE = 1.0
MIN_LOSS_SHARE = 0.5
MIN_DEVIATIONS = 6.0
FEW_VALUES = 5.0
"""The limit is wider where few values are known: by a factor of 1 + FEW_VALUES / number of values."""
OFTEN, MIN_OFTEN = 0.9, 2.0
"""A jump must exceed MIN_OFTEN times the rise that one recent value in ten exceeds: some losses have frequent
spikes."""
SCATTER_FLOOR = 0.005
LASTING = 5
"""Values from which on a jump is no passing spike."""
REPEATED = 3
"""Spikes that together are no accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Values of one metric out of range, from ``first_step`` to ``last_step``."""

    metric: str
    first_step: int
    last_step: int
    num_values: int
    """Out of range in it."""
    over: bool
    """Values came back into range."""
    level: float
    """Before it."""
    peak: float
    """NaN or infinity where it is no number."""

    @property
    def is_number(self) -> bool:
        return bool(np.isfinite(self.peak))

    @property
    def lasts(self) -> bool:
        return self.num_values >= LASTING


def detect_loss_anomaly(view: RunView) -> list[Finding]:
    """At most one finding: the gravest episode that touches the window, the others beside it."""
    found = [
        episode
        for metric, limits in (("loss", loss_limits), ("gradient-norm", norm_limits))
        for episode in _episodes(metric, _until_window_end(view, metric), limits)
        if not len(view.steps) or episode.last_step >= view.window.first_step
    ]
    return [_finding(view, found)] if found else []


def _until_window_end(view: RunView, metric: str) -> Series:
    """Samples up to the step in flight at the window's end: a run often dies in the step that went wrong."""
    series = view.samples.get(metric, NOTHING)
    last = view.window.last_step + 1 if len(view.steps) else np.iinfo(np.int64).max
    known = series.steps <= last
    return Series(steps=series.steps[known][-MAX_VALUES:], values=series.values[known][-MAX_VALUES:])


Limits = Callable[[Floats, int], tuple[float, float]]
"""Finite values and a row -> the level before that row, and the limit above which its value is out of range. The limit
is less where the value lies below that already: scatter is expensive to measure."""
NO_LIMIT = 0.0, float("inf")


def norm_limits(values: Floats, row: int) -> tuple[float, float]:
    """Five times the median, or six deviations of the logarithm if they scatter more."""
    if row < NORM_WARM_UP:
        return NO_LIMIT
    recent, value = values[max(0, row - RECENT) : row], float(values[row])
    level = float(np.median(recent))
    least = MIN_NORM_TIMES * level
    return level, least if value < least else max(least, _log_limit(recent, level))


def loss_limits(values: Floats, row: int) -> tuple[float, float]:
    """A nat or half as much again above the newest level, and six deviations on either scale."""
    if row < LOSS_WARM_UP:
        return NO_LIMIT
    recent = values[max(0, row - RECENT) : row]
    level = float(min(np.median(recent[-NEWEST:]), np.median(recent[-LAST:])))
    scale = max(abs(level), EARLY_SHARE * float(np.median(np.abs(values[:EARLY]))))
    least = level + min(MIN_LOSS_RISE, MIN_LOSS_SHARE * scale)
    if values[row] < least:
        return level, least
    limit = max(least, level + _usual_rise(recent, SCATTER_FLOOR * abs(level)))
    if level > 0.0 and recent.min() > 0.0:
        limit = max(limit, level * float(np.exp(min(_usual_rise(np.log(recent), SCATTER_FLOOR), 100.0))))
    return level, limit


def _usual_rise(recent: Floats, floor: float) -> float:
    """The largest rise of the loss above its level that is normal noise."""
    above = recent[LAST:] - np.median(np.lib.stride_tricks.sliding_window_view(recent, LAST)[:-1], axis=1)
    steps = np.diff(recent)
    noise = float(np.quantile(np.abs(steps - np.median(steps)), 0.75)) / 1.15 / 2**0.5
    one_sigma = max(floor, noise, float(np.quantile(above, 0.84)))
    often = float(np.quantile(above, OFTEN))
    return max(MIN_DEVIATIONS * (1 + FEW_VALUES / len(recent)) * one_sigma, MIN_OFTEN * often)


def _log_limit(recent: Floats, level: float) -> float:
    if level <= 0.0 or recent.min() <= 0.0:
        return level
    return level * float(np.exp(min(MIN_DEVIATIONS * _scatter(np.log(recent), level=1.0), 100.0)))


def _scatter(recent: Floats, level: float) -> float:
    """About the median, or from one value to the next: a trend widens it, and nothing narrows it."""
    floor = SCATTER_FLOOR * abs(level)
    return max(robust_sigma(recent, floor), robust_sigma(np.diff(recent), floor) / 2**0.5)


def _episodes(metric: str, series: Series, limits: Limits) -> Iterator[Episode]:
    finite = np.isfinite(series.values)
    if not finite.all():
        yield _not_finite(metric, series.steps, series.values, finite)
    yield from _jumps(metric, series.steps[finite], series.values[finite], limits)


def _not_finite(metric: str, steps: Ints, values: Floats, finite: Bools) -> Episode:
    rows = np.flatnonzero(~finite)
    before = values[: rows[0]][-RECENT:]
    return Episode(
        metric=metric,
        first_step=int(steps[rows[0]]),
        last_step=int(steps[rows[-1]]),
        num_values=len(rows),
        over=bool(finite[-1]),
        level=float(np.median(before)) if len(before) else float("nan"),
        peak=float("nan") if np.isnan(values[rows]).any() else float(values[rows[0]]),
    )


def _jumps(metric: str, steps: Ints, values: Floats, limits: Limits) -> Iterator[Episode]:
    row = 0
    while row < len(values):
        level, limit = limits(values, row)
        if values[row] < limit:
            row += 1
            continue
        end = _comes_back(values, row, (level + limit) / 2)
        yield Episode(
            metric=metric,
            first_step=int(steps[row]),
            last_step=int(steps[end - 1]),
            num_values=end - row,
            over=end < len(values),
            level=level,
            peak=float(values[row:end].max()),
        )
        row = end


def _comes_back(values: Floats, row: int, bound: float) -> int:
    """First row after ``row`` from which values lie below ``bound``, most of three in a row."""
    for end in range(row + 1, len(values)):
        if values[end] < bound and np.median(values[end : end + 3]) < bound:
            return end
    return len(values)


def _finding(view: RunView, episodes: list[Episode]) -> Finding:
    worst = max(episodes, key=lambda one: (_gravity(one, view, episodes), -one.first_step))
    spoiled_s, share = _spoiled(view, worst)
    return Finding(
        detector=NAME,
        kind=Kind.LOSS_ANOMALY,
        severity=_severity(worst, share, episodes),
        suspects=(),
        stage="",
        window=StepWindow(first_step=worst.first_step, last_step=worst.last_step),
        seconds_lost=spoiled_s,
        confidence=_confidence(worst, episodes),
        summary=_summary(worst, episodes),
        next_step=_next_step(worst),
        evidence=_evidence(worst, episodes),
    )


_RANK = {Severity.CRITICAL: 2, Severity.WARNING: 1, Severity.INFO: 0}


def _gravity(one: Episode, view: RunView, episodes: list[Episode]) -> tuple[int, bool, bool, int]:
    severity = _severity(one, _spoiled(view, one)[1], episodes)
    return _RANK[severity], not one.is_number, one.metric == "loss", one.num_values


def _severity(one: Episode, share: float, episodes: list[Episode]) -> Severity:
    """No number is critical, unless only the norm was infinite, passed, and every loss stayed a number."""
    if not one.is_number:
        handled = np.isinf(one.peak) and one.over and all(other.is_number for other in episodes if other is not one)
        return Severity.WARNING if handled and one.metric == "gradient-norm" else Severity.CRITICAL
    if one.lasts:
        return Severity.CRITICAL if share >= 0.2 else Severity.WARNING
    return Severity.WARNING if _alike(one, episodes) >= REPEATED else Severity.INFO


def _alike(one: Episode, episodes: list[Episode]) -> int:
    return sum(other.metric == one.metric and other.is_number for other in episodes)


def _spoiled(view: RunView, one: Episode) -> tuple[float, float]:
    """Seconds of the steps trained on a spoiled loss, and their share of the window's; none for a norm that jumped."""
    if one.metric != "loss" and one.is_number:
        return 0.0, 0.0
    inside = (view.steps >= one.first_step) & (view.steps <= one.last_step)
    lost_ns, all_ns = float(view.step_ns[inside].sum()), float(view.step_ns.sum())
    return lost_ns / 1e9, lost_ns / all_ns if all_ns else 0.0


def _confidence(worst: Episode, episodes: list[Episode]) -> float:
    """No number is certain; a jump grows surer with every value or spike (rule of succession)."""
    if not worst.is_number:
        return 1.0
    seen = max(worst.num_values, _alike(worst, episodes))
    return round(seen / (seen + 1), 2)


def _summary(worst: Episode, episodes: list[Episode]) -> str:
    others = [_told(one) for one in episodes if one.metric != worst.metric][:1]
    spikes = _alike(worst, episodes)
    again = f", {spikes} such jumps" if worst.is_number and spikes > 1 else ""
    return "; ".join([_told(worst) + again, *others])


def _told(one: Episode) -> str:
    name = one.metric.replace("-", " ")
    if not one.is_number:
        what = "NaN" if np.isnan(one.peak) else "infinite"
        end = f"last at step {one.last_step}, then finite again" if one.over else "and still is"
        return f"{name} is {what} since step {one.first_step} ({one.num_values} values), {end}"
    jumped = f"{name} jumped from {one.level:.3g} to {one.peak:.3g} at step {one.first_step}"
    values = f"{one.num_values} value" + ("s" if one.num_values > 1 else "")
    return f"{jumped} and " + (f"recovered after {values}" if one.over else f"has not recovered ({values} so far)")


def _next_step(worst: Episode) -> str:
    if not worst.is_number or worst.lasts:
        return (
            f"restart from a checkpoint before step {worst.first_step} with the same data. The same jump "
            "points to data or learning rate; a different result points to a faulty device. Check the loss scale, "
            "if any"
        )
    return f"check the batch of step {worst.first_step} and the learning rate. Act only if the jump repeats"


def _evidence(worst: Episode, episodes: list[Episode]) -> Evidence:
    return {
        "metric": worst.metric,
        "first_step": worst.first_step,
        "values": worst.num_values,
        "level_before": round(worst.level, 4) if np.isfinite(worst.level) else "none",
        "peak": round(worst.peak, 4) if worst.is_number else str(worst.peak),
        "came_back": int(worst.over),
        "episodes": [f"{one.metric} at step {one.first_step}" for one in episodes[:20]],
        "num_episodes": len(episodes),
    }
