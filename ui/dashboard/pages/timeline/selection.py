"""What the timeline shows: the step, the ranks and their spans on one clock; and the controls that choose them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.model.host_clocks import UNKNOWN, Alignment, ReferenceClock, load_clocks
from diagnose.model.run_state import RunState
from telemetry.clocks.align_evidence import ClockTable
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Lanes
from ui.dashboard.data import Reads
from ui.dashboard.data.columns import ints
from ui.dashboard.defaults import Rows, chosen_rows, chosen_step, groups_of, slowest_step, suspects, typical_step
from ui.dashboard.pages.controls import bar, link_button, number_input, switch
from ui.dashboard.pages.interface import control_id
from ui.dashboard.records import Ints, RunFacts, RunSummary, SpanColumns
from ui.dashboard.view_state import SHOWN, Group, View, ViewState
from ui.dashboard.wording import count, duration

MAX_SPANS = 50_000
"""Spans that are sent to the browser for one picture: at most 1.5 MB. If there are more, the longest are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneClock:
    """Spans with times of one host's clock, if the clocks of their hosts are aligned."""

    spans: SpanColumns
    alignment: Alignment

    def clocks_of(self, hosts: Sequence[str]) -> Ints:
        """The clock of each span: 0 for the common clock, another number for an unaligned host. ``hosts`` by rank."""
        own = {host: number for number, host in enumerate(self.alignment.unaligned, start=1)}
        ranks = np.unique(self.spans.rank)
        clock = np.array([own.get(hosts[rank] or UNKNOWN, 0) for rank in ranks.tolist()], dtype=np.int64)
        return clock[np.searchsorted(ranks, self.spans.rank)]

    @property
    def note(self) -> str:
        return clock_note(self.alignment)


def clock_note(alignment: Alignment) -> str:
    """How well the times of several hosts can be compared. Empty for a single host."""
    if alignment.num_hosts < 2:
        return ""
    hosts, within = count(alignment.num_hosts, "host"), f"within ±{duration(alignment.bound_ns)}"
    if not alignment.unaligned:
        return f"Clocks of {hosts} aligned {within}."
    if len(alignment.unaligned) == alignment.num_hosts:
        return f"Clocks of {hosts} are not aligned. Rows may be shifted against each other."
    named = ", ".join(alignment.unaligned[:3]) + (" ..." if len(alignment.unaligned) > 3 else "")
    return f"Clock of {named} not aligned: its rows may be shifted. The other clocks are aligned {within}."


def on_one_clock(spans: SpanColumns, hosts: Sequence[str], clocks: ClockTable) -> OneClock:
    """Convert start and issue times to the reference clock. ``hosts`` by rank."""
    start, issued = spans.start_ns.copy(), spans.issue_ns.copy()
    ranks_of: dict[str, list[int]] = {}
    for rank in np.unique(spans.rank).tolist():
        ranks_of.setdefault(hosts[rank], []).append(rank)
    rows = {host: np.isin(spans.rank, ranks) for host, ranks in ranks_of.items()}
    reach = {host: (int(start[mine].min()), int(start[mine].max())) for host, mine in rows.items()}
    clock = ReferenceClock(clocks, reach)
    for host, mine in rows.items():
        start[mine] = clock.aligned(spans.start_ns[mine], host)
        issued[mine] = np.where(issued[mine] > 0, clock.aligned(spans.issue_ns[mine], host), issued[mine])
    return OneClock(spans=replace(spans, start_ns=start, issue_ns=issued), alignment=clock.alignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSelection:
    """A step and the ranks that are shown."""

    facts: RunFacts
    rows: Rows
    step: int


def selection(state: ViewState, reads: Reads) -> StepSelection:
    """The step and ranks of a view. It uses the detectors only if the address names no rank: they can take seconds."""
    facts = reads.facts(state)
    named = suspects(reads.reports.of(facts.summary)) if state.rank is None else ()
    return StepSelection(facts=facts, rows=chosen_rows(state, facts, named), step=chosen_step(state, facts))


def displayed(state: ViewState, rows: Rows) -> tuple[int, ...]:
    """The ranks from the top: first the pinned ranks, then the others."""
    pinned = tuple(rank for rank in state.pins if rank in rows.ranks)
    return pinned + tuple(rank for rank in rows.ranks if rank not in pinned)


def aligned(shown: StepSelection, reads: Reads) -> OneClock:
    """The spans of a selection on one clock."""
    run, facts, step, ranks = shown.facts.summary, shown.facts, shown.step, shown.rows.ranks

    def load(reader: Reader) -> ClockTable:
        of_step = facts.steps.step == step
        duration_ns = facts.steps.duration_ns[of_step if of_step.any() else slice(-1, None)]
        return load_clocks(reader, run.run_id, run.attempt, np.array([step]), duration_ns)

    def align() -> OneClock:
        clocks = reads.compute(run, ("clocks", step), load)
        return on_one_clock(reads.spans(run, step, ranks), facts.hosts, clocks)

    return reads.cached(run, ("aligned", step, ranks), align)


def spans(shown: StepSelection, reads: Reads) -> SpanColumns:
    return aligned(shown, reads).spans


def num_left_out(reads: Reads, run: RunSummary, step: int, ranks: tuple[int, ...]) -> int:
    """The number of spans that ``Reads.spans`` leaves out, because their lanes are too full."""
    loaded = reads.spans(run, step, ranks)
    fullest = np.unique(np.stack([loaded.rank, loaded.stream]), axis=1, return_counts=True)[1].max(initial=0)
    if fullest < reads.max_lane:
        return 0
    query = Lanes(**run.key, first_step=step, last_step=step, ranks=ranks)
    return int(np.maximum(ints(reads.ask(run, query), "spans") - reads.max_lane, 0).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingSpans:
    """The spans that are sent to the browser, and what is left out."""

    spans: SpanColumns
    num_hidden: int
    longest_hidden_ns: int


def fit(spans: SpanColumns, limit: int = MAX_SPANS) -> FittingSpans:
    """The longest spans, at most ``limit``, in unchanged order."""
    if len(spans) <= limit:
        return FittingSpans(spans=spans, num_hidden=0, longest_hidden_ns=0)
    by_length = np.argsort(-spans.duration_ns, kind="stable")
    hidden = by_length[limit:]
    return FittingSpans(
        spans=spans.where(np.sort(by_length[:limit])),
        num_hidden=len(hidden),
        longest_hidden_ns=int(spans.duration_ns[hidden[0]]),
    )


GROUP_NAMES = {
    Group.PP: "Pipeline",
    Group.DP: "Data",
    Group.CP: "Context",
    Group.EP: "Expert",
    Group.TP: "Tensor",
    Group.ALL: "All ranks",
}
HIDDEN = "hidden"
MAX_LISTED = 1024
"""Ranks in the list to choose from. In a larger run the rank is typed."""


def control_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """Group, rank and step of a view. A rank or step that does not exist is shown as the address names it."""
    world = reads.facts(state).topology.world_size
    known_rank = state.rank if state.rank is not None and state.rank < world else None
    shown = selection(replace(state, step=None, rank=known_rank), reads)
    rank = shown.rows.rank if state.rank is None else state.rank
    return {
        "group": (state.group or shown.rows.group).value,
        "rank": str(rank) if world <= MAX_LISTED else rank,
        "step": "" if state.step is None else state.step,
        "ideal": SHOWN if state.ideal else HIDDEN,
    }


def draw_controls(state: ViewState, reads: Reads) -> Component:
    shown, facts = control_values(state, reads), reads.facts(state)
    groups = {group.value: GROUP_NAMES[group] for group in groups_of(facts.topology)}
    is_listed = facts.topology.world_size <= MAX_LISTED
    return bar(
        switch("Group", "group", shown["group"], groups),
        _rank_list(shown["rank"], facts) if is_listed else number_input("Rank", "rank", shown["rank"], "0"),
        number_input("Step", "step", shown["step"], "newest" if facts.summary.state is RunState.LIVE else "typical"),
        switch("Ideal timeline", "ideal", shown["ideal"], {HIDDEN: "Hidden", SHOWN: "Shown"}),
    )


def draw_links(state: ViewState, reads: Reads) -> Component:
    """Links to the previous and next step, to a typical, the slowest and the newest step, and to the grid."""
    facts = reads.facts(state)
    stored, here = facts.steps.step, replace(state, span=None, area=None)
    at = int(np.searchsorted(stored, chosen_step(state, facts)))
    steps = {"Typical": typical_step(facts), "Slowest": slowest_step(facts), "Newest": None}
    links = [link_button(name, replace(here, step=step)) for name, step in steps.items()]
    if at + 1 < len(stored):
        after = replace(here, step=int(stored[at + 1]))
        links.insert(0, link_button("Next →", after, name="step-next", title="next step: key ]"))
    if at > 0:
        before = replace(here, step=int(stored[at - 1]))
        links.insert(0, link_button("← Previous", before, name="step-previous", title="previous step: key ["))
    links.append(link_button("Show in grid", replace(here, view=View.GRID)))
    return html.Div(links, className="links")


def _rank_list(shown: object, facts: RunFacts) -> Component:
    places = ((rank, facts.place(rank)) for rank in range(facts.topology.world_size))
    return dmc.Select(
        label="Rank",
        id=control_id("rank"),
        value=shown,
        data=[{"value": str(rank), "label": f"{rank} · {place}"} for rank, place in places],
        searchable=True,
        allowDeselect=False,
        limit=200,
        w=170 if facts.topology.is_plain else 260,
    )
