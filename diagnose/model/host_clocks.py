"""Clock offsets of a run's hosts, and times of several hosts on one reference clock.

The collector estimates the offsets with error bounds. Times of two hosts are compared only after a shift by the offset.
A difference below the bound means nothing. Commands and pages that show times of several hosts estimate the offsets
themselves if no collector has stored them. Detectors do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from diagnose.model.operations import Floats, Ints
from telemetry.clocks.align_evidence import REFERENCE, ClockTable, HostClock
from telemetry.clocks.windows import end_of_window, estimate_newest
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP, HostClocks, Ranks, Runs

KNOT_NS = 10_000_000_000
"""Time between two offsets of a line."""
UNKNOWN = "unknown"
MARGIN_S = 300.0
"""Time before and after the steps in which windows count: the newest one may not be estimated yet."""
LOOKS_BACK = (256, 16_384, LAST_STEP)
"""Numbers of steps that are searched for the newest window, one after the other: a long run has very many windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How exactly times of hosts can be compared."""

    num_hosts: int
    bound_ns: int
    """Error bound of the times of aligned hosts."""
    unaligned: tuple[str, ...]
    """Hosts whose times are not corrected. Empty for a single host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The offset that is subtracted from times of a host: linear between knots."""

    first_ns: int
    knots_ns: Ints
    """Time since ``first_ns``, ascending."""
    offset_ns: Ints
    bound_ns: int


class ReferenceClock:
    """Converts times of any host to the reference clock.

        times of a host   knot --------- knot --------- knot      Offsets are known at the knots. Between them, times
                                                                  keep their order and spans keep their nesting.

    Args:
        clocks: the known clocks of the hosts.
        reach: the first and the last time of each host, by its own clock.
        more_hosts: the same for further hosts, which ``alignment`` does not describe.
    """

    def __init__(
        self,
        clocks: ClockTable,
        reach: Mapping[str, tuple[int, int]],
        more_hosts: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        lines = {host: _line(clocks, host, *ends) for host, ends in {**(more_hosts or {}), **reach}.items()}
        self._lines = {host: line for host, line in lines.items() if line is not None}
        unaligned = [host or UNKNOWN for host in reach if host not in self._lines]
        if len(unaligned) == len(reach) - 1:  # only the reference is aligned: this is no alignment
            unaligned = sorted(host or UNKNOWN for host in reach)
        self.alignment = Alignment(
            num_hosts=len(reach),
            bound_ns=max((line.bound_ns for host, line in self._lines.items() if host in reach), default=0),
            unaligned=tuple(unaligned) if len(reach) > 1 else (),
        )

    def aligned(self, at_ns: Ints, host: str) -> Ints:
        """Times of ``host`` by the reference clock. Not changed if the clock of the host is unknown."""
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


def load_clocks(reader: Reader, run_id: str, attempt: int, steps: Ints, step_ns: Floats) -> ClockTable:
    """The stored clocks in and around some steps. Empty if none is known."""
    return ClockTable(stored_clocks(reader, run_id, attempt, steps, step_ns))


def stored_clocks(reader: Reader, run_id: str, attempt: int, steps: Ints, step_ns: Floats) -> tuple[HostClock, ...]:
    """The stored clocks in and around some steps, refused ones included. Empty if no window is stored there."""
    if not len(steps):
        return ()
    margin = int(MARGIN_S * 1e9 / max(1.0, float(np.median(step_ns))))
    asked = HostClocks(
        run_id=run_id,
        attempt=attempt,
        first_step=max(0, int(steps[0]) - margin),
        last_step=min(LAST_STEP, int(steps[-1]) + margin),
    )
    return tuple(map(_host_clock, reader.read(asked).to_pylist()))


def known_clocks(reader: Reader, run_id: str, attempt: int, steps: Ints, step_ns: Floats) -> ClockTable:
    """The stored clocks in and around some steps. If no window is stored there, the clocks are estimated from the
    window with the last of these steps. Empty if there is no evidence."""
    if stored := stored_clocks(reader, run_id, attempt, steps, step_ns):
        return ClockTable(stored)
    runs = reader.read(Runs(run_ids=(run_id,))).to_pylist()
    newest = next((row["last_step"] for row in runs if row["attempt"] == attempt), None)
    if newest is None or not len(steps):
        return ClockTable()
    last_step = end_of_window(int(steps[-1]), float(np.median(step_ns)), newest)
    estimated = estimated_clocks(reader, run_id, attempt, last_step)
    return ClockTable(estimated.clocks if estimated else ())


def _host_clock(row: dict[str, Any]) -> HostClock:
    """The clock in a row of ``HostClocks``."""
    return HostClock(**{field.name: row[field.name] for field in fields(HostClock)})


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClocks:
    """The clocks of all hosts over one window of steps."""

    first_step: int
    last_step: int
    clocks: tuple[HostClock, ...]
    """At least one. A host has several if its clock was set within the window."""


def newest_clocks(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks:
    """The newest window up to ``last_step``, the newest step of the run.

    Raises:
        UsageError: no step is finished.
        UnreachableError: the store does not answer.
    """
    found = newest_stored(reader, run_id, attempt, last_step) or estimated_clocks(reader, run_id, attempt, last_step)
    if found is None:
        raise UsageError(f"{run_id} has no completed step yet", hint="its ranks record one with rankscope.step(number)")
    return found


def newest_stored(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks | None:
    """The newest stored window up to ``last_step``. None if no window is stored."""
    for back in LOOKS_BACK:
        asked = HostClocks(run_id=run_id, attempt=attempt, first_step=max(0, last_step - back))
        if rows := reader.read(asked).to_pylist():
            newest = [row for row in rows if row["first_step"] == rows[-1]["first_step"]]
            first, last = newest[0]["first_step"], max(row["last_step"] for row in newest)
            return WindowClocks(first_step=first, last_step=last, clocks=tuple(map(_host_clock, newest)))
    return None


def estimated_clocks(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks | None:
    """The newest window up to ``last_step``, estimated now: for a run without a collector. None if no step is finished.

    The time grows with the number of hosts.
    """
    for estimate in estimate_newest(reader, run_id, attempt, last_step, most=1):
        window = estimate.window
        return WindowClocks(first_step=window.first_step, last_step=window.last_step, clocks=estimate.clocks)
    hosts = sorted(set(reader.read(Ranks(run_id=run_id, attempt=attempt))["host"].to_pylist()))
    if len(hosts) != 1:
        return None
    alone = HostClock(host=hosts[0], reference=hosts[0], bound_ns=0, method=REFERENCE, reason="the only host")
    return WindowClocks(first_step=0, last_step=last_step, clocks=(alone,))
