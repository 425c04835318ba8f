"""Carrier state of one network interface, and number of carrier losses. Both come from the same moment.

    files:    downs, ups --> carrier --> downs, ups    same counts before and after: all three belong together
    netlink:  carrier, ups, downs in one message       not always of one moment: checked against the balance

Losses and gains alternate. So ``downs - ups`` has one value with carrier (the balance), and a value larger by 1 without
carrier. The balance depends on the driver and is learned from the files.

Files in sysfs, per interface:

    carrier              1, 0; EINVAL: the interface is administratively down
    carrier_down_count   carrier_up_count     since Linux 4.16
    carrier_changes                           both together, before that
    flags, operstate                          if there is no ``carrier`` to read
"""

import errno
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from telemetry.agent.samplers.interface import Event
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile
from telemetry.agent.samplers.link_events import LinkLedger, LinkMessage, LinkState

Numbers = tuple[int | None, int | None, int | None]
"""Number of losses, of gains, and of both together; None if not reported."""
_IFF_UP = 0x1
_FILES = ("carrier", "flags", "operstate", "carrier_down_count", "carrier_up_count", "carrier_changes")
_OPERSTATES = {"up": LinkState.UP, "down": LinkState.DOWN, "lowerlayerdown": LinkState.DOWN}


class CarrierFiles:
    """Files of one interface. Each method reads them when it is called."""

    def __init__(self, interface: Path, descriptors: Descriptors) -> None:
        self._files = tuple(KeptFile(interface / name, descriptors) for name in _FILES)
        self._carrier, self._flags, self._operstate, self._downs, self._ups, self._changes = self._files

    def numbers(self) -> Numbers:
        """The current counts. Does not raise: a count that cannot be read is None."""
        downs, ups = self._downs.number(), self._ups.number()
        if downs is not None and ups is not None:
            return downs, ups, None
        return None, None, self._changes.number()

    def state(self) -> LinkState | None:
        """The current state; None if no file reports it.

        Raises:
            OSError: ENODEV, the interface is gone.
        """
        try:
            held = self._carrier.read().strip()
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise
            return LinkState.TAKEN_DOWN if error.errno == errno.EINVAL else self._state_otherwise()
        if held in (b"0", b"1"):
            return LinkState.UP if held == b"1" else LinkState.DOWN
        return self._state_otherwise()

    def operstate(self) -> str:
        """The content of the file ``operstate``; empty if it cannot be read."""
        return self._operstate.text()

    def try_again(self) -> None:
        for file in self._files:
            file.try_again()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _state_otherwise(self) -> LinkState | None:
        with suppress(ValueError):
            if not int(self._flags.text(), 16) & _IFF_UP:
                return LinkState.TAKEN_DOWN
        return _OPERSTATES.get(self.operstate())


_TRIES = 5
_WHY = {LinkState.UP: "carrier", LinkState.DOWN: "no carrier", LinkState.TAKEN_DOWN: "taken down by its owner"}


class CarrierSource(Protocol):
    """``CarrierFiles``, or a simulated kernel. The values may change between any two calls."""

    def numbers(self) -> Numbers: ...

    def state(self) -> LinkState | None: ...

    def operstate(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierCounts:
    """Losses and gains since the interface exists, counted by the kernel."""

    downs: int
    ups: int


class Carrier:
    """One interface. Losses before its first sample are not reported."""

    def __init__(self, device: str, source: CarrierSource) -> None:
        self.state: LinkState | None = None
        """The last state; None if no file reports it."""
        self.counts: CarrierCounts | None = None
        """The last counts; None if the kernel does not count."""
        self._source = source
        self._ledger = LinkLedger(device)
        self._read: tuple[Numbers, LinkState | None] | None = None
        """Values of the last consistent sample. None before the first one."""
        self._balance: int | None = None
        """``downs - ups`` with carrier."""

    def sample(self, at_ns: int) -> list[Event]:
        """Read the files, and return new events. If the link changes while it is read, the next sample returns them.

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
        """The new events of a netlink message. Empty before the first sample, and if the message has no counts."""
        if self._read is None or message.has_carrier is None:
            return []
        state = LinkState.UP if message.has_carrier else LinkState.DOWN
        counts = _as_counts((message.downs, message.ups, message.changes), state)
        if counts is None or (self._balance is not None and _balance(counts, state) != self._balance):
            return []  # the state and the counts are not from the same moment
        if self.counts is not None and (counts.downs < self.counts.downs or counts.ups < self.counts.ups):
            return []  # older than the last counts
        return self._observe(message.at_ns, state if message.is_put_up else LinkState.TAKEN_DOWN, counts)

    def _settle(self, at_ns: int, numbers: Numbers, state: LinkState | None) -> list[Event]:
        self._read = numbers, state
        self.state = state
        counts = _as_counts(numbers, state)
        if counts is not None and state in (LinkState.UP, LinkState.DOWN):
            self._balance = _balance(counts, state)
        operstate = "" if state is self._ledger.state else self._source.operstate()
        return self._observe(at_ns, state, counts, f", operstate {operstate}" if operstate else "")

    def _observe(
        self, at_ns: int, state: LinkState | None, counts: CarrierCounts | None, more: str = ""
    ) -> list[Event]:
        self.counts = counts
        if state is None:
            return []
        return self._ledger.observe(at_ns, state, None if counts is None else counts.downs, _WHY[state] + more)


def _balance(counts: CarrierCounts, state: LinkState | None) -> int:
    return counts.downs - counts.ups - (state is LinkState.DOWN)


def _as_counts(numbers: Numbers, state: LinkState | None) -> CarrierCounts | None:
    """Losses and gains. Before Linux 4.16 the kernel counts their sum: they alternate, and the state shows the last."""
    downs, ups, changes = numbers
    if downs is not None and ups is not None:
        return CarrierCounts(downs=downs, ups=ups)
    if changes is None:
        return None
    lost = (changes + (state is not LinkState.UP)) // 2
    return CarrierCounts(downs=lost, ups=changes - lost)
