"""Real jobs of four ranks that hang and then end: the same rank is named as before, and the stall is lost time.

``test_hang.py`` runs a cheap part of this. ``tests/ui/dashboard/data/test_stall_after_the_end.py`` does the same on
made data.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import pytest

from telemetry.stores.queries import Steps
from telemetry.topology import Topology
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.scenarios.hang_job import (
    DEATH_S,
    START_S,
    VERDICT_S,
    Job,
    accused,
    accused_now,
    ask,
    collecting,
    named_after_the_end,
)
from tests.scenarios.hang_plan import Trial
from tests.ui.named_everywhere import named_by_pages, named_everywhere, row_of
from ui.dashboard.data.run_rows import RunRow

pytestmark = [pytest.mark.gloo, pytest.mark.long, pytest.mark.timeout(900)]

GUILTY = (1,)
FAULT = "hang:rank=1,step=60,before=forward-compute,how=spin"
TIMEOUT_S, STALL_S = 40.0, 40.0
MANY_STEPS = 5_000
RESTARTED_STEPS = 120


ENDS: dict[str, Callable[[Job], None]] = {
    "collective timeout": lambda job: None,
    "kill -9": lambda job: [rank.kill() for rank in job.ranks()],
    "Ctrl-C": Job.interrupt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job that hung, and the ranks that were named before and after its end."""

    job: Job
    collector: CollectorClient
    before: dict[str, tuple[int, ...]]
    after: dict[str, tuple[int, ...]]
    ended_ns: int


@pytest.fixture(scope="module", params=ENDS)
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    folder = tmp_path_factory.mktemp("hung")
    trial = Trial(number=0, kind=request.param, topology=Topology(dp=2, pp=2), fault=FAULT, guilty=GUILTY, kills=False)
    timeout_s = TIMEOUT_S if request.param == "collective timeout" else None
    job = Job(trial, folder, "hung", num_steps=MANY_STEPS, collective_timeout_s=timeout_s)
    with collecting(folder) as collector:
        job.start(collector.url)
        try:
            until(job.fired_at_s, seconds=START_S, what="the fault")
            until(lambda: accused_now(collector, "hung") == GUILTY, seconds=VERDICT_S, what="the verdict")
            before = named_everywhere(collector, "hung")
            if timeout_s is None:
                until(lambda: time.time() - job.fired_at_s() > STALL_S, seconds=2 * STALL_S, what="a long stall")
            ranks = job.ranks()
            ENDS[request.param](job)
            psutil.wait_procs(ranks, timeout=DEATH_S)
            ended_ns = time.time_ns()
            job.wait(seconds=DEATH_S)
        finally:
            job.end(kills=True)
        after = named_after_the_end(collector, "hung")
        yield Ended(job=job, collector=collector, before=before, after=after, ended_ns=ended_ns)


def test_pages_command_and_alerts_name_the_same_rank_before_and_after_the_end(ended: Ended) -> None:
    assert ended.before == dict.fromkeys(ended.before, GUILTY)
    assert ended.after == ended.before


def test_diagnose_hang_command_names_the_rank_at_fault_after_the_end(ended: Ended) -> None:
    assert accused(ask("--store", ended.collector.url, "hung")) == GUILTY


def test_goodput_counts_the_stall_as_lost_time(ended: Ended) -> None:
    row = row_of(ended.collector, "hung")
    stall_s = ended.ended_ns / 1e9 - ended.job.fired_at_s()
    assert row.goodput == pytest.approx(_share(ended, row, 0, ended.ended_ns, lost_s=stall_s), abs=0.02)


def test_restarted_attempt_names_no_rank_and_the_old_attempt_keeps_its_verdict(ended: Ended) -> None:
    """This test is the last one, because it adds an attempt to the run of the other tests."""
    trial = Trial(number=1, kind="none", topology=Topology(dp=2, pp=2), fault="none", guilty=(), kills=False)
    again = Job(trial, ended.job.out.parent, "hung", num_steps=RESTARTED_STEPS, attempt=1)
    again.start(ended.collector.url)
    try:
        until(lambda: len(again.ranks()) == trial.topology.world_size, seconds=START_S, what="the ranks")
        psutil.wait_procs(again.ranks(), timeout=START_S)
        ended_ns = time.time_ns()
        again.wait(seconds=DEATH_S)
    finally:
        again.end(kills=True)
    until(lambda: row_of(ended.collector, "hung").state == "ended", seconds=DEATH_S, what="the end in the store")
    old, new = (named_by_pages(ended.collector, "hung", attempt, now_s=time.time) for attempt in (0, 1))
    assert old == dict.fromkeys(old, GUILTY)
    assert new == dict.fromkeys(new, ())
    row = row_of(ended.collector, "hung")
    assert (row.attempt, row.findings) == (1, None)
    assert row.goodput == pytest.approx(_share_of_first_completions(ended, row, ended_ns), abs=0.02)


def _share_of_first_completions(ended: Ended, row: RunRow, ended_ns: int) -> float:
    """Share of the steps of attempt 0, and of the later steps of attempt 1, added one by one."""
    old, new = (
        ended.collector.read(Steps(run_id="hung", attempt=attempt, last_step=RESTARTED_STEPS)).to_pylist()
        for attempt in (0, 1)
    )
    done = max(step["step"] for step in old)
    useful_ns = sum(step["duration_ns"] for step in [*old, *(step for step in new if step["step"] > done)])
    return float(useful_ns / (ended_ns - row.started_ns))


def _share(ended: Ended, row: RunRow, attempt: int, ended_ns: int, *, lost_s: float = 0.0) -> float:
    """Share of the time since the first start: from the first step of an attempt, less ``lost_s``."""
    first = ended.collector.read(Steps(run_id="hung", attempt=attempt, last_step=0)).to_pylist()[0]
    return ((ended_ns - first["start_ns"]) / 1e9 - lost_s) / ((ended_ns - row.started_ns) / 1e9)
