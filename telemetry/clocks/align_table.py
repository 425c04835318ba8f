"""Time stamps of several hosts on one clock. Input: raw stamp and host. Output: the reference's time and its bound.

    windows of a host   |-- offset, drift, bound --|-- offset, drift, bound --|        ?
    stamp                         ^ inside: as it is                                   ^ outside: nearest window, and
                                                                                         a wider bound

Stored stamps are not changed: every reader that draws or compares them converts them here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from telemetry.clocks.align_evidence import HostClock, Int64s
from telemetry.clocks.align_pair import MAX_BOUND_NS

WANDER = 1e-6
"""By how much a drift may change outside of its window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What is to be taken from a host's stamps near one instant."""

    offset_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Stamps as the reference would have read them."""

    at_ns: Int64s
    bound_ns: int
    """All are right within this."""


class ClockTable:
    """The clocks of a job's hosts, as far as they are known."""

    def __init__(self, clocks: Iterable[HostClock] = ()) -> None:
        aligned = [clock for clock in clocks if clock.aligned]
        self.reference = aligned[-1].reference if aligned else ""
        self._clocks: dict[str, list[HostClock]] = {}
        for clock in aligned:
            if clock.reference == self.reference:
                self._clocks.setdefault(clock.host, []).append(clock)

    def __bool__(self) -> bool:
        return len(self._clocks) > 1

    def shift(self, host: str, at_ns: int) -> Shift | None:
        """Of the stamps of ``host`` near ``at_ns`` of its clock; None where nothing bounds it."""
        if host == self.reference and host:
            return Shift(offset_ns=0, bound_ns=0)
        known = [_shift(shift, at_ns) for shift in self._clocks.get(host, ())]
        best = min(known, key=lambda shift: shift.bound_ns, default=None)
        return best if best is not None and best.bound_ns <= MAX_BOUND_NS else None

    def aligned(self, at_ns: Int64s, host: str) -> Aligned | None:
        """Stamps of one host that lie close together (a step); None where nothing bounds its clock."""
        if not len(at_ns):
            return Aligned(at_ns=at_ns, bound_ns=0)
        ends = [self.shift(host, int(stamp)) for stamp in (at_ns.min(), at_ns.max())]
        first, last = ends
        if first is None or last is None:
            return None
        length = int(at_ns.max() - at_ns.min())
        turn = (last.offset_ns - first.offset_ns) / length if length else 0.0
        offset = first.offset_ns + np.rint((at_ns - at_ns.min()) * turn).astype(np.int64)
        return Aligned(at_ns=at_ns - offset, bound_ns=max(first.bound_ns, last.bound_ns))

    def between(self, host: str, other: str, at_ns: int) -> Shift | None:
        """What the clock of ``other`` reads less what ``host``'s reads when that shows ``at_ns``."""
        if host == other:
            return Shift(offset_ns=0, bound_ns=0)
        here = self.shift(host, at_ns)
        there = None if here is None else self.shift(other, at_ns - here.offset_ns)
        if here is None or there is None:
            return None
        there = self.shift(other, at_ns - here.offset_ns + there.offset_ns) or there
        return Shift(offset_ns=there.offset_ns - here.offset_ns, bound_ns=there.bound_ns + here.bound_ns)


def _shift(clock: HostClock, at_ns: int) -> Shift:
    """By one window; outside, its line may have turned by what its bound leaves open, and by what clocks wander."""
    middle = (clock.first_ns + clock.last_ns) // 2
    outside = max(clock.first_ns - at_ns, at_ns - clock.last_ns, 0)
    turn = WANDER + 2 * clock.bound_ns / max(clock.last_ns - clock.first_ns, 1)
    return Shift(
        offset_ns=clock.offset_ns + round(clock.drift_ppm * 1e-6 * (at_ns - middle)),
        bound_ns=clock.bound_ns + (int(np.ceil(outside * turn)) if outside else 0),
    )
