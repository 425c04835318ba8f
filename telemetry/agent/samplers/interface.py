"""The seam of samplers: what a host says of itself, beside what ranks record.

    sysfs, netlink, NVML, /proc  --Sampler.look-->  readings, events  --agent-->  host_samples, host_events

A sampler takes its world as arguments (a sysfs root, a library), probes once what is there, and from then on reads only
that. It never runs inside a rank. At one look a second it takes under a thousandth of a core.

Counters of hardware that are narrower than what they count.

    hw_counters/*   the driver's own; many have 32 bits and start again from 0        ... 2^32-2, 2^32-1, 0, 1
    counters/*      InfiniBand's PortCounters: 64 bits, or 4 to 32 bits that stick    ... 254, 255, 255, 255

A counter that falls either wrapped around or began anew with its device. One of 32 bits that fell from its upper
quarter, and by going on would have grown by less than a quarter of its range, wrapped; everything else began anew.
"""

from dataclasses import dataclass
from typing import Protocol

_RANGE = 1 << 32
_QUARTER = _RANGE // 4


class WrappingCounter:
    """Makes a 32-bit counter a long one. A value that falls means that the device began anew."""

    __slots__ = ("_last", "_wrapped")

    def __init__(self) -> None:
        self._last = 0
        self._wrapped = 0

    def unwrapped(self, value: int) -> int:
        if value < self._last:
            went_round = self._last < _RANGE and self._last >= 3 * _QUARTER and value + _RANGE - self._last < _QUARTER
            self._wrapped = self._wrapped + _RANGE if went_round else 0
        self._last = value
        return value + self._wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A number as of a look."""

    metric: str
    """Of ``telemetry.host_metrics``, or ``rdma-`` and the name of a counter file."""
    device: str
    """``eth0``, ``mlx5_0/1``, ``gpu3``, ``core17``, ``rank5``; empty: the host itself."""
    value: float
    is_counter: bool
    """Whether it is told as it stands: it only grows, or is a state. Else it is a level, of which the mean over a while
    tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened on a host."""

    at_ns: int
    """Wall clock: when it happened, or when it was noticed where nobody stamped it."""
    device: str
    name: str
    """Of ``telemetry.host_metrics``."""
    text: str
    """For people, and for detectors where ``telemetry.host_metrics`` says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look saw."""

    readings: tuple[Reading, ...] = ()
    events: tuple[Event, ...] = ()
    """Since the look before, in order of time."""


class GoneError(Exception):
    """What a sampler reads is gone for good: it is closed and not asked again. What is gone for a while only makes a
    look shorter."""


class Sampler(Protocol):
    """One kind of hardware. Used by one thread; a look may take milliseconds, not seconds."""

    name: str

    def look(self, at_ns: int) -> Look:
        """Read everything. ``at_ns`` is the wall clock of the look.

        Raises:
            GoneError: there is nothing left to read.
        """

    def close(self) -> None:
        """Let go of files, sockets and libraries. Safe to repeat."""
