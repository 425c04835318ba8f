"""The interface of samplers: they read the state of a host, beside what ranks record.

    sysfs, netlink, NVML, /proc  --Sampler.sample-->  readings, events  --agent-->  host_samples, host_events

A sampler gets its data source as an argument (a sysfs root, a library). It probes once what is available, and then
reads only that. It never runs inside a rank. At one sample a second it uses less than a thousandth of a core.

This module also unwraps hardware counters that are narrower than what they count:

    hw_counters/*   of the driver; many have 32 bits and start again from 0           ... 2^32-2, 2^32-1, 0, 1
    counters/*      InfiniBand's PortCounters: 64 bits, or 4 to 32 bits; they stop    ... 254, 255, 255, 255
                    at their largest value

A counter that falls has either wrapped around or was reset with its device. It wrapped if it has 32 bits, fell from its
upper quarter, and would have grown by less than a quarter of its range. Every other fall is a reset.
"""

from dataclasses import dataclass
from typing import Protocol

_RANGE = 1 << 32
_QUARTER = _RANGE // 4


class WrappingCounter:
    """Extends a 32-bit counter beyond its range. After a reset of the device, the result is the counter's new value."""

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
    """One number of a sample."""

    metric: str
    """A name of ``telemetry.host_metrics``, or ``rdma-`` and the name of a counter file."""
    device: str
    """``eth0``, ``mlx5_0/1``, ``gpu3``, ``core17``, ``rank5``; empty: the host itself."""
    value: float
    is_counter: bool
    """True: the value only grows, or is a state, and is sent unchanged. False: a level, of which the mean is sent."""


def counter(metric: str, value: float, device: str = "") -> Reading:
    """A reading that only grows, or is a state."""
    return Reading(metric=metric, device=device, value=float(value), is_counter=True)


def level(metric: str, value: float, device: str = "") -> Reading:
    """A reading of which the mean is sent."""
    return Reading(metric=metric, device=device, value=float(value), is_counter=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened on a host."""

    at_ns: int
    """Wall clock of the event, or of its detection."""
    device: str
    name: str
    """A name of ``telemetry.host_metrics``."""
    text: str
    """Text for people. ``telemetry.host_metrics`` defines its format where detectors read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The result of one sample. Events are those since the previous sample, in order of time."""

    readings: tuple[Reading, ...] = ()
    events: tuple[Event, ...] = ()


class GoneError(Exception):
    """The data source of a sampler is gone permanently: the sampler is closed and not called again. If a source is
    missing for a while, the sampler does not raise but returns a shorter sample."""


class Sampler(Protocol):
    """One kind of hardware. Used by one thread; a sample may take milliseconds, not seconds."""

    name: str

    def sample(self, at_ns: int) -> Sample:
        """Read everything. ``at_ns`` is the wall clock of the sample.

        Raises:
            GoneError: there is nothing left to read.
        """

    def close(self) -> None:
        """Close files, sockets and libraries. Safe to repeat."""
