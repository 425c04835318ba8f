"""The table of hosts, those with most faults first, and the host that the page shows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.findings import Finding
from diagnose.model.load import DEFAULT_STEPS
from telemetry.errors import UsageError
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import HostScene, HostTrouble, host_scene, troubles
from ui.dashboard.defaults import FAMILY_OF, chosen_steps, findings_of_hosts
from ui.dashboard.pages.fleet.families import metrics_of
from ui.dashboard.pages.panels import heading
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Family, StepRange, View, ViewState
from ui.dashboard.wording import count, ranks_in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSelection:
    """Which host, which of its samples, over which steps."""

    facts: RunFacts
    host: str
    family: Family
    steps: StepRange

    @property
    def ranks(self) -> list[int]:
        return [rank for rank, host in enumerate(self.facts.hosts) if host == self.host]


def selection(state: ViewState, reads: Reads) -> HostSelection:
    """The detectors are asked only where the address leaves host or samples open.

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
    telling = [findings[one].kind for one in (host, *findings) if one in findings]
    family = next((FAMILY_OF[kind] for kind in telling if kind in FAMILY_OF), Family.NETWORK)
    return HostSelection(facts=facts, host=host, family=state.family or family, steps=steps)


def hosts_of(facts: RunFacts) -> list[str]:
    """All hosts of a run, in the order of their ranks."""
    return list(dict.fromkeys(filter(None, facts.hosts)))


def told(one: HostSelection, reads: Reads) -> HostScene:
    """What its host told."""
    return host_scene(reads, one.facts, one.host, metrics_of(one.family), one.steps)


MAX_HOSTS = 50
COLUMNS = ("Host", "Ranks", "Finding", "Fault events", "Link losses", "GPU throttling", "CPU pressure")
NO_TROUBLE = HostTrouble()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """A host and all that is held against it."""

    host: str
    ranks: tuple[int, ...]
    finding: Finding | None
    trouble: HostTrouble


def worst_first(
    ranks: Mapping[str, Sequence[int]], findings: Mapping[str, Finding], told: Mapping[str, HostTrouble]
) -> list[HostRow]:
    """Whom ``findings`` name, in their order; then by losses of link, events, time held down, pressure. All by host."""
    order = {host: place for place, host in enumerate(findings)}

    def key(host: str) -> tuple[float, ...]:
        one = told.get(host, NO_TROUBLE)
        pressure = 0.0 if math.isnan(one.cpu_pressure) else one.cpu_pressure
        return order.get(host, math.inf), -one.flaps, -one.events, -one.throttled_s, -pressure

    return [
        HostRow(
            host=host,
            ranks=tuple(ranks[host]),
            finding=findings.get(host),
            trouble=told.get(host, NO_TROUBLE),
        )
        for host in sorted(ranks, key=key)
    ]


def draw_hosts(state: ViewState, reads: Reads) -> Component:
    """The worst, the chosen one wherever it stands, and how many more there are."""
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
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in COLUMNS]))
    table = dmc.Table(
        [head, dmc.TableTbody([_row(row, chosen, state) for row in shown])], className="small-table", stickyHeader=True
    )
    title = f"Hosts over steps {chosen.steps.first} to {chosen.steps.last}, most faults first"
    return html.Section(
        [
            heading(title + (more if len(rows) > len(shown) else "")),
            html.Div(table, className="hosts-table", tabIndex="0", role="region", **{"aria-label": "table of hosts"}),
        ],
        className="panel",
    )


def _row(row: HostRow, chosen: HostSelection, state: ViewState) -> Component:
    here, one = row.host == chosen.host, row.trouble
    family = FAMILY_OF.get(row.finding.kind, state.family) if row.finding else state.family
    address = replace(state, view=View.FLEET, host=row.host, family=family).search()
    current = {"aria-current": "true"} if here else {}
    cells = (
        dcc.Link(row.host, href=address, className="run-link"),
        ranks_in_words(row.ranks, limit=3),
        row.finding.kind.value if row.finding else "",
        f"{one.events:,}" if one.events else "",
        f"{one.flaps:,}" if one.flaps else "",
        f"{one.throttled_s:,.0f} s" if one.throttled_s >= 0.5 else "",
        "" if math.isnan(one.cpu_pressure) else f"{one.cpu_pressure:.0%}",
    )
    return dmc.TableTr([dmc.TableTd(cell) for cell in cells], className="chosen" if here else "", **current)
