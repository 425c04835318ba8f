"""The scoreboard's part about jobs that shard their parameters: simulated, with device clocks, on meshes of any axes.

python -m tests.score.sharded [--tune] [--count 200] [--write]

Exit status 1 if a bound is broken.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.benchmarks.pages import as_table, write_section
from tests.score.cases import REPORTING, sharded_case
from tests.score.page import HEADINGS, MISSES, precision, recall, row
from tests.score.verdicts import Verdict, describe, verdict

TITLE = "Slow runs with sharded parameters, simulated"
COMMAND = "python -m tests.score.sharded"
COUNT = 200
LEAST_PRECISION, LEAST_RECALL = 0.99, 0.967
"""Recall: that of all faults in runs that do not shard."""
NOTE = """\
- Parameters are gathered layer by layer inside forwards and backwards. In 75% of the runs the gather is prefetched
  during the layer before. All spans are measured on a device.
- Meshes: {meshes}.
- Every third run is healthy. A quarter of the runs have five times the noise of a published production trace.
- Slow ranks take 1.05 to 3 times as long. Slow hosts take 1.1 to 1.5 times as long.
- Seeds begin at {first}. Thresholds were tuned on seeds below 1,000,000 only.
"""


def main() -> int:
    given = _arguments()
    first = 0 if given.tune else REPORTING
    with ProcessPoolExecutor(given.at_once) as pool:
        verdicts = list(pool.map(_verdict, range(first, first + given.count)))
    section = as_section(verdicts)
    print(section)
    if given.write:
        write_section(TITLE, COMMAND, section)
    failures = broken(verdicts)
    print("\n".join(f"broken: {one}" for one in failures), file=sys.stderr)
    return int(bool(failures))


def _verdict(seed: int) -> Verdict:
    return verdict(sharded_case(seed), timed=True)


def as_section(verdicts: Sequence[Verdict]) -> str:
    """The section of docs/accuracy.md."""
    faulty = [one for one in verdicts if one.truth]
    names = list(dict.fromkeys(one.case.name for one in faulty))
    rows = [row(name, [one for one in faulty if one.case.name == name]) for name in names]
    rows += [row("all of these", faulty)]
    healthy = [one for one in verdicts if not one.truth]
    rows += [("healthy", str(len(healthy)), "", "", "", str(sum(len(one.wrong) for one in healthy)), "", "")]
    misses = [describe(one) for one in verdicts if one.wrong or (one.truth and not one.right)]
    meshes = "; ".join(dict.fromkeys(f"`{one.case.plan.topology}`" for one in verdicts))
    note = NOTE.format(meshes=meshes, first=f"{verdicts[0].case.seed:,}")
    listed = "\n".join(f"- {one}" for one in misses) or "None."
    return "\n\n".join((as_table(HEADINGS, rows), note.strip(), f"{MISSES}\n\n{listed}"))


def broken(verdicts: Sequence[Verdict]) -> list[str]:
    """Bounds that do not hold, in words."""
    faulty = [one for one in verdicts if one.truth]
    bounds = (("precision", precision(verdicts), LEAST_PRECISION), ("recall", recall(faulty), LEAST_RECALL))
    failures = [f"{name}: {value:.3f}, not {least}" for name, value, least in bounds if value < least]
    return [*failures, *(f"told of a healthy run: {describe(one)}" for one in verdicts if one.wrong and not one.truth)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="the seeds that thresholds may be tuned on")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--at-once", type=int, default=2, help="processes beside one another")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
