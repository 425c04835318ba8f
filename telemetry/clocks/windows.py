"""The clocks of one attempt, for each window of steps.

steps    0        64       128      192  200        windows of a power of two steps that last a minute or more:
         |--------|--------|--------|---->          the same for every process that estimates, at any time
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from telemetry.clocks.align import align
from telemetry.clocks.align_evidence import HostClock
from telemetry.clocks.places import choose_places
from telemetry.clocks.stored_evidence import Window, read_evidence
from telemetry.records import topology_of
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks, Steps
from telemetry.tables import HOST_CLOCKS
from telemetry.topology import Topology

WINDOW_S = 60.0
LOOKED_BACK = 256
"""Newest steps that tell how long a step takes."""
ENOUGH = 0.5
"""Part of a window that must be over before it is estimated, unless it is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The clocks of all hosts in one window."""

    window: Window
    clocks: tuple[HostClock, ...]

    def rows(self, estimated_ns: int) -> pa.Table:
        """Columns of ``telemetry.tables.HOST_CLOCKS``."""
        steps = {"first_step": self.window.first_step, "last_step": self.window.last_step}
        rows = [asdict(clock) | steps | {"estimated_ns": estimated_ns} for clock in self.clocks]
        return pa.Table.from_pylist(rows, schema=HOST_CLOCKS)


def estimate_newest(reader: Reader, run_id: str, attempt: int, last_step: int, *, most: int = 2) -> Iterator[Estimate]:
    """The newest ``most`` windows up to ``last_step``, the oldest first; none of a job that has one host only.

    Raises:
        UnreachableError: the store does not answer.
    """
    ranks = reader.read(Ranks(run_id=run_id, attempt=attempt))
    if ranks.num_rows:
        topology = topology_of(ranks)
        hosts = _hosts(ranks, topology)
        if len(set(hosts) - {""}) > 1:
            places = choose_places(topology, hosts)
            for window in _windows(reader, run_id, attempt, last_step, most):
                yield Estimate(window=window, clocks=tuple(align(read_evidence(reader, window, places, hosts))))


def _hosts(ranks: pa.Table, topology: Topology) -> tuple[str, ...]:
    hosts = [""] * topology.world_size
    for rank, host in zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True):
        if rank < topology.world_size:
            hosts[rank] = host
    return tuple(hosts)


def _windows(reader: Reader, run_id: str, attempt: int, last_step: int, most: int) -> list[Window]:
    first_seen = max(0, last_step - LOOKED_BACK)
    steps = reader.read(Steps(run_id=run_id, attempt=attempt, first_step=first_seen, last_step=last_step))
    if not steps.num_rows:
        return []
    lasted_ns = max(1.0, float(np.median(steps["duration_ns"].to_numpy())))
    size = 2 ** int(np.ceil(np.log2(max(1.0, WINDOW_S * 1e9 / lasted_ns))))
    last_ns = int(steps["start_ns"].to_numpy()[-1] + lasted_ns)
    firsts = [first for first in range(last_step // size * size, -1, -size)][: most + 1]
    if len(firsts) > 1 and last_step - firsts[0] + 1 < ENOUGH * size:
        firsts = firsts[1:]
    return [
        Window(
            run_id=run_id,
            attempt=attempt,
            first_step=first,
            last_step=min(last_step, first + size - 1),
            first_ns=last_ns - round((last_step - first + 1) * lasted_ns),
            last_ns=last_ns - round((last_step - min(last_step, first + size - 1)) * lasted_ns),
        )
        for first in reversed(firsts[:most])
    ]
