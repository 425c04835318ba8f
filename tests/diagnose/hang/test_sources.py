"""Simulated NCCL hangs, judged from logs, RAS and stacks. No verdict names an innocent rank."""

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from diagnose.hang.sources.combine import Found, judge_together
from diagnose.hang.sources.from_communicators import evidence_from_ras
from diagnose.hang.sources.from_logs import evidence_from_logs
from diagnose.hang.sources.from_stacks import read_stacks
from diagnose.hang.sources.read_logs import read_logs
from diagnose.hang.sources.read_ras import read_ras
from diagnose.hang.verdict import HangVerdict
from tests.diagnose.hang.made_sources import ras_answer, write_logs, write_stacks
from tests.diagnose.hang.simulated_evidence import evidence_of
from tests.diagnose.hang.simulated_job import Backend, SimulatedJob, Trouble, simulated_job

SEEDS = range(12)
FEW_SEEDS = SEEDS[:2]
"""`make test` runs these seeds. `make long` runs all."""
EACH_RANGE = pytest.mark.parametrize(
    "seeds", [FEW_SEEDS, pytest.param(SEEDS, marks=pytest.mark.long)], ids=["few seeds", "all seeds"]
)
LOG, RAS, STACKS, DUMPS = "log", "NCCL RAS", "stacks", "flight recorder"
SETS = ((LOG,), (RAS,), (STACKS,), (LOG, RAS), (LOG, STACKS), (RAS, STACKS), (DUMPS, LOG), (DUMPS, LOG, RAS, STACKS))


def _found(job: SimulatedJob, names: tuple[str, ...], seed: int, folder: Path, *, whole: bool) -> list[Found]:
    """``whole``: every rank reports everything. Otherwise some ranks leave nothing, or are ended before they report."""
    rng = random.Random(f"{names}/{seed}")
    size = job.grid.world_size
    found = []
    for name in names:
        gone = [] if whole else rng.sample(range(size), rng.randint(0, 2))
        place = folder / f"{seed} {name}"
        place.mkdir()
        match name:
            case "log":
                write_logs(job, place, rng, gone=gone, ended_early=0.0 if whole else rng.choice([0.0, 0.3, 1.0]))
                evidence = evidence_from_logs(read_logs([str(place)]), size if whole or rng.random() < 0.5 else 0)
            case "NCCL RAS":
                evidence = evidence_from_ras(read_ras(ras_answer(job, gone=gone), "ras"))
            case "stacks":
                write_stacks(job, place, rng, gone=gone, hidden=0.0 if whole else rng.choice([0.0, 0.2]))
                evidence = read_stacks([str(place)])
            case _:
                evidence = evidence_of(job, knows_grid=False, gone=gone)
        found.append(Found(name=name, evidence=evidence))
    return found


@cache
def _stalled(seed: int, trouble: Trouble) -> SimulatedJob:
    """Simulated once for all sets of evidence, which only read it."""
    job = simulated_job(seed, Backend.NCCL, trouble)
    job.run()
    return job


def _verdicts(
    names: tuple[str, ...], trouble: Trouble, folder: Path, *, whole: bool, seeds: range
) -> dict[int, tuple[HangVerdict, set[int]]]:
    verdicts = {}
    for seed in seeds:
        job = _stalled(seed, trouble)
        if job.troubled:
            verdicts[seed] = judge_together(_found(job, names, seed, folder, whole=whole)), job.troubled
    return verdicts


def _wrong(verdicts: dict[int, tuple[HangVerdict, set[int]]]) -> list[int]:
    return [seed for seed, (verdict, troubled) in verdicts.items() if set(verdict.initiating) - troubled]


def _exact(verdicts: dict[int, tuple[HangVerdict, set[int]]]) -> Counter[str]:
    return Counter(
        "exact" if set(verdict.initiating) == troubled else "some" if verdict.initiating else "undecided"
        for verdict, troubled in verdicts.values()
    )


@EACH_RANGE
@pytest.mark.parametrize("names", SETS, ids=" and ".join)
@pytest.mark.parametrize("trouble", [Trouble.HOST_STOPS, Trouble.DEVICE_STOPS], ids=lambda trouble: trouble.name)
def test_no_innocent_rank_is_named_when_some_evidence_is_missing(
    trouble: Trouble, names: tuple[str, ...], seeds: range, tmp_path: Path
) -> None:
    assert _wrong(_verdicts(names, trouble, tmp_path, whole=False, seeds=seeds)) == []


@EACH_RANGE
@pytest.mark.parametrize("names", SETS, ids=" and ".join)
def test_no_innocent_rank_is_named_for_a_stuck_device_when_all_ranks_report(
    names: tuple[str, ...], seeds: range, tmp_path: Path
) -> None:
    assert _wrong(_verdicts(names, Trouble.DEVICE_STOPS, tmp_path, whole=True, seeds=seeds)) == []


LEAST_EXACT = {(LOG,): 0.05, (RAS,): 0.4, (STACKS,): 0.75, (LOG, STACKS): 0.75, (DUMPS, LOG): 0.85}


@pytest.mark.parametrize(("names", "least"), LEAST_EXACT.items(), ids=lambda value: str(value))
def test_ranks_with_stopped_hosts_are_named_in_a_minimum_share_of_jobs(
    names: tuple[str, ...], least: float, tmp_path: Path
) -> None:
    verdicts = _verdicts(names, Trouble.HOST_STOPS, tmp_path, whole=True, seeds=SEEDS)
    assert _wrong(verdicts) == []
    seen = _exact(verdicts)
    assert seen["exact"] >= least * len(verdicts), seen
