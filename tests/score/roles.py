"""The scoreboard's part about jobs with roles (reinforcement learning) and jobs with experts: simulated.

python -m tests.score.roles [--tune] [--count 100] [--write]

Exit status 1 if a bound is broken.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from diagnose.findings import Finding
from diagnose.simulate.job_faults import IdleRole
from diagnose.simulate.truth import Truth
from tests.benchmarks.pages import as_table, write_section
from tests.score.cases import REPORTING
from tests.score.page import MISSES
from tests.score.role_cases import CASES, MESHES, ROLES, role_case
from tests.score.verdicts import Verdict, describe, is_exact, verdict

TITLE = "Roles and experts, simulated"
COMMAND = "python -m tests.score.roles"
COUNT = 100
LEAST_PRECISION, LEAST_RECALL = 0.99, 0.95
HEADINGS = ("job", "runs", "faults", "found, exact", "recall", "wrong findings", "precision")
NOTE = """\
- *Exact*: the finding has the right kind and names exactly the ranks of the fault. The findings about long-tailed
  rollouts, an idle role and unequal experts must name no rank. `role-idle` must also name the right role.
- *Wrong findings*: all other findings, of any severity. In healthy runs only findings above `info` count.
- Jobs with roles: {roles}. Roles work at the same time on the data of different steps. In healthy runs, the work of the
  other roles takes between 55% and 95% of the time of typical rollouts, and the lengths of rollouts vary by 30%.
- Jobs with experts: {meshes}. In healthy runs the tokens of ranks differ by 5% over the run, and by 4% in each step.
- Faults: slow ranks compute 1.1 to 3 times as long. Long-tailed rollouts of one random rank take 1.8 to 4 times as
  long, in 70% or 100% of the steps. Idle roles have a third or a fifth of their usual work. Experts with too many
  tokens receive 1.5 to 3 times the mean number.
- In the row *experts, unequal, and a slow rank*, each run has both faults, and both findings are expected. The slow
  rank is not one of the ranks with the most tokens.
- Durations vary as in a published production trace. In a quarter of the runs they vary five times as much.
- Seeds begin at {first}. Thresholds were tuned on seeds below 1,000,000 only.
- Not tested: roles that run one after the other, and a slow rank whose experts also have too many tokens.
"""


def main() -> int:
    given = _arguments()
    first = 0 if given.tune else REPORTING
    with ProcessPoolExecutor(given.at_once) as pool:
        verdicts = list(pool.map(_verdict, product(CASES, range(first, first + given.count)), chunksize=10))
    section = as_section(verdicts)
    print(section)
    if given.write:
        write_section(TITLE, COMMAND, section)
    failures = broken(verdicts)
    print("\n".join(f"broken: {one}" for one in failures), file=sys.stderr)
    return int(bool(failures))


def _verdict(name_and_seed: tuple[str, int]) -> Verdict:
    return verdict(role_case(*name_and_seed))


def is_found(one: Verdict, truth: Truth) -> bool:
    return any(matches(finding, truth, one) for finding in one.findings)


def matches(finding: Finding, truth: Truth, one: Verdict) -> bool:
    """Whether a finding is exactly this fault. An idle role must have the right name."""
    if not is_exact(finding, truth, one.case.plan.topology.world_size):
        return False
    roles = [fault.role for fault in one.case.plan.faults if isinstance(fault, IdleRole)]
    return not roles or finding.evidence.get("role") in roles


def num_found(verdicts: Sequence[Verdict]) -> int:
    return sum(is_found(one, truth) for one in verdicts for truth in one.truth)


def num_wrong(verdicts: Sequence[Verdict]) -> int:
    return sum(len(wrong(one)) for one in verdicts)


def wrong(one: Verdict) -> list[Finding]:
    """Findings that match no fault."""
    return [*one.wrong, *(each for each in one.right if not any(matches(each, truth, one) for truth in one.truth))]


def as_section(verdicts: Sequence[Verdict]) -> str:
    """The section of docs/accuracy.md."""
    rows = [_row(name, [one for one in verdicts if one.case.name == name]) for name in CASES]
    rows.append(_row("all of these", verdicts))
    misses = [describe(one) for one in verdicts if wrong(one) or not all(is_found(one, each) for each in one.truth)]
    note = NOTE.format(
        roles="; ".join(f"`{each}`" for each in ROLES),
        meshes="; ".join(f"`{each}`" for each in MESHES),
        first=f"{verdicts[0].case.seed:,}",
    )
    listed = "\n".join(f"- {one}" for one in misses) or "None."
    return "\n\n".join((as_table(HEADINGS, rows), note.strip(), f"{MISSES}\n\n{listed}"))


def _row(name: str, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    faults = sum(len(one.truth) for one in verdicts)
    found, wrongs = num_found(verdicts), num_wrong(verdicts)
    recall = f"{found / faults:.3f}" if faults else ""
    precision = f"{found / (found + wrongs):.3f}" if found + wrongs else ""
    return name, str(len(verdicts)), str(faults), str(found), recall, str(wrongs), precision


def broken(verdicts: Sequence[Verdict]) -> list[str]:
    """Bounds that do not hold, in words."""
    faults, found, wrongs = sum(len(one.truth) for one in verdicts), num_found(verdicts), num_wrong(verdicts)
    bounds = (("precision", found / max(1, found + wrongs), LEAST_PRECISION), ("recall", found / faults, LEAST_RECALL))
    failures = [f"{name}: {value:.3f}, not {least}" for name, value, least in bounds if value < least]
    return [*failures, *(f"told of a healthy run: {describe(one)}" for one in verdicts if wrong(one) and not one.truth)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="the seeds that thresholds may be tuned on")
    parser.add_argument("--count", type=int, default=COUNT, help="seeds for each row")
    parser.add_argument("--at-once", type=int, default=2, help="processes beside one another")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
