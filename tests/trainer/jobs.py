"""Trainings for tests: real launchers, real ranks, small models."""

import json
import pickle
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.trainer import launchers
from tests.trainer.launchers import LAUNCH, Launched, launch_pickled, start_forked, start_launcher
from trainer.config import DataConfig, ModelConfig, OptimConfig, ParallelConfig, TrainConfig
from trainer.run_options import RunOptions

KEEPER = "data-keeper"

JOB_S = 120.0
LOG = "launcher.log"


def small_config(*, num_steps: int = 3, global_microbatches: int = 8, **parallel: int) -> TrainConfig:
    """A model of four small layers; the global batch is the same on every grid."""
    num_microbatches = global_microbatches // parallel.get("dp", 1)
    return TrainConfig(
        recipe="small",
        model=ModelConfig(num_layers=4, hidden_size=64, num_heads=4, sequence_length=64, window=16),
        parallel=ParallelConfig(num_microbatches=num_microbatches, **parallel),
        data=DataConfig(microbatch_size=1, max_bytes=200_000),
        optim=OptimConfig(num_warmup_steps=2),
        num_steps=num_steps,
    )


@dataclass(slots=True)
class Job:
    """A launcher in a separate process, and the files of its job."""

    process: Launched
    out: Path

    def finish(self) -> "Ended":
        """Wait for the end."""
        status = self.process.wait(JOB_S)
        return Ended(status=status, words=(self.out / LOG).read_text(), out=self.out)

    def steps_done(self) -> int:
        return len(figures(self.out))

    def log(self, rank: int) -> str:
        return rank_log(self.out, rank)

    def rank_pids(self) -> list[int]:
        """Children of the launcher that are ranks, by rank."""
        return [pid for pid in children(self.process.pid) if name_of(pid) != KEEPER]

    def loader_pids(self) -> list[int]:
        """The data loaders: children of their keepers."""
        keepers = [pid for pid in children(self.process.pid) if name_of(pid) == KEEPER]
        return [pid for keeper in keepers for pid in children(keeper)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of a job."""

    status: int
    words: str
    """What the launcher wrote."""
    out: Path

    @property
    def losses(self) -> list[float]:
        return [step["loss"] for step in figures(self.out)]


def start_job(config: TrainConfig, out: Path, *, under_torchrun: int = 0, work: str = LAUNCH, **options: Any) -> Job:
    """Launch in the background.

    Args:
        under_torchrun: number of processes that torchrun starts; 0: without it.
        work: what the launcher runs, as in :func:`start_launcher`. Not used under torchrun.
    """
    chosen = RunOptions(out=out, run_id="job", **options)
    out.mkdir(parents=True, exist_ok=True)
    job, log = out / "job.pickle", out / LOG
    job.write_bytes(pickle.dumps((config, chosen)))
    log.write_bytes(b"")
    if not under_torchrun:
        return Job(start_launcher(job, log, work), out)
    words = ("--standalone", "--nproc-per-node", str(under_torchrun), "-m", "tests.trainer.jobs", str(job))
    return Job(start_forked(f"{launchers.__name__}:run_torchrun", *words, log=log), out)


def run_job(config: TrainConfig, out: Path, **options: Any) -> Ended:
    """Launch and wait; the job must succeed."""
    ended = start_job(config, out, **options).finish()
    assert ended.status == 0, ended.words + rank_log(out, 0)
    return ended


def rank_log(out: Path, rank: int) -> str:
    """What the rank printed so far."""
    path = out / "logs" / f"rank-{rank:05d}.log"
    return path.read_text() if path.exists() else ""


def figures(out: Path) -> list[dict[str, Any]]:
    """The figures that the job reported, one dict for each step. An incomplete last line is left out."""
    path = out / "progress.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def losses(out: Path) -> dict[int, float]:
    """Losses by step. A repeated step has its newest loss."""
    return {step["step"]: step["loss"] for step in figures(out)}


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name_of(pid: int) -> str:
    """The name of the process, as in ``ps -o comm``."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def seeded(config: TrainConfig, seed: int) -> TrainConfig:
    return replace(config, seed=seed)


if __name__ == "__main__":
    sys.exit(launch_pickled(sys.argv[1]))
