"""Details of the chosen rank of the grid: groups, neighbours, data flow, host, and links to other pages."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.hang.verdict import HangVerdict
from diagnose.model.fleet import HostEvent
from diagnose.model.run_state import RunState
from telemetry.topology import AXES, Axis, Topology
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import host_events
from ui.dashboard.defaults import chosen_rank, chosen_steps, groups_of, suspects
from ui.dashboard.figures.hang import Standing, standing_of
from ui.dashboard.pages.controls import link_button, timeline_of
from ui.dashboard.pages.hang.rank import data_flow, rank_details
from ui.dashboard.pages.panels import facts_list, part, standing_badge, standing_chip
from ui.dashboard.pages.profiling import rank_profiles
from ui.dashboard.records import RankState, RunFacts
from ui.dashboard.view_state import Group, StepRange, View, ViewState
from ui.dashboard.wording import GROUP_NAMES, clock, ranks_text


def standings(reads: Reads, facts: RunFacts, verdict: HangVerdict | None) -> list[Standing]:
    """The standing of each rank: its state in the verdict. Without a verdict: suspect, or the state of its last
    heartbeat."""
    world = facts.topology.world_size
    if verdict is not None:
        return [standing_of(verdict, rank) for rank in range(world)]
    suspected = suspects(reads.reports.of(facts.summary))
    reported, is_heard = reported_states(reads, facts), facts.summary.state is not RunState.SILENT
    found = [_standing_of_report(reported.get(rank), is_heard) for rank in range(world)]
    return [
        Standing.SUSPECT if rank in suspected and standing is not Standing.DEAD else standing
        for rank, standing in enumerate(found)
    ]


def reported_states(reads: Reads, facts: RunFacts) -> dict[int, RankState]:
    """The last heartbeat by rank. Empty if no agent watched the run."""
    return {state.rank: state for state in reads.ranks(facts.summary)}


def _standing_of_report(reported: RankState | None, is_heard: bool) -> Standing:
    if reported is None:
        return Standing.UNKNOWN
    if reported.ended:
        return Standing.ENDED
    if not reported.alive:
        return Standing.DEAD
    return Standing.RUNNING if is_heard else Standing.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSelection:
    """A run, its verdict if it is stalled, the chosen rank, and the steps."""

    facts: RunFacts
    verdict: HangVerdict | None
    rank: int
    steps: StepRange


def selection(state: ViewState, reads: Reads) -> RankSelection:
    """The rank of the address. Otherwise the first rank that is behind, the first suspect, or rank 0.

    Raises:
        UsageError: the address names a rank that does not exist, or steps that are not stored.
    """
    facts = reads.facts(state)
    verdict = reads.hang(facts)
    named: Sequence[int] = ()
    if verdict is not None:
        named = (*verdict.initiating, *verdict.waits)
    elif state.rank is None:
        named = suspects(reads.reports.of(facts.summary))
    rank = chosen_rank(state, facts, named)
    return RankSelection(facts=facts, verdict=verdict, rank=rank, steps=chosen_steps(state, facts))


MAX_EVENTS, MAX_MARKS = 6, 6
LINKS = {**GROUP_NAMES, Group.ALL: "neighbours"}
NAMES: dict[Axis, str] = {"dp": "replicas", "pp": "pipeline", "tp": "tensor group"}
APART_NAMES = {"cp": "context group", "ep": "expert group"}
"""Names of groups along single axes of the ``dp`` direction. Groups along its other axes are data groups."""


def rank_panel(shown: RankSelection, state: ViewState, reads: Reads) -> list[Component | None]:
    """The evidence of a hang. Without a hang: the last heartbeat and the findings of the rank."""
    how = standings(reads, shown.facts, shown.verdict)
    groups = part("Groups of this rank. Click a rank to choose it", _groups(shown, how, state))
    first: list[Component | None]
    if shown.verdict is not None:
        first = rank_details(shown.verdict, shown.rank, shown.facts, replace(state, view=View.GRID))
    else:
        first = _calm(shown, how, state, reads)
    profiles = rank_profiles(shown.rank, shown.facts, reads)
    return [first[0], _links(shown, state), profiles, groups, *first[1:], _host(shown, reads)]


def _calm(shown: RankSelection, how: Sequence[Standing], state: ViewState, reads: Reads) -> list[Component | None]:
    rank, grid = shown.rank, shown.facts.topology
    head = html.Div(
        [html.H2(f"Rank {rank}", className="panel-title"), standing_badge(how[rank])], className="details-head"
    )
    flow = data_flow(
        rank, grid, lambda neighbour: standing_chip(neighbour, how[neighbour], state, label=str(neighbour))
    )
    return [
        head,
        part("Data flow", flow) if grid.pp > 1 else None,
        facts_list(_place(shown, reads)),
        _findings(shown, reads),
        _marks(shown, reads),
    ]


def _place(shown: RankSelection, reads: Reads) -> Iterator[tuple[str, str | Component]]:
    facts, rank = shown.facts, shown.rank
    yield "place", facts.place(rank)
    yield "host", f"{facts.hosts[rank] or 'unknown'}, rank {facts.local_ranks[rank]} there"
    state = reported_states(reads, facts).get(rank)
    if state is None:
        yield "agent", "no report about this rank"
        return
    yield "last reported step", f"{state.step:,}"
    if state.stage is not None and state.alive:
        yield "in stage", state.stage.label
    if state.dropped:
        yield "records lost", f"{state.dropped:,}"


def _groups(shown: RankSelection, how: Sequence[Standing], state: ViewState) -> Component:
    """A row for each direction of the grid with several ranks, and for each axis of the mesh if several form the ``dp``
    direction."""
    head = html.Tr([html.Th(name) for name in ("group", "before", "after", "ranks")])
    topology = shown.facts.topology
    rows = []
    for axis in reversed(AXES):
        along = topology.replica_axes if axis == "dp" else axis
        members = topology.group(shown.rank, along=axis)
        if len(members) == 1:
            continue
        rows.append(_group_row(f"{NAMES[axis]} ({along})", members, shown, how, state, has_ends=axis == "pp"))
    for name in _apart(topology):
        members = topology.group_of(shown.rank, topology.mask(name))
        rows.append(_group_row(f"{APART_NAMES.get(name, 'data group')} ({name})", members, shown, how, state))
    return html.Table([html.Thead(head), html.Tbody(rows)], className="shares groups")


def _apart(topology: Topology) -> Sequence[str]:
    """The axes of the mesh that form the ``dp`` direction of the grid. Empty for a single axis."""
    wide = [name for name, degree in topology.mesh if degree > 1 and name not in ("pp", "tp")]
    return wide if len(wide) > 1 else []


def _group_row(
    title: str,
    members: Sequence[int],
    shown: RankSelection,
    how: Sequence[Standing],
    state: ViewState,
    *,
    has_ends: bool = False,
) -> Component:
    at = members.index(shown.rank)
    before, after = (_neighbour(members, position, how, state, has_ends=has_ends) for position in (at - 1, at + 1))
    numbers = Counter(how[rank] for rank in members)
    stand = ", ".join(f"{numbers[standing]:,} {standing}" for standing in Standing if numbers[standing])
    name = [title, html.Div(f"{at + 1} of {len(members)}", className="dim")]
    who = [ranks_text(members, limit=3), html.Div(stand, className="dim")]
    return html.Tr([html.Td(cell) for cell in (name, before, after, who)])


def _neighbour(
    members: Sequence[int], at: int, how: Sequence[Standing], state: ViewState, *, has_ends: bool
) -> Component:
    """A link to the neighbour at position ``at``. A pipeline has ends, where there is none. Other groups are rings."""
    if has_ends and not 0 <= at < len(members):
        return html.Span("none", className="dim")
    rank = members[at % len(members)]
    return standing_chip(rank, how[rank], state, label=str(rank))


def _links(shown: RankSelection, state: ViewState) -> Component:
    run, host = shown.facts.summary, shown.facts.hosts[shown.rank]
    exactly = replace(state.at_rank(shown.rank), run=run.run_id, attempt=run.attempt)
    of_rank = timeline_of(exactly, shown.rank, state.step)
    lines: list[Component | str] = ["Timeline with its "]
    for group in groups_of(shown.facts.topology):
        lines += [dcc.Link(LINKS[group], href=of_rank.at_group(group).search()), " · "]
    others = {"Heat map": replace(exactly, view=View.HEAT_MAP)}
    if shown.verdict is not None:
        others["Hang"] = replace(exactly, view=View.HANG)
    if host:
        others["Host"] = replace(exactly, view=View.FLEET, host=host)
    buttons = [link_button(name, view, name="small") for name, view in others.items()]
    return html.Nav(
        [html.Div(lines[:-1], className="small"), html.Div(buttons, className="links")],
        className="part ways",
        **{"aria-label": f"rank {shown.rank} on other pages"},
    )


def _findings(shown: RankSelection, reads: Reads) -> Component | None:
    host = shown.facts.hosts[shown.rank]
    report = reads.reports.of(shown.facts.summary)
    items = [
        html.Li(finding.headline)
        for finding in (report.findings if report else ())
        if shown.rank in finding.ranks or (host and host in finding.hosts)
    ]
    return part("Findings that name this rank or its host", html.Ul(items, className="plain-list")) if items else None


def _marks(shown: RankSelection, reads: Reads) -> Component | None:
    marks = [mark for mark in reads.marks(shown.facts.summary) if mark.rank == shown.rank]
    if not marks:
        return None
    items = [html.Li(f"{clock(mark.at_ns)} {mark.name} {mark.text}") for mark in marks[:MAX_MARKS]]
    return part("Newest marks of this rank", html.Ul(items, className="plain-list"))


def _host(shown: RankSelection, reads: Reads) -> Component | None:
    host = shown.facts.hosts[shown.rank]
    if not host:
        return None
    events = host_events(reads, shown.facts, host, shown.steps)
    title = f"{host}: events of cards, GPUs and the host"
    if not events:
        return part(title, dmc.Text("No event in these steps.", size="sm", c="dimmed"))
    newest = [html.Li(_event_in_words(event)) for event in reversed(events[-MAX_EVENTS:])]
    newest_of = f" (the newest {MAX_EVENTS} of {len(events):,})" if len(events) > MAX_EVENTS else ""
    return part(title + newest_of, html.Ul(newest, className="plain-list"))


def _event_in_words(event: HostEvent) -> str:
    return f"{clock(event.at_ns)} {event.device} {event.name} {event.text}".strip()
