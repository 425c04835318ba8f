"""Details of one rank of a stalled job."""

from collections.abc import Callable, Iterator

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.hang.evidence import WHOLE_GROUP, HangEvidence, LogLine, Pending, Process, RankEvidence
from diagnose.hang.verdict import HangVerdict
from telemetry.topology import Topology
from ui.dashboard.figures.hang import delayed_by, group_text, hops, standing_of
from ui.dashboard.pages.controls import timeline_of
from ui.dashboard.pages.panels import facts_list, part, rank_chip, standing_badge
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import clock, count, long_duration, ranks_text, unbroken

MAX_PENDING, MAX_LOG, MAX_GROUPS = 6, 20, 12


def rank_details(verdict: HangVerdict, rank: int, facts: RunFacts, state: ViewState) -> list[Component]:
    """Place, waits, groups, error text and stack, the most important first."""
    head = html.Div(
        [html.H2(f"Rank {rank}", className="panel-title"), standing_badge(standing_of(verdict, rank))],
        className="details-head",
    )
    known = verdict.evidence.ranks.get(rank)
    place = facts_list(_place(verdict, rank, facts, known))
    relations = [_waits_for(verdict, rank, state), _holds_up(verdict, rank), _pipeline(verdict, rank, facts, state)]
    if known is None:
        return [head, place, *relations, dmc.Text("No evidence from this rank: no state, no stack, no log.", size="sm")]
    evidence = verdict.evidence
    return [
        head,
        place,
        _log(known.log),
        *relations,
        _groups(evidence, known, is_initiating=rank in verdict.initiating),
        _pending(evidence, known.pending),
        _stack(known.stack),
        _timeline_link(rank, facts, state),
    ]


def _place(
    verdict: HangVerdict, rank: int, facts: RunFacts, known: RankEvidence | None
) -> Iterator[tuple[str, str | Component]]:
    yield "place", facts.place(rank)
    yield "host", facts.hosts[rank] or (known.host if known else "") or "unknown"
    if known is None:
        return
    taken_ns = verdict.evidence.taken_ns
    yield "process", _process(known, verdict.evidence)
    if known.step >= 0:
        yield "step", f"{known.step:,}"
    if known.stage:
        since = _ago(known.stage_since_ns, taken_ns)
        yield "in stage", known.stage + (f", {since}" if since else "")


def _process(known: RankEvidence, evidence: HangEvidence) -> str:
    """The state of the process. If the process ended, the time of its end. If only the run has ended, the time of the
    check."""
    if not known.died_ns:
        seen_ns = known.taken_ns or evidence.taken_ns
        return known.process.value + (f" at {clock(seen_ns)}" if evidence.has_ended and seen_ns else "")
    word = "gone" if known.process is Process.UNKNOWN else known.process.value
    return f"{word} at {clock(known.died_ns)}"


def _waits_for(verdict: HangVerdict, rank: int, state: ViewState) -> Component:
    chain = hops(verdict, rank)
    if not chain or chain[0].on is None:
        return part(verdict.evidence.tense("Waits for", "Waited for"), html.Div("no known rank", className="small dim"))
    first, root = chain[0], chain[-1].on
    parts: list[str | Component] = [
        rank_chip(first.on, verdict, state) if first.on is not None else "",
        f" in {first.operation} of {first.group}",
    ]
    if root is not None and root != first.on:
        parts += ["; the chain ends at ", rank_chip(root, verdict, state)]
    return part(verdict.evidence.tense("Waits for", "Waited for"), html.Div(parts, className="small"))


def _holds_up(verdict: HangVerdict, rank: int) -> Component:
    delayed = delayed_by(verdict, rank)
    if not delayed.total:
        return part(verdict.evidence.tense("Holds up", "Held up"), html.Div("no known rank", className="small dim"))
    lines = [f"{count(len(delayed.directly), 'rank')} directly: {ranks_text(delayed.directly, counted=False)}"]
    if delayed.over_others:
        lines.append(
            f"{count(len(delayed.over_others), 'rank')} indirectly: {ranks_text(delayed.over_others, counted=False)}"
        )
        lines.append(f"{delayed.total:,} in total")
    return part(
        verdict.evidence.tense("Holds up", "Held up"), html.Div([html.Div(line) for line in lines], className="small")
    )


def _pipeline(verdict: HangVerdict, rank: int, facts: RunFacts, state: ViewState) -> Component | None:
    if facts.topology.pp == 1:
        return None
    return part(
        "Data flow",
        data_flow(rank, facts.topology, lambda neighbour: rank_chip(neighbour, verdict, state, label=str(neighbour))),
    )


def _groups(evidence: HangEvidence, known: RankEvidence, *, is_initiating: bool) -> Component | None:
    """The progress of the rank in each of its groups, and that of the furthest member."""
    if not known.fronts:
        return None
    head = html.Tr([html.Th(name) for name in ("group", "entered", "ended", "furthest")])
    listed = sorted(known.fronts)[:MAX_GROUPS]
    rows = [_group_row(evidence, known, index, is_initiating=is_initiating) for index in listed]
    table = html.Table([html.Thead(head), html.Tbody(rows)], className="shares groups")
    left = len(known.fronts) - len(listed)
    return part(
        "Groups", html.Div([table, *([dmc.Text(f"{count(left, 'more group')}", size="xs")] if left > 0 else [])])
    )


def _group_row(evidence: HangEvidence, known: RankEvidence, index: int, *, is_initiating: bool) -> Component:
    front = known.fronts[index]
    members = evidence.groups[index].members if index < len(evidence.groups) else ()
    others = (evidence.ranks[member].fronts.get(index) for member in members if member in evidence.ranks)
    furthest = max((other.entered for other in others if other is not None), default=front.entered)
    behind = furthest - front.entered
    name = [group_text(evidence, index), *([html.Div(f"{count(behind, 'operation')} behind")] if behind > 0 else [])]
    cells = [name, f"{front.entered:,}", f"{front.completed:,}", f"{furthest:,}"]
    return html.Tr([html.Td(cell) for cell in cells], className="suspect" if behind > 0 and is_initiating else "")


def _pending(evidence: HangEvidence, pending: tuple[Pending, ...]) -> Component | None:
    if not pending:
        return None
    lines = [html.Li(_pending_words(evidence, operation)) for operation in pending[:MAX_PENDING]]
    if len(pending) > MAX_PENDING:
        lines.append(html.Li(f"{len(pending) - MAX_PENDING:,} more"))
    return part("Pending operations, oldest first", html.Ul(lines, className="plain-list"))


def _pending_words(evidence: HangEvidence, operation: Pending) -> str:
    peer = "" if operation.peer == WHOLE_GROUP else f" with rank {operation.peer}"
    since = _ago(operation.since_ns, evidence.taken_ns)
    details = operation.signature.removeprefix(operation.op)  # the text begins with the name already
    parts = (
        f"{operation.op} #{operation.seq}{peer} of {group_text(evidence, operation.group)}",
        since,
        details.removeprefix(" of").strip(),
    )
    return ", ".join(part for part in parts if part)


def _log(lines: tuple[LogLine, ...]) -> Component | None:
    if not lines:
        return None
    return part("Error text", html.Ul([_log_line(line) for line in lines[-MAX_LOG:]], className="log"))


def _log_line(line: LogLine) -> Component:
    at = html.Span(clock(line.at_ns), className="dim") if line.at_ns else None
    fault = dmc.Badge(line.fault, color="red", variant="light", size="sm") if line.fault else None
    return html.Li([item for item in (at, fault, html.Span(line.text)) if item is not None])


def _stack(frames: tuple[str, ...]) -> Component | None:
    if not frames:
        return part("Stack", dmc.Text("No stack was collected.", size="sm", c="dimmed"))
    return part("Stack of the main thread, innermost first", html.Pre("\n".join(frames), className="stack"))


def _timeline_link(rank: int, facts: RunFacts, state: ViewState) -> Component | None:
    if not len(facts.steps.step):
        return None
    last = int(facts.steps.step[-1])
    address = timeline_of(state, rank, last).search()
    return dcc.Link(f"timeline of step {last:,}, the last completed step", href=address, className="small")


def _ago(since_ns: int, taken_ns: int) -> str:
    """The time since ``since_ns``, such as ``for 39 s``, without a line break; empty if it is not known."""
    if not 0 < since_ns <= taken_ns:
        return ""
    return unbroken(f"for {long_duration((taken_ns - since_ns) / 1e9)}")


def data_flow(rank: int, grid: Topology, chip: Callable[[int], Component]) -> Component:
    """The pipeline stages before and after ``rank``. ``chip``: a link to a neighbour."""
    here = grid.place(rank)
    shown = [here._replace(pp=pp) for pp in (here.pp - 1, here.pp, here.pp + 1) if 0 <= pp < grid.pp]
    stages = [
        html.Span(
            [
                html.Span(f"pp{place.pp} ", className="dim"),
                html.Strong(f"{rank}") if place == here else chip(grid.rank(place)),
            ],
            className="flow-stage",
        )
        for place in shown
    ]
    return html.Div([_flow("forward", "→", stages), _flow("backward", "←", stages)])


def _flow(name: str, arrow: str, stages: list[Component]) -> Component:
    parts: list[Component] = [html.Span(name, className="flow-name dim")]
    for at, stage in enumerate(stages):
        parts += [html.Span(arrow, className="flow-arrow"), stage] if at else [stage]
    return html.Div(parts, className=f"flow flow-{name}")
