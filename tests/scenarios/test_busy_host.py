"""A small real job on one host: findings about host contention name the rank and the cause."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from diagnose.findings import Finding, Kind, StepWindow
from diagnose.pipeline import diagnose_run
from telemetry.record.rank_identity import rank_folder
from telemetry.record.reader import RankReader
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.scenarios.hang_job import collecting
from tests.scenarios.mapped_ranks import LIMITED_RANK, NUM_RANKS, RUN
from tests.scenarios.memory_limit import memory_limit

pytestmark = pytest.mark.timeout(300)

CROWDED_RANK = 1
NAME = "burn-a-core"
NUM_BURNERS = 4
LEFT_BYTES = 40 * 2**20
"""Of the 64 MiB that a rank reads in each step."""
START_S, VERDICT_S = 60.0, 90.0
MIN_STEPS = 12


@dataclass(slots=True, kw_only=True)
class BusyJob:
    """The job, its agent, and queries to its collector."""

    client: CollectorClient
    spool: Path

    def pid(self, rank: int) -> int:
        return RankReader(rank_folder(self.spool, RUN, 0, rank)).identity().pid

    def step(self) -> int:
        """The current step of the job."""
        return RankReader(rank_folder(self.spool, RUN, 0, 0)).live().step

    def accused(self, first_step: int) -> list[Finding]:
        """Findings since a step that name a rank."""
        window = StepWindow(first_step=first_step, last_step=self.step() - 1)
        return [finding for finding in diagnose_run(self.client, RUN, 0, window).findings if finding.ranks]


@contextmanager
def busy_job(folder: Path, procs: Path) -> Iterator[BusyJob]:
    """Four ranks that train. They are ended on exit."""
    spool = folder / "spool"
    spool.mkdir()
    with ExitStack() as stack, (folder / "job.log").open("wb") as log:
        client = stack.enter_context(collecting(folder))
        job = [sys.executable, "-m", "tests.scenarios.mapped_ranks", str(spool), str(folder / "data"), str(procs)]
        agent = [sys.executable, "-m", "telemetry.agent", "--spool", str(spool), "--collector", client.url]
        for command in (job, agent):
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            stack.callback(_end, process)
        found = BusyJob(client=client, spool=spool)
        until(lambda: _folders(spool) == NUM_RANKS and found.step() > MIN_STEPS, seconds=START_S, what="steps")
        yield found


@contextmanager
def burners(core: int, folder: Path) -> Iterator[list[int]]:
    """Pids of processes with the name ``NAME`` that use all of one core."""
    program = folder / NAME
    program.symlink_to("/bin/sh")
    processes = [
        subprocess.Popen([program, "-c", "while :; do :; done"], start_new_session=True) for _ in range(NUM_BURNERS)
    ]
    try:
        for process in processes:
            os.sched_setaffinity(process.pid, {core})
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for_contention(job: BusyJob, cause: str) -> Finding:
    """Wait for a contention finding with this cause on the steps from now on. No other rank may be named."""
    first_step, found = job.step(), list[Finding]()

    def is_found() -> bool:
        if job.step() - first_step >= MIN_STEPS:
            found[:] = job.accused(first_step)
        return any(finding.evidence.get("cause") == cause for finding in found)

    until(is_found, seconds=VERDICT_S, every=1.0, what=f"contention by {cause}")
    (finding,) = (finding for finding in found if finding.kind is Kind.HOST_CONTENTION)
    assert [other.ranks for other in found if other.ranks != finding.ranks] == []
    return finding


@pytest.mark.long
def test_findings_name_the_process_on_the_core_of_a_rank_and_the_rank_without_memory(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    with memory_limit() as limit, busy_job(tmp_path, limit.procs) as job:
        os.sched_setaffinity(job.pid(CROWDED_RANK), {core})
        with burners(core, tmp_path) as pids:
            finding = wait_for_contention(job, "process")
        assert (finding.ranks, finding.hosts) == ([CROWDED_RANK], ["box"])
        assert finding.evidence["process"] in {f"{pid} {NAME}" for pid in pids}
        assert f"of core {core}, where rank {CROWDED_RANK} runs" in finding.summary

        limit.cut(LEFT_BYTES)
        finding = wait_for_contention(job, "memory")
        assert (finding.ranks, finding.hosts) == ([LIMITED_RANK], ["box"])
        assert "waited for memory" in finding.summary


def _folders(spool: Path) -> int:
    return len(list(spool.glob("**/meta.json")))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all processes of its session."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
