"""The operation that a span belongs to: its members in the picture, and which of them started last.

rank 0   |...........== all-gather ==|      waited until rank 1 started
rank 1               |== all-gather ==|     the last one to start
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.model.partners import TRANSFERS
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.selection import SpanClocks, StepSelection, aligned
from ui.dashboard.pages.timeline.spans_buffer import NO_FLOW, NOT_COMPARABLE_NS, bounds_ns, flows, waited_ns
from ui.dashboard.records import Ints, RunFacts, SpanColumns
from ui.dashboard.wording import duration, ranks_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The members of one operation, in arrays of equal length, in the order of the spans of the picture."""

    is_transfer: bool
    rank: Ints
    start_ns: Ints
    waited_ns: Ints
    bound_ns: int
    """Error bound of differences between starts. 0 on one host; ``NOT_COMPARABLE_NS`` if the clocks are not aligned."""

    @property
    def last(self) -> int | None:
        """The rank that started last: all others waited. None if that is not certain."""
        late = np.flatnonzero(self.waited_ns == 0)
        return int(self.rank[late[0]]) if len(late) == 1 and not self.is_transfer else None

    @property
    def spread_ns(self) -> int:
        """Time from the first start to the last one."""
        return int(self.start_ns.max() - self.start_ns.min())

    @property
    def latest(self) -> list[int]:
        """The ranks that may have started last, ascending."""
        return sorted(self.rank[self.start_ns.max() - self.start_ns <= self.bound_ns].tolist())

    def least_wait_ns(self, rank: int) -> int:
        """The least time that a member certainly waited for the others."""
        waited_ns = int(self.waited_ns[self.rank == rank][0])
        return max(0, waited_ns - self.bound_ns)


def operation_of(row: int, shown: StepSelection, reads: Reads) -> Operation | None:
    """The operation of the span in ``row`` of the aligned spans. None if no other member is in the picture."""
    one_clock = aligned(shown, reads)
    clocks = one_clock.clocks_of(shown.facts.hosts)
    key = "operations", shown.steps, shown.rows.ranks
    flow, waited = reads.cached(shown.facts.summary, key, lambda: _related(one_clock.spans, clocks, shown.facts))
    if flow[row] == NO_FLOW:
        return None
    members = np.flatnonzero(flow == flow[row])
    spans = one_clock.spans.where(members)
    return Operation(
        is_transfer=bool(np.isin(spans.stage[0], TRANSFERS)),
        rank=spans.rank,
        start_ns=spans.start_ns,
        waited_ns=waited[members],
        bound_ns=int(bounds_ns(np.zeros(len(members), dtype=np.int64), clocks.where(members))[0]),
    )


def _related(spans: SpanColumns, clocks: SpanClocks, facts: RunFacts) -> tuple[Ints, Ints]:
    flow = flows(spans, facts.topology)
    return flow, waited_ns(spans, flow, clocks)


def operation_facts(operation: Operation) -> Iterator[tuple[str, str]]:
    """Names and values for the details of a span."""
    if operation.is_transfer:
        return
    yield "members in the picture", f"ranks {ranks_text(sorted(operation.rank.tolist()))}"
    yield "last to start", _last_to_start(operation)


def _last_to_start(operation: Operation) -> str:
    """The member that started last, or why it is not known."""
    first, latest = int(operation.rank[operation.start_ns.argmin()]), operation.latest
    after = f"{duration(operation.spread_ns)} after rank {first}"
    if operation.last is not None:
        return f"rank {operation.last}, {after}"
    if operation.bound_ns == NOT_COMPARABLE_NS:
        return "not known: the clocks of the hosts of these ranks are not aligned"
    if len(latest) == 1:
        return f"not known: a member ended before rank {latest[0]} started"
    everyone, differ = "both" if len(operation.rank) == 2 else "all", duration(operation.spread_ns)
    bound = f"the error bound of the clocks (±{duration(operation.bound_ns)})"
    if len(latest) < len(operation.rank):
        return f"ranks {ranks_text(latest)}, {after}" + f": they differ by less than {bound}" * bool(operation.bound_ns)
    if operation.bound_ns:
        return f"not known: {everyone} started within {differ}, and {bound} is larger"
    return f"{everyone} started at the same time"
