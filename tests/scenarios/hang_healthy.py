"""Healthy jobs with long phases: slow first step, one slow step, evaluation, checkpoint. No rank may be named."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.scenarios.hang_job import AGENT_OPTIONS, LOOK_S, Job, accused, accused_now, ask
from tests.scenarios.hang_plan import LONG_PHASE_S, Trial

NUM_STEPS = 40
LIMIT_S = 240.0
NUM_LONG = 4
"""Number of ranks of the job with the long phases."""


def run_healthy(trial: Trial, folder: Path, collector: CollectorClient, **options: Any) -> list[tuple[int, ...]]:
    """Run the job to its end. Return the ranks that were wrongly named. ``options``: of the job."""
    job = Job(trial, folder, f"healthy-{trial.number}", **{"num_steps": NUM_STEPS, **options})
    job.start(collector.url)
    try:
        return _accused_while(lambda: job.running, collector, job.run_id, job.spool, job.look_s)
    finally:
        job.end(kills=False)


def run_long_phases(folder: Path, collector: CollectorClient) -> list[tuple[int, ...]]:
    """The same for a job whose evaluation and checkpoint take longer than the stall threshold."""
    spool, run_id = folder / "long-phases", "long-phases"
    with ExitStack() as running:
        ranks = [
            running.enter_context(
                _started("tests.scenarios.hang_long_phases", spool, run_id, rank, NUM_LONG, LONG_PHASE_S, log=folder)
            )
            for rank in range(NUM_LONG)
        ]
        running.enter_context(
            _started("telemetry.agent", "--spool", spool, "--collector", collector.url, *AGENT_OPTIONS, log=folder)
        )  # fmt: skip
        return _accused_while(lambda: any(rank.poll() is None for rank in ranks), collector, run_id, spool)


def _accused_while(
    running: Callable[[], bool], collector: CollectorClient, run_id: str, spool: Path, look_s: float = LOOK_S
) -> list[tuple[int, ...]]:
    """Ranks that were wrongly named, from the store at any time and by the command at the end."""
    wrong: list[tuple[int, ...]] = []

    def over() -> bool:
        ranks = accused_now(collector, run_id)
        if ranks and ranks not in wrong:
            wrong.append(ranks)
        return not running()

    until(over, seconds=LIMIT_S, every=look_s, what=f"the end of {run_id}")
    final = (ask("--store", collector.url, run_id), ask("--spool", str(spool), run_id))
    return wrong + [ranks for verdict in final if (ranks := accused(verdict))]


@contextmanager
def _started(module: str, *arguments: object, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with (log / f"{module}.log").open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
