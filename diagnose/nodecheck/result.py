"""What a check says.

measured --- expectation or peers? ---> ok | slow
failed       it broke, gave wrong data, or did not finish in time
skipped      nothing here to be checked, or no library to do it with
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    MEASURED = "measured"
    """In order, and there is nothing to compare its value with."""
    SLOW = "slow"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check of one thing."""

    check: str
    subject: str
    """What was checked: cpu, cuda:0, eth0, a folder."""
    verdict: Verdict
    measured: str = ""
    """What ``value`` is, with its unit: an expectation of that name may be given (:class:`Expectations`)."""
    value: float | None = None
    """Median of the repetitions; more is better."""
    spread: float = 0.0
    """Median absolute deviation of the repetitions, in the unit of ``value``."""
    expected: float | None = None
    """What it was compared with."""
    alike: str = ""
    """Results of the same check and the same word are of equal parts, and may be compared; empty: a part of its own."""
    seconds: float = 0.0
    """What the check took, its process included."""
    detail: str = ""
    """Why it failed or was skipped; else what the value rests on."""

    @property
    def is_amiss(self) -> bool:
        """Slow or failed."""
        return self.verdict in (Verdict.SLOW, Verdict.FAILED)


def measured(
    check: str, subject: str, name: str, samples: Sequence[float], *, alike: str = "", detail: str = ""
) -> CheckResult:
    """A check that went well, with what its repetitions gave."""
    middle = median(samples)
    return CheckResult(
        check=check,
        subject=subject,
        verdict=Verdict.MEASURED,
        measured=name,
        value=middle,
        spread=median(abs(sample - middle) for sample in samples),
        alike=alike,
        detail=detail,
    )


def failed(check: str, subject: str, reason: str) -> CheckResult:
    """A check that broke, or found wrong data."""
    return CheckResult(check=check, subject=subject, verdict=Verdict.FAILED, detail=reason)


def skipped(check: str, subject: str, reason: str) -> CheckResult:
    """A check that could not be made here."""
    return CheckResult(check=check, subject=subject, verdict=Verdict.SKIPPED, detail=reason)
