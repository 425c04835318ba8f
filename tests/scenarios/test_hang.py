"""Hangs of several kinds in real jobs of eight and four ranks: the verdict names the rank at fault, and nobody else.

Every kind, many more, and sixteen ranks: ``make trials``.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.scenarios.hang_healthy import run_healthy
from tests.scenarios.hang_job import Found, Job, accused, ask, ask_spool, collecting, stand_trial
from tests.scenarios.hang_plan import IN_EVERY_RUN, Trial, healthy_plan, in_every_run

SEED = 3
AT_ONCE = 4
"""Jobs beside one another: most of a trial is waiting."""
MANY_STEPS, FEW_STEPS = 5_000, 12
DIES_BY_TIMEOUT, COLLECTIVE_TIMEOUT_S = "skipped collective", 20.0
pytestmark = [pytest.mark.gloo, pytest.mark.chaos, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """All jobs, over and done with."""

    found: dict[str, Found]
    """By kind of fault. The spools were asked when the jobs were dead and the collector gone."""
    jobs: dict[str, Job]
    wrong: list[tuple[int, ...]]
    """Whom it was wrong to accuse while a healthy job made a slow first step."""


@pytest.fixture(scope="module")
def stood(tmp_path_factory: pytest.TempPathFactory) -> Stood:
    folder = tmp_path_factory.mktemp("hangs")
    jobs = {trial.kind: _job(trial, folder) for trial in in_every_run(SEED)}
    _, slow_first_step, _ = healthy_plan(SEED)
    with collecting(folder) as collector, ThreadPoolExecutor(AT_ONCE) as pool:
        healthy = pool.submit(run_healthy, slow_first_step, folder, collector, num_steps=FEW_STEPS)
        stand = partial(stand_trial, collector=collector, by_command=False, everywhere=True)
        found = list(pool.map(stand, jobs.values()))
        wrong = healthy.result()
    for job, trial in zip(jobs.values(), found, strict=True):
        ask_spool(job, trial, by_command=False)
    return Stood(found=dict(zip(jobs, found, strict=True)), jobs=jobs, wrong=wrong)


def _job(trial: Trial, folder: Path) -> Job:
    timeout_s = COLLECTIVE_TIMEOUT_S if trial.kind == DIES_BY_TIMEOUT else None
    run_id = f"trial-{trial.number}"
    return Job(trial, folder, run_id, num_steps=MANY_STEPS, collective_timeout_s=timeout_s)


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_the_rank_at_fault_is_named_while_the_job_stands(kind: str, stood: Stood) -> None:
    trial = stood.found[kind]
    assert trial.exact, (trial.trial.name, trial.stored)


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_nobody_else_is_accused_on_the_way(kind: str, stood: Stood) -> None:
    assert stood.found[kind].on_the_way == []


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_every_page_the_command_and_alerts_name_it_before_and_after_the_end(kind: str, stood: Stood) -> None:
    """One job dies by its collective timeout, the other is ended from outside."""
    trial = stood.found[kind]
    assert trial.before == dict.fromkeys(trial.before, trial.trial.guilty)
    assert trial.after == trial.before != {}


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_the_same_comes_from_the_spool_of_the_dead_job(kind: str, stood: Stood) -> None:
    trial = stood.found[kind]
    assert trial.exact_from_spool, (trial.trial.name, trial.spooled)


def test_the_command_says_so_with_nothing_left_but_the_spool(stood: Stood) -> None:
    (kind, job), *_ = stood.jobs.items()
    assert accused(ask("--spool", str(job.spool))) == stood.found[kind].trial.guilty


def test_a_slow_first_step_raises_nothing(stood: Stood) -> None:
    assert stood.wrong == []
