"""The verdict on a stalled job: in full on the hang page, in short on the overview."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.hang.evidence import Process
from diagnose.hang.folding import fold_stacks, recorders_of
from diagnose.hang.verdict import HangVerdict, severity_of
from telemetry.stages import STAGE_BY_LABEL
from ui.dashboard.figures.hang import SIGNS, Standing
from ui.dashboard.pages.interface import SEVERITY_COLOURS
from ui.dashboard.pages.panels import no_stall_text, rank_chips, swatch, verdict_alert, working
from ui.dashboard.records import RunFacts, RunSummary
from ui.dashboard.view_state import StepRange, View, ViewState
from ui.dashboard.wording import clock, count, long_duration, named_kind, ranks_text, stamp

MAX_STACKS, MAX_FRAMES, MAX_NOTES = 12, 16, 8


def verdict_in_full(verdict: HangVerdict, state: ViewState) -> Component:
    """Headline, circumstances, next step, and notes on the evidence."""
    lines: list[Component] = [dmc.Text(verdict.headline, fw=600, size="lg", className="verdict-text")]
    lines.append(dmc.Text(" · ".join(_circumstances(verdict)), size="sm"))
    if verdict.next_step:
        lines.append(dmc.Text(f"Next: {verdict.next_step}", size="sm"))
    if verdict.initiating:
        lines.append(rank_chips(verdict.initiating, verdict, state))
    if missing := verdict.evidence.missing:
        text = f"{count(len(missing), 'rank')} without evidence: {ranks_text(missing, counted=False)}"
        lines.append(dmc.Text(text, size="sm"))
    if recorders := recorders_of(verdict.evidence):
        lines.append(dmc.Text(f"Flight recorder: {'; '.join(recorders)}", size="sm"))
    lines += _notes(verdict.evidence.notes)
    return verdict_alert(_title(verdict), lines, _colour(verdict))


def reading_evidence(facts: RunFacts) -> Component:
    """Shown until the verdict is ready."""
    num_ranks = count(facts.topology.world_size, "rank")
    return working(f"Reading the evidence of {num_ranks}. This takes some seconds. The page updates automatically.")


def hang_headline(verdict: HangVerdict, facts: RunFacts, state: ViewState) -> Component:
    """The stall on the overview, with a link to the hang page."""
    link = dcc.Link("Show hang view", href=_address(verdict, facts, state), className="button primary")
    lines = [
        dmc.Text(verdict.headline, fw=600, size="lg", className="verdict-text"),
        dmc.Text(f"Next: {verdict.next_step}", size="sm"),
        dmc.Group([link], mt=4),
    ]
    return verdict_alert(_title(verdict), lines, _colour(verdict))


def hang_finding(verdict: HangVerdict, facts: RunFacts, state: ViewState) -> Component:
    """The stall in the list of findings. ``verdict`` must have a kind."""
    assert verdict.kind is not None
    head = dmc.Group(
        [
            dmc.Badge(severity_of(verdict).value, color=_colour(verdict), variant="light"),
            dmc.Text(named_kind(verdict.kind), fw=600, size="sm"),
        ],
        gap="xs",
    )
    circumstances = dmc.Text(" · ".join(_circumstances(verdict)), size="sm", c="dimmed")
    link = dcc.Link("hang view", href=_address(verdict, facts, state))
    return html.Article([head, dmc.Text(verdict.headline, size="sm"), circumstances, link], className="finding")


def no_stall_notice(run: RunSummary) -> Component:
    """The page without a stall."""
    explained = (
        "If a step takes several times as long as usual, the agents collect evidence from each rank: state, flight "
        "recorder, stack, error text. This page then shows which ranks are late, which ranks wait, the waiting chain "
        "of each rank, and what to do."
    )
    lines = [
        dmc.Text(no_stall_text(run), fw=600, size="lg"),
        dmc.Text(explained, size="sm"),
        dmc.Text(f"{_last_check(run)} If the store is lost, run: rankscope diagnose hang --spool DIR", size="sm"),
    ]
    if run.heard.is_silent:
        return verdict_alert("Not shipping", lines, "orange")
    return verdict_alert("No stall", lines, "teal")


def _last_check(run: RunSummary) -> str:
    """A sentence that says whether the page can still change."""
    if run.heard.is_silent:
        return f"The last check was at {stamp(run.heard.heard_ns)}."
    return (
        f"The newest data is from {stamp(run.heard.heard_ns)}." if run.is_over else "This page updates automatically."
    )


def legend(standings: Sequence[Standing]) -> Component:
    """The standings in use: symbol, name, number of ranks."""
    numbers = Counter(standings)
    items = [
        html.Li([swatch(standing), f"{standing} {numbers[standing]:,}"], title=SIGNS[standing].means)
        for standing in Standing
        if numbers[standing]
    ]
    return html.Ul(items, className="legend", **{"aria-label": "colours of the grid"})


def merged_stacks(verdict: HangVerdict) -> Component:
    """The stacks of all ranks, equal stacks as one. The stacks of the fewest ranks are first, because they are
    unusual."""
    stacks = fold_stacks(verdict.evidence)
    if not stacks:
        return dmc.Text("No stack was collected.", size="sm", c="dimmed")
    items: list[Component] = [_stack_item(frames, ranks, verdict) for frames, ranks in stacks[:MAX_STACKS]]
    if len(stacks) > MAX_STACKS:
        left = sum(len(ranks) for _, ranks in stacks[MAX_STACKS:])
        items.append(dmc.Text(f"{count(len(stacks) - MAX_STACKS, 'more stack')} of {count(left, 'rank')}", size="sm"))
    return html.Div(items, className="merged-stacks")


def _stack_item(frames: Sequence[str], ranks: Sequence[int], verdict: HangVerdict) -> Component:
    mark = "▶ " if set(ranks) & set(verdict.initiating) else ""
    which = f"{mark}{count(len(ranks), 'rank')}: {ranks_text(ranks, counted=False)}"
    more = [f"… {len(frames) - MAX_FRAMES} more"] if len(frames) > MAX_FRAMES else []
    body = html.Pre("\n".join([*frames[:MAX_FRAMES], *more]) or "no frame", className="stack")
    return html.Section([html.H3(which, className="part-title"), body], className="part")


def since_ns(verdict: HangVerdict) -> int:
    """The time at which the ranks that are behind stopped. Otherwise the oldest wait, or 0 if unknown."""
    known = verdict.evidence.ranks
    culprits = [known[rank] for rank in verdict.initiating if rank in known]
    stopped = [rank.died_ns if rank.process is Process.DEAD else rank.stage_since_ns for rank in culprits]
    waiting = [known[rank].pending for rank in verdict.waits if rank in known]
    waited = [pending[0].since_ns for pending in waiting if pending]
    known_ns = [ns for ns in stopped if ns] or [ns for ns in waited if ns]
    return min(known_ns, default=0)


def _circumstances(verdict: HangVerdict) -> Iterator[str]:
    taken_ns, since = verdict.evidence.taken_ns, since_ns(verdict)
    if since and taken_ns > since:
        yield f"since {clock(since)}: for {long_duration((taken_ns - since) / 1e9)} at the time of the check"
    elif since:
        yield f"since {clock(since)}"
    if taken_ns:
        yield f"checked at {stamp(taken_ns)}"
    if verdict.evidence.ended_ns:
        yield f"the run ended at {stamp(verdict.evidence.ended_ns)}"
    if verdict.kind is not None:
        yield f"confidence {verdict.confidence:.0%}"


def _title(verdict: HangVerdict) -> str:
    if verdict.kind is None:
        return "No stall"
    return f"{severity_of(verdict)}: {named_kind(verdict.kind)}"


def _colour(verdict: HangVerdict) -> str:
    return "teal" if verdict.kind is None else SEVERITY_COLOURS[severity_of(verdict)]


def _notes(notes: Sequence[str]) -> list[Component]:
    if not notes:
        return []
    items = [html.Li(note) for note in notes[:MAX_NOTES]]
    if len(notes) > MAX_NOTES:
        items.append(html.Li(f"{len(notes) - MAX_NOTES:,} more"))
    title = html.Summary(f"{count(len(notes), 'note')} about the evidence")
    return [html.Details([title, html.Ul(items)], className="small")]


def _address(verdict: HangVerdict, facts: RunFacts, state: ViewState) -> str:
    """The hang page, with the first rank that is behind, its open stage, and the steps around the stall."""
    run, stored = facts.summary, facts.steps.step
    chosen = replace(state, view=View.HANG, run=run.run_id, attempt=run.attempt)
    if len(stored):
        chosen = chosen.at_steps(StepRange.around(int(stored[-1])))
    if verdict.initiating:
        behind = verdict.initiating[0]
        known = verdict.evidence.ranks.get(behind)
        stage = STAGE_BY_LABEL.get(known.stage) if known else None
        chosen = chosen.at_rank(behind) if stage is None else chosen.at_rank(behind).at_stage(stage)
    return chosen.search()
