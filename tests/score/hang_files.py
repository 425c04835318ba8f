"""Files of labelled hangs, one folder for each source, as `rankscope diagnose hang` reads them.

simulated NCCL jobs     flight-recorder dumps, logs, answers of NCCL RAS, stacks
real dumps              the dumps; logs and answers of RAS are written from the counts in the dumps
real gloo jobs          what ``tests.scenarios.hang_trials --out`` left: rank files, flight recorders, logs, stacks
"""

import random
from dataclasses import dataclass
from pathlib import Path

from diagnose.hang.sources.combine import Found
from telemetry.errors import UnreadableError
from tests.diagnose.hang.made_job_dumps import write_job_dumps
from tests.diagnose.hang.made_sources import ras_answer, write_logs, write_stacks
from tests.diagnose.hang.simulated_job import SimulatedJob
from ui.cli.commands.diagnose import HangOptions
from ui.cli.hang_sources import find_evidence

SPOOL, DUMPS, LOG, RAS, STACKS = "rank files", "dumps", "logs", "RAS", "stacks"
SOURCES = (DUMPS, LOG, RAS, STACKS)
"""In the order of the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The part of the evidence that is missing."""

    gone: tuple[int, ...] = ()
    """Ranks that left nothing in a source."""
    ended_early: float = 0.0
    """Share of the ranks that are ended before their watchdogs report."""
    hidden: float = 0.0
    """Share of the waiting ranks whose stack does not show that they wait."""


WHOLE = Missing()


def random_missing(size: int, rng: random.Random) -> Missing:
    """Up to two ranks, and some lines and frames."""
    return Missing(
        gone=tuple(rng.sample(range(size), rng.randint(0, 2))),
        ended_early=rng.choice([0.0, 0.3, 1.0]),
        hidden=rng.choice([0.0, 0.2]),
    )


def write_source(
    source: str, job: SimulatedJob, folder: Path, rng: random.Random, missing: Missing = WHOLE, name: str = "ras.json"
) -> None:
    """One source of a simulated job."""
    folder.mkdir(parents=True, exist_ok=True)
    match source:
        case "dumps":
            write_job_dumps(job, folder, gone=missing.gone)
        case "logs":
            write_logs(job, folder, rng, gone=missing.gone, ended_early=missing.ended_early)
        case "RAS":
            (folder / name).write_bytes(ras_answer(job, gone=missing.gone))
        case _:
            write_stacks(job, folder, rng, gone=missing.gone, hidden=missing.hidden)


def read_source(source: str, folder: Path, world_size: int | None) -> Found | None:
    """The evidence that the command reads from one source; None if nothing is readable."""
    try:
        return find_evidence(_options(source, folder, world_size))[0]
    except UnreadableError:
        return None


def _options(source: str, folder: Path, world_size: int | None) -> HangOptions:
    match source:
        case "rank files":
            return HangOptions(spool=folder, logs=None)
        case "dumps":
            return HangOptions(dumps=folder, world_size=world_size)
        case "logs":
            return HangOptions(logs=[str(folder)], world_size=world_size)
        case "RAS":
            samples = sorted(map(str, folder.iterdir()))
            return HangOptions(ras=(samples * 2)[:2], world_size=world_size)
        case _:
            return HangOptions(stacks=[str(folder)], world_size=world_size)
