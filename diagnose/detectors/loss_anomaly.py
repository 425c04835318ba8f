"""loss-anomaly: loss or gradient norm stops being a number, or jumps far out of its recent range.

    loss   3.1 3.0 3.1 3.0 9.2 3.1 3.0      one spike that ends: info
           3.1 3.0 3.1 3.0 6.8 7.0 6.9      a jump that lasts: the steps since then are lost
           3.1 3.0 nan nan nan              the step of the first NaN is important

A jump rises above the recent finite values: to five times their median for the gradient norm (ByteRobust, SOSP'25), by
half of the level or one nat for the loss. It also exceeds six robust deviations, on a linear and a logarithmic scale.
The deviations of a loss are those from one value to the next, because its trend is no noise. The first values of an
attempt vary widely and are not judged. No rank is a suspect: these numbers describe the whole job.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.findings import Finding, Kind, Severity, StepWindow
from diagnose.model.operations import Bools, Floats, Ints
from diagnose.model.peers import robust_sigma
from diagnose.model.view import NOTHING, RunView, Series

NAME = "loss-anomaly"
NORM_WARM_UP, LOSS_WARM_UP = 20, 12
"""Number of finite values before the first one that is judged."""
RECENT = 50
"""Number of values with which a new one is compared."""
NEWEST, LAST = 15, 5
"""Number of values for the level of a loss: the lower of the two medians, because the loss falls."""
EARLY, EARLY_SHARE = 10, 0.2
"""The first values of a loss define its scale. After a fall to almost zero, small rises are no jumps."""
MAX_VALUES = 5000
"""Number of newest values that are judged. Older jumps are not relevant."""
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
"""A jump with this number of values is no short spike."""
REPEATED = 3
"""With this number of spikes, the finding is a warning: they are not chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Values of one metric out of range, from ``first_step`` to ``last_step``."""

    metric: str
    first_step: int
    last_step: int
    num_values: int
    """Number of values out of range."""
    over: bool
    """Whether values came back into range."""
    level: float
    """Level before the episode."""
    peak: float
    """The largest value. NaN or infinity if it is no number."""

    @property
    def is_number(self) -> bool:
        return bool(np.isfinite(self.peak))

    @property
    def lasts(self) -> bool:
        return self.num_values >= LASTING


def detect_loss_anomaly(view: RunView) -> list[Finding]:
    """At most one finding: the worst episode that ends in the window or later, with the others as evidence."""
    found = [
        episode
        for metric, limits in (("loss", _loss_limits), ("gradient-norm", _norm_limits))
        for episode in _episodes(metric, _until_window_end(view, metric), limits)
        if not len(view.steps) or episode.last_step >= view.window.first_step
    ]
    return [_finding(view, found)] if found else []


def _until_window_end(view: RunView, metric: str) -> Series:
    """Samples up to the step after the window: a run often dies in the step with the problem."""
    series = view.samples.get(metric, NOTHING)
    last = view.window.last_step + 1 if len(view.steps) else np.iinfo(np.int64).max
    known = series.steps <= last
    return Series(steps=series.steps[known][-MAX_VALUES:], values=series.values[known][-MAX_VALUES:])


Limits = Callable[[Floats, int], tuple[float, float]]
"""(Finite values, row) -> (level before that row, limit of the value in that row). For a value below the least possible
limit, that limit is returned, because it is expensive to measure the noise that raises the limit."""
NO_LIMIT = 0.0, float("inf")


def _norm_limits(values: Floats, row: int) -> tuple[float, float]:
    """The limit is five times the median, or six deviations of the logarithm if that is more."""
    if row < NORM_WARM_UP:
        return NO_LIMIT
    recent, value = values[max(0, row - RECENT) : row], float(values[row])
    level = float(np.median(recent))
    least = MIN_NORM_TIMES * level
    if value < least:
        return level, least
    if level <= 0.0 or recent.min() <= 0.0:
        return level, max(least, level)
    logs = np.log(recent)  # a trend widens the noise
    noise = max(robust_sigma(logs, SCATTER_FLOOR), robust_sigma(np.diff(logs), SCATTER_FLOOR) / 2**0.5)
    return level, max(least, level * float(np.exp(min(MIN_DEVIATIONS * noise, 100.0))))


def _loss_limits(values: Floats, row: int) -> tuple[float, float]:
    """The limit is one nat or half of the level above the newest level, whichever is less, and six deviations on both
    scales."""
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
    """The first row after ``row`` with a value below ``bound``, if most of three values from there on are below it.
    The number of values if there is no such row."""
    for end in range(row + 1, len(values)):
        if values[end] < bound and np.median(values[end : end + 3]) < bound:
            return end
    return len(values)


def _finding(view: RunView, episodes: list[Episode]) -> Finding:
    def gravity(episode: Episode) -> tuple[int, bool, bool, int, int]:
        severity = _severity(episode, _spoiled(view, episode)[1], episodes)
        is_loss = episode.metric == "loss"
        return _RANK[severity], not episode.is_number, is_loss, episode.num_values, -episode.first_step

    worst = max(episodes, key=gravity)
    spoiled_s, share = _spoiled(view, worst)
    others = [_describe(episode) for episode in episodes if episode.metric != worst.metric][:1]
    spikes = _alike(worst, episodes)
    again = f", {spikes} such jumps" if worst.is_number and spikes > 1 else ""
    num_values = max(worst.num_values, spikes)  # more certain with every value or spike (rule of succession)
    return Finding(
        detector=NAME,
        kind=Kind.LOSS_ANOMALY,
        severity=_severity(worst, share, episodes),
        window=StepWindow(first_step=worst.first_step, last_step=worst.last_step),
        seconds_lost=spoiled_s,
        confidence=round(num_values / (num_values + 1), 2) if worst.is_number else 1.0,
        summary="; ".join([_describe(worst) + again, *others]),
        next_step=_next_step(worst),
        evidence={
            "metric": worst.metric,
            "first_step": worst.first_step,
            "values": worst.num_values,
            "level_before": round(worst.level, 4) if np.isfinite(worst.level) else "none",
            "peak": round(worst.peak, 4) if worst.is_number else str(worst.peak),
            "came_back": int(worst.over),
            "episodes": [f"{episode.metric} at step {episode.first_step}" for episode in episodes[:20]],
            "num_episodes": len(episodes),
        },
    )


_RANK = {Severity.CRITICAL: 2, Severity.WARNING: 1, Severity.INFO: 0}


def _severity(episode: Episode, share: float, episodes: list[Episode]) -> Severity:
    """The severity of an episode. A value that is no number is critical, unless only the norm was infinite for a time
    and every loss was a number."""
    if not episode.is_number:
        others_are_numbers = all(other.is_number for other in episodes if other is not episode)
        handled = np.isinf(episode.peak) and episode.over and others_are_numbers
        return Severity.WARNING if handled and episode.metric == "gradient-norm" else Severity.CRITICAL
    if episode.lasts:
        return Severity.CRITICAL if share >= 0.2 else Severity.WARNING
    return Severity.WARNING if _alike(episode, episodes) >= REPEATED else Severity.INFO


def _alike(episode: Episode, episodes: list[Episode]) -> int:
    return sum(other.metric == episode.metric and other.is_number for other in episodes)


def _spoiled(view: RunView, episode: Episode) -> tuple[float, float]:
    """Seconds of the steps with a bad loss, and their share of the window. Zero for a gradient norm that jumped."""
    if episode.metric != "loss" and episode.is_number:
        return 0.0, 0.0
    inside = (view.steps >= episode.first_step) & (view.steps <= episode.last_step)
    lost_ns, all_ns = float(view.step_ns[inside].sum()), float(view.step_ns.sum())
    return lost_ns / 1e9, lost_ns / all_ns if all_ns else 0.0


def _describe(episode: Episode) -> str:
    name = episode.metric.replace("-", " ")
    if not episode.is_number:
        what = "NaN" if np.isnan(episode.peak) else "infinite"
        end = f"last at step {episode.last_step}, then finite again" if episode.over else "and still is"
        return f"{name} is {what} since step {episode.first_step} ({episode.num_values} values), {end}"
    jumped = f"{name} jumped from {episode.level:.3g} to {episode.peak:.3g} at step {episode.first_step}"
    values = f"{episode.num_values} value" + ("s" if episode.num_values > 1 else "")
    return f"{jumped} and " + (f"recovered after {values}" if episode.over else f"has not recovered ({values} so far)")


def _next_step(worst: Episode) -> str:
    if not worst.is_number or worst.lasts:
        return (
            f"restart from a checkpoint before step {worst.first_step} with the same data. If the loss "
            "jumps again, check the data and the learning rate. Otherwise a device may be faulty. Also check the loss "
            "scale, if the training uses one"
        )
    return f"check the batch of step {worst.first_step} and the learning rate. Act only if the jump repeats"
