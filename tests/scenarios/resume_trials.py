"""Real trainings that are killed with `kill -9` and resumed, on the same grid or on another one.

python -m tests.scenarios.resume_trials [--seed 0] [--json] [--write]

Each is compared with the same training without a kill. Exit status 1 if a limit is not met.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.benchmarks.pages import as_table, write_section
from tests.deadline import until
from tests.scenarios.saved_jobs import START_S, STEPS_AFTER, Grid, grid_name, saving
from tests.trainer.checkpoint.checkpoint_files import stored_bytes
from tests.trainer.jobs import losses, run_job, start_job
from tests.trainer.noted_batches import NOTED, sequences_of
from tests.trainer.recorded import read_bytes
from trainer.checkpoint.folder import complete_steps
from trainer.config import CheckpointConfig

TITLE = "Resumed trainings"
TRIALS: Sequence[tuple[Grid, Grid]] = (
    ((4, 1, 1), (4, 1, 1)),
    ((2, 2, 2), (2, 2, 2)),
    ((2, 2, 2), (4, 1, 2)),
    ((2, 2, 2), (1, 2, 4)),
)
MAX_DIFFERENCE, MAX_COPIES = 1e-5, 1.05
HEADINGS = (
    "grid (dp, pp, tp)",
    "resumed as",
    "steps",
    "first step after the resume",
    "largest difference of a loss",
    "copies read",
    "steps with other sequences",
)
NOTES = f"""\
Each training writes a checkpoint after every step. A rank is killed during a write, and the training continues on the
grid in the column *resumed as*.

- *Largest difference of a loss*: relative, compared with the same training on the first grid without a kill. The limit
  is {MAX_DIFFERENCE:g}.
- *Copies read*: the bytes that all ranks read together, divided by the size of the checkpoint. The limit is
  {MAX_COPIES}.
- *Steps with other sequences*: steps that train on other sequences of tokens, or in another order, than without a kill.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A resumed training beside the same training without a kill."""

    before: str
    """The grid that was killed."""
    after: str
    num_steps: int
    resumed_at: int
    """Number of the first step after the resume."""
    loss_difference: float
    """The largest one of all steps, relative."""
    copies_read: float
    """Bytes that all ranks read together, divided by the size of the checkpoint."""
    other_sequences: int
    """Steps whose sequences are others, or in another order."""


def is_right(resumed: Resumed) -> bool:
    """Whether the limits are met."""
    return (
        resumed.loss_difference <= MAX_DIFFERENCE and resumed.copies_read <= MAX_COPIES and not resumed.other_sequences
    )


def kill_and_resume(before: Grid, after: Grid, folder: Path, chance: random.Random) -> Resumed:
    """Kill a rank after a random number of steps, resume the training, and compare it with an undisturbed one."""
    out, whole = folder / "killed", folder / "undisturbed"
    root = out / "checkpoints"
    job = start_job(saving(before), out, checkpoints=root, work=NOTED)
    wanted = chance.randrange(3, 9)
    until(lambda: max(complete_steps(root), default=0) >= wanted, seconds=START_S, what=f"checkpoint {wanted}")
    os.kill(chance.choice(job.rank_pids()), signal.SIGKILL)
    assert job.finish().status == 1
    newest = complete_steps(root)[0]
    stored = stored_bytes(root, newest)
    num_steps = newest + STEPS_AFTER
    run_job(saving(after, num_steps), out, checkpoints=root, work=NOTED)
    run_job(replace(saving(before, num_steps), checkpoint=CheckpointConfig()), whole, work=NOTED)
    return Resumed(
        before=grid_name(before),
        after=grid_name(after),
        num_steps=num_steps,
        resumed_at=newest,
        loss_difference=_largest_difference(losses(out), losses(whole)),
        copies_read=read_bytes(out, num_ranks=saving(after).parallel.topology.world_size) / stored,
        other_sequences=_num_different(sequences_of(out), sequences_of(whole), num_steps),
    )


def _largest_difference(some: Mapping[int, float], others: Mapping[int, float]) -> float:
    assert some.keys() == others.keys(), (some, others)
    return max(abs(some[step] / others[step] - 1) for step in others)


def _num_different(some: Mapping[int, object], others: Mapping[int, object], num_steps: int) -> int:
    return sum(some.get(step) != others[step] for step in range(num_steps))


def row_of(resumed: Resumed) -> tuple[str, ...]:
    return (
        resumed.before,
        resumed.after,
        str(resumed.num_steps),
        str(resumed.resumed_at),
        f"{resumed.loss_difference:.1e}" if resumed.loss_difference else "0",
        f"{resumed.copies_read:.3f}",
        str(resumed.other_sequences),
    )


def main() -> int:
    """Run the trials and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy.md")
    given = parser.parse_args()
    trials = []
    with tempfile.TemporaryDirectory(prefix="rankscope-resumed-") as name:
        for number, (before, after) in enumerate(TRIALS):
            chance = random.Random(f"{given.seed} {number}")
            trials.append(kill_and_resume(before, after, Path(name) / str(number), chance))
            print(" ".join(row_of(trials[-1])), file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps({"seed": given.seed, "trials": [asdict(each) for each in trials]}, indent=1))
    table = as_table(HEADINGS, [row_of(each) for each in trials])
    print(table, file=sys.stderr)
    if given.write:
        command = f"python -m tests.scenarios.resume_trials --seed {given.seed}"
        write_section(TITLE, command, f"{table}\n\n{NOTES}")
    return int(not all(map(is_right, trials)))


if __name__ == "__main__":
    sys.exit(main())
