"""A what-if analysis of 12,288 ranks, in a process of its own: python -m tests.benchmarks.large_whatif STEPS"""

import json
import resource
import sys
import time

import numpy as np

from diagnose.simulate.faults import Slow
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate, view
from diagnose.whatif.analysis import analyse, replayed
from telemetry.topology import Topology

GRID = Topology(dp=192, pp=8, tp=8)
SLOW_RANK = 7777


def main(num_steps: int) -> dict[str, object]:
    """Time from the operations to all figures."""
    slow = Slow(rank=SLOW_RANK, factor=1.3)
    seen = view(simulate(SimulatedRun(topology=GRID, num_steps=num_steps, clock_offset_ms=5, faults=(slow,))))
    began = time.perf_counter()
    ready = replayed(seen.operations, GRID, seen.hosts)
    assert ready is not None
    figures = analyse(ready, GRID)
    seconds = time.perf_counter() - began
    place = GRID.place(SLOW_RANK)
    worst = np.unravel_index(int(figures.by_worker.argmax()), figures.by_worker.shape)
    return {
        "operations": figures.num_operations,
        "seconds": seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "exact": worst == (place.dp, place.pp),
    }


if __name__ == "__main__":
    json.dump(main(int(sys.argv[1])), sys.stdout)
