"""The scoreboard's table, its bounds and its misses."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from diagnose.simulate.faults import Slow
from tests.benchmarks.pages import as_table
from tests.score.verdicts import Verdict, describe

HEADINGS = (
    *("fault", "runs", "found, exact suspect", "recall", "right kind, other suspect", "wrong findings", "precision"),
    "steps to the verdict, median (worst)",
)
NOTE = """\
- *Recall*: the share of runs in which the fault is named with exactly its ranks, host or stage.
- *Wrong findings*: all other findings, of any severity. In healthy runs only findings above `info` count.
- Every third run is healthy.
- Durations vary as in a published production trace. In a quarter of the runs they vary five times as much. The rows
  *slow rank, factor ...* and *slow rank among ... ranks* contain no such runs.
- In half of the runs the clocks of hosts are wrong by up to 10 ms and drift.
- Seeds begin at {first}. Thresholds were tuned on seeds below 1,000,000 only.
- Runs with a flapping card or a throttled GPU contain the host samples that agents would send. For a throttled GPU,
  they also contain samples of other hosts, to compare with.
- Not tested: throttling in waves of less than 20 steps; declines in which communication takes less than 8 times as
  long; contention in which compute takes less than 3 times as long; slow links if each group has a member on the slow
  host.
"""
MISSES = """\
This list has all misses: faults that were not found exactly, and wrong findings. Each line has the seed, the grid or
mesh, the number of steps, the device, the injected fault and the result. A run begins at a random step number, so
`first_step` can be larger than the number of steps. Numbers in brackets are ranks."""
"""Above the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All verdicts."""

    small: Sequence[Verdict]
    """All kinds of faults, and healthy runs."""
    stragglers: Sequence[Verdict]
    """Slow ranks in the noise of a production job."""
    large: Sequence[Verdict]
    """Thousands of ranks."""

    @property
    def everything(self) -> list[Verdict]:
        return [*self.small, *self.stragglers, *self.large]

    @property
    def healthy(self) -> list[Verdict]:
        return [one for one in self.everything if not one.truth]


def as_section(board: Board) -> str:
    """The section of docs/accuracy.md."""
    names = list(dict.fromkeys(one.case.name for one in board.small if one.truth))
    rows = [row(name, [one for one in board.small if one.case.name == name]) for name in names]
    rows += [row("all of these", [one for one in board.small if one.truth])]
    rows += [row("slow rank, factor 1.05", _by(board.stragglers, 1.05, 1.06))]
    rows += [row("slow rank, factor 1.10 and above", _by(board.stragglers, 1.1, 99.0))]
    rows += [row("slow rank among 2,048 and 12,288 ranks", [one for one in board.large if one.truth])]
    wrong = str(sum(len(one.wrong) for one in board.healthy))
    rows += [("healthy", str(len(board.healthy)), "", "", "", wrong, "", "")]
    misses = [describe(one) for one in board.everything if one.wrong or (one.truth and not one.right)]
    note = NOTE.format(first=f"{board.small[0].case.seed:,}")
    listed = "\n".join(f"- {one}" for one in misses) or "None."
    return "\n\n".join((as_table(HEADINGS, rows), note.strip(), f"{MISSES}\n\n{listed}"))


def _by(verdicts: Sequence[Verdict], least: float, below: float) -> list[Verdict]:
    return [one for one in verdicts if least <= _slow_by(one) < below]


def _slow_by(one: Verdict) -> float:
    fault = one.case.plan.faults[0] if one.case.plan.faults else None
    return fault.factor if isinstance(fault, Slow) and fault.rank >= 0 else 0.0


def row(name: str, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    right = sum(bool(one.right) for one in verdicts)
    wrong = sum(len(one.wrong) for one in verdicts)
    other = sum(not one.right and bool(one.of_kind) for one in verdicts)
    steps = [one.steps for one in verdicts if one.steps is not None]
    return (
        *(name, str(len(verdicts)), str(right), _share(right, len(verdicts)), str(other), str(wrong)),
        _share(right, right + wrong),
        f"{median(steps):.0f} ({max(steps)})" if steps else "",
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else ""


def recall(verdicts: Sequence[Verdict]) -> float:
    return sum(bool(one.right) for one in verdicts) / len(verdicts) if verdicts else 1.0


def precision(verdicts: Sequence[Verdict]) -> float:
    right, wrong = sum(bool(one.right) for one in verdicts), sum(len(one.wrong) for one in verdicts)
    return right / (right + wrong) if right + wrong else 1.0


def broken(board: Board) -> list[str]:
    """Bounds that do not hold, in words."""
    above, slight = _by(board.everything, 1.1, 99.0), _by(board.stragglers, 1.05, 1.06)
    faulty = [one for one in board.small if one.truth]
    bounds = (
        ("recall of stragglers by 1.10 and above", recall(above), 0.99),
        ("precision of stragglers by 1.10 and above", precision(above), 0.99),
        ("recall of stragglers by 1.05", recall(slight), 0.9),
        ("precision of stragglers by 1.05", precision(slight), 0.99),
        ("recall of all kinds", recall(faulty), 0.95),
        ("precision of all kinds", precision(board.everything), 0.98),
    )
    told = [one for one in board.healthy if one.wrong]
    failures = [f"{name}: {value:.3f}, not {least}" for name, value, least in bounds if value < least]
    return [*failures, *(f"told of a healthy run: {describe(one)}" for one in told)]
