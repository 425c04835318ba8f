"""What the timeline shows: the step, the ranks, their spans on one clock, and the stages that are still open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.host_clocks import UNKNOWN, Alignment, ReferenceClock
from diagnose.model.run_state import RunState
from telemetry.clocks.align_evidence import ClockTable
from telemetry.stores.queries import Lanes
from ui.dashboard.data import Reads
from ui.dashboard.data.clocks import clocks_of_steps
from ui.dashboard.data.columns import ints
from ui.dashboard.defaults import Rows, chosen_rows, chosen_step, suspects
from ui.dashboard.pages.timeline.open_spans import OpenSpan, open_spans, stall_of
from ui.dashboard.records import Ints, RunFacts, RunSummary, SpanColumns
from ui.dashboard.view_state import LARGEST, StepRange, ViewState
from ui.dashboard.wording import count, duration

MAX_SPANS = 50_000
"""Spans that are sent to the browser for one picture: at most 1.5 MB. If there are more, the longest are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanClocks:
    """The clock of each span's times, [spans]."""

    host: Ints
    """A number for each host. Spans of one host have one clock, so their times can be compared exactly."""
    clock: Ints
    """0 for the common clock. Another number stands for an unaligned host."""
    bound_ns: int
    """Error bound of differences between times of different hosts on the common clock."""

    def where(self, rows: Ints) -> "SpanClocks":
        return SpanClocks(host=self.host[rows], clock=self.clock[rows], bound_ns=self.bound_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneClock:
    """Spans with times of one host's clock, if the clocks of their hosts are aligned."""

    spans: SpanColumns
    alignment: Alignment
    reference: ReferenceClock | None = None
    """Converts other times of these hosts. None if times are not converted."""

    def at_reference(self, at_ns: int, host: str) -> int:
        """A time of a host on the common clock."""
        return at_ns if self.reference is None else int(self.reference.aligned(np.array([at_ns]), host)[0])

    def clocks_of(self, hosts: Sequence[str]) -> SpanClocks:
        """The clock of each span. ``hosts``: the host of each rank."""
        own = {host: number for number, host in enumerate(self.alignment.unaligned, start=1)}
        ranks, span = np.unique(self.spans.rank, return_inverse=True)
        names = [hosts[rank] or UNKNOWN for rank in ranks.tolist()]
        clock = np.array([own.get(name, 0) for name in names], dtype=np.int64)
        host = np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1]
        return SpanClocks(host=host[span], clock=clock[span], bound_ns=self.alignment.bound_ns)

    @property
    def note(self) -> str:
        return clock_note(self.alignment)


def clock_note(alignment: Alignment) -> str:
    """A note on how well the times of several hosts can be compared. Empty for a single host."""
    if alignment.num_hosts < 2:
        return ""
    hosts, within = count(alignment.num_hosts, "host"), f"within ±{duration(alignment.bound_ns)}"
    if not alignment.unaligned:
        return f"Clocks of {hosts} aligned {within}."
    if len(alignment.unaligned) == alignment.num_hosts:
        return f"Clocks of {hosts} are not aligned. Rows may be shifted relative to each other."
    named = ", ".join(alignment.unaligned[:3]) + (" ..." if len(alignment.unaligned) > 3 else "")
    which, rows = ("Clocks", "their rows") if len(alignment.unaligned) > 1 else ("Clock", "its rows")
    return f"{which} of {named} not aligned: {rows} may be shifted. The other clocks are aligned {within}."


def on_one_clock(
    spans: SpanColumns,
    hosts: Sequence[str],
    clocks: ClockTable,
    more_hosts: Mapping[str, tuple[int, int]] | None = None,
) -> OneClock:
    """Convert start and issue times to the reference clock. ``hosts``: the host of each rank. ``more_hosts``: the first
    and the last of other times of hosts, which may have no span. The alignment includes these hosts."""
    start, issued = spans.start_ns.copy(), spans.issue_ns.copy()
    ranks_of: dict[str, list[int]] = {}
    for rank in np.unique(spans.rank).tolist():
        ranks_of.setdefault(hosts[rank], []).append(rank)
    rows = {host: np.isin(spans.rank, ranks) for host, ranks in ranks_of.items()}
    reach = {host: (int(start[mine].min()), int(start[mine].max())) for host, mine in rows.items()}
    clock = ReferenceClock(clocks, {**(more_hosts or {}), **reach})
    for host, mine in rows.items():
        start[mine] = clock.aligned(spans.start_ns[mine], host)
        issued[mine] = np.where(issued[mine] > 0, clock.aligned(spans.issue_ns[mine], host), issued[mine])
    return OneClock(spans=replace(spans, start_ns=start, issue_ns=issued), alignment=clock.alignment, reference=clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSelection:
    """A step and the ranks that are shown."""

    facts: RunFacts
    rows: Rows
    step: int
    """The chosen step."""
    steps: StepRange
    """The steps side by side: ``step`` and its neighbours."""
    unfinished: int | None = None
    """The newest step, if ranks are known to be in it and not all have completed it."""
    open_spans: tuple[OpenSpan, ...] = ()
    """Open stages of the ranks shown, if ``steps`` contains ``unfinished``."""
    num_unfit: int = 0
    """Chosen neighbours that are not shown, because there are too many spans."""

    def of_step(self, spans: SpanColumns) -> SpanColumns:
        """The spans of the chosen step."""
        return spans if self.steps.first == self.steps.last else spans.where(spans.step == self.step)


def selection(state: ViewState, reads: Reads) -> StepSelection:
    """The step and ranks of a view. It uses the detectors only if the address names no rank: they can take seconds."""
    facts = reads.facts(state)
    rows = chosen_rows(state, facts, suspected(facts, reads) if state.rank is None else ())
    found = open_spans(facts, reads, rows.ranks)
    unfinished = max((span.step for span in found), default=None)
    step = _step(state, facts, unfinished)
    asked = 1 if state.ideal else state.timeline.num_steps
    num_steps = min(asked, fitting_steps(facts, len(rows.ranks)))
    steps = _neighbours(known_steps(facts, unfinished), step, num_steps)
    return StepSelection(
        facts=facts,
        rows=rows,
        step=step,
        steps=steps,
        unfinished=unfinished,
        open_spans=found if steps.last == unfinished else (),
        num_unfit=asked - num_steps,
    )


def fitting_steps(facts: RunFacts, num_ranks: int) -> int:
    """Number of steps of ``num_ranks`` ranks that fit into one picture, by the mean number of spans. At least 1."""
    in_a_step = facts.num_spans / max(1, len(facts.steps.step)) * num_ranks / facts.topology.world_size
    return max(1, int(MAX_SPANS / max(1.0, in_a_step)))


def known_steps(facts: RunFacts, unfinished: int | None) -> Ints:
    """The steps that can be chosen, ascending: the stored ones, and the unfinished one."""
    stored = facts.steps.step
    return stored if unfinished is None else np.union1d(stored, [unfinished])


def _neighbours(known: Ints, step: int, number: int) -> StepRange:
    """``number`` known steps from ``step`` on, or the last ``number`` steps if fewer follow."""
    at = int(np.searchsorted(known, step))
    first = max(0, min(at, len(known) - number))
    return StepRange(int(known[first]), int(known[min(first + number, len(known)) - 1]))


def suspected(facts: RunFacts, reads: Reads) -> tuple[int, ...]:
    """The ranks that block a stalled job, then the suspects of the detectors. Empty until these are ready."""
    verdict = stall_of(facts, reads)
    blocking = verdict.initiating if verdict is not None else ()
    return tuple(dict.fromkeys((*blocking, *suspects(reads.reports.of(facts.summary)))))


def _step(state: ViewState, facts: RunFacts, unfinished: int | None) -> int:
    """The step of the address. Otherwise the step in which the job stalled, or that of ``chosen_step``."""
    follows = state.steps is None or state.steps.last == LARGEST
    is_default = state.step is None and follows and facts.summary.state is not RunState.LIVE
    if unfinished is not None and (is_default or state.step == unfinished):
        return unfinished
    return chosen_step(state, facts)


def displayed(state: ViewState, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """``ranks`` as they are drawn from the top: first the pinned ones, then the others in their order."""
    pinned = tuple(rank for rank in state.pins if rank in ranks)
    return pinned + tuple(rank for rank in ranks if rank not in pinned)


def aligned(shown: StepSelection, reads: Reads) -> OneClock:
    """The spans of a selection on one clock."""
    run, facts, steps, ranks = shown.facts.summary, shown.facts, shown.steps, shown.rows.ranks

    def align() -> OneClock:
        clocks = clocks_of_steps(reads, facts, steps, ranks)
        more = {facts.hosts[span.rank]: (span.since_ns, span.since_ns) for span in shown.open_spans}
        return on_one_clock(reads.spans(run, steps.first, ranks, steps.last), facts.hosts, clocks, more)

    began = tuple((span.rank, span.since_ns) for span in shown.open_spans)
    return reads.cached(run, ("aligned", steps, ranks, began), align)


def spans(shown: StepSelection, reads: Reads) -> SpanColumns:
    return aligned(shown, reads).spans


def num_left_out(reads: Reads, run: RunSummary, step: int, ranks: tuple[int, ...], last_step: int | None = None) -> int:
    """The number of spans that ``Reads.spans`` leaves out, because their lanes are too full."""
    last = step if last_step is None else last_step
    loaded = reads.spans(run, step, ranks, last)
    fullest = np.unique(np.stack([loaded.rank, loaded.stream]), axis=1, return_counts=True)[1].max(initial=0)
    if fullest < reads.max_lane:
        return 0
    query = Lanes(**run.key, first_step=step, last_step=last, ranks=ranks)
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
