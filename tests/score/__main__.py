"""The scoreboard: how often the detectors are right, over runs whose truth is known.

python -m tests.score [--tune] [--count 720] [--stragglers 300] [--large 12] [--write]

Simulated runs, drawn from seeds (``cases.py``): those of the page, or with ``--tune`` those that thresholds may be
tuned on. ``--write`` puts the table into docs/accuracy.md. Exit status 1 if a bound is broken.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.benchmarks.pages import write_section
from tests.score.cases import REPORTING, Case, case, large_case, straggler_case
from tests.score.page import Board, as_section, broken
from tests.score.verdicts import Verdict, verdict

TITLE = "Slow runs, simulated"
COMMAND = "python -m tests.score"
COUNT = 720
STRAGGLERS = 300
LARGE = 12


def main() -> int:
    given = _arguments()
    first = 0 if given.tune else REPORTING
    with ProcessPoolExecutor(given.at_once) as pool:
        small = list(_told(pool.map(partial(_verdict, case), range(first, first + given.count))))
        sweep = list(_told(pool.map(partial(_verdict, straggler_case), range(first, first + given.stragglers))))
    # One at a time: each holds a gigabyte.
    large = [verdict(large_case(seed)) for seed in range(first, first + given.large)]
    board = Board(small=small, stragglers=sweep, large=large)
    section = as_section(board)
    print(section)
    if given.write:
        write_section(TITLE, COMMAND, section)
    failures = broken(board)
    print("\n".join(f"broken: {one}" for one in failures), file=sys.stderr)
    return int(bool(failures))


def _verdict(drawn: Callable[[int], Case], seed: int) -> Verdict:
    return verdict(drawn(seed), timed=True)


def _told(verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
    for number, one in enumerate(verdicts, 1):
        if number % 20 == 0:
            print(f"{number} runs", file=sys.stderr, flush=True)
        yield one


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="the seeds that thresholds may be tuned on")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--stragglers", type=int, default=STRAGGLERS, help="runs with a slow rank, beside those")
    parser.add_argument("--large", type=int, default=LARGE, help="runs of 2,048 and 12,288 ranks")
    parser.add_argument("--at-once", type=int, default=2, help="processes beside one another")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
