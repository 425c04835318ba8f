"""Has one interface its carrier, and how often was it lost? Told so that state and counts belong to one moment.

    look:     downs, ups --> carrier --> downs, ups    the same before and after: nothing changed in between
    netlink:  carrier, ups, downs in one message, not always of one moment: checked against the balance

Losses and gains alternate, so ``downs - ups`` has one value while the carrier is there and one more while it is not.
Which, depends on how the driver began; a look learns it.
"""

from dataclasses import dataclass
from typing import Protocol

from telemetry.agent.samplers.carrier_files import Numbers
from telemetry.agent.samplers.interface import Event
from telemetry.agent.samplers.link_events import LinkMessage
from telemetry.agent.samplers.link_ledger import LinkLedger, LinkState

_TRIES = 5
_WHY = {LinkState.UP: "carrier", LinkState.DOWN: "no carrier", LinkState.TAKEN_DOWN: "taken down by its owner"}


class CarrierSource(Protocol):
    """What is asked at a look: ``CarrierFiles``, or a made kernel. It may change between any two calls."""

    def numbers(self) -> Numbers: ...

    def state(self) -> LinkState | None: ...

    def operstate(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierCounts:
    """How often it was lost and came, as the kernel counts since the interface began."""

    downs: int
    ups: int


class Carrier:
    """One interface. Not begun before its first look: what the kernel counted until then is nobody's news."""

    def __init__(self, device: str, source: CarrierSource) -> None:
        self.state: LinkState | None = None
        """As last read; None where nothing tells."""
        self.counts: CarrierCounts | None = None
        """As last observed; None where the kernel does not count."""
        self._source = source
        self._ledger = LinkLedger(device)
        self._read: tuple[Numbers, LinkState | None] | None = None
        """At the last look that settled; None before the first."""
        self._balance: int | None = None
        """``downs - ups`` while the carrier is there."""

    def look(self, at_ns: int) -> list[Event]:
        """Read it, and tell what nobody told yet. A link that changes faster than it can be read waits for the next.

        Raises:
            OSError: ENODEV, the interface is gone.
        """
        for _ in range(_TRIES):
            numbers = self._source.numbers()
            state = self._source.state()
            if (numbers, state) == self._read or numbers == self._source.numbers():
                return self._settle(at_ns, numbers, state)
        return []

    def take(self, message: LinkMessage) -> list[Event]:
        """What the kernel said. Of no use before the first look, without counts, or told already: nothing."""
        if self._read is None or message.has_carrier is None:
            return []
        state = LinkState.UP if message.has_carrier else LinkState.DOWN
        counts = _as_counts((message.downs, message.ups, message.changes), state)
        if counts is None or self._is_old(counts) or not self._is_of_one_moment(counts, state):
            return []
        return self._observe(message.at_ns, state if message.is_put_up else LinkState.TAKEN_DOWN, counts)

    def _settle(self, at_ns: int, numbers: Numbers, state: LinkState | None) -> list[Event]:
        """Take for true what was read."""
        self._read = numbers, state
        self.state = state
        counts = _as_counts(numbers, state)
        if counts is not None and state in (LinkState.UP, LinkState.DOWN):
            self._balance = counts.downs - counts.ups - (state is LinkState.DOWN)
        operstate = "" if state is self._ledger.state else self._source.operstate()
        return self._observe(at_ns, state, counts, f", operstate {operstate}" if operstate else "")

    def _observe(
        self, at_ns: int, state: LinkState | None, counts: CarrierCounts | None, more: str = ""
    ) -> list[Event]:
        self.counts = counts
        if state is None:
            return []
        return self._ledger.observe(at_ns, state, None if counts is None else counts.downs, _WHY[state] + more)

    def _is_old(self, counts: CarrierCounts) -> bool:
        return self.counts is not None and (counts.downs < self.counts.downs or counts.ups < self.counts.ups)

    def _is_of_one_moment(self, counts: CarrierCounts, state: LinkState) -> bool:
        return self._balance is None or counts.downs - counts.ups - (state is LinkState.DOWN) == self._balance


def _as_counts(numbers: Numbers, state: LinkState | None) -> CarrierCounts | None:
    """Where the kernel counts changes alone (before 4.16), they alternate and the state says which was last."""
    downs, ups, changes = numbers
    if downs is not None and ups is not None:
        return CarrierCounts(downs=downs, ups=ups)
    if changes is None:
        return None
    lost = (changes + (state is not LinkState.UP)) // 2
    return CarrierCounts(downs=lost, ups=changes - lost)
