"""A rank that records for a number of steps, or until SIGTERM.

python -m tests.integration.writer SPOOL RANK RANKS [STEPS]
"""

import math
import signal
import sys
import threading

import telemetry
from telemetry.topology import Topology

RUN = "chaos"
SPANS_PER_STEP = 20
PAUSE_S = 0.004


def main(spool: str, rank: int, num_ranks: int, num_steps: float = math.inf) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    pause = threading.Event()
    session = telemetry.start(
        RUN,
        topology=Topology(dp=num_ranks),
        rank=rank,
        local_rank=rank,
        host="host",
        attempt=0,
        spool=spool,
        agent=False,
    )
    assert session.recording
    number = 0
    while number < num_steps and not told:
        pause.wait(PAUSE_S)
        with telemetry.step(number):
            for microbatch in range(SPANS_PER_STEP):
                with telemetry.span("forward-compute", microbatch=microbatch):
                    pass
        telemetry.sample("loss", 1.0 / (number + 1))
        number += 1
    telemetry.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
