"""From measured to ok or slow. Pure.

expectation for this name?  -- yes -->  slow when below it
         | no
three or more alike?        -- yes -->  slow when far below their median: of two nobody knows which is wrong
         | no
measured                                a number to look at, no verdict
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from diagnose.nodecheck.expectations import Expectations
from diagnose.nodecheck.result import CheckResult, Verdict

MIN_ALIKE = 3
RATIO = 1.10
Z = 5.0
"""Ten percent, MegaScale's mark of a straggler, and five robust standard deviations."""
SIGMA_OF_MAD = 1.4826


def compared(results: Sequence[CheckResult], expectations: Expectations) -> tuple[CheckResult, ...]:
    """The same results in the same order, each measured one judged where there is something to compare it with."""
    return tuple(_judged(result, results, expectations) for result in results)


def _judged(result: CheckResult, results: Sequence[CheckResult], expectations: Expectations) -> CheckResult:
    if result.verdict is not Verdict.MEASURED or result.value is None:
        return result
    expected = expectations.of(result.measured)
    if expected is not None:
        return replace(result, expected=expected, verdict=_slow(result.value < expected))
    alike = [other for other in results if _are_alike(result, other)]
    return _among(result, alike) if len(alike) >= MIN_ALIKE else result


def _are_alike(one: CheckResult, other: CheckResult) -> bool:
    """Both measured the same thing on parts of the same kind; a result is like itself."""
    if other.verdict is not Verdict.MEASURED or not one.alike:
        return False
    return (one.check, one.measured, one.alike) == (other.check, other.measured, other.alike)


def _among(result: CheckResult, alike: Sequence[CheckResult]) -> CheckResult:
    """The scatter is that of the parts, or of the repetitions on a part where that is wider."""
    values = [other.value for other in alike if other.value is not None]
    usual = median(values)
    scatter = SIGMA_OF_MAD * max(median(abs(value - usual) for value in values), *(other.spread for other in alike))
    assert result.value is not None
    far = usual > RATIO * result.value and usual - result.value > Z * scatter
    words = f"{result.detail}; the median of {len(alike)} alike is {usual:.3g}".removeprefix("; ")
    return replace(result, expected=usual, verdict=_slow(far), detail=words)


def _slow(is_slow: bool) -> Verdict:
    return Verdict.SLOW if is_slow else Verdict.OK
