"""The analysis that all parts of the what-if page share, as sentences, numbers and charts."""

from collections.abc import Iterator
from typing import NamedTuple

import dash_mantine_components as dmc
import numpy as np
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from diagnose.findings import Basis
from diagnose.whatif.analysis import WORTH_EXPLAINING, WhatIf
from diagnose.whatif.conclude import Conclusion
from telemetry.stages import StageClass
from ui.dashboard.data import Reads
from ui.dashboard.data.whatif import ReplayRequest, command, replay_request, whatif
from ui.dashboard.defaults import suspects, typical_step
from ui.dashboard.figures import blame
from ui.dashboard.figures.blame import stage_of
from ui.dashboard.pages.panels import card, notice
from ui.dashboard.records import GpuPrice, RunFacts
from ui.dashboard.view_state import StepRange, ViewState
from ui.dashboard.wording import NS_PER_S, count, duration, worker_name


class AnalysisResult(NamedTuple):
    """An analysis with a conclusion."""

    found: Conclusion
    figures: WhatIf
    facts: RunFacts
    step: int
    """A typical replayed step, for links."""
    keep: str


def concluded(state: ViewState, reads: Reads) -> AnalysisResult | None:
    """The analysis of a view. None if it has no conclusion.

    Raises:
        StillWorking: the replay is not ready.
    """
    facts = reads.facts(state)
    found = whatif(facts, replay_request(facts, state, reads), reads)
    if found.figures is None or not found.holds:
        return None
    first, last = int(found.steps[0]), int(found.steps[-1])
    run = facts.summary
    return AnalysisResult(
        found=found,
        figures=found.figures,
        facts=facts,
        step=typical_step(facts, StepRange(first, last)),
        keep=f"{run.run_id}/{run.attempt}/{state.steps}",
    )


def slowdown_analysis(state: ViewState, reads: Reads) -> AnalysisResult | None:
    """The analysis. None if it shows no slowdown."""
    shown = concluded(state, reads)
    return None if shown is None or shown.found.worst_workers is None else shown


def draw_part(name: str, state: ViewState, reads: Reads) -> go.Figure | None:
    """The chart ``name`` of the page. None without a slowdown, or if it would have a single bar or cell."""
    shown = slowdown_analysis(state, reads)
    if shown is None:
        return None
    figures, step, keep = shown.figures, shown.step, shown.keep
    match name:
        case "by-stage":
            return blame.by_stage(figures, step, keep=keep)
        case "by-pp" if len(figures.by_pp) > 1:
            return blame.by_place(figures, "pp", step, keep=keep)
        case "by-dp" if len(figures.by_dp) > 1:
            return blame.by_place(figures, "dp", step, keep=keep)
        case "workers" if figures.by_worker.size > 1:
            return blame.workers(figures, suspects(shown.found.report), step, keep=keep)
        case "fixing" if shown.found.worst_workers is not None:
            ideal_s = float(figures.ideal_step_s.mean())
            worst = shown.found.worst_workers
            return blame.fixing(worst, figures.topology, ideal_s, step_s=shown.found.step_s, keep=keep)
    return None


TO_BLAME = 0.5
"""A part with at least this share of a slowdown is its cause. Source: arXiv 2505.05713, section 5."""
LARGE_PART = 0.25
"""A stage or worker with at least this share of a slowdown is named if nothing causes most of it."""


def sentences(
    found: Conclusion, figures: WhatIf, facts: RunFacts, request: ReplayRequest, price: GpuPrice | None
) -> Component:
    """The cost, its cause, and the basis of both."""
    parts = [
        dmc.Text(cost_text(found, figures, facts, price), fw=600, className="says"),
        dmc.Text(cause_text(figures) + link_losses(found, figures), size="sm"),
        dmc.Text(_basis(found, figures), size="sm", c="dimmed"),
        *(dmc.Text(text, size="sm", c="dimmed") for text in _other_baseline(found, figures)),
    ]
    if left_out := _bounded(found, figures, facts, request):
        parts.append(dmc.Text(left_out, size="sm", className="left-out"))
    return html.Div(parts, role="status")


def cost_text(found: Conclusion, figures: WhatIf, facts: RunFacts, price: GpuPrice | None) -> str:
    """A text such as ``A step takes 1.32 s; if all workers were equally fast, it would take 1.10 s. …``."""
    lost, spent = _hours(found, figures)
    cost = f", {price.of(lost)}" if price else ""
    return (
        f"A step takes {_seconds(found.step_s)}; if all workers were equally fast, it would take "
        f"{_seconds(found.ideal_step_s)}. The slowdown (S) is {figures.slowdown:.2f}x. {figures.waste:.1%} of the "
        f"{_hour(facts)}s of steps {found.steps[0]} to {found.steps[-1]} are lost: {_amount(lost)} of "
        f"{_amount(spent)} {_hour(facts)}s{cost}."
    )


def cause_text(figures: WhatIf) -> str:
    """The main cause: the slowest workers, a pipeline stage, communication, or something that all ranks share."""
    if figures.m_w is None or figures.m_s is None:
        return f"The slowdown is below {WORTH_EXPLAINING:.2f}x, which is too small to name a cause."
    has_stages, links = figures.topology.pp > 1, _slow_links(figures)
    if figures.m_w >= TO_BLAME:
        return f"{_slowest(figures, 'most of the slowdown')}{links}"
    if has_stages and figures.m_s >= TO_BLAME:
        return f"The last pipeline stage causes most of the slowdown{_remedy(figures)}"
    if has_stages and (pp := _heavy_stage(figures)) is not None:
        return f"Pipeline stage pp{pp} causes most of the slowdown, on all its replicas{_remedy(figures)}"
    none = f"No single worker{' or pipeline stage' * has_stages} causes most of the slowdown."
    if not links:
        return (
            f"{none} The slowdown affects all workers. Possible causes: a slow collective, unequal microbatches, "
            "garbage collection."
        )
    workers = f" {_slowest(figures, f'{figures.m_w:.0%} of the slowdown')}" if figures.m_w >= LARGE_PART else ""
    return f"{none}{links}{workers}"


def _slowest(figures: WhatIf, part: str) -> str:
    """The slowest worker, or the slowest workers if several are compared with the rest, cause ``part``."""
    dp, pp = figures.worst_first[0].tolist()
    worst = worker_name(figures.topology, dp, pp)
    if figures.num_worst == 1:
        return f"The slowest worker, {worst}, causes {part}: check its ranks and their host."
    return f"A few workers cause {part}. The slowest is {worst}: check its ranks and their host."


def _slow_links(figures: WhatIf) -> str:
    """A sentence about the longest stage, if it is communication and causes a large part of the slowdown."""
    worst = _longest_communication(figures)
    share = (figures.by_stage[worst] - 1) / (figures.slowdown - 1) if worst else 0.0
    if share < LARGE_PART:
        return ""
    return f" Communication ({worst}) causes {min(share, 1.0):.0%} of the slowdown: check the links between its ranks."


def link_losses(found: Conclusion, figures: WhatIf) -> str:
    """A sentence about link losses that caused a large part of the slowdown. Empty without any.

    A delayed collective inside compute counts as compute of its members, so no communication stage shows it.
    """
    losses = [mark for mark in found.report.marks if mark.held_s > 0]
    held_s = sum(mark.held_s for mark in losses)
    lost_s = (found.step_s - found.ideal_step_s) * len(figures.rows)
    if not losses or held_s < LARGE_PART * lost_s:
        return ""
    hosts = ", ".join(sorted({mark.host for mark in losses}))
    return (
        f" Link losses of {hosts} stalled the job for {held_s:.1f} s, of {lost_s:.1f} s that are lost in these steps: "
        "check the network cards and cables."
    )


def _remedy(figures: WhatIf) -> str:
    """The end of the sentence about a slow pipeline stage. Fewer layers help a stage that computes too long, but not a
    stage with a slow link."""
    if worst := _longest_communication(figures):
        return f", mostly in {worst}: check the links of its hosts, not its layers."
    return ": move layers to other stages."


def _longest_communication(figures: WhatIf) -> str:
    """The label of the stage with the largest slowdown, if it is communication. Otherwise empty."""
    worst = max(figures.by_stage, key=lambda label: figures.by_stage[label], default="")
    return worst if worst and stage_of(worst).stage_class is StageClass.COMMUNICATION else ""


def _heavy_stage(figures: WhatIf) -> int | None:
    """The pipeline stage that causes most of the slowdown, if no other stage causes half as much. None if there is no
    such stage."""
    alone, heaviest = figures.by_pp - 1, int(figures.by_pp.argmax())
    others = np.delete(alone, heaviest).max(initial=0.0)
    most = max(TO_BLAME * (figures.slowdown - 1), others / TO_BLAME)
    return heaviest if alone[heaviest] >= most else None


def cards(found: Conclusion, figures: WhatIf, facts: RunFacts, price: GpuPrice | None) -> Component:
    return dmc.SimpleGrid(
        [card(*number) for number in _numbers(found, figures, facts, price)],
        cols={"base": 2, "sm": 3, "lg": 6},
        spacing="sm",
    )


def refusal(found: Conclusion) -> Component:
    """Why there is no analysis, and what to do."""
    finding = found.report.findings[0]
    return notice(finding.summary, finding.next_step)


def _numbers(
    found: Conclusion, figures: WhatIf, facts: RunFacts, price: GpuPrice | None
) -> Iterator[tuple[str, str, str]]:
    lost, _ = _hours(found, figures)
    yield "Step time", _seconds(found.step_s), f"mean of {count(len(figures.rows), 'step')}"
    yield "Ideal step time", _seconds(found.ideal_step_s), "all workers equally fast"
    yield "Slowdown S", f"{figures.slowdown:.3f}x", "step time / ideal, both replayed"
    yield (
        "Lost against ideal",
        f"{figures.waste:.1%}",
        f"{_amount(lost)} {_hour(facts)}s" + (f", {price.of(lost)}" if price else ""),
    )
    if figures.m_w is not None and figures.m_s is not None:
        yield "M_W", f"{max(0.0, figures.m_w):.0%}", "of the slowdown is due to the worst 3% of workers"
        if figures.topology.pp > 1:
            yield "M_S", f"{max(0.0, figures.m_s):.0%}", "of the slowdown is due to the last pipeline stage"


def _basis(found: Conclusion, figures: WhatIf) -> str:
    error = 0.0 if found.replay_error is None else found.replay_error
    left_out = (
        f"; {count(figures.num_left_out, 'step')} not replayed, because a rank ran other operations in them"
        * bool(figures.num_left_out)
    )
    return (
        f"{count(len(figures.rows), 'step')} replayed, {count(figures.num_operations, 'operation')}{left_out}. The "
        f"replayed step times differ from the measured ones by {error:.1%}. “Alone” means that one part "
        "takes its measured time and all others take the ideal time. Waiting counts for the rank that causes it. A "
        "slow transfer or collective counts for all its members, so the slowdown of a worker alone is an upper bound. "
        "This page cannot show a cause that slows all ranks equally."
    )


def _other_baseline(found: Conclusion, figures: WhatIf) -> Iterator[str]:
    """Why a finding of these steps costs more than the whole loss, if one does."""
    costs = [finding.share_lost for finding in found.report.findings if finding.basis is Basis.REPLAYED]
    if round(max(costs, default=0.0), 3) > round(figures.waste, 3):  # as the page prints them
        yield (
            "A finding of these steps costs more than this loss, because the two figures have different baselines. The "
            "cost of a finding compares its ranks with their peers. The ideal step takes the mean of all workers, the "
            "slow ones included."
        )


def _bounded(found: Conclusion, figures: WhatIf, facts: RunFacts, request: ReplayRequest) -> str:
    """What is left out of a large run. Empty for a small one."""
    num_replayed = len(figures.rows) + figures.num_left_out
    if num_replayed >= request.num_steps:
        return ""
    return (
        f"{request.num_operations:,} operations are too many for this page. It shows the newest {num_replayed} of "
        f"{request.num_steps} steps. For more, run: {command(facts, request)}"
    )


def _hours(found: Conclusion, figures: WhatIf) -> tuple[float, float]:
    """Lost and total hours of all ranks in the replayed steps."""
    spent = figures.topology.world_size * found.step_s * len(figures.rows) / 3600
    return spent * figures.waste, spent


def _hour(facts: RunFacts) -> str:
    return "rank hour" if facts.summary.meta.get("device") == "cpu" else "GPU hour"


def _amount(hours: float) -> str:
    """A number of hours with three significant digits, including zeros at the end."""
    return f"{hours:,.0f}" if hours >= 99.95 else f"{hours:#.3g}"


def _seconds(seconds: float) -> str:
    return duration(seconds * NS_PER_S)
