"""A healthy rank with long phases: quick steps, a long evaluation, quick steps, a long checkpoint.

python -m tests.scenarios.hang_long_phases SPOOL RUN RANK NUM_RANKS SECONDS
"""

import sys
import threading

import telemetry
from telemetry import Stage, span, step

STEPS_BETWEEN = 12
STEP_S = 0.25


def train(spool: str, run_id: str, rank: int, num_ranks: int, seconds: float) -> None:
    """Run all phases. Every rank does the same at about the same time."""
    pause = threading.Event().wait
    telemetry.start(run_id, topology=telemetry.Topology(dp=num_ranks), rank=rank, attempt=0, spool=spool, agent=False)
    number = 0
    for phases in ((Stage.EVALUATION,), (Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE), ()):
        for _ in range(STEPS_BETWEEN):
            with step(number), span(Stage.FORWARD_COMPUTE):
                pause(STEP_S)
            number += 1
        for phase in phases:
            with span(phase):
                pause(seconds)
    telemetry.stop()


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
