"""Trials of frameworks with rankscope, switched on only by variables: named ranks, and bit-identical losses.

python -m tests.scenarios.attach_trials [--framework NAME ...] [--kind KIND ...] [--seed 0] [--out DIR] [--json]
                                        [--write]

Needs the virtual environment of `make attach-trials`, into which a wheel of this tree is installed first. For each
framework there are four trainings on gloo ranks (``attach_trial.py``):

    plain     no variable of rankscope
    healthy   no finding above info; heat map and timeline show each part of a step; losses as in plain
    slowed    `rankscope diagnose` names exactly one rank, as compute-straggler; its forward takes 1.5 times as long
    stopped   `rankscope diagnose hang` names exactly one rank, which a signal stops at a random time

``--write`` puts the table into docs/accuracy.md. Exit status 1 if a trial was not right.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.benchmarks.pages import as_table, write_section
from tests.deploy.alone import wheel
from tests.scenarios.attach_trial import (
    FACTOR,
    FRAMEWORKS,
    HEALTHY,
    KINDS,
    NUM_STEPS,
    PLAIN,
    PYTHON,
    SLOWED,
    STOPPED,
    Found,
    Framework,
    Trial,
    run_trial,
)
from tests.scenarios.hang_job import collecting

TITLE = "Frameworks without code changes"
COMMAND = "python -m tests.scenarios.attach_trials"
STOP_STEPS, STOP_S = (14, 26), 0.2
"""A rank stops after one of these forwards, with a delay of up to ``STOP_S`` seconds."""
HEADINGS = (
    *("framework", "version", "ranks", "losses bit-identical", f"slowed {FACTOR:g}x: named exactly"),
    *("stopped: named exactly (seconds)", "healthy: silent", "heat map and timeline"),
)
VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
NOTE = """\
- Each framework trains a small model on gloo ranks of one machine. rankscope is installed with pip into the environment
  of the framework. The training scripts do not use rankscope. Only the variables `RANKSCOPE_COLLECTOR`, `RANKSCOPE_RUN`
  and `RANKSCOPE_SPOOL` are set. A rank starts the agent, with its default settings.
- *Losses bit-identical*: the healthy and the slowed training have exactly the losses of a training without these
  variables.
- *Slowed*: each forward of a random rank takes {factor:g} times its own processor time. *Exactly*: `rankscope diagnose`
  reports this rank as compute-straggler above info, and nothing else, after {num_steps} steps.
- *Stopped*: a random rank gets SIGSTOP at a random time. *Exactly*: `rankscope diagnose hang` names this rank and no
  other, at any time. The seconds to this verdict include the stall threshold of 10 s.
- *Healthy*: `rankscope diagnose` reports nothing above info and names no rank.
- *Heat map and timeline*: both show forward, backward, optimizer and collectives of every rank.
- The machine has {cores} cores. Its load average during the trainings, from this and other work: {least:.0f} to
  {most:.0f}.
"""


def plan(framework: Framework, seed: int, kinds: Sequence[str], folder: Path) -> list[Trial]:
    """The trainings of a framework. Ranks and times of faults come from the seed."""
    rng = random.Random(f"{framework.name} {seed}")
    ranks = {PLAIN: -1, HEALTHY: -1} | {kind: rng.randrange(framework.num_ranks) for kind in (SLOWED, STOPPED)}
    stop = f"{rng.randint(*STOP_STEPS)} {rng.uniform(0, STOP_S):.3f}"
    return [
        Trial(framework=framework, kind=kind, rank=ranks[kind], stop=stop, out=folder / framework.name / kind)
        for kind in KINDS
        if kind in kinds
    ]


def run_framework(framework: Framework, given: argparse.Namespace, folder: Path) -> list[Found]:
    """All trainings of a framework, one after another."""
    found = []
    (folder / framework.name).mkdir(parents=True)
    with collecting(folder / framework.name) as collector:
        for trial in plan(framework, given.seed, given.kind, folder):
            began = time.monotonic()
            found.append(result := run_trial(trial, collector))
            seconds = time.monotonic() - began
            print(f"{seconds:.0f} s, load {result.load:.1f}: {as_line(result)}", file=sys.stderr, flush=True)
    return found


def as_line(found: Found) -> str:
    """A trial and its result, in a line."""
    trial = found.trial
    which = trial.run_id if trial.rank < 0 else f"{trial.run_id}, rank {trial.rank}"
    if found.holds:
        return f"{which}: right: {found.words[:300]}"
    wrong = f"named {found.named}, others {found.others}, not shown {found.not_shown} {found.error[:500]}"
    return f"{which}: not right: {wrong}: {found.words[:300]}"


def keeps_bits(found: Sequence[Found]) -> bool | None:
    """Whether trainings with rankscope have the bit-identical losses of the plain one. None: not measured."""
    plain = [result.losses for result in found if result.trial.kind == PLAIN]
    others = [result.losses for result in found if result.trial.kind in (HEALTHY, SLOWED)]
    if not plain or not others:
        return None
    return all(losses == plain[0] for losses in others) and all(plain[0])


def as_section(found: Sequence[Found]) -> str:
    """The section of docs/accuracy.md."""
    rows = [
        _row(framework, results)
        for framework in FRAMEWORKS
        if (results := [result for result in found if result.trial.framework == framework])
    ]
    loads = [result.load for result in found]
    note = NOTE.format(
        factor=FACTOR, num_steps=NUM_STEPS, cores=os.cpu_count(), least=min(loads), most=max(loads)
    )  # fmt: skip
    parts = [as_table(HEADINGS, [*rows, _sum_of(rows)]), note.strip()]
    if wrong := [f"- {as_line(result)}" for result in found if not result.holds]:
        parts += ["All misses:", "\n".join(wrong)]
    return "\n\n".join(parts)


def _row(framework: Framework, found: Sequence[Found]) -> tuple[str, ...]:
    by_kind = {result.trial.kind: result for result in found}
    kept, healthy, slowed, stopped = keeps_bits(found), *(by_kind.get(kind) for kind in (HEALTHY, SLOWED, STOPPED))
    seconds = f" ({stopped.seconds:.1f})" if stopped and stopped.holds and stopped.seconds else ""
    silent = healthy and not (healthy.others or healthy.named or healthy.error)
    named = slowed and slowed.named == [slowed.trial.rank] and not (slowed.others or slowed.error)
    shown = healthy and not (healthy.not_shown or healthy.error)
    return (
        framework.title,
        _version_of(framework),
        str(framework.num_ranks),
        _yes(kept),
        _yes(named),
        f"{_yes(stopped and stopped.holds)}{seconds}",
        _yes(silent),
        _yes(shown),
    )


def _yes(holds: object) -> str:
    return "" if holds is None else "yes" if holds else "no"


def _sum_of(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    counts = (sum(row[column].startswith("yes") for row in rows) for column in range(3, len(HEADINGS)))
    return ("all", "", "", *(f"{count} of {len(rows)}" for count in counts))


def _version_of(framework: Framework) -> str:
    answer = subprocess.run([PYTHON, "-c", VERSION, framework.package], capture_output=True, text=True, check=True)
    return f"{framework.package} {answer.stdout.strip()}"


def install() -> None:
    """Put a wheel of this tree into the environment of the frameworks."""
    pip = partial(subprocess.run, check=True, stdout=sys.stderr)
    pip([PYTHON, "-m", "pip", "uninstall", "--quiet", "--quiet", "--yes", "rankscope"])
    pip([PYTHON, "-m", "pip", "install", "--quiet", "--quiet", f"{wheel()}[train,agent]"])


def main() -> int:
    given = _arguments()
    chosen = [framework for framework in FRAMEWORKS if framework.name in given.framework]
    install()
    with tempfile.TemporaryDirectory(prefix="rankscope-attach-") as temporary:
        folder = given.out or Path(temporary)
        found = [result for framework in chosen for result in run_framework(framework, given, folder)]
    section = as_section(found)
    print(json.dumps([asdict(result) for result in found], default=str, indent=2) if given.json else section)
    if given.write and set(given.kind) == set(KINDS):
        names = "" if len(chosen) == len(FRAMEWORKS) else f" --framework {' '.join(given.framework)}"
        write_section(TITLE, f"{COMMAND}{names} --seed {given.seed}", section)
    kept = [keeps_bits([result for result in found if result.trial.framework == framework]) for framework in chosen]
    return int(False in kept or not all(result.holds for result in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [framework.name for framework in FRAMEWORKS]
    parser.add_argument("--framework", nargs="+", choices=names, default=names, help="these frameworks alone")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS), help="these trainings alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep everything here")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
