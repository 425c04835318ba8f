"""The scoreboard's table, its bounds and its misses."""

from collections.abc import Sequence
from statistics import median

from diagnose.findings import Severity
from diagnose.simulate.work_faults import Slow
from tests.benchmarks.accuracy_page import as_table
from tests.score.verdicts import Verdict, describe

HEADINGS = (
    *("fault", "runs", "found, exact suspect", "recall", "right kind, other suspect", "wrong findings", "precision"),
    "steps to the verdict, median (worst)",
)
NOTE = """Recall: of the runs with the fault, those in which it is named with exactly its ranks, host or stage. Wrong is
every finding that is not that, of any severity; in a healthy run every one above `info`. Every third run is healthy.
Noise is what a published production trace has; in a quarter of the runs it is five times that (heavy). Hosts' clocks
are off by up to 10 ms and drift in half of the runs. Seeds {first} to {last}; thresholds were tuned on seeds below
1,000,000 only.
"""


def as_section(small: Sequence[Verdict], large: Sequence[Verdict]) -> str:
    """The section of docs/accuracy.md."""
    names = list(dict.fromkeys(one.case.name for one in small if one.truth))
    rows = [_row(name, [one for one in small if one.case.name == name]) for name in names]
    factors = [(label, _stragglers(small, *bounds)) for label, bounds in FACTORS.items()]
    rows += [_row(f"of these, {label}", some) for label, some in factors if some]
    rows += [_row("all faults", [one for one in small if one.truth])]
    rows += [_row("slow rank among 2,048 and 12,288", [one for one in large if one.truth])]
    healthy = [one for one in (*small, *large) if not one.truth]
    rows += [("healthy", str(len(healthy)), "", "", "", str(sum(len(one.wrong) for one in healthy)), "", "")]
    misses = [describe(one) for one in (*small, *large) if one.wrong or (one.truth and not one.right)]
    note = NOTE.format(first=f"{small[0].case.seed:,}", last=f"{small[-1].case.seed:,}")
    listed = "\n".join(f"- {one}" for one in misses) or "None."
    return "\n\n".join((as_table(HEADINGS, rows), note.strip(), f"Misses, all of them:\n\n{listed}"))


FACTORS = {
    "slow rank by 1.05": (1.05, 1.06, False),
    "slow rank by 1.05, heavy noise": (1.05, 1.06, True),
    "slow rank by 1.10 and above": (1.1, 99.0, False),
    "slow rank by 1.10 and above, heavy noise": (1.1, 99.0, True),
}


def _stragglers(verdicts: Sequence[Verdict], least: float, below: float, heavy: bool) -> list[Verdict]:
    return [one for one in verdicts if one.case.is_heavy == heavy and least <= _slow_by(one) < below]


def _slow_by(one: Verdict) -> float:
    faults = one.case.plan.faults
    return faults[0].factor if one.case.name == "slow rank" and isinstance(faults[0], Slow) else 0.0


def _row(name: str, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
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


def broken(small: Sequence[Verdict], large: Sequence[Verdict]) -> list[str]:
    """Bounds that do not hold, in words."""
    faulty = [one for one in small if one.truth]
    above = [*_stragglers(small, 1.1, 99.0, False), *_stragglers(small, 1.1, 99.0, True)]
    above += [one for one in large if one.truth and one.case.plan.faults[0].factor >= 1.1]
    slight = _stragglers(small, 1.05, 1.06, False)
    told = [
        one
        for one in (*small, *large)
        if not one.truth and any(finding.severity is not Severity.INFO for finding in one.findings)
    ]
    bounds = (
        ("recall of stragglers by 1.10 and above", recall(above), 0.99),
        ("precision of stragglers by 1.10 and above", precision(above), 0.99),
        ("recall of stragglers by 1.05", recall(slight), 0.9),
        ("precision of stragglers by 1.05", precision(slight), 0.99),
        ("recall of all", recall(faulty), 0.95),
        ("precision of all", precision([*small, *large]), 0.98),
    )
    failures = [f"{name}: {value:.3f}, not {least}" for name, value, least in bounds if value < least]
    return [*failures, *(f"told of a healthy run: {describe(one)}" for one in told)]
