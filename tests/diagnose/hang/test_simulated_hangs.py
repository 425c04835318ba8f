"""Simulated stalled jobs. The verdict names the faulty ranks or no rank. It never names another rank."""

import random
from collections import Counter
from functools import cache

import pytest

from diagnose.hang.verdict import HangVerdict, judge
from tests.diagnose.hang.simulated_evidence import evidence_of
from tests.diagnose.hang.simulated_job import Backend, SimulatedJob, Trouble, simulated_job

SEEDS = range(40)
FEW_SEEDS = SEEDS[:15]
"""`make test` runs these seeds. `make long` runs all."""
ALL_SEEDS = pytest.param(SEEDS, marks=pytest.mark.long)
EACH_RANGE = pytest.mark.parametrize("seeds", [FEW_SEEDS, ALL_SEEDS], ids=["few seeds", "all seeds"])
MOST_GONE = 3
EXACT = "exact"
SOME = "some of them"
SILENT = "silent"
INNOCENT = "an innocent"


def _verdict(job: SimulatedJob, *, seed: int, most_gone: int = 0) -> HangVerdict:
    """The verdict on a job that ran until nothing moved.

    Up to ``most_gone`` ranks leave no evidence. In half of the cases the grid is unknown.
    """
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
def _outcomes(
    backend: Backend, trouble: Trouble, seeds: range, gone: tuple[int, ...] = (0, MOST_GONE)
) -> dict[int, dict[int, str]]:
    """Outcomes by the largest number of ranks without evidence, and by seed. Each wait chain is followed to its end."""
    outcomes: dict[int, dict[int, str]] = {most_gone: {} for most_gone in gone}
    for seed in seeds:
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
    for seed in SEEDS[:5]:
        job = simulated_job(seed, backend, Trouble.HOST_STOPS)
        job.faults = ()
        job.run()
        assert [one.rank for one in job.ranks if one.at < len(one.program)] == [], f"seed {seed}"


@EACH_RANGE
@pytest.mark.parametrize(
    ("backend", "least_exact"), [pytest.param(Backend.GLOO, 0.94, marks=pytest.mark.long), (Backend.NCCL, 0.88)]
)
def test_ranks_with_stopped_hosts_are_named_in_most_jobs_and_no_other_rank_is_named(
    backend: Backend, least_exact: float, seeds: range
) -> None:
    outcomes = _outcomes(backend, Trouble.HOST_STOPS, seeds)[0]
    assert _wrong(outcomes) == []
    seen = Counter(outcomes.values())
    assert seen[EXACT] >= int(least_exact * len(seeds)), seen


@EACH_RANGE
@pytest.mark.parametrize("backend", [pytest.param(Backend.GLOO, marks=pytest.mark.long), Backend.NCCL])
def test_no_innocent_rank_is_named_when_up_to_three_ranks_left_no_evidence(backend: Backend, seeds: range) -> None:
    assert _wrong(_outcomes(backend, Trouble.HOST_STOPS, seeds)[MOST_GONE]) == []


@pytest.mark.parametrize("seeds", [FEW_SEEDS[:8], ALL_SEEDS], ids=["few seeds", "all seeds"])
@pytest.mark.parametrize("most_gone", [pytest.param(0, marks=pytest.mark.long), MOST_GONE])
def test_no_innocent_rank_is_named_when_a_device_stops_while_its_host_runs_on(most_gone: int, seeds: range) -> None:
    assert _wrong(_outcomes(Backend.NCCL, Trouble.DEVICE_STOPS, seeds, (most_gone,))[most_gone]) == []


@pytest.mark.long
def test_no_innocent_rank_is_named_when_a_rank_skips_a_collective() -> None:
    assert _wrong(_outcomes(Backend.GLOO, Trouble.LEAVES_OUT, SEEDS, (0,))[0]) == []
