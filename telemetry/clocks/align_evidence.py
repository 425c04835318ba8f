"""Input and result of clock alignment: see ``align.py``."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ABSENT = -1
REFERENCE, ENDS, ORDER, PINGS, DISPUTED, UNALIGNED = "reference", "ends", "order", "pings", "disputed", "unaligned"
"""Methods: what an offset rests on. ``disputed``: pings say something else, and the bound reaches to what they say."""
REFUSED_NS = -1
"""Bound of what is not aligned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Collectives of one group, by one rank on each of its hosts. Rows are collectives in the order of their issue."""

    hosts: tuple[str, ...]
    """Distinct, one a column."""
    start_ns: Int64s
    """Wall clock of each host, raw, [collectives, hosts]; -1 where a rank has no such span."""
    end_ns: Int64s
    """Likewise."""
    step: Int64s
    """[collectives], ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Messages from one host to another, in the order of their issue."""

    sender: str
    receiver: str
    sent_ns: Int64s
    """When sending began, by the sender's clock."""
    received_ns: Int64s
    """When receiving ended, by the receiver's."""
    step: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pings:
    """What an agent found out about its collector's clock."""

    host: str
    collector: str
    at_ns: Int64s
    """By the host's clock, ascending."""
    offset_ns: Int64s
    """The collector's clock less the host's."""
    round_trip_ns: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of the clocks of a job's hosts over one window."""

    hosts: tuple[str, ...]
    """All of them, the preferred reference first."""
    gatherings: tuple[Gathering, ...] = ()
    transfers: tuple[Transfers, ...] = ()
    pings: tuple[Pings, ...] = ()

    @property
    def reference(self) -> str:
        """The first host; where that met nobody, the one that met most."""
        met = dict.fromkeys(self.hosts, 0)
        groups = [source.hosts for source in self.gatherings]
        groups += [(source.sender, source.receiver) for source in self.transfers]
        groups += [(source.host, "") for source in self.pings]
        for group in groups:
            for host in set(group) & met.keys():
                met[host] += len(group) - 1
        first = self.hosts[0]
        return first if met[first] else max(self.hosts, key=lambda host: met[host])


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClock:
    """The clock of one host over one window. Times are what that clock itself reads."""

    host: str
    reference: str
    first_ns: int = 0
    last_ns: int = 0
    offset_ns: int = 0
    """What it reads less what the reference reads, in the middle of the window."""
    drift_ppm: float = 0.0
    """By how much it runs fast against the reference."""
    bound_ns: int = REFUSED_NS
    """The true offset lies within this, all through the window; -1: refused."""
    num_events: int = 0
    method: str = UNALIGNED
    reason: str = ""
    """Why it was refused, or what disagrees."""

    @property
    def aligned(self) -> bool:
        return self.bound_ns >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A clock against the reference's as long as one line holds."""

    first_ns: int
    last_ns: int
    at_ns: int
    """Where ``offset_ns`` holds."""
    offset_ns: float
    drift: float
    bound_ns: float
    num_events: int
    method: str

    def offsets_ns(self, reading_ns: Int64s) -> Int64s:
        """At readings of the clock itself."""
        moved = self.offset_ns + self.drift * (reading_ns - self.at_ns).astype(np.float64)
        return np.rint(moved).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sights:
    """One clock as seen from another, whose readings are turned into the reference's already. One row an event.

    ``low_ns`` <= offset of the clock <= ``high_ns`` whenever stamps are right; ``ends_ns`` is near it.
    """

    reading_ns: Int64s
    """Of the clock itself."""
    ends_ns: Floats
    """NaN where no collective ended."""
    low_ns: Floats
    """-inf where nothing bounds it from below."""
    high_ns: Floats
    """inf likewise."""

    def __len__(self) -> int:
        return len(self.reading_ns)

    def between(self, first: int, stop: int) -> "Sights":
        rows = slice(first, stop)
        return Sights(
            reading_ns=self.reading_ns[rows],
            ends_ns=self.ends_ns[rows],
            low_ns=self.low_ns[rows],
            high_ns=self.high_ns[rows],
        )
