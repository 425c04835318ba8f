"""mfu-decline: steps take longer than before. The finding shows since which step, and which stages take longer.

    step time    1.0 s  |  1.2 s      since step 5210, and it stays
    compute      0.6 s  |  0.6 s      flat on every rank ...
    reduce       0.2 s  |  0.4 s      ... so ranks wait: one launches late, or the network is slow

The change points are those of the whole attempt (:mod:`diagnose.detectors.change_points`): a window may contain only
the end of a decline. The steps of the window on both sides show what grew. Compute counts on the rank on which it grew
the most, because one slow rank slows all. Communication counts on the typical rank, because waiting grows everywhere
but on the culprit (MegaScale 6.3). Time off the core counts as compute: on a busy machine ranks do the same work later,
and wait longer for each other. So waiting is reported only if compute explains little. No rank is a suspect: other
detectors name it. A step with more work is no decline: there is no finding if utilisation or throughput kept up.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.change_points import Rise, find_rise
from diagnose.detectors.contended import off_core
from diagnose.findings import Evidence, Finding, Kind, Severity, StepWindow, severity_of
from diagnose.model.operations import Floats, Ints
from diagnose.model.peers import MEDIAN_EFFICIENCY, robust_sigma
from diagnose.model.view import NOTHING, RunView, Series
from telemetry.stages import Stage, StageClass

NAME = "mfu-decline"
MIN_ROWS = 5
"""Steps that the window must contain on both sides of a change to show what grew."""
MAX_ROWS = 50
MIN_PART = 0.25
"""Share of the longer step that compute, or a stage of waiting, must have grown by to explain it. Also the share of
compute that a named stage must have."""
MIN_Z = 5.0
WAITING = {stage for stage in Stage if stage.stage_class is StageClass.COMMUNICATION} | {Stage.OPTIMIZER_CLIP}
"""Stages whose duration depends on other ranks. Clipping sums over all ranks."""
IN_BACKGROUND = {Stage.STEP, Stage.CHECKPOINT_WRITE}
OFF_CORE = "compute (off CPU)"
"""Label of the time off the core, summed over all compute stages: the host causes it, in any of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much longer a stage takes in each step."""

    label: str
    waiting: bool
    ns: float
    """Growth on the typical rank for waiting, on the worst rank for compute."""
    by_rank_ns: Floats
    rank: int
    """The worst rank."""
    everywhere: bool
    """Whether the typical rank has at least half of the growth of the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """A rise of the step time, in steps of the run."""

    rise: Rise
    before: StepWindow
    after: StepWindow
    rates: tuple[str, float, float] | None
    """Name of the measured speed, and its value before and after."""


def detect_mfu_decline(view: RunView) -> list[Finding]:
    """At most one finding: the decline that costs the most, or one that ended in the window."""
    history = view.history if len(view.history.steps) else Series(steps=view.steps, values=view.step_ns)
    known = history.values > 0
    history = Series(steps=history.steps[known], values=history.values[known])
    rise = find_rise(history.values)
    if rise is None or history.steps[rise.end - 1] < view.window.first_step:
        return []
    decline = _dated(view, history.steps, rise)
    return [] if _keeps_up(decline) else [_finding(view, decline)]


def _dated(view: RunView, steps: Ints, rise: Rise) -> Decline:
    before = StepWindow(first_step=int(steps[rise.before.start]), last_step=int(steps[rise.before.stop - 1]))
    after = StepWindow(first_step=int(steps[rise.first]), last_step=int(steps[rise.end - 1]))
    measured = [
        (metric, *values)
        for metric in ("mfu", "tokens-per-second")
        if (values := _medians(view.samples.get(metric, NOTHING), before, after)) is not None
    ]
    return Decline(rise=rise, before=before, after=after, rates=measured[0] if measured else None)


def _medians(series: Series, before: StepWindow, after: StepWindow) -> tuple[float, float] | None:
    parts = [series.values[_within(series.steps, window)] for window in (before, after)]
    parts = [part[np.isfinite(part)] for part in parts]
    if not all(len(part) for part in parts):
        return None
    return float(np.median(parts[0])), float(np.median(parts[1]))


def _within(steps: Ints, window: StepWindow) -> Ints:
    return np.flatnonzero((steps >= window.first_step) & (steps <= window.last_step))


def _keeps_up(decline: Decline) -> bool:
    """Whether the measured speed fell by less than half of the change of the step time: steps contain more work."""
    if decline.rates is None:
        return False
    _, before, after = decline.rates
    return after > 0 and before / after < decline.rise.ratio**0.5


def _what_grew(view: RunView, before: StepWindow, after: StepWindow) -> list[Growth] | None:
    """Stages that take longer than before, the largest growth first. None if the window has fewer than ``MIN_ROWS``
    steps of one side."""
    rows = _within(view.steps, before)[-MAX_ROWS:], _within(view.steps, after)[:MAX_ROWS]
    if min(map(len, rows)) < MIN_ROWS:
        return None
    grown = [_growth(label, waiting, ns[rows[0]], ns[rows[1]]) for label, waiting, ns in _durations(view)]
    return sorted((growth for growth in grown if growth is not None), key=lambda growth: -growth.ns)


def _durations(view: RunView) -> list[tuple[str, bool, Floats]]:
    """The parts of a step: label, whether it is waiting, and nanoseconds [steps, ranks]."""
    found = [(f"{stage.label} (compute time)", False, work.ns) for stage, work in view.work.items()]
    if (time := off_core(view)) is not None:
        found.append((OFF_CORE, False, time.off_ns))
    for stage, operations in view.operations.items():
        total_ns = operations.total_ns()
        if stage in view.work:
            own_ns = view.work[stage].ns + view.off_cpu.get(stage, 0.0)
            found.append((f"{stage.label} (waiting inside)", True, total_ns - own_ns))
        elif stage not in IN_BACKGROUND:
            found.append((stage.label, stage in WAITING, total_ns))
    return found


def _growth(label: str, waiting: bool, before: Floats, after: Floats) -> Growth | None:
    """How much longer a stage takes, or None if noise explains it."""
    grown = _level(after) - _level(before)
    noise = robust_sigma(np.concatenate((before - _level(before), after - _level(after))).ravel(), 0.0)
    error = MEDIAN_EFFICIENCY * noise * (1 / len(before) + 1 / len(after)) ** 0.5
    worst, typical = int(np.argmax(grown)), float(np.median(grown))
    ns = typical if waiting else float(grown[worst])
    if ns <= MIN_Z * error:
        return None
    everywhere = typical >= grown[worst] / 2
    return Growth(label=label, waiting=waiting, ns=ns, by_rank_ns=grown, rank=worst, everywhere=everywhere)


def _level(ns: Floats) -> Floats:
    """Time of each rank in a step: the median, or the mean if the stage occurs in fewer than half of the steps."""
    present = ~np.isnan(ns)
    filled = np.where(present, ns, 0.0)
    return np.asarray(np.median(filled, axis=0) if present.mean() >= 0.5 else filled.mean(axis=0), dtype=np.float64)


def _finding(view: RunView, decline: Decline) -> Finding:
    rise = decline.rise
    grown = _what_grew(view, decline.before, decline.after)
    share = 1.0 - 1.0 / rise.ratio
    steps = rise.end - rise.first
    return Finding(
        detector=NAME,
        kind=Kind.MFU_DECLINE,
        severity=Severity.INFO if _is_over(view, decline) else severity_of(share),
        window=decline.after,
        seconds_lost=rise.lost_ns / 1e9,
        confidence=round(rise.share * steps / (steps + 2), 2),
        summary=f"{_change(view, decline)}; "
        + (_cause(rise, grown) if view.work or view.operations else "no stage is recorded that shows the cause"),
        next_step=_next_step(decline, grown),
        evidence=_evidence(decline, grown or [], share),
    )


def _is_over(view: RunView, decline: Decline) -> bool:
    return decline.after.last_step < view.window.last_step


def _change(view: RunView, decline: Decline) -> str:
    rise = decline.rise
    how = "took" if _is_over(view, decline) else "take" if rise.sudden else "gradually take"
    when = f"from step {decline.after.first_step} to {decline.after.last_step}, then recovered"
    since = when if _is_over(view, decline) else f"since step {decline.after.first_step}"
    numbers = f"{rise.before_ns / 1e6:.4g} -> {rise.after_ns / 1e6:.4g} ms"
    if decline.rates is not None:
        name, before, after = decline.rates
        is_mfu = name == "mfu"
        numbers += f", MFU {before:.1%} -> {after:.1%}" if is_mfu else f", {before:.4g} -> {after:.4g} tokens/s"
    return f"steps {how} {rise.ratio - 1:.0%} longer {since} ({numbers})"


def _main(rise: Rise, grown: list[Growth]) -> list[Growth]:
    """The stages that explain at least ``MIN_PART`` of the growth, the largest first: compute, otherwise waiting."""
    own = [growth for growth in grown if not growth.waiting]
    enough_ns = MIN_PART * (rise.after_ns - rise.before_ns)
    own_ns = _compute_growth_ns(grown)
    if own and own_ns >= enough_ns:
        return [growth for growth in own if growth.ns >= MIN_PART * own_ns] or own[:1]
    return [growth for growth in grown if growth.waiting and growth.ns >= enough_ns]


def _compute_growth_ns(grown: list[Growth]) -> float:
    """Growth of all compute on the rank on which it grew the most."""
    by_rank = [np.maximum(growth.by_rank_ns, 0.0) for growth in grown if not growth.waiting]
    return float(np.max(np.sum(by_rank, axis=0), initial=0.0))


def _cause(rise: Rise, grown: list[Growth] | None) -> str:
    if grown is None:
        return "the window does not contain the change"
    main = _main(rise, grown)
    if not main:
        return "no recorded stage became slower: the time is lost between spans"
    if not main[0].waiting:
        where = "on every rank" if main[0].everywhere else f"most on rank {main[0].rank}"
        longer = ", ".join(f"{growth.label} takes {_ms(growth.ns)} longer" for growth in main[:3])
        return f"in each step {longer}, {where}"
    labels = ", ".join(f"{growth.label} +{_ms(growth.ns)}" for growth in main[:3])
    own_ns = _compute_growth_ns(grown)
    compute = f"compute grew by at most {_ms(own_ns)}" if own_ns else "compute did not grow"
    return f"communication or waiting takes longer ({labels}) and {compute}: a late rank or the network is the cause"


def _ms(ns: float) -> str:
    """Milliseconds with three digits and without an exponent."""
    digits = np.format_float_positional(ns / 1e6, precision=3, unique=False, fractional=False, trim="-")
    return f"{digits} ms"


def _next_step(decline: Decline, grown: list[Growth] | None) -> str:
    since = decline.after.first_step
    if grown is None:
        first = max(decline.before.first_step, decline.before.last_step + 1 - MAX_ROWS)
        last = max(min(since + MAX_ROWS, decline.after.last_step), since)
        return f"run: rankscope diagnose --first-step {first} --last-step {last}"
    main = _main(decline.rise, grown)
    if not main:
        return f"compare the gaps between spans before and after step {since} in the timeline"
    if main[0].waiting:
        return (
            f"find the rank that ends step {since} last in the timeline. Check its garbage collection and host load. "
            "If all ranks end together, check links and switches"
        )
    where = "all hosts" if main[0].everywhere else f"the host of rank {main[0].rank}"
    if all(growth.label == OFF_CORE for growth in main):
        return f"check what else uses the cores of {where} since step {since}: other processes, CPU limits"
    return f"check what changed on {where} at step {since}: clocks, temperature, other processes, data"


def _evidence(decline: Decline, grown: list[Growth], share: float) -> Evidence:
    rise = decline.rise
    numbers: dict[str, float | int | str | list[str]] = {
        "since_step": decline.after.first_step,
        "ratio": round(rise.ratio, 4),
        "share_of_step_time": round(share, 4),
        "before_ms": round(rise.before_ns / 1e6, 3),
        "after_ms": round(rise.after_ns / 1e6, 3),
        "sudden": int(rise.sudden),
        "share_of_steps": round(rise.share, 3),
        "grew_ms_per_step": [f"{growth.label} {growth.ns / 1e6:+.3f}" for growth in grown[:10]],
    }
    if decline.rates is not None:
        name, before, after = decline.rates
        numbers |= {f"{name}_before": before, f"{name}_after": after}
    return {**numbers}
