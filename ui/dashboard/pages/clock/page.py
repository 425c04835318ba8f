"""The clock page: the offsets between the clocks of the hosts, their bounds, and why a clock is not aligned.

The table is that of `rankscope doctor --run`: offset, bound, drift and evidence of each host.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.host_clocks import WindowClocks
from diagnose.ranges import list_some
from telemetry.clocks.align_evidence import DISPUTED, ENDS, ORDER, PINGS, REFERENCE, UNALIGNED, HostClock
from telemetry.errors import UsageError
from telemetry.stores.queries import ClockHistory
from ui.dashboard.data import Reads
from ui.dashboard.data.clocks import clocks_now
from ui.dashboard.pages.clock.offset import HEIGHT_PX, clock_offset
from ui.dashboard.pages.controls import bar, titled
from ui.dashboard.pages.interface import Chart, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import chart_panel, choice_table, loading
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import count, duration, long_duration

MAX_POINTS = 500
"""Largest number of windows in one chart. If there are more, those with the widest bounds are shown."""


def clock_history(reads: Reads, facts: RunFacts, host: str) -> list[WindowClocks]:
    """The clock of ``host`` in each window. Only the newest window if no collector has estimated the others."""
    run = facts.summary
    columns = -(-(run.last_step - run.first_step + 1) // MAX_POINTS)
    query = ClockHistory(**run.key, hosts=(host,), column_steps=columns)
    if rows := reads.ask(run, query).to_pylist():
        return [_window(row) for row in rows]
    now = clocks_now(reads, facts)
    return [replace(now, clocks=(clock,)) for clock in now.clocks if clock.host == host]


def _window(row: dict[str, Any]) -> WindowClocks:
    first, last = row.pop("first_step"), row.pop("last_step")
    return WindowClocks(first_step=first, last_step=last, clocks=(HostClock(reference="", **row),))


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
    """Unaligned clocks first, then disputed ones, then the widest bounds. The reference is last."""
    return sorted(
        clocks, key=lambda clock: (clock.aligned, clock.method != DISPUTED, -clock.bound_ns, clock.host, clock.first_ns)
    )


def clock_table(now: WindowClocks, chosen: str, state: ViewState) -> Component:
    """The least certain clocks, and the chosen one."""
    rows = by_trouble(now.clocks)
    shown = rows[:MAX_HOSTS] + [clock for clock in rows[MAX_HOSTS:] if clock.host == chosen]
    title = f"Clocks over steps {now.first_step} to {now.last_step}, against {now.clocks[0].reference}"
    if len(rows) > len(shown):
        title += f"; {count(len(rows) - len(shown), 'more row')}, not listed: choose a host by name below"
    return choice_table(
        title, "table of clocks", COLUMNS, [(clock.host == chosen, _cells(clock, state)) for clock in shown]
    )


def _cells(clock: HostClock, state: ViewState) -> tuple[object, ...]:
    link = dcc.Link(clock.host, href=replace(state, view=View.CLOCK, host=clock.host).search(), className="run-link")
    numbers = (
        _offset_text(clock),
        f"±{duration(clock.bound_ns)}",
        f"{clock.drift_ppm:+.2f} ppm",
        f"{clock.num_events:,}",
        long_duration((clock.last_ns - clock.first_ns) / 1e9),
    )
    method = METHODS.get(clock.method, clock.method)
    return link, *(numbers if clock.aligned else [""] * len(numbers)), method, clock.reason


MAX_NAMED = 8
"""Largest number of hosts in one sentence."""


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


def _draw_says(state: ViewState, reads: Reads) -> Component:
    now = clocks_now(reads, reads.facts(state))
    hosts = {clock.host for clock in now.clocks}
    refused = [clock for clock in now.clocks if not clock.aligned]
    disputed = [clock for clock in now.clocks if clock.method == DISPUTED]
    if len(hosts) == 1:
        return _alert("teal", "One clock", f"All ranks ran on {now.clocks[0].host}, so no alignment is needed.", [])
    if not refused and not disputed:
        return _alert("teal", "The offsets of all clocks are known", _known_offsets(now), [])
    reasons = [*_reasons("not aligned", refused), *_reasons("disputed", disputed)]
    if not refused:
        text = f"{_known_offsets(now)} Two methods gave different offsets, so the bound was widened to include both."
        return _alert("yellow", f"{count(len(disputed), 'clock')} disputed", text, reasons)
    text = (
        f"Over steps {now.first_step} to {now.last_step}. On the timeline, rows of these hosts may be shifted relative "
        "to the others. Findings do not use their time stamps. Durations are correct: they need no common clock."
    )
    return _alert("orange", f"{len(refused):,} of {count(len(hosts), 'host')} not aligned", text, reasons)


def _known_offsets(now: WindowClocks) -> str:
    """The widest bound and the largest offset. The reference host has neither."""
    others = [clock for clock in now.clocks if clock.method != REFERENCE]
    num_hosts = len({clock.host for clock in others})
    bound, largest = max(clock.bound_ns for clock in others), max(others, key=lambda clock: abs(clock.offset_ns))
    what = "The offset of 1 host" if num_hosts == 1 else f"The offsets of {num_hosts:,} hosts"
    return (
        f"{what} from {now.clocks[0].reference} {'is' if num_hosts == 1 else 'are'} known to ±{duration(bound)} "
        f"over steps {now.first_step} to {now.last_step}; largest offset: {largest.host}, {_offset_text(largest)}."
    )


def _offset_text(clock: HostClock) -> str:
    return f"{clock.offset_ns / 1e6:+,.3f} ms"


def _draw_clocks(state: ViewState, reads: Reads) -> Component:
    facts = reads.facts(state)
    now = clocks_now(reads, facts)
    exactly = replace(state, run=facts.summary.run_id, attempt=facts.summary.attempt)
    return clock_table(now, state.host or _chosen(state, now), exactly)


def _draw_controls(state: ViewState, reads: Reads) -> Component:
    now = clocks_now(reads, reads.facts(state))
    hosts = sorted({clock.host for clock in now.clocks})
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


def _draw_title(state: ViewState, reads: Reads) -> Component:
    facts = reads.facts(state)
    now = clocks_now(reads, facts)
    host, run = _chosen(state, now), facts.summary
    windows = clock_history(reads, facts, host)
    num_refused = sum(not clock.aligned for window in windows for clock in window.clocks)
    notes = [f"Clock of {host} minus clock of {now.clocks[0].reference}. Error bars show the error bound."]
    if len(windows) == 1:
        notes.append("Only one window of steps was measured.")
    if num_refused:
        notes.append(
            f"The clock could not be aligned in {num_refused} of {count(len(windows), 'window')}. "
            f"{'This window is' if num_refused == 1 else 'These windows are'} shaded."
        )
    exactly = replace(state, run=run.run_id, attempt=run.attempt, host=host)
    return html.Div([titled(f"Offset of {host}", exactly), dmc.Text(" ".join(notes), size="sm", c="dimmed")])


def draw_offset(state: ViewState, reads: Reads) -> go.Figure | None:
    """The figure of the chosen host. None if the host is never aligned."""
    facts = reads.facts(state)
    host, run = _chosen(state, clocks_now(reads, facts)), facts.summary
    keep = f"{run.run_id}/{run.attempt}/{host}"
    return clock_offset(clock_history(reads, facts, host), facts.steps, keep=keep)


def _chosen(state: ViewState, now: WindowClocks) -> str:
    """The host of the address. Otherwise the aligned host with the widest bound.

    Raises:
        UsageError: the run has no such host.
    """
    if not state.host:
        rows = by_trouble(now.clocks)
        return next((clock.host for clock in rows if clock.aligned), rows[0].host)
    if state.host not in {clock.host for clock in now.clocks}:
        raise UsageError(f"No rank ran on a host {state.host}", hint="choose one from the list of hosts")
    return state.host


def _reasons(what: str, clocks: Sequence[HostClock]) -> list[str]:
    """``not aligned: gpu-003, gpu-004: no collective in common ...``: one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for clock in clocks:
        by_reason.setdefault(clock.reason or "reason unknown", []).append(clock.host)
    return [
        f"{what}: {list_some(list(dict.fromkeys(hosts)), MAX_NAMED)}: {reason}" for reason, hosts in by_reason.items()
    ]


def _alert(colour: str, title: str, text: str, reasons: list[str]) -> Component:
    parts = [dmc.Text(text, size="sm"), *([html.Ul([html.Li(reason) for reason in reasons])] if reasons else [])]
    return html.Div(dmc.Alert(parts, title=title, color=colour, variant="light", className="verdict"), role="status")


PAGE = Page(
    title="Clock",
    skeleton=skeleton,
    regions={
        "clock-says": Region(draw=_draw_says, quiet=True),
        "clocks": Region(draw=_draw_clocks, quiet=True),
        "clock-controls": Region(draw=_draw_controls, quiet=True),
        "clock-title": Region(draw=_draw_title),
    },
    charts={"offset": Chart(draw=draw_offset)},
    control_values=control_values,
    preload=lambda state, reads: clocks_now(reads, reads.facts(state)),
)
