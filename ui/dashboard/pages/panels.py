"""The building blocks of pages: panels, tables, notices, cells of the list of runs, and links to ranks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.hang.verdict import HangVerdict
from diagnose.model.recent_steps import RecentMean
from diagnose.model.run_state import RunState, not_shipping
from telemetry.errors import RankscopeError
from ui.dashboard.components import SpanTimeline
from ui.dashboard.data.run_rows import OpenFindings
from ui.dashboard.figures.hang import SIGNS, Standing, standing_of
from ui.dashboard.figures.style import GRAPH_CONFIG
from ui.dashboard.pages.interface import SEVERITY_COLOURS, canvas_id, canvas_panel_id, chart_id, panel_id, region_id
from ui.dashboard.records import RunSummary
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import capitalized, count, stamp


def part(title: str, body: Component) -> Component:
    """A section about a rank."""
    return html.Section([html.H3(title, className="part-title"), body], className="part")


def facts_list(facts: Iterable[tuple[str, str | Component]]) -> Component:
    """Names and values in pairs."""
    return html.Dl([html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts], className="facts pairs")


def rank_chip(rank: int, verdict: HangVerdict, state: ViewState, *, label: str = "") -> Component:
    """A rank of a hang. ``label`` replaces ``rank 5``."""
    return standing_chip(rank, standing_of(verdict, rank), state, label=label)


def standing_chip(rank: int, standing: Standing, state: ViewState, *, label: str = "") -> Component:
    """A link that chooses the rank in the hang view, or in the grid view if that is shown."""
    view = View.GRID if state.view is View.GRID else View.HANG
    parts = [swatch(standing), label or f"rank {rank}"]
    address = replace(state.at_rank(rank), view=view).search()
    return dcc.Link(parts, href=address, className="rank-chip", title=f"rank {rank}: {standing}")


def rank_chips(ranks: Iterable[int], verdict: HangVerdict, state: ViewState, limit: int = 8) -> Component:
    """Several ranks, and the number of those left out."""
    listed = list(ranks)
    chips: list[Component | str] = [rank_chip(rank, verdict, state) for rank in listed[:limit]]
    more = [html.Span(f"and {count(len(listed) - limit, 'more rank')}", className="dim")] if len(listed) > limit else []
    return html.Span([*chips, *more], className="chips")


def swatch(standing: Standing) -> Component:
    """The symbol of a standing on its colour."""
    sign = SIGNS[standing]
    return html.Span(sign.symbol, className="sign", style={"background": sign.colour, "color": sign.ink})


def standing_badge(standing: Standing) -> Component:
    return html.Span([swatch(standing), standing.value], className="standing", title=SIGNS[standing].means)


STATE_COLOURS = {
    RunState.LIVE: "teal",
    RunState.SILENT: "orange",
    RunState.ENDED: "gray",
    RunState.DIED: "red",
    RunState.STALLED: "red",
}
STATE_MEANING = {
    RunState.LIVE: "a heartbeat arrived within 20 seconds",
    RunState.SILENT: "no heartbeat for 20 seconds and no rank has ended: the agents or their hosts are down",
    RunState.ENDED: "every rank ended normally, or no agent watched the run",
    RunState.DIED: "a rank ended with an error, or its process is lost",
    RunState.STALLED: "no step completes; the agents collected evidence",
}
UNKNOWN = "—"


def no_stall_text(run: RunSummary) -> str:
    """The state of a run without a known stall."""
    if run.heard.is_silent:
        return "No stall is known"
    return "No stall was recorded" if run.is_over or run.state is RunState.DIED else "The job is not stalled"


def state_badge(state: RunState) -> Component:
    return dmc.Badge(state.value, color=STATE_COLOURS[state], variant="light", size="md")


def stamp_parts(at_ns: int, *, seconds: bool = False) -> list[Component | str]:
    """Date and time of a cell. In a narrow cell they are two lines."""
    date, _, clock = stamp(at_ns).partition(" ")
    return [
        html.Span(date, className="unbroken"),
        " ",
        html.Span(clock if seconds else clock[:-3], className="unbroken"),
    ]


def state_cell(state: RunState) -> Component:
    """The state of a run, with its meaning as a tooltip."""
    return html.Span(state_badge(state), title=STATE_MEANING[state])


def findings_cell(findings: OpenFindings | None) -> Component:
    """The number of open findings, and the worst one."""
    if findings is None:
        return html.Span(
            "not analysed", className="dim", title="No watcher has analysed this run, and nobody has opened its pages"
        )
    if not findings.count:
        return html.Span("none", className="dim")
    count = dmc.Badge(str(findings.count), color=SEVERITY_COLOURS[findings.severity], variant="light", size="md")
    at_end = [html.Div("at the end", className="dim")] if findings.at_end else []
    parts = [count, html.Div([findings.worst, *at_end]), dmc.VisuallyHidden(f", {findings.severity.value}")]
    return html.Div(parts, className="run-findings", title=findings.summary)


def mean_of_steps(recent: RecentMean) -> str:
    """Which steps a mean contains, such as ``mean of steps 950 to 982``."""
    if recent.first_step == recent.last_step:
        return f"of step {recent.first_step:,}"
    return f"mean of steps {recent.first_step:,} to {recent.last_step:,}"


START = "rankscope demo"
RECORD = """import rankscope

rankscope.start()          # reads the rank from the environment of torchrun
with rankscope.step(number):
    with rankscope.span("forward-compute"):
        ..."""


def problem(error: RankscopeError) -> Component:
    """An error with its hint."""
    text = [capitalized(error.hint) + ". ", dcc.Link("List of runs", href="?view=runs")]
    return notice(error.message, text, colour="red")


def notice(title: str, text: str | list[str | Component], *, colour: str = "gray") -> Component:
    """A title and a text."""
    return dmc.Alert(
        html.Div(text, className="notice-text"), title=title, color=colour, variant="light", className="notice"
    )


def verdict_alert(title: str, lines: list[Component], colour: str) -> Component:
    """The main result of a page."""
    return dmc.Alert(dmc.Stack(lines, gap=6), title=title, color=colour, variant="light", className="verdict")


def empty_store() -> Component:
    """The notice of an empty store: how to start a first run."""
    return dmc.Stack(
        [
            dmc.Title("No run yet", order=2),
            dmc.Text("This page updates automatically when a run reports. There are two ways to start one:"),
            dmc.Text("A training run of eight ranks on this machine, one of them slow:", fw=600, mt="sm"),
            dmc.Code(START, block=True),
            dmc.Text("Your own training loop:", fw=600, mt="sm"),
            dmc.Code(RECORD, block=True),
            dmc.Text("Set RANKSCOPE_COLLECTOR to the address of this page.", size="sm", c="dimmed"),
        ],
        gap="xs",
        maw=640,
        mx="auto",
        mt="xl",
        className="empty",
    )


def no_step(run: RunSummary) -> Component:
    """The notice of a run without a step: why it has none, as far as this is known."""
    if silent := not_shipping(run.heard):
        return notice(capitalized(silent.sentence), f"No step is stored. Next: {silent.next_step}.", colour="orange")
    if run.is_over:
        return notice(
            "No step was recorded",
            f"The last data of the run arrived at {stamp(run.heard.heard_ns)}. Read the log of the training, and "
            "check that the loop ran inside rankscope.step(number).",
        )
    return notice(
        "No step recorded yet",
        "The ranks have reported. This page updates automatically when the first step ends. If it does not, read the "
        "log of the training, and check that the loop runs inside rankscope.step(number).",
    )


def stalled_before_a_step(hang_view: str, run: RunSummary) -> Component:
    """The notice of a run that stalled in its first step. ``hang_view``: the address of the hang page."""
    link = dcc.Link("Show hang view", href=hang_view, className="button primary")
    title = "The first step did not end" if run.is_over else "The first step does not end"
    return notice(title, [html.P("The agents have collected evidence from the ranks."), link])


def working(text: str) -> Component:
    """Shown while a slow part is computed. ``text`` says what is computed."""
    lines = [dmc.Loader(size="sm"), dmc.Text(text, size="sm")]
    return html.Div(dmc.Group(lines, gap="sm", p="md"), className="loading", role="status", **{"aria-busy": "true"})


def loading(height_px: int) -> Component:
    """Shown until a region is drawn."""
    return html.Div(
        [dmc.Skeleton(height=height_px, radius="sm"), dmc.VisuallyHidden("loading")],
        className="loading",
        **{"aria-busy": "true"},
    )


NOTHING_YET = go.Figure(layout={"template": "none", "xaxis": {"visible": False}, "yaxis": {"visible": False}})
"""The figure of a chart before its first drawing. Its axes are invisible, so that they are not drawn twice."""
WAITING, READY, HIDDEN = "panel waiting", "panel", "panel hidden"
"""Classes of the panel of a chart: before its first figure, with a figure, without data."""


def chart_panel(name: str, head: Component, *, label: str, height_px: int) -> Component:
    """A chart below ``head``. ``label`` describes it for screen readers. ``height_px``: the height until it is
    drawn."""
    graph = dcc.Graph(
        id=chart_id(name),
        figure=NOTHING_YET,
        config=GRAPH_CONFIG,
        style={"height": f"{height_px}px"},
    )
    figure = html.Div(graph, role="figure", className="figure", **{"aria-label": label})
    return html.Section([head, figure], id=panel_id(name), className=WAITING)


def canvas_panel(name: str, head: Component, *, label: str) -> Component:
    """A canvas of spans below ``head``. ``label`` describes it for screen readers."""
    return html.Section(
        [head, SpanTimeline(id=canvas_id(name), label=label)], id=canvas_panel_id(name), className=WAITING
    )


def table(names: Sequence[str], rows: Iterable[Iterable[object]], min_width_px: int) -> Component:
    """A table that scrolls if the page is narrower than ``min_width_px``."""
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in names]))
    body = dmc.TableTbody([dmc.TableTr([dmc.TableTd(cell) for cell in row]) for row in rows])
    return dmc.TableScrollContainer(dmc.Table([head, body], className="small-table"), minWidth=min_width_px)


def choice_table(
    title: str, label: str, names: Sequence[str], rows: Iterable[tuple[bool, Iterable[object]]]
) -> Component:
    """A table of hosts in a panel. ``rows``: whether the row is the chosen one, and its cells."""
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in names]))
    body = [
        dmc.TableTr([dmc.TableTd(cell) for cell in cells], className="chosen", **{"aria-current": "true"})
        if is_chosen
        else dmc.TableTr([dmc.TableTd(cell) for cell in cells], className="")
        for is_chosen, cells in rows
    ]
    whole = dmc.Table([head, dmc.TableTbody(body)], className="small-table", stickyHeader=True)
    scroll = html.Div(whole, className="hosts-table", tabIndex="0", role="region", **{"aria-label": label})
    return html.Section([heading(title), scroll], className="panel")


def panel(title: str, body: Component) -> Component:
    return html.Section([heading(title), body], className=READY)


def card(name: str, value: str, note: str) -> Component:
    """A number with its name and a note."""
    lines = [
        dmc.Text(name, size="xs", c="dimmed"),
        dmc.Text(value, className="number"),
        dmc.Text(note, size="xs", c="dimmed"),
    ]
    return dmc.Paper(lines, withBorder=True, p="sm")


def controls_panel(page: str) -> Component:
    """The panel of the regions ``<page>-controls`` and ``<page>-links``."""
    controls = html.Div(loading(60), id=region_id(f"{page}-controls"))
    return html.Section(
        [controls, html.Div(id=region_id(f"{page}-links"), className="links")], className="panel controls"
    )


def heading(title: str) -> Component:
    return html.H2(title, className="panel-title")
