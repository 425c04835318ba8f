"""The curves of a run in the part that a view shows, and their moving medians.

axis by step     the steps of one attempt
wall clock       |attempt 0|   |attempt 1|     |attempt 2|     all attempts, with the gaps between them
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from telemetry.stages import Stage
from telemetry.stores.queries import SampleMedians
from ui.dashboard.chart_view import MAX_METRIC_NAME, MAX_METRICS, PLAIN_CHARTS, Axis, ChartRange, ChartView
from ui.dashboard.data.chart_parts import MAX_SAMPLES, Part
from ui.dashboard.data.columns import floats, ints, series_by_metric, step_times
from ui.dashboard.data.core import METRICS, Reads
from ui.dashboard.data.goodput import earlier_steps
from ui.dashboard.records import Ints, RunFacts, RunSummary, Series, StepTimes
from ui.dashboard.view_state import StepRange, ViewState
from ui.dashboard.wording import NS_PER_S

STEPS_OF = {ChartRange.STEPS_100: 100, ChartRange.STEPS_1000: 1000}
NS_OF = {ChartRange.HOUR: 3600 * NS_PER_S, ChartRange.DAY: 86_400 * NS_PER_S}
MAX_ATTEMPTS = 100
"""Largest number of attempts that are shown on the wall clock: the newest ones."""
LONG_PAUSE = 5
"""A pause between two steps is a gap if it takes this many times the median step time."""
MAX_MEDIANS = 500
"""Columns of steps whose medians are smoothed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the charts of a page show."""

    facts: RunFacts
    view: ChartView
    steps: Series
    """Step times in seconds, at the begin of each step, ascending by time."""
    part: Part
    gaps_ns: Sequence[tuple[int, int]] = ()
    """On the wall clock: times in which no step ran, ascending: between two attempts, and in long pauses."""

    @property
    def first_ns(self) -> int:
        return int(self.steps.at_ns[0])

    @property
    def end_ns(self) -> int:
        return int(_ends_ns(self.steps.where(np.s_[-1:]))[0])

    @property
    def ends(self) -> tuple[int, int]:
        """The ends of the x axis: steps, or nanoseconds since the epoch."""
        if self.view.axis is Axis.TIME:
            return self.first_ns, self.end_ns
        return int(self.steps.step[0]), int(self.steps.step[-1])


def shown_of(state: ViewState, reads: Reads) -> Shown:
    """The part of the run in a view. It has one step at least if the attempt has one."""
    facts, view = reads.facts(state), state.charts
    run = facts.summary

    def select() -> tuple[Series, Part, list[tuple[int, int]]]:
        own = _series_of_steps(facts.steps, run.attempt)
        steps = _recent(own, view.range)
        if view.axis is Axis.STEP:
            return steps, _part(steps, own, view.range, run), []
        steps = _on_the_clock(steps, own, view, run, reads)
        return steps, _part(steps, own, view.range, run), _gaps_ns(steps)

    steps, part, gaps_ns = reads.cached(run, ("shown", view.axis, view.range), select)
    return Shown(facts=facts, view=view, steps=steps, part=part, gaps_ns=gaps_ns)


def shown_steps(state: ViewState, steps: StepRange, reads: Reads) -> Shown:
    """Some steps of the attempt of a view. At least one of them must be stored."""
    facts = reads.facts(state)
    run, own = facts.summary, _series_of_steps(facts.steps, facts.summary.attempt)
    inside = own.where((own.step >= steps.first) & (own.step <= steps.last))
    part = Part((run.attempt,), steps.last - steps.first + 1, steps.first, steps.last, name=f"steps {steps}")
    return Shown(facts=facts, view=PLAIN_CHARTS, steps=inside, part=part)


def _recent(own: Series, chosen: ChartRange) -> Series:
    if (width_ns := NS_OF.get(chosen)) is not None:
        ends_ns = _ends_ns(own)
        return own.where(ends_ns > ends_ns[-1] - width_ns)
    return own.where(np.s_[-STEPS_OF.get(chosen, len(own.step)) :])


def _on_the_clock(recent: Series, own: Series, view: ChartView, run: RunSummary, reads: Reads) -> Series:
    """The steps of all attempts in the time that the range chooses, up to the end of the attempt ``own``. The range
    ``all`` is the whole run."""
    every = _steps_of_run(run, own, reads)
    if view.range is not ChartRange.ALL:
        end_ns = int(_ends_ns(own)[-1])
        since_ns = end_ns - NS_OF[view.range] if view.range in NS_OF else int(recent.at_ns[0])
        every = every.where((_ends_ns(every) > since_ns) & (every.at_ns < end_ns))
    return every.where(np.isin(every.attempt, np.unique(every.attempt)[-MAX_ATTEMPTS:]))


def _part(steps: Series, own: Series, chosen: ChartRange, run: RunSummary) -> Part:
    attempts = tuple(np.unique(steps.attempt).tolist())
    if attempts != (run.attempt,):
        return Part(attempts, len(steps.step), first_ns=int(steps.at_ns[0]), name=f"all attempts, {chosen}")
    if len(steps.step) == len(own.step):
        return Part.of(run)
    first, last = int(steps.step[0]), int(steps.step[-1])
    return Part(attempts, last - first + 1, first, last, name=chosen)


def _series_of_steps(steps: StepTimes, attempt: int) -> Series:
    return Series(
        metric="step-time",
        attempt=np.full(len(steps.step), attempt, np.int64),
        step=steps.step,
        at_ns=steps.start_ns,
        value=steps.duration_ns / NS_PER_S,
    )


def _ends_ns(steps: Series) -> Ints:
    return steps.at_ns + (steps.value * NS_PER_S).astype(np.int64)


def _steps_of_run(run: RunSummary, own: Series, reads: Reads) -> Series:
    """The steps of all attempts, ascending by time."""
    if len(reads.attempts(run.run_id)) == 1:
        return own
    newest = reads.newest(ViewState(run=run.run_id))
    last = own if newest.attempt == run.attempt else _series_of_steps(step_times(reads.steps(newest)), newest.attempt)
    rows = earlier_steps(newest, reads)
    rows = rows.filter(pc.field("stage") == int(Stage.STEP))
    parts = [
        Series(
            metric="step-time",
            attempt=ints(rows, "attempt"),
            step=ints(rows, "step"),
            at_ns=ints(rows, "start_ns"),
            value=floats(rows, "duration_ns") / NS_PER_S,
        ),
        last,
    ]
    every = _joined(parts)
    return every.where(np.argsort(every.at_ns, kind="stable"))


def _joined(parts: Sequence[Series]) -> Series:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("attempt", "step", "at_ns")}
    return Series(metric=parts[0].metric, value=np.concatenate([part.value for part in parts]), **columns)


def _gaps_ns(steps: Series) -> list[tuple[int, int]]:
    if len(steps.step) < 2:
        return []
    ends = np.maximum.accumulate(_ends_ns(steps))[:-1]
    waited = steps.at_ns[1:] - ends
    long_ns = LONG_PAUSE * float(np.median(steps.value)) * NS_PER_S
    rows = np.flatnonzero((waited > long_ns) | ((np.diff(steps.attempt) != 0) & (waited > 0)))
    return [(int(ends[row]), int(steps.at_ns[row + 1])) for row in rows]


def own_metrics(state: ViewState, reads: Reads) -> tuple[list[str], list[str]]:
    """The metrics that the user's code stores with ``rankscope.sample``: all names that a chart can show, and the names
    that the view shows now."""
    names = [name for name in reads.sample_names(reads.newest(state)) if _can_be_a_chart(name)]
    chosen = state.charts.metrics
    return names, names[:MAX_METRICS] if chosen is None else [name for name in chosen if name in names]


def _can_be_a_chart(name: str) -> bool:
    return name not in METRICS and 0 < len(name) <= MAX_METRIC_NAME and name.isprintable()


def metric_series(shown: Shown, metrics: Sequence[str], reads: Reads) -> dict[str, Series]:
    """The values of metrics in the part that is shown, by name. All of ``metrics`` are one query."""
    return reads.samples(shown.facts.summary, tuple(metrics), shown.part) if metrics else {}


def smooth_steps(shown: Shown, reads: Reads) -> Series:
    """The moving median of the step time."""

    def smooth() -> Series:
        width = 1 if len(shown.steps.step) <= MAX_SAMPLES else -(-len(shown.steps.step) // MAX_MEDIANS)
        return moving_median(_medians(shown.steps, width), shown.view.smooth, width)

    return reads.cached(shown.facts.summary, ("smooth steps", shown.view.smooth, shown.part.name), smooth)


def smooth_series(shown: Shown, metrics: Sequence[str], reads: Reads) -> dict[str, Series]:
    """The moving medians of metrics in the part that is shown, by name."""
    run, part, names = shown.facts.summary, shown.part, tuple(metrics)

    def smooth() -> dict[str, Series]:
        if part.is_short:
            series, width = reads.samples(run, names, part), 1
        else:
            width = part.column_steps(MAX_MEDIANS)
            query = SampleMedians(**part.of_query(run), metrics=names, column_steps=width)
            series = series_by_metric(reads.reader_of(run).read(query), run.attempt)
        return {name: moving_median(each, shown.view.smooth, width) for name, each in series.items()}

    return reads.cached(run, ("smooth", shown.view.smooth, part.name, names), smooth) if names else {}


def moving_median(series: Series, num_steps: int, width: int) -> Series:
    """The median of ``num_steps`` steps around each finite value, within its attempt. ``width``: the least number of
    steps between two values. At the ends the median is of fewer steps."""
    finite = series.where(np.isfinite(series.value))
    parts = [finite.where(finite.attempt == attempt) for attempt in np.unique(finite.attempt)]
    return _joined([_smoothed(part, num_steps, width) for part in parts]) if parts else finite


def _smoothed(part: Series, num_steps: int, width: int) -> Series:
    apart = max(width, int(np.median(np.diff(part.step)))) if len(part.step) > 1 else width
    half = num_steps // apart // 2
    if not half:
        return part
    padded = np.pad(part.value, half, constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    return replace(part, value=np.nanmedian(around, axis=1))


def _medians(series: Series, width: int) -> Series:
    """The medians of every ``width`` values, each at the step in the middle of them."""
    if width < 2:
        return series
    begins = range(0, len(series.step), width)
    middle = np.array([min(begin + width // 2, len(series.step) - 1) for begin in begins])
    value = np.array([np.median(series.value[begin : begin + width]) for begin in begins])
    return replace(series.where(middle), value=value)


def chosen_ends(steps: StepRange | None, shown: Shown) -> tuple[int, int] | None:
    """The ends of the chosen steps on the x axis, within what is shown. None if no chosen step is shown."""
    if steps is None:
        return None
    run = shown.facts.summary
    own = shown.steps.where(shown.steps.attempt == run.attempt)
    inside = own.where((own.step >= steps.first) & (own.step <= steps.last))
    if not len(inside.step):
        return None
    if shown.view.axis is Axis.TIME:
        return int(inside.at_ns[0]), int(_ends_ns(inside)[-1])
    return int(inside.step[0]), int(inside.step[-1])


def steps_between(state: ViewState, reads: Reads, first_ns: int, last_ns: int) -> ViewState:
    """The view after a drag along the wall clock: the steps that began in this time. If the attempt of the view has no
    such step, the steps of the attempt that has most of them."""
    shown = shown_of(state, reads)
    inside = shown.steps.where((shown.steps.at_ns >= first_ns) & (shown.steps.at_ns <= last_ns))
    if not len(inside.step):
        return state
    run = shown.facts.summary
    attempts, numbers = np.unique(inside.attempt, return_counts=True)
    attempt = run.attempt if run.attempt in attempts else int(attempts[numbers.argmax()])
    of_attempt = inside.where(inside.attempt == attempt)
    steps = StepRange(int(of_attempt.step.min()), int(of_attempt.step.max()))
    exactly = state if attempt == run.attempt else state.at_run(run.run_id, attempt)
    return exactly.at_steps(steps)
