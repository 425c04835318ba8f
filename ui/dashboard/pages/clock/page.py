"""The clock page: the offsets between the clocks of the hosts, their bounds, and why a clock is not aligned.

The table is that of `rankscope doctor --run`: offset, bound, drift and evidence of each host.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.host_clocks import WindowClocks
from diagnose.ranges import list_some
from telemetry.clocks.align_evidence import DISPUTED, ENDS, ORDER, PINGS, REFERENCE, UNALIGNED, HostClock
from telemetry.errors import UsageError
from ui.dashboard.data import Reads
from ui.dashboard.pages.clock.measured import clock_history, clocks_now
from ui.dashboard.pages.clock.offset import HEIGHT_PX, clock_offset
from ui.dashboard.pages.controls import bar, titled
from ui.dashboard.pages.interface import Chart, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import chart_panel, heading, loading
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import count, duration, long_duration

MAX_HOSTS = 50
COLUMNS = ("Host", "Offset", "Bound", "Drift", "Events", "Time span", "Method", "Note")
METHODS = {
    REFERENCE: "the reference",
    ENDS: "ends of collectives",
    ORDER: "order of collectives and transfers",
    PINGS: "pings to the collector",
    DISPUTED: "disputed",
    UNALIGNED: "not aligned",
}


def by_trouble(clocks: Iterable[HostClock]) -> list[HostClock]:
    """The refused first, then the disputed, then the widest bounds; the reference last."""
    return sorted(clocks, key=lambda one: (one.aligned, one.method != DISPUTED, -one.bound_ns, one.host, one.first_ns))


def clock_table(now: WindowClocks, chosen: str, state: ViewState) -> Component:
    """The least certain first, the chosen one wherever it stands, and how many more there are."""
    rows = by_trouble(now.clocks)
    shown = rows[:MAX_HOSTS] + [one for one in rows[MAX_HOSTS:] if one.host == chosen]
    title = f"Clocks over steps {now.first_step} to {now.last_step}, against {now.clocks[0].reference}"
    if len(rows) > len(shown):
        title += f"; {count(len(rows) - len(shown), 'more row')}, not listed: choose a host by name below"
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in COLUMNS]))
    body = dmc.TableTbody([_row(one, chosen, state) for one in shown])
    table = dmc.Table([head, body], className="small-table", stickyHeader=True)
    scroll = html.Div(table, className="hosts-table", tabIndex="0", role="region", **{"aria-label": "table of clocks"})
    return html.Section([heading(title), scroll], className="panel")


def _row(one: HostClock, chosen: str, state: ViewState) -> Component:
    here = one.host == chosen
    address = replace(state, view=View.CLOCK, host=one.host).search()
    cells = (
        dcc.Link(one.host, href=address, className="run-link"),
        *_numbers(one),
        METHODS.get(one.method, one.method),
        one.reason,
    )
    current = {"aria-current": "true"} if here else {}
    return dmc.TableTr([dmc.TableTd(cell) for cell in cells], className="chosen" if here else "", **current)


def _numbers(one: HostClock) -> tuple[str, ...]:
    if not one.aligned:
        return "", "", "", "", ""
    return (
        f"{one.offset_ns / 1e6:+,.3f} ms",
        f"±{duration(one.bound_ns)}",
        f"{one.drift_ppm:+.2f} ppm",
        f"{one.num_events:,}",
        long_duration((one.last_ns - one.first_ns) / 1e9),
    )


MAX_NAMED = 8
"""Hosts in one sentence."""


def skeleton() -> Component:
    title = html.Div(loading(40), id=region_id("clock-title"))
    label = "offset of the chosen host's clock with its bound, over the run; the table above has the newest numbers"
    return dmc.Stack(
        [
            html.Div(loading(90), id=region_id("clock-says")),
            html.Div(loading(200), id=region_id("clocks")),
            html.Section(html.Div(loading(60), id=region_id("clock-controls")), className="panel controls"),
            chart_panel("offset", title, label=label, height_px=HEIGHT_PX),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The host of a view."""
    return {"host": _chosen(state, clocks_now(reads, reads.facts(state)))}


def draw_says(state: ViewState, reads: Reads) -> Component:
    """Whether stamps of different hosts can be compared, and if not, why."""
    now = clocks_now(reads, reads.facts(state))
    hosts = {one.host for one in now.clocks}
    refused = [one for one in now.clocks if not one.aligned]
    disputed = [one for one in now.clocks if one.method == DISPUTED]
    if len(hosts) == 1:
        return _alert("teal", "One clock", f"All ranks ran on {now.clocks[0].host}, so no alignment is needed.", [])
    within = duration(max((one.bound_ns for one in now.clocks), default=0))
    steps = f"steps {now.first_step} to {now.last_step}"
    if not refused and not disputed:
        text = f"{count(len(hosts), 'host')} within ±{within} of {now.clocks[0].reference} over {steps}."
        return _alert("teal", "All clocks are aligned", text, [])
    reasons = [*_reasons("not aligned", refused), *_reasons("disputed", disputed)]
    if not refused:
        text = f"Aligned within ±{within} over {steps}, but two methods disagree. The bound includes both results."
        return _alert("yellow", f"{count(len(disputed), 'clock')} disputed", text, reasons)
    text = (
        f"Over {steps}. On the timeline, rows of these hosts may be shifted against the others. Findings do not use "
        "their time stamps. Durations are correct: they need no common clock."
    )
    return _alert("orange", f"{len(refused):,} of {count(len(hosts), 'host')} not aligned", text, reasons)


def draw_clocks(state: ViewState, reads: Reads) -> Component:
    """The table, the least certain first."""
    facts = reads.facts(state)
    now = clocks_now(reads, facts)
    exactly = replace(state, run=facts.summary.run_id, attempt=facts.summary.attempt)
    return clock_table(now, state.host or _chosen(state, now), exactly)


def draw_controls(state: ViewState, reads: Reads) -> Component:
    """The host whose clock is drawn; of one that is not there, the first."""
    now = clocks_now(reads, reads.facts(state))
    hosts = sorted({one.host for one in now.clocks})
    return bar(
        dmc.Select(
            label="Clock of host",
            id=control_id("host"),
            value=_chosen(state if state.host in hosts else replace(state, host=""), now),
            data=hosts,
            searchable=True,
            allowDeselect=False,
            limit=200,
            w=230,
        )
    )


def draw_title(state: ViewState, reads: Reads) -> Component:
    """Whose clock the chart shows, and what it cannot show."""
    facts = reads.facts(state)
    now = clocks_now(reads, facts)
    host, run = _chosen(state, now), facts.summary
    windows = clock_history(reads, facts, host)
    num_refused = sum(not clock.aligned for one in windows for clock in one.clocks)
    notes = [f"Clock of {host} minus clock of {now.clocks[0].reference}. Error bars show the bound."]
    if len(windows) == 1:
        notes.append("Only one window of steps was measured.")
    if num_refused:
        notes.append(f"Not aligned in {num_refused} of {count(len(windows), 'window')}, shaded.")
    exactly = replace(state, run=run.run_id, attempt=run.attempt, host=host)
    return html.Div([titled(f"Offset of {host}", exactly), dmc.Text(" ".join(notes), size="sm", c="dimmed")])


def draw_offset(state: ViewState, reads: Reads) -> go.Figure | None:
    """The picture; none of a host that nothing bounds."""
    facts = reads.facts(state)
    host, run = _chosen(state, clocks_now(reads, facts)), facts.summary
    keep = f"{run.run_id}/{run.attempt}/{host}"
    return clock_offset(clock_history(reads, facts, host), facts.steps, keep=keep)


def _chosen(state: ViewState, now: WindowClocks) -> str:
    """The host of the address, else the least certain one that is aligned.

    Raises:
        UsageError: the run has no such host.
    """
    if not state.host:
        rows = by_trouble(now.clocks)
        return next((one.host for one in rows if one.aligned), rows[0].host)
    if state.host not in {one.host for one in now.clocks}:
        raise UsageError(f"No rank ran on a host {state.host}", hint="choose one from the list of hosts")
    return state.host


def _reasons(what: str, clocks: Sequence[HostClock]) -> list[str]:
    """``not aligned: gpu-003, gpu-004: no collective in common ...``, hosts of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for one in clocks:
        by_reason.setdefault(one.reason or "reason unknown", []).append(one.host)
    return [
        f"{what}: {list_some(list(dict.fromkeys(hosts)), MAX_NAMED)}: {reason}" for reason, hosts in by_reason.items()
    ]


def _alert(colour: str, title: str, text: str, reasons: list[str]) -> Component:
    parts = [dmc.Text(text, size="sm"), *([html.Ul([html.Li(one) for one in reasons])] if reasons else [])]
    return html.Div(dmc.Alert(parts, title=title, color=colour, variant="light", className="verdict"), role="status")


PAGE = Page(
    skeleton=skeleton,
    regions={
        "clock-says": Region(draw=draw_says, quiet=True),
        "clocks": Region(draw=draw_clocks, quiet=True),
        "clock-controls": Region(draw=draw_controls, quiet=True),
        "clock-title": Region(draw=draw_title),
    },
    charts={"offset": Chart(draw=draw_offset)},
    control_values=control_values,
    ahead=lambda state, reads: clocks_now(reads, reads.facts(state)),
)
