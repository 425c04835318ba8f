"""Counters of hardware that are narrower than what they count.

    hw_counters/*   the driver's own; many have 32 bits and start again from 0        ... 2^32-2, 2^32-1, 0, 1
    counters/*      InfiniBand's PortCounters: 64 bits, or 4 to 32 bits that stick    ... 254, 255, 255, 255

A counter that falls either wrapped around or began anew with its device. One of 32 bits that fell from its upper
quarter, and by going on would have grown by less than a quarter of its range, wrapped; everything else began anew.
"""

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
