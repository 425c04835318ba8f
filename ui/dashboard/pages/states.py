"""What a page says when there is nothing to draw: why, and what to do."""

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.run_state import not_shipping
from telemetry.errors import RankscopeError
from ui.dashboard.records import RunSummary
from ui.dashboard.wording import capitalized, stamp

START = "rankscope demo"
RECORD = """import telemetry

telemetry.start()          # under torchrun it knows its rank
with telemetry.step(number):
    with telemetry.span("forward-compute"):
        ..."""


def problem(error: RankscopeError) -> Component:
    """A fault and the way out of it."""
    text = [capitalized(error.hint) + ". ", dcc.Link("List of runs", href="?view=runs")]
    return notice(error.message, text, colour="red")


def notice(title: str, text: str | list[str | Component], *, colour: str = "gray") -> Component:
    """A sentence and what follows from it."""
    return dmc.Alert(
        html.Div(text, className="notice-text"), title=title, color=colour, variant="light", className="notice"
    )


def empty_store() -> Component:
    """No run is stored: how to get one."""
    return dmc.Stack(
        [
            dmc.Title("No run yet", order=2),
            dmc.Text("This page fills by itself as soon as a run reports. Two ways to get one:"),
            dmc.Text("A training of eight ranks on this machine, with a slow one among them:", fw=600, mt="sm"),
            dmc.Code(START, block=True),
            dmc.Text("Your own training loop, in a few lines:", fw=600, mt="sm"),
            dmc.Code(RECORD, block=True),
            dmc.Text("with RANKSCOPE_COLLECTOR set to the address of this page.", size="sm", c="dimmed"),
        ],
        gap="xs",
        maw=640,
        mx="auto",
        mt="xl",
        className="empty",
    )


def no_step(run: RunSummary) -> Component:
    """Ranks have reported, no step is stored: what is known of the reason."""
    if silent := not_shipping(run.heard):
        return notice(capitalized(silent.sentence), f"No step is stored. Next: {silent.next_step}.", colour="orange")
    if run.is_over:
        return notice(
            "No step was recorded",
            f"The run was last heard of at {stamp(run.heard.heard_ns)}. Look at the training's log, and check that "
            "the loop ran inside telemetry.step(number).",
        )
    return notice(
        "No step recorded yet",
        "The ranks have reported. This page fills by itself when the first step ends; if it does not, look at the "
        "training's log, and check that the loop runs inside telemetry.step(number).",
    )


def stalled_before_a_step(hang_view: str, run: RunSummary) -> Component:
    """The first step does not end, and the agents have looked why. ``hang_view``: the address that tells."""
    link = dcc.Link("Show hang view", href=hang_view, className="button primary")
    title = "The first step did not end" if run.is_over else "The first step does not end"
    return notice(title, [html.P("The agents have collected what the ranks left."), link])


def at_work(text: str) -> Component:
    """Stands where something is drawn that takes its time. ``text``: what is being done."""
    lines = [dmc.Loader(size="sm"), dmc.Text(text, size="sm")]
    return html.Div(dmc.Group(lines, gap="sm", p="md"), className="loading", role="status", **{"aria-busy": "true"})


def loading(height_px: int) -> Component:
    """Stands where a region will be drawn."""
    return html.Div(
        [dmc.Skeleton(height=height_px, radius="sm"), dmc.VisuallyHidden("loading")],
        className="loading",
        **{"aria-busy": "true"},
    )
