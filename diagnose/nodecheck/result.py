"""What a check says.

measured --- expectation or peers? ---> ok | slow
failed       it broke, gave wrong data, or did not finish in time
skipped      nothing here to be checked, or no library to do it with

A check that is to be made.

Repeating something for a while, and the rates that come out.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

MIN_SAMPLES = 3
GB = 1e9


def rates(action: Callable[[], object], amount: float, measure_s: float) -> list[float]:
    """``amount`` per second of each call: at least three calls, then until ``measure_s`` have passed.

    The first call warms up and does not count.
    """
    action()
    samples: list[float] = []
    deadline = time.perf_counter() + measure_s
    while len(samples) < MIN_SAMPLES or time.perf_counter() < deadline:
        begun = time.perf_counter()
        action()
        samples.append(amount / (time.perf_counter() - begun))
    return samples


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to call, and what to say of it should it not return."""

    check: str
    subject: str
    call: Callable[[], CheckResult]
    deadline_s: float
