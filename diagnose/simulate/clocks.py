"""Times as each host's own clock reads them.

stamp = started + time + time * drift + offset
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from diagnose.operations import ABSENT, Int64s, Operations
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Floats
from telemetry.stages import Stage

CLOCK_DRAW = 3


def read_by_hosts(operations: Mapping[Stage, Operations], plan: SimulatedRun, draws: Draws) -> dict[Stage, Operations]:
    """Operations in nanoseconds from the run's begin, stamped by the clocks of their hosts."""
    names = sorted(set(plan.hosts))
    offset, drift = draws.of(CLOCK_DRAW).uniform(-1.0, 1.0, (2, len(names)))
    host = np.searchsorted(names, plan.hosts)
    offset_ns = np.rint(offset[host] * plan.clock_offset_ms * 1e6).astype(np.int64) + plan.started_ns
    rate = drift[host] * plan.clock_drift_ppm * 1e-6
    return {stage: _stamped(one, offset_ns, rate) for stage, one in operations.items()}


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
