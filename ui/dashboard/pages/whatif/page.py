"""The what-if page: the cost of slow ranks, from a replay of the steps in which all ranks are equally fast.

Two tables show the savings of each change, and the parts with the largest slowdown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import Conclusion
from telemetry.topology import Place
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.data.whatif import replay_request, whatif, whatif_freshness
from ui.dashboard.defaults import NEWEST_STEPS
from ui.dashboard.figures.blame import PLACES_PX, stage_of
from ui.dashboard.pages.controls import (
    bar,
    link_button,
    stage_timeline,
    timeline_of,
    window_inputs,
    window_links,
    window_values,
)
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import chart_panel, controls_panel, heading, loading, panel, table, working
from ui.dashboard.pages.whatif.analysis import cards, concluded, draw_part, refusal, sentences, slowdown_analysis
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Colour, View, ViewState
from ui.dashboard.wording import ranks_text, worker_name

MOST_WORKERS, MOST_PARTS = 5, 3
LEAST = 1.001
"""A part with a smaller slowdown is not listed."""
LITTLE = 0.1
"""A worker is listed if its slowdown exceeds the value that all workers share by at least this share of the slowest
worker's excess."""


def gains_table(found: Conclusion, figures: WhatIf) -> Component:
    """Each change with the time that it saves."""
    worst, rows = found.worst_workers, [(fix.in_words, *_gain(fix.saved_s, fix.share)) for fix in found.fixes]
    if worst is not None:
        spent_s, shares = found.step_s * len(figures.rows), 1 - worst.step_s / worst.step_s[0]
        rows += [
            (_worst_in_words(number), *_gain(share * spent_s, share))
            for number, share in zip(worst.num_fixed[1:].tolist(), shares[1:].tolist(), strict=True)
            if number & (number - 1) == 0
        ]
    if not rows:
        return dmc.Text("No change would save time.", size="sm", c="dimmed")
    return table(("Change", "Saved in these steps", "Share of step time"), rows, min_width_px=380)


def _gain(saved_s: float, share: float) -> tuple[str, str]:
    """The cells of a gain. A negative gain is noise and is shown as none."""
    return (f"{saved_s:.2f} s", f"{share:.1%}") if saved_s > 0 else ("none", "")


def worst_table(figures: WhatIf, facts: RunFacts, state: ViewState, step: int) -> Component:
    """The worst workers, places and stages. ``state``: the view with its run. ``step``: the step of timeline links."""
    rows = [*_workers(figures, facts, state, step), *_places(figures, state, step), *_stages(figures, state)]
    return table(("Part", "Slowdown alone", "Ranks", "Show"), rows, min_width_px=380)


def _workers(figures: WhatIf, facts: RunFacts, state: ViewState, step: int) -> Iterator[Sequence[object]]:
    """The slowest workers, without those that have little more than the value that all workers share."""
    topology = figures.topology
    if figures.by_worker.size < 2:
        return
    least = max(LEAST, figures.shared + LITTLE * (float(figures.by_worker.max()) - figures.shared))
    for dp, pp in figures.worst_first[:MOST_WORKERS].tolist():
        first = topology.rank(Place(dp=dp, pp=pp, tp=0))
        ratio, ranks = float(figures.by_worker[dp, pp]), topology.group(first, along="tp")
        hosts = ", ".join(dict.fromkeys(facts.hosts[rank] or "unknown host" for rank in ranks))
        if ratio >= least:
            where = f"{ranks_text(ranks)} on {hosts}"
            yield (
                f"worker {worker_name(topology, dp, pp)}",
                _alone(ratio),
                where,
                _link("timeline", timeline_of(state, first, step)),
            )


def _places(figures: WhatIf, state: ViewState, step: int) -> Iterator[Sequence[object]]:
    topology = figures.topology
    parts = [
        *((ratio, "pp", index) for index, ratio in enumerate(figures.by_pp.tolist()) if topology.pp > 1),
        *((ratio, "dp", index) for index, ratio in enumerate(figures.by_dp.tolist()) if topology.dp > 1),
    ]
    for ratio, axis, index in sorted(parts, key=lambda part: -part[0])[:MOST_PARTS]:
        if axis == "pp":
            to = stage_timeline(state, topology.rank(Place(dp=0, pp=index, tp=0)), step)
        else:
            to = timeline_of(state, topology.rank(Place(dp=index, pp=0, tp=0)), step)
        name = f"pipeline rank pp{index}" if axis == "pp" else f"replica {topology.replica(index)}"
        if ratio >= LEAST:
            yield name, _alone(ratio), "", _link("timeline", to)


def _stages(figures: WhatIf, state: ViewState) -> Iterator[Sequence[object]]:
    for label, ratio in sorted(figures.by_stage.items(), key=lambda item: -item[1])[:MOST_PARTS]:
        if ratio >= LEAST:
            to = replace(state.at_stage(stage_of(label)), view=View.HEAT_MAP)
            yield label, _alone(ratio), "", _link("heat map", to)


def _worst_in_words(number: int) -> str:
    return "slowest worker made ideal" if number == 1 else f"slowest {number} workers made ideal"


def _alone(ratio: float) -> str:
    return f"{ratio:.3f}x"


def _link(text: str, state: ViewState) -> Component:
    return dcc.Link(text, href=state.search())


CHARTS = {
    "by-stage": ("By stage. Click a bar for its heat map", "slowdown by each stage alone"),
    "by-pp": ("By pipeline rank. Click a bar for its timeline", "slowdown by each pipeline rank alone"),
    "by-dp": ("By replica. Click a bar for its timeline", "slowdown by each data-parallel replica alone"),
    "workers": (
        "Workers by replica. Click a cell for its timeline",
        "slowdown by each worker alone, coloured",
    ),
    "fixing": ("Step time if the slowest workers are fixed", "step time by number of workers that are fixed"),
}


def skeleton() -> Component:
    panels = {
        name: chart_panel(name, heading(title), label=label, height_px=PLACES_PX)
        for name, (title, label) in CHARTS.items()
    }
    tables = [html.Div(loading(120), id=region_id(name)) for name in ("whatif-gains", "whatif-worst")]
    return dmc.Stack(
        [
            controls_panel("whatif"),
            html.Div(working("Reading the steps …"), id=region_id("whatif-says")),
            html.Div(loading(90), id=region_id("whatif-cards")),
            panels["workers"],
            dmc.SimpleGrid([panels["by-pp"], panels["by-dp"]], cols={"base": 1, "lg": 2}),
            dmc.SimpleGrid([panels["by-stage"], panels["fixing"]], cols={"base": 1, "lg": 2}),
            dmc.SimpleGrid(tables, cols={"base": 1, "lg": 2}),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The steps of a view."""
    return window_values(state)


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """The window of steps."""
    return bar(*window_inputs(control_values(state, reads), NEWEST_STEPS))


def _draw_links(state: ViewState, reads: Reads) -> Component:
    grid = link_button("Show in grid", replace(state, view=View.GRID, colour=Colour.BLAME))
    return html.Div([*window_links(state, NEWEST_STEPS), grid], className="links")


def draw_says(state: ViewState, reads: Reads) -> Component:
    """The cost and its basis, why there is none, or that it is being computed."""
    facts = reads.facts(state)
    request = replay_request(facts, state, reads)
    try:
        found = whatif(facts, request, reads)
    except StillWorking:
        return working(
            f"Replaying steps {request.steps.first} to {request.steps.last} ({request.num_operations:,} operations). "
            "This may take some seconds. The page updates automatically."
        )
    if found.figures is None or not found.holds:
        return refusal(found)
    return sentences(found, found.figures, facts, request, reads.gpu_price)


def _draw_cards(state: ViewState, reads: Reads) -> Component | None:
    shown = concluded(state, reads)
    return shown and cards(shown.found, shown.figures, shown.facts, reads.gpu_price)


def _draw_gains(state: ViewState, reads: Reads) -> Component | None:
    shown = concluded(state, reads)
    return shown and panel("Savings by change", gains_table(shown.found, shown.figures))


def _draw_worst(state: ViewState, reads: Reads) -> Component | None:
    shown = slowdown_analysis(state, reads)
    if shown is None:
        return None
    run = shown.facts.summary
    exactly = replace(state, run=run.run_id, attempt=run.attempt)
    return panel("Parts with the largest slowdown", worst_table(shown.figures, shown.facts, exactly, shown.step))


PAGE = Page(
    title="What if",
    skeleton=skeleton,
    regions={
        "whatif-controls": Region(draw=draw_controls, live=False),
        "whatif-links": Region(draw=_draw_links, live=False, quiet=True),
        "whatif-says": Region(draw=draw_says),
        "whatif-cards": Region(draw=_draw_cards, quiet=True),
        "whatif-gains": Region(draw=_draw_gains, quiet=True),
        "whatif-worst": Region(draw=_draw_worst, quiet=True),
    },
    charts={name: Chart(draw=partial(draw_part, name)) for name in CHARTS},
    control_values=control_values,
    preload=concluded,
    freshness=whatif_freshness,
)
