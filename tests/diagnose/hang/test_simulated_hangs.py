"""Hundreds of simulated jobs that stand still: the verdict names those that had trouble, or no one, but no one else."""

import random
from collections import Counter
from functools import cache

import pytest

from diagnose.hang.verdict import HangVerdict, judge
from tests.diagnose.hang.simulated_evidence import evidence_of
from tests.diagnose.hang.simulated_job import Backend, SimulatedJob, Trouble, simulated_job

SEEDS = range(200)
MOST_GONE = 3
EXACT = "exact"
SOME = "some of them"
SILENT = "silent"
INNOCENT = "an innocent"


def _verdict(job: SimulatedJob, *, seed: int, most_gone: int = 0) -> HangVerdict:
    """Of a job that ran until nothing moved: up to so many ranks leave nothing, half the time nobody tells the grid."""
    rng = random.Random(f"gone/{seed}")
    num_gone = rng.randint(1, most_gone) if most_gone else 0
    gone = rng.sample(range(job.grid.world_size), num_gone)
    return judge(evidence_of(job, knows_grid=rng.random() < 0.5, gone=gone))


def _outcome(named: set[int], troubled: set[int]) -> str:
    if named - troubled:
        return INNOCENT
    if not named:
        return SILENT
    return EXACT if named == troubled else SOME


@cache
def _outcomes(backend: Backend, trouble: Trouble) -> dict[int, dict[int, str]]:
    """By the most ranks that left nothing, and by seed. Every chain is followed as well: it must come to an end."""
    outcomes: dict[int, dict[int, str]] = {most_gone: {} for most_gone in (0, MOST_GONE)}
    for seed in SEEDS:
        job = simulated_job(seed, backend, trouble)
        job.run()
        for most_gone, found in outcomes.items():
            verdict = _verdict(job, seed=seed, most_gone=most_gone)
            for one in job.ranks:
                verdict.chain(one.rank)
            found[seed] = _outcome(set(verdict.initiating), job.troubled)
    return outcomes


def _wrong(outcomes: dict[int, str]) -> list[int]:
    return [seed for seed, outcome in outcomes.items() if outcome == INNOCENT]


@pytest.mark.parametrize("backend", Backend)
def test_every_simulated_program_ends_when_no_rank_has_trouble(backend: Backend) -> None:
    for seed in SEEDS[:20]:
        job = simulated_job(seed, backend, Trouble.HOST_STOPS)
        job.faults = ()
        job.run()
        assert [one.rank for one in job.ranks if one.at < len(one.program)] == [], f"seed {seed}"


@pytest.mark.parametrize(
    ("backend", "least_exact"), [pytest.param(Backend.GLOO, 0.94, marks=pytest.mark.long), (Backend.NCCL, 0.88)]
)
def test_hosts_that_stop_are_named_nearly_always_and_no_one_else_ever(backend: Backend, least_exact: float) -> None:
    outcomes = _outcomes(backend, Trouble.HOST_STOPS)[0]
    assert _wrong(outcomes) == []
    seen = Counter(outcomes.values())
    assert seen[EXACT] >= least_exact * len(SEEDS), seen


@pytest.mark.parametrize("backend", [pytest.param(Backend.GLOO, marks=pytest.mark.long), Backend.NCCL])
def test_no_innocent_is_accused_when_up_to_three_ranks_left_nothing(backend: Backend) -> None:
    assert _wrong(_outcomes(backend, Trouble.HOST_STOPS)[MOST_GONE]) == []


@pytest.mark.long
def test_no_innocent_is_accused_when_a_device_stops_while_its_host_runs_on() -> None:
    assert _wrong(_outcomes(Backend.NCCL, Trouble.DEVICE_STOPS)[0]) == []


@pytest.mark.long
def test_no_innocent_is_accused_when_a_rank_leaves_a_collective_out() -> None:
    assert _wrong(_outcomes(Backend.GLOO, Trouble.LEAVES_OUT)[0]) == []
