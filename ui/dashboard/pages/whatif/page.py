"""What slowness costs, and what putting each thing right would give: the steps replayed as if nobody were slow."""

from dataclasses import replace

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from ui.dashboard.background import StillWorking
from ui.dashboard.data import Reads
from ui.dashboard.data.whatif import asked_for, whatif
from ui.dashboard.defaults import NEWEST_STEPS
from ui.dashboard.figures.blame import PLACES_PX
from ui.dashboard.pages.controls import bar, link_button, window_inputs, window_links, window_values
from ui.dashboard.pages.interface import Chart, Page, Region, region_id
from ui.dashboard.pages.panels import chart_panel, heading, panel
from ui.dashboard.pages.states import at_work, loading
from ui.dashboard.pages.whatif.charts import DRAWN, shown_analysis, taken_apart
from ui.dashboard.pages.whatif.cost import cards, refusal, sentences
from ui.dashboard.pages.whatif.tables import gains_table, worst_table
from ui.dashboard.view_state import Colour, View, ViewState

CHARTS = {
    "by-stage": ("By stage: click for its heat map", "slowdown by each stage alone"),
    "by-pp": ("By pipeline rank: click for its timeline", "slowdown by each pipeline rank alone"),
    "by-dp": ("By replica: click for its timeline", "slowdown by each data-parallel replica alone"),
    "workers": ("Workers, pipeline rank by replica: click for the timeline", "slowdown by each worker alone, coloured"),
    "fixing": ("Step time with so many of the worst workers put right", "step time by number of workers put right"),
}


def skeleton() -> Component:
    panels = {
        name: chart_panel(name, heading(title), label=label, height_px=PLACES_PX)
        for name, (title, label) in CHARTS.items()
    }
    tables = [html.Div(loading(120), id=region_id(name)) for name in ("whatif-gains", "whatif-worst")]
    return dmc.Stack(
        [
            html.Section(
                [
                    html.Div(loading(60), id=region_id("whatif-controls")),
                    html.Div(id=region_id("whatif-links"), className="links"),
                ],
                className="panel controls",
            ),
            html.Div(at_work("Reading the steps."), id=region_id("whatif-says")),
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


def draw_links(state: ViewState, reads: Reads) -> Component:
    """Ranges of steps that are wanted often, and the blame in the grid."""
    grid = link_button("In the grid", replace(state, view=View.GRID, colour=Colour.BLAME))
    return html.Div([*window_links(state, NEWEST_STEPS), grid], className="links")


def draw_says(state: ViewState, reads: Reads) -> Component:
    """The cost in a sentence and what it rests on; why there is none; or that it is being worked out."""
    facts = reads.facts(state)
    asked = asked_for(facts, state, reads)
    try:
        found = whatif(facts, asked, reads)
    except StillWorking:
        return at_work(
            f"Replaying steps {asked.steps.first} to {asked.steps.last} ({asked.num_operations:,} operations): this "
            "may take some seconds. The page fills by itself."
        )
    if found.figures is None or not found.holds:
        return refusal(found)
    return sentences(found, found.figures, facts, asked, reads.gpu_price)


def draw_cards(state: ViewState, reads: Reads) -> Component | None:
    """The figures one by one."""
    shown = shown_analysis(state, reads)
    return shown and cards(shown.found, shown.figures, shown.facts, reads.gpu_price)


def draw_gains(state: ViewState, reads: Reads) -> Component | None:
    """What each remedy would give."""
    shown = shown_analysis(state, reads)
    return shown and panel("What putting it right would give", gains_table(shown.found, shown.figures))


def draw_worst(state: ViewState, reads: Reads) -> Component | None:
    """The worst parts, with the ways to them."""
    shown = taken_apart(state, reads)
    if shown is None:
        return None
    run = shown.facts.summary
    exactly = replace(state, run=run.run_id, attempt=run.attempt)
    return panel("Where it sits", worst_table(shown.figures, shown.facts, exactly, shown.step))


PAGE = Page(
    skeleton=skeleton,
    regions={
        "whatif-controls": Region(draw=draw_controls, live=False),
        "whatif-links": Region(draw=draw_links, live=False, quiet=True),
        "whatif-says": Region(draw=draw_says),
        "whatif-cards": Region(draw=draw_cards, quiet=True),
        "whatif-gains": Region(draw=draw_gains, quiet=True),
        "whatif-worst": Region(draw=draw_worst, quiet=True),
    },
    charts={name: Chart(draw=draw) for name, draw in DRAWN.items()},
    control_values=control_values,
    ahead=shown_analysis,
)
