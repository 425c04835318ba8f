"""Stamps of several hosts on one clock: what the collector knows of their clocks, and what it does not."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.model.span_columns import Ints
from telemetry.clocks.align_table import ClockTable

KNOT_NS = 10_000_000_000
"""Offsets are asked for about so often."""
UNKNOWN = "unknown"
NOBODY: Mapping[str, tuple[int, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How far stamps can be compared."""

    num_hosts: int
    bound_ns: int
    """The stamps of aligned hosts are right within this."""
    unaligned: tuple[str, ...]
    """Hosts whose stamps are their own clock's; none of a single host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """What is to be taken from a host's stamps: lines from knot to knot."""

    first_ns: int
    knots_ns: Ints
    """Since ``first_ns``, ascending."""
    offset_ns: Ints
    bound_ns: int


class ReferenceClock:
    """Reads stamps of any host as the reference's clock would have shown them.

        a host's stretch   knot --------- knot --------- knot      offsets are asked for at the knots alone: between
                                                                   them stamps keep their order, spans their nesting

    Args:
        clocks: what is known of the hosts' clocks.
        reach: of each host the first and the last stamp that matter, by its own clock.
        beside: the same of hosts whose stamps are read, too, and whose alignment is not told.
    """

    def __init__(
        self, clocks: ClockTable, reach: Mapping[str, tuple[int, int]], beside: Mapping[str, tuple[int, int]] = NOBODY
    ) -> None:
        lines = {host: _line(clocks, host, *ends) for host, ends in {**beside, **reach}.items()}
        self._lines = {host: line for host, line in lines.items() if line is not None}
        unaligned = [host or UNKNOWN for host in reach if host not in self._lines]
        if len(unaligned) == len(reach) - 1:  # the reference alone is no alignment
            unaligned = sorted(host or UNKNOWN for host in reach)
        self.alignment = Alignment(
            num_hosts=len(reach),
            bound_ns=max((line.bound_ns for host, line in self._lines.items() if host in reach), default=0),
            unaligned=tuple(unaligned) if len(reach) > 1 else (),
        )

    def aligned(self, at_ns: Ints, host: str) -> Ints:
        """Stamps of ``host`` by the reference's clock; as they are where nothing bounds the host's."""
        line = self._lines.get(host)
        if line is None:
            return at_ns
        offset = np.interp(at_ns - line.first_ns, line.knots_ns, line.offset_ns)
        return at_ns - np.rint(offset).astype(np.int64)


def _line(clocks: ClockTable, host: str, first_ns: int, last_ns: int) -> _Line | None:
    num_knots = 2 + (last_ns - first_ns) // KNOT_NS
    knots = np.linspace(0, last_ns - first_ns, num_knots).astype(np.int64)
    shifts = [clocks.shift(host, first_ns + knot) for knot in knots.tolist()]
    known = [shift for shift in shifts if shift is not None]
    if len(known) < len(shifts):
        return None
    return _Line(
        first_ns=first_ns,
        knots_ns=knots,
        offset_ns=np.array([shift.offset_ns for shift in known], dtype=np.int64),
        bound_ns=max(shift.bound_ns for shift in known),
    )
