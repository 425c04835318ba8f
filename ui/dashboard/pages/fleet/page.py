"""The fleet page: NIC, GPU and host samples beside the steps of the same time, for one host at a time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dash_mantine_components as dmc
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.detectors.gpu_throttled import MIN_EXTRA
from diagnose.findings import Finding, kind_in_words
from diagnose.model.chosen_steps import DEFAULT_STEPS
from diagnose.model.fleet import HostEvent
from diagnose.model.gpus import is_gpu
from telemetry.errors import UsageError
from telemetry.host_metrics import Happening
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import FLAPS, HostScene, HostTrouble, agents_freshness, host_scene, is_trouble, troubles
from ui.dashboard.defaults import FAMILY_OF, chosen_steps, findings_of_hosts
from ui.dashboard.pages.controls import bar, link_button, switch, titled, window_inputs, window_links, window_values
from ui.dashboard.pages.fleet.chart import host_panels
from ui.dashboard.pages.fleet.curves import chart_events, curves_of, num_throttled
from ui.dashboard.pages.fleet.families import PANELS, metrics_of
from ui.dashboard.pages.interface import Chart, Page, Region, control_id, region_id
from ui.dashboard.pages.panels import chart_panel, choice_table, controls_panel, loading, panel, table
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Family, StepRange, View, ViewState
from ui.dashboard.wording import capitalized, count, ranks_text, stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSelection:
    """The host, family of samples and steps that are shown."""

    facts: RunFacts
    host: str
    family: Family
    steps: StepRange

    @property
    def ranks(self) -> list[int]:
        return [rank for rank, host in enumerate(self.facts.hosts) if host == self.host]


def selection(state: ViewState, reads: Reads) -> HostSelection:
    """The host, samples and steps of a view. It uses the detectors only if the address lacks host or family.

    Raises:
        UsageError: the run has no such host, or no such steps.
    """
    facts = reads.facts(state)
    steps = chosen_steps(state, facts, newest=DEFAULT_STEPS)
    hosts = hosts_of(facts)
    if not hosts or (state.host and state.host not in hosts):
        raise UsageError(f"No rank ran on host {state.host}", hint="choose one from the list of hosts")
    if state.host and state.family:
        return HostSelection(facts=facts, host=state.host, family=state.family, steps=steps)
    findings = findings_of_hosts(reads.reports.of(facts.summary), hosts)
    host = state.host or (next(iter(findings), hosts[0]))
    kinds = [findings[name].kind for name in (host, *findings) if name in findings]
    family = next((FAMILY_OF[kind] for kind in kinds if kind in FAMILY_OF), Family.NETWORK)
    return HostSelection(facts=facts, host=host, family=state.family or family, steps=steps)


def hosts_of(facts: RunFacts) -> list[str]:
    """All hosts of a run, in the order of their ranks."""
    return list(dict.fromkeys(filter(None, facts.hosts)))


def scene_of(shown: HostSelection, reads: Reads) -> HostScene:
    return host_scene(reads, shown.facts, shown.host, metrics_of(shown.family), shown.steps)


MAX_HOSTS = 50
COLUMNS = (
    "Host",
    "Ranks",
    "Finding",
    "Fault events",
    "Link losses",
    "GPU throttling, % of the time (worst GPU)",
    "CPU pressure",
)
NO_TROUBLE = HostTrouble()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """A row of the table of hosts."""

    host: str
    ranks: tuple[int, ...]
    finding: Finding | None
    trouble: HostTrouble


def worst_first(
    ranks: Mapping[str, Sequence[int]], findings: Mapping[str, Finding], troubles: Mapping[str, HostTrouble]
) -> list[HostRow]:
    """Hosts with findings first, in the order of ``findings``. Then by link losses, fault events, throttling and
    pressure. All arguments are by host."""
    order = {host: place for place, host in enumerate(findings)}

    def key(host: str) -> tuple[float, ...]:
        trouble = troubles.get(host, NO_TROUBLE)
        pressure = 0.0 if math.isnan(trouble.cpu_pressure) else trouble.cpu_pressure
        return order.get(host, math.inf), -trouble.flaps, -trouble.events, -trouble.throttled, -pressure

    return [
        HostRow(host=host, ranks=tuple(ranks[host]), finding=findings.get(host), trouble=troubles.get(host, NO_TROUBLE))
        for host in sorted(ranks, key=key)
    ]


def _draw_hosts(state: ViewState, reads: Reads) -> Component:
    facts = reads.facts(state)
    chosen = selection(state, reads)
    ranks: dict[str, list[int]] = {host: [] for host in hosts_of(facts)}
    for rank, host in enumerate(facts.hosts):
        if host:
            ranks[host].append(rank)
    findings = findings_of_hosts(reads.reports.of(facts.summary), ranks)
    rows = worst_first(ranks, findings, troubles(reads, facts, chosen.steps))
    shown = rows[:MAX_HOSTS] + [row for row in rows[MAX_HOSTS:] if row.host == chosen.host]
    more = f"; {count(len(rows) - len(shown), 'more host')} with fewer faults not listed: choose a host by name above"
    title = f"Hosts over steps {chosen.steps.first} to {chosen.steps.last}: those with a finding first, then by faults"
    title += more if len(rows) > len(shown) else ""
    return choice_table(
        title, "table of hosts", COLUMNS, [(row.host == chosen.host, _cells(row, state)) for row in shown]
    )


def _cells(row: HostRow, state: ViewState) -> tuple[object, ...]:
    trouble = row.trouble
    family = FAMILY_OF.get(row.finding.kind, state.family) if row.finding else state.family
    address = replace(state, view=View.FLEET, host=row.host, family=family).search()
    return (
        dcc.Link(row.host, href=address, className="run-link"),
        ranks_text(row.ranks, limit=3),
        kind_in_words(row.finding.kind) if row.finding else "",
        f"{trouble.events:,}" if trouble.events else "",
        f"{trouble.flaps:,}" if trouble.flaps else "",
        f"{trouble.throttled:.0%} ({trouble.throttled_by})" if trouble.throttled >= MIN_EXTRA else "",
        "" if math.isnan(trouble.cpu_pressure) else f"{trouble.cpu_pressure:.0%}",
    )


FAMILY_NAMES = {Family.NETWORK: "Network", Family.GPU: "GPU", Family.HOST: "Host"}
FAMILY_TEXT = {Family.NETWORK: "network", Family.GPU: "GPU", Family.HOST: "host"}
DEVICES = {Family.NETWORK: "network card", Family.GPU: "GPU"}
MAX_LISTED = 30
"""Largest number of events in the list below the chart."""


def skeleton() -> Component:
    title = html.Div(loading(40), id=region_id("fleet-title"))
    label = "step times of the host's ranks and, on the same time axis, its samples; events are listed below"
    return dmc.Stack(
        [
            controls_panel("fleet"),
            html.Div(loading(160), id=region_id("hosts")),
            chart_panel("host", title, label=label, height_px=480),
            html.Div(id=region_id("happened")),
        ],
        gap="md",
    )


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Host, family and steps of a view."""
    shown = selection(state, reads)
    return {"host": shown.host, "family": shown.family.value, **window_values(state)}


def _draw_controls(state: ViewState, reads: Reads) -> Component:
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
        switch("Samples", "family", shown["family"], {family.value: name for family, name in FAMILY_NAMES.items()}),
        *window_inputs(shown, DEFAULT_STEPS),
    )


def _draw_links(state: ViewState, reads: Reads) -> Component:
    shown = selection(state, reads)
    run = shown.facts.summary
    exactly = replace(state, run=run.run_id, attempt=run.attempt, host=shown.host)
    rank = state.rank if state.rank in shown.ranks else shown.ranks[0]
    others = [
        link_button("Clock of this host", replace(exactly, view=View.CLOCK)),
        link_button("Show ranks in grid", replace(exactly.at_rank(rank), view=View.GRID)),
    ]
    return html.Div([*window_links(state, DEFAULT_STEPS), *others], className="links")


def _draw_title(state: ViewState, reads: Reads) -> Component:
    shown = selection(state, reads)
    run, found = shown.facts.summary, scene_of(shown, reads)
    exactly = replace(
        state, run=run.run_id, attempt=run.attempt, host=shown.host, family=shown.family, steps=shown.steps
    )
    title = f"{shown.host}: ranks {ranks_text(shown.ranks)}, steps {shown.steps.first} to {shown.steps.last}"
    notes = [dmc.Text(_says(shown, found, reads), size="sm", c="dimmed")]
    if not found.series:
        missing = no_samples(shown, found, has_others=_has_other_samples(shown, reads))
        notes.append(dmc.Text(missing, size="sm", className="left-out"))
    return html.Div([titled(title, exactly), html.Div(notes, role="status")])


def draw_host(state: ViewState, reads: Reads) -> go.Figure | None:
    """The figure of the host. None if there are neither steps of its ranks nor samples."""
    shown = selection(state, reads)
    found = scene_of(shown, reads)
    if not found.ranks and not found.series:
        return None
    run, panels = shown.facts.summary, curves_of(PANELS[shown.family], found.series)
    lines = chart_events(found.events, found.marks, found.series, _until(found))
    keep = f"{run.run_id}/{run.attempt}/{shown.host}/{shown.family}/{state.steps}/{len(panels)}"
    return host_panels(found.ranks, panels, lines, keep=keep)


def _draw_happened(state: ViewState, reads: Reads) -> Component | None:
    found = scene_of(selection(state, reads), reads)
    rows = [(event.at_ns, event.device, event.name, event.text) for event in found.events]
    rows += [(mark.at_ns, f"rank {mark.rank}", mark.name, mark.text) for mark in found.marks]
    if not rows:
        return panel("Events and marks", dmc.Text("None in these steps.", size="sm", c="dimmed"))
    newest = sorted(rows, reverse=True)[:MAX_LISTED]
    title = "Events and marks" + (f": the newest {len(newest)} of {len(rows):,}" if len(rows) > len(newest) else "")
    cells = [(stamp(at_ns), *texts) for at_ns, *texts in newest]
    return panel(title, table(("At", "Of", "What", "Text"), cells, min_width_px=420))


def _says(shown: HostSelection, found: HostScene, reads: Reads) -> str:
    """A sentence about the faults of the host. It does not depend on the samples that are shown: it always counts
    throttled GPUs."""
    faults = sum(map(is_trouble, found.events))
    others, marks = len(found.events) - faults, len(found.marks)
    throttled = num_throttled(scene_of(replace(shown, family=Family.GPU), reads).series)
    parts = [f"{count(faults, 'fault event')} shown" if faults else "no fault event"]
    parts += [f"{count(throttled, 'GPU')} throttled at times"] * bool(throttled)
    parts += [count(others, "other event")] * bool(others) + [count(marks, "mark")] * bool(marks)
    return f"All times are from the clock of {shown.host}. {capitalized(', '.join(parts))}."


def no_samples(shown: HostSelection, found: HostScene, *, has_others: bool) -> str:
    """``has_others``: whether the agent of the host sent other samples in these steps."""
    reasons = [] if _has_devices(shown.family, found.events) else [f"the host has no {DEVICES[shown.family]}"]
    reasons += [] if has_others else ["its agent was started with --sample 0"]
    why = f" These samples are also missing if {', or if '.join(reasons)}." if reasons else ""
    none = f"{shown.host} has no {FAMILY_TEXT[shown.family]} samples in these steps."
    return f"{none} Choose other samples or steps.{why}"


def _has_other_samples(shown: HostSelection, reads: Reads) -> bool:
    others = (replace(shown, family=family) for family in Family if family is not shown.family)
    return any(scene_of(each, reads).series for each in others)


def _has_devices(family: Family, events: Sequence[HostEvent]) -> bool:
    """Whether the host certainly has devices of a family, because an event is about such a device."""
    if family is Family.NETWORK:
        return any(event.name in (*FLAPS, Happening.LINK_UP) for event in events)
    return family is Family.HOST or any(is_gpu(event.device) for event in events)


def _until(found: HostScene) -> int:
    """The time of the newest data of the host."""
    sampled = [int(series.at_ns[-1]) for _, series in found.series if len(series.at_ns)]
    return max([found.last_ns, *sampled, *(event.at_ns for event in found.events)])


PAGE = Page(
    title="Fleet",
    skeleton=skeleton,
    regions={
        "fleet-controls": Region(draw=_draw_controls, live=False),
        "fleet-links": Region(draw=_draw_links, live=False, quiet=True),
        "hosts": Region(draw=_draw_hosts, quiet=True),
        "fleet-title": Region(draw=_draw_title),
        "happened": Region(draw=_draw_happened, quiet=True),
    },
    charts={"host": Chart(draw=draw_host)},
    control_values=control_values,
    preload=lambda state, reads: scene_of(selection(state, reads), reads),
    freshness=lambda state, reads: [*reads.report_freshness(state), agents_freshness(reads, reads.newest(state))],
)
