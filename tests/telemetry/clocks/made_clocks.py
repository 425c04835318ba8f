"""Hosts whose clocks are off by known amounts, and the events that their ranks would have recorded.

true time   ---------|------------------|---->   no clock shows it: each host's clock has an offset and a drift
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.clocks.align_evidence import Evidence, Gathering, HostClock, Pings, Transfers

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ZERO_NS = 1_790_000_000_000_000_000
MICRO, MILLI, SECOND = 1e3, 1e6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """The clock of a host is set during the run."""

    host: int
    at_ns: float
    """True time."""
    by_ns: float


class World:
    """Hosts with clocks up to five seconds off and up to 50 ppm fast or slow. The true values are known."""

    def __init__(self, seed: int, num_hosts: int, *, jump: Jump | None = None, length_s: float = 60.0) -> None:
        self.random = np.random.default_rng(seed)
        self.hosts = tuple(f"host-{number}" for number in range(num_hosts))
        self.offset_ns = self.random.uniform(-5, 5, num_hosts) * SECOND
        self.drift = self.random.uniform(-50, 50, num_hosts) * 1e-6
        self.length_ns = length_s * SECOND
        self._jump = jump

    def read(self, host: int, at_ns: Floats) -> Ints:
        """What the clock of ``host`` reads at true times."""
        reading = at_ns * (1 + self.drift[host]) + self.offset_ns[host]
        if self._jump is not None and self._jump.host == host:
            reading = reading + np.where(at_ns > self._jump.at_ns, self._jump.by_ns, 0.0)
        return ZERO_NS + np.rint(reading).astype(np.int64)

    def offsets_ns(self, host: int, reading_ns: int, *, against: int = 0) -> list[float]:
        """The reading of the clock of ``host`` minus that of ``against``. After a jump back, two true times have the
        same reading."""
        jump = self._jump if self._jump is not None and self._jump.host == host else None
        found = []
        for by_ns, holds in ((0.0, lambda at: jump is None or at <= jump.at_ns), *self._after(jump)):
            at_ns = (reading_ns - ZERO_NS - self.offset_ns[host] - by_ns) / (1 + self.drift[host])
            if holds(at_ns):
                found.append(reading_ns - ZERO_NS - (at_ns * (1 + self.drift[against]) + self.offset_ns[against]))
        return found

    def _after(self, jump: Jump | None) -> list:
        return [] if jump is None else [(jump.by_ns, lambda at: at > jump.at_ns)]

    def times(self, count: int) -> Floats:
        return np.sort(self.random.uniform(0, self.length_ns, count))

    def noise(self, shape: tuple[int, ...], jitter_ns: float, tail: float) -> Floats:
        """Normal noise. Some values (``tail``) are also late by about twenty times as much."""
        late = self.random.exponential(20 * jitter_ns, shape) * (self.random.random(shape) < tail)
        return np.asarray(self.random.normal(0, jitter_ns, shape) + late)

    def gathering(
        self,
        members: tuple[int, ...],
        count: int,
        *,
        jitter_ns: float = 30 * MICRO,
        tail: float = 0.05,
        lasts_ns: float = 20 * MILLI,
        late_ns: Floats | None = None,
    ) -> Gathering:
        """Collectives of some hosts. ``late_ns``: mean of the exponential delay of the end on each host."""
        shape = (count, len(members))
        ends = self.times(count)[:, None] + self.noise(shape, jitter_ns, tail)
        if late_ns is not None:
            ends += self.random.exponential(1.0, shape) * late_ns
        last = ends.min(axis=1, keepdims=True) - self.random.uniform(0.2, 1.0, (count, 1)) * lasts_ns
        begins = last - self.random.exponential(lasts_ns / 4, shape)
        return Gathering(
            hosts=tuple(self.hosts[one] for one in members),
            start_ns=np.stack([self.read(host, begins[:, at]) for at, host in enumerate(members)], axis=1),
            end_ns=np.stack([self.read(host, ends[:, at]) for at, host in enumerate(members)], axis=1),
            step=np.arange(count),
        )

    def transfers(self, sender: int, receiver: int, count: int, *, least_ns: float = 200 * MICRO) -> Transfers:
        """Messages. The delay of some is much longer than the least one."""
        sent = self.times(count)
        received = sent + least_ns + self.random.exponential(2 * MILLI, count)
        return Transfers(
            sender=self.hosts[sender],
            receiver=self.hosts[receiver],
            sent_ns=self.read(sender, sent),
            received_ns=self.read(receiver, received),
            step=np.arange(count),
        )

    def pings(self, host: int, count: int = 6, *, there_ns: float = 300 * MICRO, back_ns: float = 300 * MICRO) -> Pings:
        """Pings of a collector whose clock is three seconds ahead. The mean delays of the two directions may differ."""
        sent = self.times(count)
        there, back = (100 * MICRO + self.random.exponential(mean, count) for mean in (there_ns, back_ns))
        first, last = self.read(host, sent), self.read(host, sent + there + back)
        by_collector = ZERO_NS + np.rint(sent + there + 3 * SECOND).astype(np.int64)
        return Pings(
            host=self.hosts[host],
            collector="collector",
            at_ns=first,
            offset_ns=by_collector - (first + last) // 2,
            round_trip_ns=last - first,
        )

    def evidence(self, *sources: Gathering | Transfers | Pings) -> Evidence:
        return Evidence(
            hosts=self.hosts,
            gatherings=tuple(one for one in sources if isinstance(one, Gathering)),
            transfers=tuple(one for one in sources if isinstance(one, Transfers)),
            pings=tuple(one for one in sources if isinstance(one, Pings)),
        )

    def error_ns(self, clock: HostClock) -> float:
        """The largest error of an estimated window."""
        host, against = self.hosts.index(clock.host), self.hosts.index(clock.reference)
        middle = (clock.first_ns + clock.last_ns) // 2
        worst = 0.0
        for reading in (clock.first_ns, middle, clock.last_ns):
            estimated = clock.offset_ns + clock.drift_ppm * 1e-6 * (reading - middle)
            worst = max(
                worst,
                min((abs(estimated - true) for true in self.offsets_ns(host, reading, against=against)), default=0.0),
            )
        return worst
