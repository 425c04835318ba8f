"""The fleet page: NIC, GPU and host samples beside the steps of the same time, for one host at a time."""

from dataclasses import replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from diagnose.model.fleet import HostEvent
from diagnose.model.load import DEFAULT_STEPS
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import HostScene, is_trouble
from ui.dashboard.pages.controls import bar, link_button, switch, titled, window_inputs, window_links, window_values
from ui.dashboard.pages.fleet.chart import host_panels
from ui.dashboard.pages.fleet.curves import curves_of, happenings
from ui.dashboard.pages.fleet.families import PANELS
from ui.dashboard.pages.fleet.hosts import HostSelection, draw_hosts, hosts_of, selection, told
from ui.dashboard.pages.interface import Chart, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import chart_panel, loading, panel
from ui.dashboard.records import MarkRow
from ui.dashboard.view_state import Family, View, ViewState
from ui.dashboard.wording import count, ranks_in_words, stamp

FAMILY_NAMES = {Family.NETWORK: "Network", Family.GPU: "GPU", Family.HOST: "Host"}
FAMILY_IN_WORDS = {Family.NETWORK: "network", Family.GPU: "GPU", Family.HOST: "host"}
MAX_LISTED = 30
"""Events in the list below the chart."""


def skeleton() -> Component:
    controls = html.Section(
        [
            html.Div(loading(60), id=region_id("fleet-controls")),
            html.Div(id=region_id("fleet-links"), className="links"),
        ],
        className="panel controls",
    )
    title = html.Div(loading(40), id=region_id("fleet-title"))
    label = "step times of the host's ranks and, on the same time axis, its samples; events are listed below"
    return dmc.Stack(
        [
            controls,
            html.Div(loading(160), id=region_id("hosts")),
            chart_panel("host", title, label=label, height_px=480),
            html.Div(id=region_id("happened")),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Host, family and steps of a view."""
    shown = selection(state, reads)
    return {
        "host": shown.host,
        "family": shown.family.value,
        **window_values(state),
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """Host, samples and steps; of a host that is not there, the first."""
    facts = reads.facts(state)
    known = state if state.host in facts.hosts else replace(state, host="")
    shown = control_values(known, reads)
    return bar(
        dmc.Select(
            label="Host",
            id=control_id("host"),
            value=shown["host"],
            data=hosts_of(facts),
            searchable=True,
            allowDeselect=False,
            limit=200,
            w=230,
        ),
        switch("Samples", "family", shown["family"], {one.value: name for one, name in FAMILY_NAMES.items()}),
        *window_inputs(shown, DEFAULT_STEPS),
    )


def draw_links(state: ViewState, reads: Reads) -> Component:
    """Ranges of steps that are wanted often, the clock of the host, and its ranks in the grid."""
    shown = selection(state, reads)
    run = shown.facts.summary
    clock = ViewState(view=View.CLOCK, run=run.run_id, attempt=run.attempt, host=shown.host)
    grid = ViewState(view=View.GRID, run=run.run_id, attempt=run.attempt, rank=shown.ranks[0])
    others = [link_button("Clock of this host", clock), link_button("Show ranks in grid", grid)]
    return html.Div([*window_links(state, DEFAULT_STEPS), *others], className="links")


def draw_title(state: ViewState, reads: Reads) -> Component:
    """What the chart shows, whose time it is, and what is missing."""
    shown = selection(state, reads)
    run, found = shown.facts.summary, told(shown, reads)
    exactly = replace(
        state, run=run.run_id, attempt=run.attempt, host=shown.host, family=shown.family, steps=shown.steps
    )
    title = f"{shown.host}: ranks {ranks_in_words(shown.ranks)}, steps {shown.steps.first} to {shown.steps.last}"
    notes = [dmc.Text(_says(shown, found), size="sm", c="dimmed")]
    if not found.series:
        notes.append(dmc.Text(_nothing_told(shown), size="sm", className="left-out"))
    return html.Div([titled(title, exactly), html.Div(notes, role="status")])


def draw_host(state: ViewState, reads: Reads) -> go.Figure | None:
    """The picture; none where the host's ranks recorded no step and it told nothing."""
    shown = selection(state, reads)
    found = told(shown, reads)
    if not found.ranks and not found.series:
        return None
    run, panels = shown.facts.summary, curves_of(PANELS[shown.family], found.series)
    lines = happenings(found.events, found.marks, found.series, _until(found))
    keep = f"{run.run_id}/{run.attempt}/{shown.host}/{shown.family}/{state.steps}/{len(panels)}"
    return host_panels(found.ranks, panels, lines, keep=keep)


def draw_happened(state: ViewState, reads: Reads) -> Component | None:
    """Events of the host and marks of its ranks in words, the newest first."""
    found = told(selection(state, reads), reads)
    rows = [*map(_of_event, found.events), *map(_of_mark, found.marks)]
    if not rows:
        return panel("Events and marks", dmc.Text("None in these steps.", size="sm", c="dimmed"))
    newest = sorted(rows, reverse=True)[:MAX_LISTED]
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in ("At", "Of", "What", "Text")]))
    body = dmc.TableTbody([dmc.TableTr([dmc.TableTd(cell) for cell in (stamp(at), *cells)]) for at, *cells in newest])
    title = "Events and marks" + (f": the newest {len(newest)} of {len(rows):,}" if len(rows) > len(newest) else "")
    return panel(title, dmc.TableScrollContainer(dmc.Table([head, body], className="small-table"), minWidth=420))


def _says(shown: HostSelection, found: HostScene) -> str:
    troubles = sum(map(is_trouble, found.events))
    others, marks = len(found.events) - troubles, len(found.marks)
    told = [f"{count(troubles, 'fault event')} shown" if troubles else "no fault event"]
    told += [count(others, "other event")] * bool(others) + [count(marks, "mark")] * bool(marks)
    return f"All times are from the clock of {shown.host}. {', '.join(told).capitalize()}."


def _nothing_told(shown: HostSelection) -> str:
    return (
        f"{shown.host} has no {FAMILY_IN_WORDS[shown.family]} samples in these steps. Choose other samples or steps. "
        "A host without such a device has no samples, nor has an agent that was started with --sample 0."
    )


def _until(found: HostScene) -> int:
    """The newest thing that is known of the host."""
    looks = [int(one.at_ns[-1]) for _, one in found.series if len(one.at_ns)]
    return max([found.last_ns, *looks, *(event.at_ns for event in found.events)])


def _of_event(event: HostEvent) -> tuple[int, str, str, str]:
    return event.at_ns, event.device, event.name, event.text


def _of_mark(mark: MarkRow) -> tuple[int, str, str, str]:
    return mark.at_ns, f"rank {mark.rank}", mark.name, mark.text


PAGE = Page(
    skeleton=skeleton,
    regions={
        "fleet-controls": Region(draw=draw_controls, live=False),
        "fleet-links": Region(draw=draw_links, live=False, quiet=True),
        "hosts": Region(draw=draw_hosts, quiet=True),
        "fleet-title": Region(draw=draw_title),
        "happened": Region(draw=draw_happened, quiet=True),
    },
    charts={"host": Chart(draw=draw_host)},
    control_values=control_values,
    ahead=lambda state, reads: told(selection(state, reads), reads),
)
