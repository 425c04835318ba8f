"""Spans of several hosts drawn on one clock: what the collector knows of their clocks, and what it does not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from telemetry.clocks.align_table import ClockTable
from ui.records import SpanColumns
from ui.wording import count, duration


@dataclass(frozen=True, slots=True, kw_only=True)
class OneClock:
    """Spans whose stamps are those of one host's clock, as far as that is possible."""

    spans: SpanColumns
    num_hosts: int
    bound_ns: int
    """The stamps of aligned hosts are right within this."""
    unaligned: tuple[str, ...]
    """Hosts whose stamps are their own clock's."""

    @property
    def note(self) -> str:
        """What to say beside a picture; empty where all is from one host."""
        if self.num_hosts < 2:
            return ""
        if not self.unaligned:
            return f"Clocks of {count(self.num_hosts, 'host')} aligned within ±{duration(self.bound_ns)}."
        if len(self.unaligned) == self.num_hosts:
            return f"Clocks of {count(self.num_hosts, 'host')} are not aligned: rows may be shifted against each other."
        named = ", ".join(self.unaligned[:3]) + (" ..." if len(self.unaligned) > 3 else "")
        return f"Clock of {named} not aligned: rows may be shifted; the others are within ±{duration(self.bound_ns)}."


def on_one_clock(spans: SpanColumns, hosts: Sequence[str], clocks: ClockTable) -> OneClock:
    """``hosts``: of each rank."""
    start, issued = spans.start_ns.copy(), spans.issue_ns.copy()
    bounds, unaligned, seen = [0], [], set()
    for host, ranks in _by_host(spans, hosts):
        mine = [rank in ranks for rank in spans.rank.tolist()]
        seen.add(host)
        aligned = clocks.aligned(spans.start_ns[mine], host)
        if aligned is None:
            unaligned.append(host or "unknown")
            continue
        by_ns = spans.start_ns[mine] - aligned.at_ns
        start[mine] = aligned.at_ns
        issued[mine] -= by_ns * (issued[mine] > 0)
        bounds.append(aligned.bound_ns)
    if len(unaligned) == len(seen) - 1:  # the reference alone is no alignment
        unaligned = sorted(host or "unknown" for host in seen)
    return OneClock(
        spans=replace(spans, start_ns=start, issue_ns=issued),
        num_hosts=len(seen),
        bound_ns=max(bounds),
        unaligned=tuple(unaligned) if len(seen) > 1 else (),
    )


def _by_host(spans: SpanColumns, hosts: Sequence[str]) -> Iterator[tuple[str, frozenset[int]]]:
    ranks = set(spans.rank.tolist())
    for host in dict.fromkeys(hosts[rank] for rank in sorted(ranks)):
        yield host, frozenset(rank for rank in ranks if hosts[rank] == host)
