"""The real part of the scoreboard: runs of eight gloo ranks on this machine, with a fault inside or outside, or none.

python -m tests.score.real [--only N ...] [--out DIR] [--write]

``--write`` puts the table into docs/accuracy.md. Exit status 1 if a verdict was not exact.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.pages import as_table, write_section
from tests.scenarios.demo_run import run_demo
from tests.scenarios.slowed_from_outside import crowded, slow_down, stopped_and_continued

TITLE = "Slow runs, real"
COMMAND = "python -m tests.score.real"
HEADINGS = ("run", "expected", "reported", "exact")
NOTE = """\
Eight ranks (dp 2, pp 2, tp 2) run the training of the demo on the cores of one machine. In the last four rows, other
processes cause the fault, after eight healthy steps. *Reported*: the findings of `rankscope diagnose` up to twenty
steps later.

No other programs ran on the machine during these runs. The run with garbage collection (`--only 7`) was repeated while
other programs used the machine: the fault was found in two of seven runs, and nothing else was reported. It was found
in both repeats without other programs.
"""

NamedRanks = list[tuple[str, list[int]]]
"""Kind and initiating ranks of each finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """A run and its right verdict."""

    name: str
    truth: NamedRanks
    ask: Callable[[Path], NamedRanks]


def _demo(fault: str) -> Callable[[Path], NamedRanks]:
    return lambda out: run_demo(out, "--fault", fault).findings


def _outside(rank: int, disturb: Callable[[int], object]) -> Callable[[Path], NamedRanks]:
    def ask(out: Path) -> NamedRanks:
        found = slow_down(rank, out, disturb)
        return [(finding["kind"], finding["ranks"]) for finding in found.findings]

    return ask


def _inside(fault: str, kind: str, rank: int) -> Real:
    return Real(name=fault, truth=[(kind, [rank])], ask=_demo(fault))


RUNS = (
    *(Real(name=f"none ({turn} of 3)", truth=[], ask=_demo("none")) for turn in (1, 2, 3)),
    _inside("slow:rank=3,factor=1.1", "compute-straggler", 3),
    _inside("slow:rank=6,factor=1.2,first_step=10", "compute-straggler", 6),
    _inside("slow:rank=0,factor=1.5", "compute-straggler", 0),
    _inside("data-stall:rank=5,step=6,seconds=1,every=4", "data-stall", 5),
    _inside("gc:rank=4,objects=2000000", "late-launch", 4),
    Real(
        name="rank 5 stopped and continued from outside",
        truth=[("host-contention", [5])],
        ask=_outside(5, stopped_and_continued),
    ),
    Real(
        name="rank 0 stopped and continued from outside",
        truth=[("host-contention", [0])],
        ask=_outside(0, stopped_and_continued),
    ),
    Real(name="six busy processes on the core of rank 2", truth=[("host-contention", [2])], ask=_outside(2, crowded)),
    Real(name="six busy processes on the core of rank 7", truth=[("host-contention", [7])], ask=_outside(7, crowded)),
)


def main() -> int:
    given = _arguments()
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory(prefix="rankscope-score-") as temporary:
        for number, run in enumerate(RUNS):
            if not given.only or number in given.only:
                folder = (given.out or Path(temporary)) / str(number)
                folder.mkdir(parents=True)
                reported = run.ask(folder / "out")
                wrong += reported != run.truth
                rows.append((run.name, _text(run.truth), _text(reported), "yes" if reported == run.truth else "no"))
                print(f"{number}: {' | '.join(rows[-1])}", file=sys.stderr, flush=True)
    section = f"{as_table(HEADINGS, rows)}\n\n{NOTE.strip()}"
    print(section)
    if given.write and not given.only:
        write_section(TITLE, COMMAND, section)
    return int(bool(wrong))


def _text(reported: NamedRanks) -> str:
    return (
        "; ".join(f"{kind} {', '.join(map(str, ranks)) or 'without a rank'}" for kind, ranks in reported) or "nothing"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="+", default=[], help="these runs alone")
    parser.add_argument("--out", type=Path, help="keep everything here")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
