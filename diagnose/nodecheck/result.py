"""The result of a check, and the check as a task.

measured --- expectation, or similar parts? ---> ok | slow
failed       an error, wrong data, or not finished in time
skipped      this machine lacks what the check needs
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

MIN_SAMPLES = 3
GB = 1e9


class Verdict(StrEnum):
    """The verdict of a check."""

    OK = "ok"
    MEASURED = "measured"
    """No error, and no value to compare with."""
    SLOW = "slow"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check of one part of the machine."""

    check: str
    subject: str
    """The part: cpu, cuda:0, eth0, a folder."""
    verdict: Verdict
    measured: str = ""
    """Name of ``value``, with its unit. An expectation has the same name."""
    value: float | None = None
    """Median of the repetitions. More is better."""
    spread: float = 0.0
    """Median absolute deviation of the repetitions, in the unit of ``value``."""
    expected: float | None = None
    """The value that it was compared with."""
    alike: str = ""
    """Kind of the part. Results of the same check and kind are compared; empty: a part without peers."""
    seconds: float = 0.0
    """Duration of the check, its process included."""
    is_late: bool = False
    """Whether it failed because it did not finish in time. A loaded machine can be the reason."""
    is_killed: bool = False
    """Whether it failed because something else killed its process, such as the OOM killer."""
    detail: str = ""
    """Reason of a failure or a skip; otherwise how the value was measured."""

    @property
    def is_amiss(self) -> bool:
        """Whether the part is slow, or the check failed."""
        return self.verdict in (Verdict.SLOW, Verdict.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A check to run: the call, and the names for a result if the call does not return."""

    check: str
    subject: str
    call: Callable[[], CheckResult]
    deadline_s: float


def measured(
    check: str, subject: str, name: str, samples: Sequence[float], *, alike: str = "", detail: str = ""
) -> CheckResult:
    """The result of a check without errors, from the values of its repetitions."""
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
    """The result of a check that ended with an error or found wrong data."""
    return CheckResult(check=check, subject=subject, verdict=Verdict.FAILED, detail=reason)


def skipped(check: str, subject: str, reason: str) -> CheckResult:
    """The result of a check that this machine cannot run."""
    return CheckResult(check=check, subject=subject, verdict=Verdict.SKIPPED, detail=reason)


def rates(action: Callable[[], object], amount: float, measure_s: float) -> list[float]:
    """``amount`` per second of each call: at least three calls, then until ``measure_s`` have passed.

    The first call is a warm-up and does not count.
    """
    action()
    samples: list[float] = []
    deadline = time.perf_counter() + measure_s
    while len(samples) < MIN_SAMPLES or time.perf_counter() < deadline:
        begun = time.perf_counter()
        action()
        samples.append(amount / (time.perf_counter() - begun))
    return samples
