"""Hangs of several kinds in real jobs of four ranks: the verdict names only the rank at fault. A healthy job of two
ranks has a slow first step.

``make trials`` has every kind, many more jobs, and jobs of eight and sixteen ranks.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.hang_healthy import run_healthy
from tests.scenarios.hang_job import Found, Job, accused, ask, ask_spool, collecting, run_trial
from tests.scenarios.hang_plan import IN_EVERY_RUN, TWO, Trial, healthy_plan, in_every_run

SEED = 3
AT_ONCE = 4
"""Jobs at the same time. A trial mostly waits."""
MANY_STEPS, FEW_STEPS = 5_000, 4
CHEAP: dict[str, Any] = {"num_layers": 2, "global_microbatches": 4, "look_s": 1.0}
"""Options of all jobs. Agents send once a second, so the verdict does not change more often than it is read."""
DIES_BY_TIMEOUT, COLLECTIVE_TIMEOUT_S = "skipped collective", 15.0
pytestmark = [pytest.mark.gloo, pytest.mark.chaos, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJobs:
    """All jobs, after their end."""

    found: dict[str, Found]
    """By kind of fault. The spools were read after the jobs and the collector had ended."""
    jobs: dict[str, Job]
    wrong: list[tuple[int, ...]]
    """Ranks that were wrongly named during the slow first step of a healthy job."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedJobs:
    folder = tmp_path_factory.mktemp("hangs")
    jobs = {trial.kind: _job(trial, folder) for trial in in_every_run(SEED)}
    _, slow_first_step, _ = healthy_plan(SEED, TWO)
    with collecting(folder) as collector, ThreadPoolExecutor(AT_ONCE) as pool:
        healthy = pool.submit(run_healthy, slow_first_step, folder, collector, num_steps=FEW_STEPS, **CHEAP)
        run = partial(run_trial, collector=collector, by_command=False, everywhere=True)
        found = list(pool.map(run, jobs.values()))
        wrong = healthy.result()
    for job, trial in zip(jobs.values(), found, strict=True):
        ask_spool(job, trial, by_command=False)
    return FinishedJobs(found=dict(zip(jobs, found, strict=True)), jobs=jobs, wrong=wrong)


def _job(trial: Trial, folder: Path) -> Job:
    timeout_s = COLLECTIVE_TIMEOUT_S if trial.kind == DIES_BY_TIMEOUT else None
    run_id = f"trial-{trial.number}"
    return Job(trial, folder, run_id, num_steps=MANY_STEPS, collective_timeout_s=timeout_s, **CHEAP)


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_verdict_names_only_the_rank_at_fault_while_the_job_hangs(kind: str, finished: FinishedJobs) -> None:
    trial = finished.found[kind]
    assert trial.exact, (trial.trial.name, trial.stored)


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_no_other_rank_is_named_before_the_verdict(kind: str, finished: FinishedJobs) -> None:
    assert finished.found[kind].on_the_way == []


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_pages_command_and_alerts_name_the_rank_at_fault_before_and_after_the_end(
    kind: str, finished: FinishedJobs
) -> None:
    """One job ends by its collective timeout. The trial ends the other job."""
    trial = finished.found[kind]
    assert trial.before == dict.fromkeys(trial.before, trial.trial.guilty)
    assert trial.after == trial.before != {}


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_verdict_from_the_spool_of_the_dead_job_names_only_the_rank_at_fault(kind: str, finished: FinishedJobs) -> None:
    trial = finished.found[kind]
    assert trial.exact_from_spool, (trial.trial.name, trial.spooled)


def test_diagnose_hang_command_names_the_rank_at_fault_from_the_spool_alone(finished: FinishedJobs) -> None:
    (kind, job), *_ = finished.jobs.items()
    assert accused(ask("--spool", str(job.spool))) == finished.found[kind].trial.guilty


def test_no_rank_is_named_during_a_slow_first_step(finished: FinishedJobs) -> None:
    assert finished.wrong == []
