"""A rank as a word on the page: its number and what it is to the hang; a click chooses it."""

from collections.abc import Iterable
from dataclasses import replace

from dash import dcc, html
from dash.development.base_component import Component

from diagnose.hang.verdict import HangVerdict
from ui.dashboard.figures.standing import SIGNS, Standing, standing_of
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import count


def rank_chip(rank: int, verdict: HangVerdict, state: ViewState, *, label: str = "") -> Component:
    """A rank of a hang; ``label``: in place of ``rank 5``."""
    return standing_chip(rank, standing_of(verdict, rank), state, label=label)


def standing_chip(rank: int, standing: Standing, state: ViewState, *, label: str = "") -> Component:
    """A link that chooses the rank in the hang view, or in the grid where that is shown."""
    view = View.GRID if state.view is View.GRID else View.HANG
    words = [swatch(standing), label or f"rank {rank}"]
    address = replace(state, view=view, rank=rank).search()
    return dcc.Link(words, href=address, className="rank-chip", title=f"rank {rank}: {standing}")


def rank_chips(ranks: Iterable[int], verdict: HangVerdict, state: ViewState, limit: int = 8) -> Component:
    """Several, and how many more there are."""
    listed = list(ranks)
    chips: list[Component | str] = [rank_chip(rank, verdict, state) for rank in listed[:limit]]
    more = [html.Span(f"and {count(len(listed) - limit, 'more rank')}", className="dim")] if len(listed) > limit else []
    return html.Span([*chips, *more], className="chips")


def swatch(standing: Standing) -> Component:
    """The symbol of a standing on its colour."""
    sign = SIGNS[standing]
    return html.Span(sign.symbol, className="sign", style={"background": sign.colour, "color": sign.ink})


def standing_badge(standing: Standing) -> Component:
    """Symbol and word."""
    return html.Span([swatch(standing), standing.value], className="standing", title=SIGNS[standing].means)
