"""Many real hangs: whether the verdict is right, and how soon it comes.

python -m tests.scenarios.hang_trials [--count 42] [--seed 0] [--at-once 2] [--only N ...] [--out DIR] [--write]

Each trial is a training of eight or sixteen ranks with a fault inside (``hang_plan.py``), an agent beside it, a
collector and its store. A verdict is exact if it names all ranks at fault and no other. After all trials the collector
is killed, and the verdicts are read again from the spools of the dead jobs. ``--write`` puts the table into
docs/accuracy.md. Exit status 1 if a verdict was not exact or late, or named a rank of a healthy job.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from tests.benchmarks.pages import as_table, write_section
from tests.scenarios.hang_healthy import run_healthy, run_long_phases
from tests.scenarios.hang_job import FACTOR, FLOOR_S, Found, Job, ask_spool, collecting, run_trial
from tests.scenarios.hang_plan import KINDS, Trial, healthy_plan, plan

TITLE = "Real hangs"
COUNT = 42
MAX_BEYOND_S = 10.0
MANY_STEPS = 5_000
"""More than a trial reaches."""
HEADINGS = (
    *("fault", "trials", "8 / 16 ranks", "exact", "exact from the spool alone", "other ranks named earlier"),
    *("seconds to the verdict, median (worst)", "seconds after the stall threshold, median (worst)"),
)
NOTES = """\
- *8 / 16 ranks*: the number of trials with 8 and with 16 ranks.
- *Exact from the spool alone*: `rankscope diagnose hang --spool` was exact after the collector was killed and the job
  had ended. Half of the jobs ended by `kill -9` of the launcher.
- *Other ranks named earlier*: verdicts before the last one that named a healthy rank.
- *Seconds to the verdict*: from the start of the fault to the first verdict in the store that did not change later.
- The agent collects evidence when no rank has begun a step for longer than the stall threshold. The threshold is
  learned from the usual step time ({settings}). Negative seconds after the threshold mean that the verdict was earlier.
  The reason is that the death of a rank is reported immediately.
"""


def run_trials(trials: Sequence[Trial], folder: Path, at_once: int) -> list[Found]:
    """Run each trial. Then read each spool, after the collector has ended."""
    jobs = [Job(trial, folder, f"trial-{trial.number}", num_steps=MANY_STEPS) for trial in trials]
    with collecting(folder) as collector, ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda job: _print_result(run_trial(job, collector)), jobs))
    for job, one in zip(jobs, found, strict=True):
        ask_spool(job, one)
        if not one.exact_from_spool:
            print(f"from the spool: {one.trial.name}: {one.spooled}", file=sys.stderr)
    return found


def _print_result(found: Found) -> Found:
    words = "exact" if found.exact and not found.on_the_way else f"NOT EXACT, on the way {found.on_the_way}"
    took = "never" if found.seconds is None else f"{found.seconds:.1f} s ({found.threshold_s:.1f} s threshold)"
    findings = "; ".join(one["summary"] for one in found.stored.get("findings", [])) or found.stored.get("error", "-")
    print(f"{found.trial.name}: {words}, {took}: {findings[:300]}", file=sys.stderr, flush=True)
    return found


def run_all_healthy(seed: int, folder: Path) -> dict[str, list[tuple[int, ...]]]:
    """Ranks that were wrongly named, by sort of healthy job."""
    with collecting(folder) as collector:
        wrong = {trial.kind: run_healthy(trial, folder, collector) for trial in healthy_plan(seed)}
        return wrong | {"evaluation and checkpoint": run_long_phases(folder, collector)}


def kind_row(kind: str, found: Sequence[Found]) -> tuple[str, ...]:
    """A row under ``HEADINGS``."""
    sixteen = sum(one.trial.topology.world_size == 16 for one in found)
    seconds = [one.seconds for one in found if one.seconds is not None]
    beyond = [one.beyond_s for one in found if one.beyond_s is not None]
    return (
        kind,
        str(len(found)),
        f"{len(found) - sixteen} / {sixteen}",
        str(sum(one.exact for one in found)),
        str(sum(one.exact_from_spool for one in found)),
        str(sum(bool(one.on_the_way) for one in found)),
        _spread(seconds),
        _spread(beyond),
    )


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.1f} ({max(seconds):.1f})" if seconds else "never"


def as_section(found: Sequence[Found], healthy: dict[str, list[tuple[int, ...]]]) -> str:
    """The section of docs/accuracy.md."""
    rows = [kind_row(kind, [one for one in found if one.trial.kind == kind]) for kind in KINDS]
    quiet = [(kind, "nothing" if not wrong else str(wrong)) for kind, wrong in healthy.items()]
    tables = as_table(HEADINGS, [*rows, kind_row("all", found)]), as_table(("healthy job", "reported"), quiet)
    return "\n\n".join(
        (tables[0], NOTES.format(settings=f"{FACTOR:g} usual steps, at least {FLOOR_S:g} s").strip(), tables[1])
    )


def main() -> int:
    given = _arguments()
    trials = [trial for trial in plan(given.seed, given.count) if not given.only or trial.number in given.only]
    with tempfile.TemporaryDirectory(prefix="rankscope-trials-") as temporary:
        folder = given.out or Path(temporary)
        (folder / "healthy").mkdir(parents=True)
        found = run_trials(trials, folder, given.at_once)
        healthy = {} if given.only else run_all_healthy(given.seed, folder / "healthy")
    section = as_section(found, healthy)
    print(section)
    if given.write:
        write_section(
            TITLE, f"python -m tests.scenarios.hang_trials --count {given.count} --seed {given.seed}", section
        )
    return int(not all(one.holds(MAX_BEYOND_S) for one in found) or any(healthy.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2, help="jobs beside one another")
    parser.add_argument("--only", type=int, nargs="+", default=[], help="these trials alone, no healthy jobs")
    parser.add_argument("--out", type=Path, help="keep everything here")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
