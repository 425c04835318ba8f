"""What the timeline page is about, every open choice of its address made."""

from dataclasses import dataclass

from ui.dashboard.data import Reads
from ui.dashboard.defaults import Rows, chosen_rows, chosen_step, suspects
from ui.dashboard.figures.spans_buffer import Drawn, fit
from ui.dashboard.one_clock import OneClock
from ui.dashboard.records import RunFacts, SpanColumns
from ui.dashboard.view_state import ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Which ranks, in which step."""

    facts: RunFacts
    rows: Rows
    step: int


def scene(state: ViewState, reads: Reads) -> Scene:
    """The detectors are asked only where the address names no rank: at twelve thousand ranks they take their time."""
    facts = reads.facts(state)
    named = suspects(reads.reports.of(facts.summary)) if state.rank is None else ()
    return Scene(facts=facts, rows=chosen_rows(state, facts, named), step=chosen_step(state, facts))


def displayed(state: ViewState, rows: Rows) -> tuple[int, ...]:
    """The ranks from the top: the pinned ones, then the others."""
    pinned = tuple(rank for rank in state.pins if rank in rows.ranks)
    return pinned + tuple(rank for rank in rows.ranks if rank not in pinned)


def aligned(one: Scene, reads: Reads) -> OneClock:
    """The spans of a scene on one clock."""
    return reads.aligned_spans(one.facts, one.step, one.rows.ranks)


def spans(one: Scene, reads: Reads) -> SpanColumns:
    return aligned(one, reads).spans


def drawn(one: Scene, reads: Reads) -> Drawn:
    """As many of the spans as travel to the browser."""
    return fit(spans(one, reads))
