"""One clock for all hosts: what must coincide tells how far they are apart.

    host a   ...... clip |           the gradient norm of all ranks ends on all of them at once: what their stamps of
    host b   ........ clip |         that end differ by is what their clocks differ by
                     -->| |<-- offset of b

A host's offset is a line over the window (offset and drift) through the medians of its ranks. Differences below what
ranks of one host differ by among themselves are left as they are: they are no clocks.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from diagnose.whatif.slots import Lanes, StepTimes
from telemetry.stages import Stage
from telemetry.topology import Topology

SMALLEST_S = 5e-4
"""Offsets of all hosts below this are not worth a correction."""


def on_one_clock(times: StepTimes, hosts: Sequence[str], topology: Topology) -> StepTimes:
    """``times`` with the difference between hosts' clocks taken away."""
    offsets = clock_offsets(times, hosts, topology)[times.slots.pp]
    return replace(times, begin_s=times.begin_s - offsets, end_s=times.end_s - offsets)


def clock_offsets(times: StepTimes, hosts: Sequence[str], topology: Topology) -> Lanes:
    """How far each rank's clock is ahead of the others': seconds, [pp, steps, dp, tp].

    Zero everywhere where one host holds all ranks, where they agree closely, or where nothing in a step ends on all of
    them at once.
    """
    clips = [slot for pp in range(topology.pp) for slot in times.slots.of(pp, Stage.OPTIMIZER_CLIP)[-1:]]
    offsets = np.zeros((topology.pp, *times.begin_s.shape[1:]))
    if len(clips) < topology.pp or len(set(hosts)) < 2:
        return offsets
    ends = times.end_s[clips]
    ahead = ends - np.median(ends, axis=(0, 2, 3), keepdims=True)
    host_of = topology.arranged(np.array(hosts)).transpose(1, 0, 2)
    for host in np.unique(host_of):
        mine = host_of == host
        by_step = np.median(ahead.transpose(1, 0, 2, 3)[:, mine], axis=1)
        offsets.transpose(0, 2, 3, 1)[mine] = _line(times.step_s, by_step)
    return offsets if np.abs(offsets).max() >= SMALLEST_S else np.zeros_like(offsets)


def _line(at_s: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Least squares; the median where there are too few points for a slope."""
    if len(values) < 3:
        return np.full(len(values), np.median(values))
    slope, base = np.polyfit(at_s - at_s[0], values, 1)
    return np.asarray(base + slope * (at_s - at_s[0]))
