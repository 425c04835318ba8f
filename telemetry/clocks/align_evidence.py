"""Input and result of clock alignment (see ``align.py``), and the conversion of stored stamps to one clock.

    windows of a host   |-- offset, drift, bound --|-- offset, drift, bound --|        ?
    stamp                         ^ inside: used as stored                             ^ outside: nearest window, and
                                                                                         a wider bound

Stored stamps are not changed. Code that draws or compares stamps converts them with :class:`ClockTable`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

ABSENT = -1
REFERENCE, ENDS, ORDER, PINGS, DISPUTED, UNALIGNED = "reference", "ends", "order", "pings", "disputed", "unaligned"
"""Methods of an offset. ``disputed``: pings contradict it, and the bound includes the offset of the pings."""
REFUSED_NS = -1
"""Bound of a clock that is not aligned."""
MAX_BOUND_NS = 1_000_000_000
"""An offset with a wider bound is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Collectives of one group, from one rank on each of its hosts. Rows are collectives in the order of issue."""

    hosts: tuple[str, ...]
    """Distinct hosts, one for each column."""
    start_ns: Int64s
    """Raw wall clock of each host, [collectives, hosts]; -1 if a rank has no such span. The same for ``end_ns``."""
    end_ns: Int64s
    step: Int64s
    """[collectives], ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Messages from one host to another, in the order of their issue."""

    sender: str
    receiver: str
    sent_ns: Int64s
    """Start of the send, by the sender's clock."""
    received_ns: Int64s
    """End of the receive, by the receiver's clock."""
    step: Int64s

    @property
    def hosts(self) -> tuple[str, str]:
        return self.sender, self.receiver


@dataclass(frozen=True, slots=True, kw_only=True)
class Pings:
    """The clock of a collector, measured by an agent."""

    host: str
    collector: str
    at_ns: Int64s
    """Times of the pings by the host's clock, ascending."""
    offset_ns: Int64s
    """The collector's clock minus the host's."""
    round_trip_ns: Int64s

    @property
    def hosts(self) -> tuple[str, str]:
        """The host and the collector. The latter begins with NUL, so that it is never equal to the name of a host."""
        return self.host, f"\0{self.collector}"


Source = Gathering | Transfers | Pings


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The events of one window that relate the clocks of a job's hosts."""

    hosts: tuple[str, ...]
    """All hosts, the preferred reference first."""
    gatherings: tuple[Gathering, ...] = ()
    transfers: tuple[Transfers, ...] = ()
    pings: tuple[Pings, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        return (*self.gatherings, *self.transfers, *self.pings)

    @property
    def reference(self) -> str:
        """The first host. If it shares no event with another host, the host that shares the most."""
        shared = dict.fromkeys(self.hosts, 0)
        for source in self.sources:
            for host in set(source.hosts) & shared.keys():
                shared[host] += len(source.hosts) - 1
        first = self.hosts[0]
        return first if shared[first] else max(self.hosts, key=lambda host: shared[host])


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClock:
    """The clock of one host over one window. Times are readings of that clock."""

    host: str
    reference: str
    first_ns: int = 0
    last_ns: int = 0
    offset_ns: int = 0
    """Reading of the host's clock minus that of the reference, in the middle of the window."""
    drift_ppm: float = 0.0
    """Rate of the host's clock minus that of the reference."""
    bound_ns: int = REFUSED_NS
    """Largest error of the offset in the whole window; -1 if the clock was refused."""
    num_events: int = 0
    method: str = UNALIGNED
    reason: str = ""
    """Why the clock was refused, or which evidence disagrees."""

    @property
    def aligned(self) -> bool:
        return self.bound_ns >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One line: a clock relative to the reference, over the time in which the line is valid."""

    first_ns: int
    last_ns: int
    at_ns: int
    """Reading of the clock at which its offset is ``offset_ns``."""
    offset_ns: float
    drift: float
    bound_ns: float
    num_events: int
    method: str

    def offsets_ns(self, reading_ns: Int64s) -> Int64s:
        """The offsets at readings of the clock itself."""
        moved = self.offset_ns + self.drift * (reading_ns - self.at_ns).astype(np.float64)
        return np.rint(moved).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sights:
    """Events that relate one clock to the reference, one row each.

    ``low_ns`` <= offset of the clock <= ``high_ns`` if the stamps are correct. ``ends_ns`` is close to the offset.
    """

    step: Int64s
    reading_ns: Int64s
    """Time by the clock itself."""
    ends_ns: Floats
    """NaN if the event is not the end of a collective."""
    low_ns: Floats
    """-inf without a lower bound."""
    high_ns: Floats
    """inf without an upper bound."""

    def __len__(self) -> int:
        return len(self.reading_ns)

    def between(self, first: int, stop: int) -> "Sights":
        return Sights(**{name: getattr(self, name)[first:stop] for name in Sights.__slots__})


WANDER = 1e-6
"""Largest change of a drift outside of its window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The number to subtract from a host's stamps near one instant."""

    offset_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Stamps as the reference would have read them."""

    at_ns: Int64s
    bound_ns: int
    """Largest error of all stamps."""


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
        """The shift for stamps of ``host`` near ``at_ns`` of its clock. None if no bound up to ``MAX_BOUND_NS`` is
        known."""
        if host == self.reference and host:
            return Shift(offset_ns=0, bound_ns=0)
        shifts = [_shift(clock, at_ns) for clock in self._clocks.get(host, ())]
        best = min(shifts, key=lambda shift: shift.bound_ns, default=None)
        return best if best is not None and best.bound_ns <= MAX_BOUND_NS else None

    def aligned(self, at_ns: Int64s, host: str) -> Aligned | None:
        """Convert stamps of one host that are close together (a step). None if :meth:`shift` has no result."""
        if not len(at_ns):
            return Aligned(at_ns=at_ns, bound_ns=0)
        first_ns, length_ns = int(at_ns.min()), int(np.ptp(at_ns))
        first, last = self.shift(host, first_ns), self.shift(host, first_ns + length_ns)
        if first is None or last is None:
            return None
        turn = (last.offset_ns - first.offset_ns) / length_ns if length_ns else 0.0
        offset = first.offset_ns + np.rint((at_ns - first_ns) * turn).astype(np.int64)
        return Aligned(at_ns=at_ns - offset, bound_ns=max(first.bound_ns, last.bound_ns))

    def between(self, host: str, other: str, at_ns: int) -> Shift | None:
        """The clock of ``other`` minus that of ``host``, at ``at_ns`` of the clock of ``host``; None if unknown."""
        if host == other:
            return Shift(offset_ns=0, bound_ns=0)
        here = self.shift(host, at_ns)
        there = None if here is None else self.shift(other, at_ns - here.offset_ns)
        if here is None or there is None:
            return None
        there = self.shift(other, at_ns - here.offset_ns + there.offset_ns) or there
        return Shift(offset_ns=there.offset_ns - here.offset_ns, bound_ns=there.bound_ns + here.bound_ns)


def _shift(clock: HostClock, at_ns: int) -> Shift:
    """The shift by one window. Outside of it, the bound grows by the uncertainty of the drift and by ``WANDER``."""
    middle = (clock.first_ns + clock.last_ns) // 2
    outside = max(clock.first_ns - at_ns, at_ns - clock.last_ns, 0)
    turn = WANDER + 2 * clock.bound_ns / max(clock.last_ns - clock.first_ns, 1)
    return Shift(
        offset_ns=clock.offset_ns + round(clock.drift_ppm * 1e-6 * (at_ns - middle)),
        bound_ns=clock.bound_ns + (int(np.ceil(outside * turn)) if outside else 0),
    )
