"""The waiting chain as a list: a rank, why it waits for the next one, and so on to the root cause."""

from dash import html
from dash.development.base_component import Component

from diagnose.hang.verdict import HangVerdict
from ui.dashboard.figures.chain import WHY_IN_WORDS, Hop, held_up, hops
from ui.dashboard.figures.standing import standing_of
from ui.dashboard.pages.rank_chip import rank_chip, rank_chips, standing_badge
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import count, ranks_in_words

MAX_HOPS = 24
"""What a longer chain shows of its beginning; its last hop is always there."""


def chain_list(verdict: HangVerdict, rank: int, facts: RunFacts, state: ViewState) -> Component:
    """Every rank of the chain, and between two of them the operation, its number, its group and the reason."""
    chain = hops(verdict, rank)
    if not chain:
        return _end_of_chains(rank, verdict, state)
    shown = chain[:MAX_HOPS]
    items = [_rank_item(rank, verdict, facts, state)]
    for hop in shown:
        items += [_hop_item(hop, verdict), *_next_item(hop, verdict, facts, state)]
    if len(chain) > len(shown):
        items.append(html.Li(f"{count(len(chain) - len(shown) - 1, 'further hop')} …", className="chain-hop"))
        items += [_hop_item(chain[-1], verdict), *_next_item(chain[-1], verdict, facts, state)]
    if chain[-1].on in {hop.rank for hop in chain}:
        items.append(
            html.Li(
                f"These ranks {verdict.evidence.tense('wait', 'waited')} for each other in a circle: a deadlock.",
                className="chain-note",
            )
        )
    return html.Ol(items, className="chain")


def _end_of_chains(rank: int, verdict: HangVerdict, state: ViewState) -> Component:
    """Of a rank that waits for nobody: where chains that end here begin."""
    held = held_up(verdict, rank)
    words = f"Rank {rank} {verdict.evidence.tense('waits', 'waited')} for no known rank."
    if not held.total:
        return html.Div(words, className="small")
    far = held.over_others or held.directly
    return html.Div(
        [f"{words} Waiting chains that end here: ", rank_chips(far, verdict, state)], className="small chips"
    )


def _rank_item(rank: int, verdict: HangVerdict, facts: RunFacts, state: ViewState) -> Component:
    known = verdict.evidence.ranks.get(rank)
    inside = rank < facts.topology.world_size
    place = facts.topology.describe(rank) if inside else ""
    host = (facts.hosts[rank] if inside else "") or (known.host if known else "") or "host unknown"
    words = [html.Span(f"{place} · {host}", className="dim"), standing_badge(standing_of(verdict, rank))]
    if rank not in verdict.waits and known is not None:
        words.append(html.Span(_where(known.stage, known.stack), className="chain-where"))
    return html.Li([rank_chip(rank, verdict, state), *words], className="chain-rank")


def _where(stage: str, stack: tuple[str, ...]) -> str:
    line = f"at {stack[0]}" if stack else ""
    return " ".join(word for word in (f"in {stage}" if stage else "", line) if word)


def _hop_item(hop: Hop, verdict: HangVerdict) -> Component:
    late = "" if hop.on is None else f"{verdict.evidence.tense('waits', 'waited')} for rank {hop.on}"
    others = f" (and {ranks_in_words(hop.others, limit=4)})" if hop.others else ""
    return html.Li(
        [
            html.Span("↓", className="chain-arrow", **{"aria-hidden": "true"}),
            html.Span(
                [
                    f"{late}{others} in ",
                    html.Strong(hop.operation),
                    f" of {hop.group}: ",
                    html.Strong(hop.why.value),
                    html.Span(f" ({WHY_IN_WORDS[hop.why]})", className="dim"),
                ]
            ),
        ],
        className="chain-hop",
    )


def _next_item(hop: Hop, verdict: HangVerdict, facts: RunFacts, state: ViewState) -> list[Component]:
    return [] if hop.on is None else [_rank_item(hop.on, verdict, facts, state)]
