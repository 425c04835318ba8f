"""Times as each host's own clock reads them.

stamp = started + time + time * drift + offset
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.operations import ABSENT, Int64s, Operations
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Floats
from telemetry.stages import Stage

CLOCK_DRAW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clock of every host."""

    hosts: tuple[str, ...]
    """Ascending."""
    offset_ns: Int64s
    """What each reads as the run begins, [hosts]."""
    rate: Floats
    """By how much each runs fast, [hosts]."""

    def read(self, host: str, time_ns: Int64s) -> Int64s:
        """What the clock of ``host`` reads at times from the run's begin."""
        index = self.hosts.index(host)
        return _read(time_ns, self.offset_ns[[index]], self.rate[[index]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When a run did what; nanoseconds from its begin, by no host's clock."""

    begin_ns: Int64s
    """Of each step."""
    end_ns: int
    """Of the last step."""
    met_ns: Int64s
    """When all had come for the first transfer of a rank that a silent network holds up, [steps, ranks]; the step's
    begin where none is."""
    clocks: Clocks


def clocks_of(plan: SimulatedRun, draws: Draws) -> Clocks:
    """The clocks of a run."""
    names = sorted(set(plan.hosts))
    offset, drift = draws.of(CLOCK_DRAW).uniform(-1.0, 1.0, (2, len(names)))
    return Clocks(
        hosts=tuple(names),
        offset_ns=np.rint(offset * plan.clock_offset_ms * 1e6).astype(np.int64) + plan.started_ns,
        rate=drift * plan.clock_drift_ppm * 1e-6,
    )


def read_by_hosts(
    operations: Mapping[Stage, Operations], plan: SimulatedRun, clocks: Clocks
) -> dict[Stage, Operations]:
    """Operations in nanoseconds from the run's begin, stamped by the clocks of their hosts."""
    host = np.searchsorted(clocks.hosts, plan.hosts)
    return {stage: _stamped(one, clocks.offset_ns[host], clocks.rate[host]) for stage, one in operations.items()}


def _stamped(one: Operations, offset_ns: Int64s, rate: Floats) -> Operations:
    """By clocks of ``offset_ns`` and ``rate``, [ranks] each."""
    start = _read(one.start_ns, offset_ns, rate)
    duration = one.duration_ns if not rate.any() else _read(one.end_ns, offset_ns, rate) - start
    return replace(
        one,
        start_ns=np.where(one.present, start, ABSENT),
        duration_ns=np.where(one.present, duration, ABSENT),
    )


def _read(time_ns: Int64s, offset_ns: Int64s, rate: Floats) -> Int64s:
    read = time_ns + offset_ns
    return np.asarray(read + np.rint(time_ns * rate).astype(np.int64) if rate.any() else read)
