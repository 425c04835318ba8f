"""Spans of several hosts on one clock, and a note on the clocks that are not aligned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.host_clocks import UNKNOWN, Alignment, ReferenceClock
from diagnose.model.operations import Ints, SpanColumns
from telemetry.clocks.align_evidence import ClockTable
from ui.dashboard.wording import count, duration


@dataclass(frozen=True, slots=True, kw_only=True)
class OneClock:
    """Spans whose stamps are those of one host's clock, as far as that is possible."""

    spans: SpanColumns
    alignment: Alignment

    def clocks_of(self, hosts: Sequence[str]) -> Ints:
        """Of each span whose clock its stamps are of: 0 the common one, else a host's own. ``hosts``: of each rank."""
        own = {host: number for number, host in enumerate(self.alignment.unaligned, start=1)}
        ranks = np.unique(self.spans.rank)
        clock = np.array([own.get(hosts[rank] or UNKNOWN, 0) for rank in ranks.tolist()], dtype=np.int64)
        return clock[np.searchsorted(ranks, self.spans.rank)]

    @property
    def note(self) -> str:
        """What to say beside a picture; empty where all is from one host."""
        return clock_note(self.alignment)


def clock_note(alignment: Alignment) -> str:
    """How far stamps of several hosts can be compared; empty where all are from one."""
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
    """``hosts``: of each rank."""
    start, issued = spans.start_ns.copy(), spans.issue_ns.copy()
    rows = {host: np.isin(spans.rank, ranks) for host, ranks in _by_host(spans, hosts)}
    reach = {host: (int(start[mine].min()), int(start[mine].max())) for host, mine in rows.items()}
    clock = ReferenceClock(clocks, reach)
    for host, mine in rows.items():
        start[mine] = clock.aligned(spans.start_ns[mine], host)
        issued[mine] = np.where(issued[mine] > 0, clock.aligned(spans.issue_ns[mine], host), issued[mine])
    return OneClock(spans=replace(spans, start_ns=start, issue_ns=issued), alignment=clock.alignment)


def _by_host(spans: SpanColumns, hosts: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    ranks = np.unique(spans.rank).tolist()
    for host in dict.fromkeys(hosts[rank] for rank in ranks):
        yield host, [rank for rank in ranks if hosts[rank] == host]
