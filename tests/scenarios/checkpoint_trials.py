"""Processes and trainings that are killed while they write checkpoints.

python -m tests.scenarios.checkpoint_trials [--count 200] [--jobs 3] [--seed 0] [--json] [--write]

`--count`: kills of a process that writes a checkpoint after every step. `--jobs`: kills of real trainings on the grid
2x2x2. After each kill the newest complete checkpoint must load, with the values of its step. Exit status 1 if it does
not.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.benchmarks.pages import as_table, write_section
from tests.deadline import until
from tests.scenarios.saved_jobs import START_S, STEPS_AFTER, Grid, grid_name, saving
from tests.trainer.checkpoint.killed_writer import MOST_CHANGES, Kill, kill_writers, wait_for_changes
from tests.trainer.jobs import Job, figures, losses, run_job, start_job
from trainer.checkpoint.folder import complete_steps, make_root
from trainer.config import CheckpointConfig

TITLE = "Kills while checkpoints are written"
GRID: Grid = (2, 2, 2)
HEADINGS = ("killed", "kills", "during a write", "newest complete checkpoint loaded", "last step")
NOTES = """\
*During a write*: kills that left an incomplete checkpoint. After each kill, the newest complete checkpoint is loaded,
and its values are compared with those of its step. The losses of the killed and continued trainings are bit-identical
to those of a training without a kill.
"""


@dataclass(slots=True, kw_only=True)
class Killed:
    """Kills of one kind."""

    what: str
    kills: list[Kill] = field(default_factory=list)
    problem: str = ""
    """Why the last kill was the last one."""


def note_kills(what: str, kills: Iterable[Kill]) -> Killed:
    """Kill until the end, or until a checkpoint is wrong."""
    killed = Killed(what=what)
    try:
        for kill in kills:
            killed.kills.append(kill)
            if len(killed.kills) % 10 == 0:
                print(f"{what}: {len(killed.kills)} kills, step {kill.step}", file=sys.stderr, flush=True)
    except AssertionError as error:
        killed.problem = f"after {len(killed.kills)} kills: {error}"
        print(f"{what}: {killed.problem}", file=sys.stderr, flush=True)
    return killed


def kill_row(killed: Killed) -> tuple[str, ...]:
    partial = sum(kill.is_partial for kill in killed.kills)
    last = killed.kills[-1].step if killed.kills else 0
    return killed.what, str(len(killed.kills)), str(partial), killed.problem or "each time", str(last)


def kill_jobs(grid: Grid, folder: Path, *, count: int, chance: random.Random) -> Iterator[Kill]:
    """Kill a training this often, after a random number of changes of its folder of checkpoints. Each attempt must
    continue from the newest complete checkpoint. In the end the losses must be those of an undisturbed training, bit by
    bit."""
    out, root, reached = folder / "killed", folder / "killed" / "checkpoints", 0
    make_root(root)
    for _ in range(count):
        lines = len(figures(out))
        job = start_job(saving(grid), out, checkpoints=root)
        until(lambda before=lines: len(figures(out)) > before, seconds=START_S, what="a step")
        wait_for_changes(root, chance.randrange(1, MOST_CHANGES))
        _kill(job, chance)
        assert job.finish().status not in (0, 2)
        first = figures(out)[lines]["step"]
        assert first == reached, f"attempt continued with step {first}; newest complete checkpoint: {reached}"
        found = Kill(is_partial=any(root.glob("*.partial")), step=max(complete_steps(root), default=0))
        assert found.step >= reached, (found, reached)
        reached = found.step
        yield found
    run_job(saving(grid, reached + STEPS_AFTER), out, checkpoints=root)
    run_job(replace(saving(grid, reached + STEPS_AFTER), checkpoint=CheckpointConfig()), folder / "undisturbed")
    assert losses(out) == losses(folder / "undisturbed"), "other losses"


def _kill(job: Job, chance: random.Random) -> None:
    """Kill one rank, or all at once."""
    ranks = job.rank_pids()
    for pid in ranks if chance.random() < 0.5 else [chance.choice(ranks)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(count: int, jobs: int, seed: int, folder: Path) -> list[Killed]:
    """All trials. Writers are forked first, before this process has threads of torch."""
    killed = []
    if count:
        killed.append(note_kills("one writer", kill_writers(folder / "writers", count=count, seed=seed)))
    if jobs:
        kills = kill_jobs(GRID, folder / "jobs", count=jobs, chance=random.Random(f"jobs {seed}"))
        killed.append(note_kills(f"training, {grid_name(GRID)}", kills))
    return killed


def main() -> int:
    """Run the trials and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy.md")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    with tempfile.TemporaryDirectory(prefix="rankscope-checkpoints-") as name:
        killed = run(given.count, given.jobs, given.seed, Path(name))
    if given.json:
        print(json.dumps({"seed": given.seed, "killed": [asdict(each) for each in killed]}, indent=1))
    table = as_table(HEADINGS, [kill_row(each) for each in killed])
    print(table, file=sys.stderr)
    if given.write:
        command = (
            f"python -m tests.scenarios.checkpoint_trials --count {given.count} --jobs {given.jobs} --seed {given.seed}"
        )
        write_section(TITLE, command, f"{table}\n\n{NOTES}")
    return int(any(each.problem for each in killed))


if __name__ == "__main__":
    sys.exit(main())
